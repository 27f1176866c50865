"""The kernel works on bare addresses: its memory is looked through while random designs run in as little of it as
will do, so that every array grows again and again.
"""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.design import DesignError, Fault
from engine.program import layout as L
from engine.program import state as memory
from engine.program.state import State
from engine.run.simulation import Simulation
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
)
from tests.engine.reference.build import design, edge, fault, node, source

FENCE = 64  # records before and after each array that nobody may write to
MARK = 0xA5
AT_WORK = (L.S_CPU, L.S_WORK, L.S_CALLING, L.S_RESUME, L.S_FILL)
STAND_INS = (L.S_BACKOFF, L.S_REFUSED)


# --- little memory, with fences


def fenced(old: np.ndarray, room: int) -> np.ndarray:
    """A copy of `old` with room for `room` records, between two fences."""
    base = np.zeros(room + 2 * FENCE, old.dtype)
    base.view(np.uint8)[:] = MARK
    inner = base[FENCE : FENCE + room]
    inner[:] = np.zeros(1, old.dtype)
    inner[: len(old)] = old
    return inner


def fences_stand(state: State) -> None:
    for name, array in state.arrays.items():
        base = array.base
        if base is None or len(base) != len(array) + 2 * FENCE:
            continue  # one that Python has made anew
        whole = base.view(np.uint8).reshape(len(base), -1)
        assert (whole[:FENCE] == MARK).all() and (whole[-FENCE:] == MARK).all(), f"{name}: written outside"


def tight(design, patch) -> Simulation:
    """A simulation whose arrays have no more room than a step needs, and grow by little."""
    patch.setattr(memory, "_longer", fenced)
    run = Simulation(design, history=False)
    w, burst = run.state.sim[0], int(run.state.sim[0]["burst"])
    for name, array in run.state.arrays.items():
        run.state.arrays[name] = fenced(array, len(array))
    calls = burst + 12
    run.state.arrays["call"] = fenced(run.state.call[:calls], calls)
    w["calls_cap"] = calls
    run.state.set_room()
    heap = int(w["heap_n"]) + 2 * int(w["live_soft"]) + burst + 8
    if heap < len(run.state.heap):
        run.state.arrays["heap"] = fenced(run.state.heap[:heap], heap)
        w["heap_cap"] = heap
    room = 1 << (2 * int(w["live_soft"]) + burst + 8).bit_length()
    agenda = run.state.agenda[(int(w["agenda_head"]) + np.arange(int(w["agenda_n"]))) & int(w["agenda_mask"])]
    run.state.arrays["agenda"], w["agenda_head"], w["agenda_mask"] = fenced(agenda, room), 0, room - 1
    run.state.arrays["fill"], w["fill_mask"] = fenced(run.state.fill[:2], 2), 1
    run.state.lane["mask"] = 3
    run.state.set_room()
    return run


# --- what has to be true between any two steps


def chain(records: np.ndarray, first: int, following: str, before: str | None = None) -> list[int]:
    """The records of a list, whose links back have to be right too."""
    found, last, at = [], -1, int(first)
    while at >= 0:
        assert len(found) <= len(records), "a list runs in a circle"
        if before is not None:
            assert records[at][before] == last, f"{before} of {at} is {records[at][before]} and not {last}"
        found.append(at)
        last, at = at, int(records[at][following])
    return found


def check(run: Simulation) -> None:
    """Looks through the whole state."""
    s, w = run.state, run.state.sim[0]
    calls = s.call[: int(w["calls_high"])]
    used = np.flatnonzero(calls["state"] != L.S_FREE)
    assert w["calls_high"] <= w["calls_cap"] == len(s.call)
    assert w["heap_n"] <= w["heap_cap"] == len(s.heap)
    assert w["agenda_n"] <= w["agenda_mask"] + 1 == len(s.agenda)
    assert w["calls_live"] == len(used)
    free = chain(calls, w["free"], "q_next")
    assert len(free) + len(used) == len(calls)
    assert (calls["state"][free] == L.S_FREE).all()
    fences_stand(s)
    check_families(s, calls, used)
    real = used[~np.isin(calls["state"][used], STAND_INS) | (calls["parent"][used] == -2)]
    for i, n in enumerate(s.node):
        check_node(run, i, n, calls, real[calls["node"][real] == i])
    check_fills(s, w, calls, used)
    check_events(s, w, calls, used)


def check_families(s: State, calls: np.ndarray, used: np.ndarray) -> None:
    """Callers and their open attempts."""
    kids = 0
    for p in used:
        mine = chain(calls, calls[p]["kid_head"], "sib_next", "sib_prev")
        assert calls[p]["kid_tail"] == (mine[-1] if mine else -1)
        assert (calls["parent"][mine] == p).all()
        kids += len(mine)
    parents = calls["parent"][used]
    assert kids == (parents >= 0).sum()
    assert (calls["state"][parents[parents >= 0]] != L.S_FREE).all()
    asked = used[(parents >= 0) & ~np.isin(calls["state"][used], STAND_INS)]
    edges = len(s.edge)
    assert (np.bincount(calls["edge"][asked], minlength=edges)[:edges] == s.edge["open"]).all()
    roots = used[parents == -2]
    assert np.isin(calls["state"][roots], (L.S_CALLING, L.S_BACKOFF)).all()
    assert len(roots) == s.sim[0]["open_requests"]


def check_node(run: Simulation, i: int, n: np.void, calls: np.ndarray, mine: np.ndarray) -> None:
    s, state = run.state, calls["state"]
    if n["plan"] == L.P_SOURCE:
        assert n["in_flight"] == len(mine)
        return
    waiting = chain(calls, n["q_head"], "q_next", "q_prev")
    assert n["q_tail"] == (waiting[-1] if waiting else -1)
    assert n["qlen"] == len(waiting) == (state[mine] == L.S_WAITING).sum()
    computing = chain(calls, n["cpu_head"], "q_next", "q_prev")
    assert n["cpu_tail"] == (computing[-1] if computing else -1)
    assert n["cpu_n"] == len(computing) == (state[mine] == L.S_CPU).sum()
    assert (np.diff(calls["vt"][computing]) >= 0).all()
    assert (calls["node"][waiting + computing] == i).all()
    working = mine[np.isin(state[mine], AT_WORK)]
    assert n["busy"] == len(working)
    assert n["in_flight"] == len(working) + len(waiting)
    assert n["reserved"] == (calls["pulled"][mine[state[mine] == L.S_TRAVEL]] != 0).sum()
    inst = s.inst[int(n["inst_off"]) : int(n["inst_off"] + n["inst_room"])]
    assert (np.bincount(calls["inst"][working], minlength=len(inst)) == inst["busy"]).all()
    kinds = np.bincount(inst["state"], minlength=5)
    assert (n["live"], n["booting"], n["draining"]) == tuple(kinds[[L.I_LIVE, L.I_BOOTING, L.I_DRAINING]])
    assert n["drain_busy"] == inst["busy"][inst["state"] == L.I_DRAINING].sum()
    assert not inst["busy"][np.isin(inst["state"], (L.I_OFF, L.I_DOWN, L.I_BOOTING))].any()
    tally = s.cnt[i * L.TALLY :][: 2 * L.CNT].reshape(2, L.CNT).sum(axis=0)
    assert tally[0] == tally[1 : 2 + L.NR].sum() + n["in_flight"]
    for name, sums in (("budget_off", ["bu_first", "bu_retry"]), ("breaker_off", ["br_fail", "br_total"])):
        if n[name] >= 0:
            wheel = s.wheel[int(n[name]) :][: 2 * L.CELLS].reshape(-1, 2).sum(axis=0)
            assert [n[x] for x in sums] == list(wheel)
    if n["plan"] == L.P_QUEUE:
        check_queue(s, i, n, calls, mine[state[mine] == L.S_MESSAGE])


def check_queue(s: State, i: int, n: np.void, calls: np.ndarray, messages: np.ndarray) -> None:
    aged = chain(calls, n["age_head"], "sib_next", "sib_prev")
    assert sorted(aged) == sorted(messages) and n["age_tail"] == (aged[-1] if aged else -1)
    assert (np.diff(calls["t_arr"][aged]) >= 0).all()
    listed: list[int] = []
    for at in range(int(n["sub_off"]), int(n["sub_off"] + n["sub_n"])):
        r = s.sub[at]
        here = chain(calls, r["head"], "q_next")
        assert r["n"] == len(here) and r["tail"] == (here[-1] if here else -1)
        assert (calls["pos"][here] == at).all() and (calls["kid_head"][here] < 0).all()
        away = [m for m in messages if calls[m]["pos"] == at and m not in here]
        assert bool(r["blocked"]) == bool(n["partitions"] and away)
        listed += here
    assert set(listed) <= set(messages)
    assert n["backlog"] == (calls["kid_head"][messages] < 0).sum()


def check_fills(s: State, w: np.void, calls: np.ndarray, used: np.ndarray) -> None:
    entries = s.fill[s.fill["call"] >= 0]
    assert len(entries) == w["fill_n"]
    assert sorted(entries["call"]) == sorted(used[calls["fill"][used] == 1])
    for entry in entries:
        a = calls[entry["call"]]
        assert a["node"] == entry["node"] and a["key"] == entry["key"]
        waiting = chain(calls, a["q_next"], "q_next")
        assert (calls["state"][waiting] == L.S_FILL).all() and (calls["left"][waiting] == entry["call"]).all()


def check_events(s: State, w: np.void, calls: np.ndarray, used: np.ndarray) -> None:
    """The heap is one, lanes are in order, and whatever has to go on will."""
    heap = s.heap[: int(w["heap_n"])]
    place = np.arange(1, len(heap))
    above, below = heap[(place - 1) // 2], heap[place]
    assert ((above["t"] < below["t"]) | ((above["t"] == below["t"]) & (above["key"] < below["key"]))).all()
    assert (heap["t"] >= w["now"]).all()
    agenda = s.agenda[(int(w["agenda_head"]) + np.arange(int(w["agenda_n"]))) & int(w["agenda_mask"])]
    coming = [(int(e["key"]) & 63, int(e["id"]), int(e["gen"])) for e in heap]
    coming += [(int(e["key"]) & 63, int(e["id"]), int(e["gen"])) for e in agenda]
    heads = {c for kind, c, _ in coming if kind == L.E_LANE}
    for k, q in enumerate(s.lane):
        assert (q["n"] > 0) == (k in heads) and q["n"] <= q["mask"] + 1
        ring = s.item[int(q["off"]) + ((int(q["head"]) + np.arange(int(q["n"]))) & int(q["mask"]))]
        assert (np.diff(ring["t"]) >= 0).all()
        coming += [(int(e["key"]) & 63, int(e["id"]), int(e["gen"])) for e in ring]
    live = {(kind, c) for kind, c, gen in coming if c < len(calls) and calls[c]["gen"] == gen}
    must = {
        L.S_TRAVEL: L.E_DELIVER, L.S_WORK: L.E_WORKED, L.S_ANSWER: L.E_ANSWER, L.S_BACKOFF: L.E_RETRY,
        L.S_REFUSED: L.E_ANSWER, L.S_RESUME: L.E_RESUME,
    }  # fmt: skip
    for c in used:
        a = calls[c]
        kind = must.get(int(a["state"]))
        if kind is not None:
            assert (kind, c) in live, f"call {c} in state {a['state']} will never go on"
        elif a["state"] == L.S_CALLING:
            assert a["kid_head"] >= 0 or live & {(L.E_GIVE_UP, c), (L.E_CARRY_ON, c)}, (
                f"{c} waits for nothing"
            )
        elif a["state"] == L.S_MESSAGE and a["kid_head"] < 0 and a["q_next"] < 0:
            r = s.sub[int(a["pos"])]
            assert r["tail"] == c or (L.E_REDELIVER, c) in live, f"message {c} is forgotten"
    for i, n in enumerate(s.node):
        if n["cpu_n"] > 0 and n["live"] > 0:
            assert (L.E_CPU, i, int(n["cpu_gen"])) in coming


# --- what is done to them


def disturb(run: Simulation, pick: random.Random) -> None:
    """A setting changed or a fault fired, at random; what a run refuses it refuses."""
    made = run.design
    try:
        if pick.random() < 0.4:
            if made.edges and pick.random() < 0.4:
                kind = pick.choice(sorted(EDGE_FAULTS))
                amount, where = pick.choice(EDGE_FAULTS[kind] or [None]), {"edge": pick.choice(made.edges).id}
            else:
                kind = pick.choice(sorted(NODE_FAULTS))
                amount, where = pick.choice(NODE_FAULTS[kind] or [None]), {"node": pick.choice(made.nodes).id}
            run.inject(Fault.make(kind, duration_s=pick.choice([0.01, 0.3]), amount=amount, **where))
        elif made.edges and pick.random() < 0.4:
            name = pick.choice(sorted(EDGE))
            run.set(pick.choice(made.edges).id, name, pick.choice(EDGE[name]))
        else:
            target = pick.choice(made.nodes)
            table = SOURCE if target.is_source else SERVING | CAPACITY | TROUBLE | SCALING | PLAN[target.plan]
            name = pick.choice(sorted(table))
            run.set(target.id, name, pick.choice(table[name]))
    except DesignError:
        pass


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(designs(), st.integers(0, 2**32))
def test_the_memory_is_in_order_between_any_two_steps(made, seed):
    with pytest.MonkeyPatch.context() as patch:
        run, pick = tight(made, patch), random.Random(seed)
        check(run)
        for _ in range(30):
            until = run.now + pick.choice([1e-4, 0.02, 0.3])
            if run.advance(until, max_events=pick.choice([1, 5, 60, 400])):
                break
            if pick.random() < 0.3:
                run.advance(run.now, max_events=1000)
                disturb(run, pick)
            check(run)
        check(run)


# --- what once went wrong


def herd(count: int, at: float = 0.0, **settings: object):
    return source(shape="herd", count=count, at_s=at, spread_s=0, **settings)


def walk(made, patch, steps: int = 1) -> Simulation:
    """Runs a design to its end in tight memory, looked through every so many steps."""
    run = tight(made, patch)
    while not run.advance(run.end_s, max_events=steps):
        check(run)
    check(run)
    return run


def test_a_loop_that_waits_for_nothing_sends_in_pieces(monkeypatch):
    made = design(
        [herd(2), node("ag", "loop", steps=1500), node("s", ms=10)],
        ["users->ag", edge("ag->s", async_=True)],
        duration=1,
    )
    run = walk(made, monkeypatch, steps=500)
    assert run.summary()["nodes"]["s"]["succeeded"] == 3000


@pytest.mark.parametrize("happens", ["crash", "outage", "scale"])
def test_thousands_of_instances_at_one_instant(monkeypatch, happens):
    serving = {"slots": 1, "queue": 10**9, "ms": 30}
    if happens == "scale":
        grow = {
            "scale_on": "queue",
            "scale_target": 0.001,
            "scale_max": 2000,
            "scale_every_s": 0.1,
            "boot_s": 0.2,
        }
        nodes, faults = [herd(50), node("s", **serving, **grow)], []
    else:
        nodes = [herd(2000), node("s", instances=2000, **serving)]
        faults = [fault(happens, 0.01, 0.05, "s", 2000 if happens == "crash" else None)]
    nodes.append(node("q", "queue"))
    run = walk(design(nodes, ["users->q", "q->s"], faults, duration=0.5), monkeypatch, steps=2000)
    assert run.summary()["nodes"]["s"]["succeeded"] == (50 if happens == "scale" else 2000)


@pytest.mark.parametrize("plan", ["all", "loop"])
def test_a_crashed_call_ends_once_whatever_its_answer_takes(monkeypatch, plan):
    agent = {"steps": 2, "max_resumes": 1, "resume_wait_s": 0.1} if plan == "loop" else {}
    nodes = [herd(8), node("s", plan, ms=100, **agent), node("t", slots=1), node("save")]
    edges = [edge("users->s", latency_ms=50)]
    if plan == "loop":
        edges += [edge("s->save", checkpoint=True), edge("s->t")]
    faults = [fault("outage", 0.06, 0.5, "s"), fault("errors", 0, 1, "t", 1.0)]
    run = walk(design(nodes, edges, faults, duration=1), monkeypatch)
    got = run.summary()["nodes"]["s"]
    assert (got["failures"], got["succeeded"]) == ({"crashed": 8}, 0)


def test_an_agent_that_crashes_while_it_waits_to_resume_stays_ended(monkeypatch):
    nodes = [
        herd(3),
        node("ag", "loop", steps=3, max_resumes=5, resume_wait_s=0.2),
        node("s", ms=10),
        node("save"),
    ]
    edges = [edge("users->ag", latency_ms=150), "ag->s", edge("ag->save", checkpoint=True)]
    faults = [fault("errors", 0.165, 1, "s", 1.0), fault("outage", 0.25, 0.05, "ag")]
    run = walk(design(nodes, edges, faults, duration=1), monkeypatch)
    got = run.summary()["nodes"]["ag"]
    assert (got["failures"], got["succeeded"], got["in_flight"]) == ({"crashed": 3}, 0, 0)


def test_settings_that_leave_a_call_under_way_without_an_edge(monkeypatch):
    nodes = [herd(3), node("h", "hedge", hedge_ms=100, retries=1), node("a", ms=250, error_rate=1.0)]
    run = tight(design(nodes, ["users->h", "h->a"], duration=2), monkeypatch)
    run.advance(0.05)
    run.set("h->a", "only", "write")
    while not run.advance(run.end_s, max_events=1):
        check(run)
    assert run.summary()["nodes"]["a"]["offered"] == 3
    assert run.summary()["totals"]["in_flight"] == 0


@pytest.mark.parametrize(
    ("target", "setting", "before", "after", "calls"),
    [
        ("a", "retry_budget", 0.5, 0, 1),
        ("a->b", "calls", 2, 1, 2),
        ("a->b", "only", "read", "any", 1),
    ],
)
def test_an_edit_sends_no_call_of_its_own(monkeypatch, target, setting, before, after, calls):
    own = {setting: before} if target == "a" else {}
    other = {setting: before} if target != "a" else {}
    nodes = [herd(1), node("a", ms=10, **own), node("b", ms=100)]
    run = tight(design(nodes, ["users->a", edge("a->b", **other)], duration=1), monkeypatch)
    run.advance(0.15 if calls == 2 else 0.05)  # its last call is under way
    run.set(target, setting, after)
    run.advance(run.end_s)
    assert run.summary()["nodes"]["b"]["offered"] == calls
