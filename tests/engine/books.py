"""What every frame and every summary of a run must satisfy, whatever the design."""

from __future__ import annotations

import json
import math

import numpy as np

from engine.program import layout as L
from engine.run.simulation import Simulation

MOST_EVENTS = 60_000


def finished(made, most=MOST_EVENTS):
    """A run to its end, or through so many events."""
    run = Simulation(made)
    run.advance(run.end_s, max_events=most)
    return run


def check_frames(run, limits=True):
    """limits: the settings have been the same from the start."""
    made, f = run.design, run.frames()
    n, system = f.nodes, f.system
    assert np.all(np.diff(f.t) > 0)
    assert np.all(np.diff(system["events"]) >= 0)
    counters = [n["retries"], n["crashes"], f.calls, f.failed, f.began]
    counters += [f.edges["sent"], f.edges["failed"]] if made.edges else []
    for each in counters:
        assert np.all(each >= 0) and np.all(np.diff(each, axis=0) >= 0)
    for name in ("busy_int", "cap_int", "cpu_int", "cpu_cap_int", "queue_int"):
        assert np.all(np.isfinite(n[name])) and np.all(np.diff(n[name], axis=0) >= 0), name
    for name in ("in_flight", "busy", "queue", "live", "backlog"):
        assert np.all(n[name] >= 0), name

    # Conservation, per component and end to end
    offered, succeeded, failed = (f.calls[:, :, k] for k in range(3))
    assert np.array_equal(offered, succeeded + failed + n["in_flight"])
    assert np.array_equal(failed, f.failed.sum(axis=2))
    origins = [k for k, each in enumerate(made.nodes) if each.is_source]
    assert np.array_equal(system["in_flight"], n["in_flight"][:, origins].sum(axis=1))
    assert np.array_equal(failed[:, origins].sum(axis=1), f.began.sum(axis=(1, 2)))
    assert np.array_equal(f.failed[:, origins].sum(axis=1), f.began.sum(axis=1))

    # Whoever is inside waits or holds a slot (if only of a leaving instance); nobody is where all is down
    serving = [k for k, each in enumerate(made.nodes) if not each.is_source]
    steady = [k for k in serving if limits and made.nodes[k].effective()["scale_on"] == "off"]
    held = n["busy"] + n["queue"]
    assert np.all(n["in_flight"][:, serving] >= held[:, serving])
    assert np.array_equal(n["in_flight"][:, steady], held[:, steady])
    down = n["live"][:, serving] == 0
    assert not np.any(held[:, serving][down])
    if limits:
        check_limits(made, n)

    low, middle, high = (n[name] for name in ("p50", "p95", "p99"))
    assert np.array_equal(np.isnan(low), np.isnan(high)) and np.array_equal(np.isnan(low), np.isnan(middle))
    known = ~np.isnan(low)
    assert np.all(low[known] <= middle[known]) and np.all(middle[known] <= high[known])
    assert not np.any(n["age"] < 0)
    assert np.all(np.isin(n["breaker"], (L.B_CLOSED, L.B_OPEN, L.B_HALF)))
    if made.edges:
        assert np.all(f.edges["sent"] >= f.edges["failed"])
        check_arrivals(made, f, limits)


def check_instances(run):
    """The calls at work now are those on the component's own instances, none of which has more than its slots."""
    inst = run.state.inst
    for k, each in enumerate(run.design.nodes):
        if each.is_source:
            continue
        mine = inst[inst["node"] == k]
        assert mine["busy"].sum() == run.state.node[k]["busy"]
        assert mine["busy"][mine["state"] == L.I_DRAINING].sum() == run.state.node[k]["drain_busy"]
        assert np.all(mine["busy"][np.isin(mine["state"], (L.I_OFF, L.I_DOWN, L.I_BOOTING))] == 0)
        assert np.count_nonzero(mine["state"] == L.I_LIVE) == run.state.node[k]["live"]
        slots = run.state.node[k]["slots"]
        assert not slots or np.all(mine["busy"] <= slots)


def check_limits(made, n):
    for k, each in enumerate(made.nodes):
        if each.is_source:
            continue
        s = each.effective()
        scales = s["scale_on"] != "off"
        most = max(s["instances"], s["scale_max"]) if scales else s["instances"]
        assert np.all(n["live"][:, k] <= most)
        assert np.all(n["queue"][:, k] <= s["queue"])
        slots = s["max_in_flight"] if each.plan == "bulkhead" and s["max_in_flight"] else s["slots"]
        if slots:
            assert np.all(n["busy"][:, k] <= slots * n["live"][:, k])
            grown = np.diff(n["busy_int"][:, k]) - np.diff(n["cap_int"][:, k])
            assert np.all(grown <= 1e-9)
        assert np.all(np.diff(n["cpu_int"][:, k]) - np.diff(n["cpu_cap_int"][:, k]) <= 1e-9)


def check_arrivals(made, f, limits):
    """What was sent has arrived, is on its way or was lost."""
    ends = [e.target for e in made.edges]
    for k, each in enumerate(made.nodes):
        if each.is_source:
            continue
        into = [x for x, end in enumerate(ends) if end == each.id]
        sent = f.edges["sent"][:, into].sum(axis=1)
        assert np.all(f.calls[:, k, 0] <= sent)
        slow = any(
            made.edges[x].effective()["latency_ms"] or any(t.edge == made.edges[x].id for t in made.faults)
            for x in into
        )
        if limits and not slow:
            assert np.array_equal(f.calls[:, k, 0], sent)


def rising(*values):
    """None stands for infinity here: a failure counts as infinitely slow."""
    known = [math.inf if v is None else v for v in values]
    return known == sorted(known)


def check_summary(run):
    got = json.loads(json.dumps(run.summary(), allow_nan=False))
    assert got["digest"] == run.digest()
    parts = [got["totals"], *got["sources"].values()]
    for t in [*parts, *got["nodes"].values()]:
        assert t["offered"] == t["succeeded"] + t["failed"] + t["in_flight"]
        assert t["failed"] == sum(t["failures"].values()) and set(t["failures"]) <= set(L.REASONS)
        assert rising(0, t["offered"]) and rising(0, t["in_flight"])
        assert rising(t["p50_ms"], t["p95_ms"], t["p99_ms"])
    for t in parts:
        assert rising(t["offered_p50_ms"], t["offered_p95_ms"], t["offered_p99_ms"])
        assert all(rising(t[f"p{q}_ms"], t[f"offered_p{q}_ms"]) for q in (50, 95, 99))
        assert t["failed"] == sum(t["failures_by_node"].values())
        ended = t["succeeded"] + t["failed"]
        assert t["success_rate"] == (t["succeeded"] / ended if ended else None)
        assert (t["mean_ms"] is None) == (t["succeeded"] == 0) == (t["p50_ms"] is None)
    for name in ("offered", "succeeded", "failed", "in_flight"):
        assert got["totals"][name] == sum(t[name] for t in got["sources"].values())
        for id, t in got["sources"].items():
            assert t[name] == got["nodes"][id][name]
    for id, n in got["nodes"].items():
        for name in ("utilisation", "cpu_utilisation"):
            assert n[name] is None or 0.0 <= n[name] <= 1.0
        if id in got["sources"]:
            continue
        assert (n["queue_mean"] or 0) <= n["queue_max"] * (1 + 1e-9)
        assert n["wait_mean_ms"] is None or n["wait_mean_ms"] >= 0
        assert n["backlog_age_s"] is None or n["backlog"] > 0
    return got
