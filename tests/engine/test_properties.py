"""What holds for every design, at every frame of every run."""

import itertools
import json
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from engine.design import DesignError, catalogue, dumps
from engine.program import layout as L
from engine.run.simulation import Simulation, simulate
from engine.study.intervals import mean_interval
from tests.engine.designs import (
    CAPACITY,
    EDGE,
    EDGE_FAULTS,
    NODE_FAULTS,
    PLAN,
    SCALING,
    SERVING,
    SOURCE,
    TROUBLE,
    designs,
    plain_trees,
)
from tests.engine.reference.build import design, edge, fault, node, source

pytestmark = pytest.mark.slow
MOST_EVENTS = 60_000
ENDLESS = 10**9


def examples(count):
    """So many random designs; each is found in the report of a failure as TOML."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def show(made):
    note("\n" + dumps(made, "toml"))
    return made


def finished(made, most=MOST_EVENTS):
    """A run to its end, or through so many events."""
    run = Simulation(made)
    run.advance(run.end_s, max_events=most)
    return run


# --- what each frame and each summary must satisfy


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

    # Whoever is inside waits or holds a slot; nobody is inside a component that is down
    serving = [k for k, each in enumerate(made.nodes) if not each.is_source]
    assert np.array_equal(n["in_flight"][:, serving], n["busy"][:, serving] + n["queue"][:, serving])
    down = n["live"][:, serving] == 0
    draining = np.array([made.nodes[k].effective()["scale_on"] != "off" for k in serving], bool)
    assert not np.any(n["queue"][:, serving][down])
    assert not np.any(n["busy"][:, serving][down & ~draining])
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
        if slots and not scales:
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


@examples(300)
@given(designs())
def test_every_design_keeps_the_books_at_every_frame(made):
    run = finished(show(made))
    check_frames(run)
    check_summary(run)


@examples(50)
@given(designs(), st.integers(0, 2**32))
def test_the_books_balance_at_any_instant_and_the_clock_never_runs_back(made, seed):
    run, pace = Simulation(show(made)), random.Random(seed)
    before = 0.0
    for _ in range(25):
        done = run.advance(run.now + pace.choice([1e-6, 0.013, 0.4]), max_events=pace.choice([0, 1, 7, 300]))
        assert run.now >= before
        before = run.now
        check_frames(run)
        check_summary(run)
        if done:
            break
    assert run.now <= run.end_s


@examples(40)
@given(designs())
def test_counts_are_of_arrivals_between_warm_up_and_end(made):
    run = finished(show(made.replace(drain_s=0.0)))
    if not run.finished:
        return
    frames, got = run.frames(), run.summary()["nodes"]
    at = np.flatnonzero(np.isclose(frames.t, made.warmup_s))
    assert len(at) or not made.warmup_s
    for k, each in enumerate(made.nodes):
        before = frames.calls[at[0], k, 0] if made.warmup_s else 0
        assert got[each.id]["offered"] == pytest.approx(frames.calls[-1, k, 0] - before, abs=0)


# --- determinism


def digest_of(made, seed=None):
    run = Simulation(made, seed)
    run.advance(run.end_s, max_events=MOST_EVENTS)
    return run.digest(), run.now, run.events


@examples(80)
@given(designs(), st.integers(0, 2**32))
def test_one_chunk_or_thousands(made, seed):
    whole = finished(show(made))
    pace, pieces = random.Random(seed), Simulation(made)
    style = pace.choice(["events", "steps", "both"])
    left = MOST_EVENTS
    while left > 0 and not pieces.finished:
        most = left if style == "steps" else min(left, pace.choice([1, 2, 50, 3000]))
        until = pieces.end_s if style == "events" else pieces.now + pace.choice([1e-5, 0.01, 0.1, 1.7])
        before = pieces.events
        pieces.advance(until, max_events=most)
        left -= pieces.events - before
    assert (pieces.events, pieces.finished) == (whole.events, whole.finished)
    if whole.finished:
        assert pieces.digest() == whole.digest()
        assert strip(pieces.summary()) == strip(whole.summary())
    assert pieces.frames().t.tolist() == whole.frames().t.tolist()
    for a, b in zip(pieces.frames().__dict__.values(), whole.frames().__dict__.values(), strict=True):
        assert a.tobytes() == b.tobytes()


def strip(summary):
    return {name: value for name, value in summary.items() if name != "wall_s"}


@examples(60)
@given(designs(), st.floats(0.0, 1.0))
def test_a_fork_that_changes_nothing_equals_the_original(made, share):
    run = Simulation(show(made))
    run.advance(share * made.duration_s, max_events=MOST_EVENTS // 2)
    fork, kept = run.copy(), run.digest()
    fork.advance(fork.end_s, max_events=MOST_EVENTS)
    assert run.digest() == kept
    again = run.copy()
    run.advance(run.end_s, max_events=MOST_EVENTS)
    again.advance(again.end_s, max_events=MOST_EVENTS)
    assert fork.digest() == run.digest() == again.digest()
    assert fork.summary() == run.summary() == again.summary()


@examples(30)
@given(designs(most=6), designs(most=6))
def test_runs_in_one_process_do_not_touch_each_other(one, two):
    show(one), show(two)
    alone = [digest_of(made) for made in (one, two, one)]
    assert alone[0] == alone[2]
    runs = [Simulation(one), Simulation(two)]
    for run, other in ((0, 1), (1, 0)) * 10:
        runs[run].advance(runs[run].now + 0.1, max_events=1000)
        runs[other].copy().advance(runs[other].now + 1.0, max_events=50)
    for run in runs:
        run.advance(run.end_s)
    whole = [Simulation(one), Simulation(two)]
    for run, untouched in zip(runs, whole, strict=True):
        untouched.advance(untouched.end_s)
        assert run.digest() == untouched.digest()


@examples(8)
@given(st.lists(designs(most=8), min_size=4, max_size=6))
def test_threads_do_not_touch_each_other(several):
    for made in several:
        show(made)
    alone = [digest_of(made) for made in several]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(digest_of, several)) == alone
    assert threading.active_count() < 20


@examples(25)
@given(designs(), st.integers(0, 2**32))
def test_the_seed_alone_decides(made, seed):
    show(made)
    assert digest_of(made, seed) == digest_of(made.replace(seed=seed)) == digest_of(made.copy(), seed)


# --- own random streams


def mixed(**store):
    """Reads and writes with keys over a balancer to shards; every call sets out at the request's own instant."""
    nodes = [
        source(rate=80, write_share=0.3, keys=40, zipf=0.9),
        source("others", rate=30, shape="burst", on_s=1, off_s=0.5, off_rate=10),
        node("reader", ms=5),
        node("writer", ms=5),
        node("router", "one_of", policy="by_key"),
        *(node(f"shard{k}", ms=5) for k in range(4)),
        node("store", **({"slots": 4, "queue": 10} | (store or {"ms": 10}))),
    ]
    edges = [
        edge("users->reader", parallel=True, only="read"),
        edge("users->writer", parallel=True, only="write"),
        edge("users->router", parallel=True),
        *(f"router->shard{k}" for k in range(4)),
        *(f"{begin}->store" for begin in ("reader", "writer", "shard0", "others")),
    ]
    return design(nodes, edges, duration=20)


@pytest.mark.parametrize(
    "store",
    [
        {"ms": 500},
        {"ms": 10, "slots": 1, "queue": 0},
        {"exp": 10, "error_rate": 0.5},
        {"p50_ms": 2, "p99_ms": 900, "latency_model": "lognormal", "retries": 3},
        {"vcpu": 0.5, "cpu_ms": 20, "crash_rate": 5, "restart_s": 1},
        {"ms": 10, "instances": 7, "scale_on": "utilisation", "scale_every_s": 0.5, "boot_s": 0},
        {"ms": 10, "quota_rpm": 60},
    ],
)
def test_a_changed_component_leaves_arrivals_classes_and_keys_alone(store):
    first, second = finished(mixed()), finished(mixed(**store))
    a, b = first.frames(), second.frames()
    assert first.digest() != second.digest()
    for k in (0, 1):
        assert np.array_equal(a.calls[:, k, 0], b.calls[:, k, 0])
    drawn = slice(0, 7)  # the users' edges and the shards': the classes and the keys of all requests
    assert np.array_equal(a.edges["sent"][:, drawn], b.edges["sent"][:, drawn])
    assert a.edges["sent"][-1, drawn].min() > 50


@pytest.mark.parametrize(
    "shape",
    [
        {"shape": "ramp", "rate_to": 90},
        {"shape": "spike", "start_s": 2, "on_s": 3},
        {"shape": "day", "period_s": 7},
        {"shape": "herd", "count": 300, "spread_s": 5},
        {"shape": "batch", "batch": 30, "every_s": 2},
        {"arrivals": "even"},
    ],
)
def test_arrivals_do_not_depend_on_what_becomes_of_them(shape):
    def offered(**settings):
        nodes = [source(rate=40, **shape), node("store", **settings)]
        return finished(design(nodes, ["users->store"], duration=10)).frames().calls[:, 0, 0]

    quick = offered(ms=1)
    assert np.array_equal(quick, offered(exp=300, slots=1, error_rate=0.3)) and quick[-1] > 60


# --- capacity


@examples(25)
@given(plain_trees())
def test_twice_the_slots_never_carry_less(made):
    show(made)
    wide = made.with_settings(
        {f"{n.id}.slots": 2 * n.effective()["slots"] for n in made.nodes if not n.is_source}
    )
    gains = [
        simulate(wide, seed)["totals"]["goodput_rps"] - simulate(made, seed)["totals"]["goodput_rps"]
        for seed in range(1, 6)
    ]
    assert mean_interval(gains).high >= 0.0


# --- faults act on every kind

KINDS = [kind.id for kind in catalogue().values() if not kind.is_source]
CALM = {
    "instances": 1,
    "slots": 0,
    "queue": 0,
    "vcpu": 0,
    "cpu_ms": 0,
    "p50_ms": 30,
    "p99_ms": 30,
    "error_rate": 0,
    "timeout_ms": 0,
    "retries": 0,
    "quota_rpm": 0,
    "quota_burst": 0,
    "scale_on": "off",
    "cancel": False,
}
QUIET = {
    "rate_limiter": {"limit_rps": 0},
    "shedder": {"max_in_flight": 0},
    "bulkhead": {"max_in_flight": 0},
    "loop": {"steps": 1, "checkpoint_every": 0},
    "hedge": {"hedge_ms": 100_000},
    "cache": {"hit_rate": 0},
    "one_of": {"interval_s": 0},
    "breaker": {"min_calls": 1_000_000},
    "queue": {"capacity": 0, "copies": False, "partitions": 0, "max_receives": 1},
}


def kind_under_test(kind, faults=(), duration=20.0, users=None, **more):
    """users -> the kind -> a store, with an own time of 30 ms and nothing else in its way."""
    plan = catalogue()[kind].plan
    it = node("it", plan).make("it", catalogue()[kind], settings=CALM | QUIET.get(plan, {}) | more)
    nodes = [source(rate=50, **(users or {})), it, node("store")]
    return simulate(design(nodes, ["users->it", "it->store"], faults, duration))


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_slow(self, kind):
        for factor in (10.0, 0.5):
            got = kind_under_test(kind, [fault("slow", 0, 30, "it", factor)])["nodes"]["it"]
            assert got["mean_ms"] == pytest.approx(30 * factor, rel=1e-6)
            assert got["p50_ms"] == pytest.approx(30 * factor, rel=0.01)

    def test_errors(self, kind):
        got = kind_under_test(kind, [fault("errors", 0, 30, "it", 0.5)], error_rate=0.2)["nodes"]["it"]
        ended = got["succeeded"] + got["failed"]
        assert set(got["failures"]) == {"error"}
        assert got["failures"]["error"] / ended == pytest.approx(0.6, abs=0.07)

    def test_outage(self, kind):
        got = kind_under_test(kind, [fault("outage", 5, 10, "it")], instances=3)
        it = got["nodes"]["it"]
        assert it["crashes"] == 3 and set(it["failures"]) == {"crashed", "unavailable"}
        assert it["failures"]["unavailable"] / it["offered"] == pytest.approx(0.5, abs=0.06)
        assert it["succeeded"] / it["offered"] == pytest.approx(0.5, abs=0.06)

    def test_crash(self, kind):
        faults = [fault("crash", 5, 10, "it", 1)]
        it = kind_under_test(kind, faults, instances=2, slots=1, queue=ENDLESS, p50_ms=25, p99_ms=25)[
            "nodes"
        ]["it"]
        assert it["crashes"] == 1 and it["failures"].get("crashed", 0) <= 1
        calm = kind_under_test(kind, instances=2, slots=1, queue=ENDLESS, p50_ms=25, p99_ms=25)["nodes"]["it"]
        assert it["queue_max"] > 5 + calm["queue_max"] and it["wait_mean_ms"] > 10 * calm["wait_mean_ms"]
        alone = kind_under_test(kind, [fault("crash", 5, 0, "it", 1)], restart_s=5)["nodes"]["it"]
        assert alone["failures"]["unavailable"] / alone["offered"] == pytest.approx(0.25, abs=0.06)

    def test_quota(self, kind):
        it = kind_under_test(kind, [fault("quota", 5, 10, "it", 0)])["nodes"]["it"]
        assert it["failures"]["throttled"] / it["offered"] == pytest.approx(0.5, abs=0.06)
        it = kind_under_test(kind, [fault("quota", 0, 20, "it", 0.1)], quota_rpm=60 * 100)["nodes"]["it"]
        assert it["failures"]["throttled"] / it["offered"] == pytest.approx(0.7, abs=0.08)

    def test_cut_before_it(self, kind):
        cut = [fault("cut", 5, 10, "users->it")]
        got = kind_under_test(kind, cut, users={"timeout_ms": 500})
        assert got["nodes"]["it"]["offered"] / got["totals"]["offered"] == pytest.approx(0.5, abs=0.06)
        assert got["totals"]["failures"] == {"timeout": got["totals"]["failed"]}
        assert got["totals"]["failed"] / got["totals"]["offered"] == pytest.approx(0.5, abs=0.06)
        assert got["totals"]["failures_by_node"] == {"it": got["totals"]["failed"]}

    def test_cut_behind_it(self, kind):
        got = kind_under_test(kind, [fault("cut", 5, 10, "it->store")], timeout_ms=500)
        if catalogue()[kind].plan == "queue":
            assert got["totals"]["failed"] == 0 and got["nodes"]["store"]["mean_ms"] is not None
            assert got["nodes"]["store"]["offered"] == got["totals"]["offered"] - got["totals"]["in_flight"]
            held = kind_under_test(kind, [fault("cut", 5, 20, "it->store")], timeout_ms=500)["nodes"]["it"]
            assert held["backlog"] == pytest.approx(50 * 15, rel=0.15)
            assert held["backlog_age_s"] == pytest.approx(15, abs=0.3)
        else:
            it = got["nodes"]["it"]
            assert it["failures"] == {"timeout": it["failed"]}
            assert it["failed"] / it["offered"] == pytest.approx(0.5, abs=0.06)

    def test_latency(self, kind):
        got = kind_under_test(kind, [fault("latency", 0, 30, "users->it", 70)])
        assert got["totals"]["mean_ms"] == pytest.approx(30 + 140, rel=1e-6)
        got = kind_under_test(kind, [fault("latency", 0, 30, "it->store", 70)])
        waits = 0 if catalogue()[kind].plan == "queue" else 140
        assert got["totals"]["mean_ms"] == pytest.approx(30 + waits, rel=1e-6)


@pytest.mark.parametrize("kind", [k.id for k in catalogue().values() if k.plan == "cache"])
def test_a_cold_cache_misses_and_warms_up(kind):
    def asked(faults, **more):
        return kind_under_test(kind, faults, hit_rate=0.9, **more)["nodes"]["store"]["offered"]

    warm = asked([], warm_s=0)
    cold = asked([fault("cold_cache", 5, 10, "it")], warm_s=0)
    slow = asked([fault("cold_cache", 5, 10, "it")], warm_s=5)
    assert warm == pytest.approx(0.1 * 1000, rel=0.3)
    assert cold == pytest.approx((0.5 + 0.5 * 0.1) * 1000, rel=0.15)
    # Half of the hits of five seconds are missed on the way up
    assert slow - cold == pytest.approx(0.25 * 0.45 * 1000, rel=0.4)


STEADY = {"shape": "constant", "users": 0, "rate": 100, "start_s": 0, "stop_s": 0, "at_s": 0, "timeout_ms": 0}
# Requests in 20 s of each shape of traffic
TRAFFIC = [
    ({}, 2000),
    ({"arrivals": "even"}, 2000),
    ({"shape": "ramp", "rate_to": 300}, 4000),
    ({"shape": "step", "start_s": 10, "rate_to": 300}, 4000),
    ({"shape": "spike", "start_s": 5, "stop_s": 10, "spike_factor": 5}, 4000),
    ({"shape": "burst", "on_s": 2, "off_s": 2, "off_rate": 0}, 1000),
    ({"shape": "day", "period_s": 5, "amplitude": 0.8}, 2000),
    ({"shape": "schedule", "schedule": [[0, 300], [10, 50]]}, 3500),
    ({"shape": "trace", "trace_csv": "0,300\n10,50\n"}, 3500),
    ({"shape": "herd", "count": 1000, "at_s": 3, "spread_s": 5}, 1000),
    ({"shape": "batch", "batch": 100, "every_s": 2.6}, 800),
    ({"users": 50, "think_s": 0.99}, 1000),
]


@pytest.mark.parametrize("kind", [k.id for k in catalogue().values() if k.is_source])
class TestEverySource:
    def run(self, kind, *faults, **more):
        users = node("users", "source").make("users", catalogue()[kind], settings=STEADY | more)
        return simulate(design([users, node("store", ms=10)], ["users->store"], faults, duration=20))[
            "totals"
        ]

    def test_traffic(self, kind):
        for shape, plain in TRAFFIC:
            for factor in (0.0, 0.4, 3.0):
                got = self.run(kind, fault("traffic", 0, 30, "users", factor), **shape)["offered"]
                assert got == pytest.approx(factor * plain, rel=0.12, abs=factor and 10), (shape, factor)
        assert self.run(kind, fault("traffic", 5, 10, "users", 3.0))["offered"] == pytest.approx(
            4000, rel=0.07
        )
        assert self.run(kind, fault("traffic", 5, 10, "users", 0.0))["offered"] == pytest.approx(
            1000, rel=0.12
        )

    def test_errors_and_quota(self, kind):
        got = self.run(kind, fault("errors", 0, 30, "users", 0.5))
        assert got["failures"] == {"error": got["failed"]}
        assert got["failed"] / got["offered"] == pytest.approx(0.5, abs=0.06)
        got = self.run(kind, fault("quota", 5, 10, "users", 0.0))
        assert got["failures"] == {"throttled": got["failed"]}
        assert got["failed"] / got["offered"] == pytest.approx(0.5, abs=0.06)

    def test_outage_and_crash_stop_it(self, kind):
        for what in ("outage", "crash"):
            got = self.run(kind, fault(what, 5, 10, "users"))
            assert got["offered"] == pytest.approx(1000, rel=0.12)
            assert got["failures"].get("crashed", 0) == got["failed"] <= 8


# --- the smallest and the largest


def test_nothing_arrives():
    nodes = [source(rate=0), node("front", slots=3), node("store", vcpu=1, cpu_ms=5, ms=5)]
    run = finished(design(nodes, ["users->front", "front->store"], duration=30, warmup=5))
    check_frames(run)
    got = check_summary(run)
    assert got["totals"] | {"offered": 0, "goodput_rps": 0, "success_rate": None} == got["totals"]
    assert got["totals"]["p50_ms"] is got["totals"]["offered_p99_ms"] is None
    assert (got["nodes"]["front"]["utilisation"], got["nodes"]["store"]["cpu_utilisation"]) == (0, 0)
    assert got["nodes"]["front"]["wait_mean_ms"] is None
    assert len(run.frames()) == 300


@pytest.mark.parametrize("kind", list(catalogue()))
def test_one_node_of_each_kind(kind):
    made = design([node("it", "source").make("it", catalogue()[kind])], [], duration=5)
    run = finished(made)
    check_frames(run)
    got = check_summary(run)["nodes"]["it"]
    assert got["succeeded"] == 0


@pytest.mark.parametrize("kind", list(catalogue()))
def test_each_kind_as_the_catalogue_has_it(kind):
    plain = catalogue()[kind]
    if plain.is_source:
        nodes = [node("it", "source").make("it", plain), node("store", ms=5)]
        edges = ["it->store"]
    else:
        nodes = [source(rate=2), node("it").make("it", plain), node("store", ms=5)]
        edges = ["users->it", "it->store"]
    run = finished(design(nodes, edges, duration=200))
    check_frames(run)
    got = check_summary(run)
    assert got["totals"]["succeeded"] > 0


def test_a_chain_of_300_is_too_deep():
    ids = [f"n{k}" for k in range(1, 301)]
    nodes = [source(rate=10, arrivals="even"), *(node(id) for id in ids)]
    edges = [f"{a}->{b}" for a, b in itertools.pairwise(["users", *ids])]
    run = finished(design(nodes, edges, duration=10))
    check_frames(run)
    got = check_summary(run)
    assert got["totals"]["failures"] == {"too_deep": got["totals"]["failed"]} != {"too_deep": 0}
    assert got["totals"]["failures_by_node"] == {"n33": got["totals"]["failed"]}
    assert got["nodes"]["n32"]["offered"] > 0 == got["nodes"]["n34"]["offered"]


def test_300_in_chains_within_the_depth():
    ids = [f"n{k}" for k in range(299)]
    nodes = [source(rate=50), *(node(id, ms=1, slots=2, queue=10) for id in ids)]
    edges = [f"{'users' if k % 30 == 0 else ids[k - 1]}->{ids[k]}" for k in range(299)]
    run = finished(design(nodes, edges, duration=5, drain=5), most=0)
    check_frames(run)
    got = check_summary(run)
    assert got["nodes"]["n298"]["succeeded"] > 0 and run.finished


def test_a_star_of_300():
    ids = [f"leaf{k}" for k in range(298)]
    nodes = [source(rate=20), node("hub"), *(node(id, exp=10) for id in ids)]
    edges = ["users->hub", *(edge(f"hub->{id}", parallel=True) for id in ids)]
    run = finished(design(nodes, edges, duration=10, drain=5), most=0)
    check_frames(run)
    got = check_summary(run)
    assert got["totals"]["succeeded"] == got["totals"]["offered"] > 100
    assert {got["nodes"][id]["offered"] for id in ids} == {got["totals"]["offered"]}


def test_a_thousand_parallel_calls():
    nodes = [
        source(shape="herd", count=20, spread_s=0),
        node("hub"),
        node("leaf", slots=50, queue=ENDLESS, ms=10),
    ]
    call = edge("hub->leaf", calls=1000, parallel=True)
    run = finished(design(nodes, ["users->hub", call], duration=10), most=0)
    check_frames(run)
    got = check_summary(run)
    assert got["nodes"]["leaf"]["offered"] == 20_000 and got["totals"]["succeeded"] == 20
    assert got["nodes"]["leaf"]["queue_max"] == 20_000 - 50
    assert got["totals"]["p99_ms"] == pytest.approx(20_000 / 50 * 10, rel=0.01)


# --- changes while it runs


def pick_change(pace, made):
    """A random target, setting and value."""
    if made.edges and pace.random() < 0.4:
        name = pace.choice(list(EDGE))
        return pace.choice(made.edges).id, name, pace.choice(EDGE[name])
    target = pace.choice(made.nodes)
    if target.is_source:
        pools = SOURCE | {"rate": [0, 100]}
    else:
        pools = (
            CAPACITY | SERVING | TROUBLE | SCALING | PLAN[target.plan] | {"vcpu": [0, 1, 4], "cpu_ms": [0, 5]}
        )
    name = pace.choice(list(pools))
    return target.id, name, pace.choice(pools[name])


@examples(120)
@given(designs(), st.integers(0, 2**32))
def test_settings_and_faults_by_hand_keep_the_books(made, seed):
    run, pace = Simulation(show(made)), random.Random(seed)
    changed = 0
    for _ in range(12):
        run.advance(run.now + made.duration_s / 12, max_events=MOST_EVENTS // 12)
        if pace.random() < 0.3:
            try:
                run.inject(random_fault(pace, made))
            except DesignError:
                continue
        else:
            change = pick_change(pace, run.design)
            try:
                run.set(*change)
            except DesignError:
                continue
            note(f"t = {run.now}: {change}")
        changed += 1
        check_frames(run, limits=False)
        check_summary(run)
    fork = run.copy()
    for each in (run, fork):
        each.advance(each.end_s, max_events=MOST_EVENTS)
    check_frames(run, limits=False)
    check_summary(run)
    assert fork.digest() == run.digest()


def random_fault(pace, made):
    if made.edges and pace.random() < 0.5:
        kind = pace.choice(sorted(EDGE_FAULTS))
        pool, target = EDGE_FAULTS[kind], pace.choice(made.edges).id
    else:
        kind = pace.choice(sorted(NODE_FAULTS))
        pool, target = NODE_FAULTS[kind], pace.choice(made.nodes).id
    lasts = pace.choice([0.05, 0.5, 3.0])
    return fault(kind, 0.0, lasts, target, pace.choice(pool) if pool else None)


def test_edits_do_not_add_traffic():
    made = design([source(rate=50), node("store", slots=4, queue=20, ms=20)], ["users->store"], duration=110)
    run, plain = Simulation(made), Simulation(made)
    for k in range(10):
        run.advance(10.0 * (k + 1))
        run.set("store", "slots", 4 + k % 2)
        run.set("users", "rate", 50)
    for each in (run, plain):
        each.advance(each.end_s)
    assert run.summary()["totals"]["offered"] == plain.summary()["totals"]["offered"]
    assert plain.summary()["totals"]["offered"] == pytest.approx(5500, rel=0.05)


@pytest.mark.parametrize(
    "setting", ["slots", "queue", "p50_ms", "error_rate", "instances", "timeout_ms", "quota_rpm"]
)
def test_setting_what_is_set_already_changes_nothing(setting):
    """Also with calls under way: the same digest as without the command."""
    settings = {
        "slots": 3,
        "queue": 5,
        "exp": 40,
        "error_rate": 0.1,
        "instances": 2,
        "timeout_ms": 30,
        "quota_rpm": 3000,
    }
    nodes = [source(rate=70), node("front", **settings), node("store", exp=20)]
    made = design(nodes, ["users->front", "front->store"], duration=20)
    run, plain = Simulation(made), Simulation(made)
    for k in range(20):
        run.advance(0.987 * k)
        run.set("front", setting, made.node("front").effective()[setting])
    for each in (run, plain):
        each.advance(each.end_s)
    got, want = run.summary()["nodes"], plain.summary()["nodes"]
    for id, name in itertools.product(got, ("offered", "succeeded", "failures", "queue_max", "p99_ms")):
        assert got[id][name] == want[id][name]
