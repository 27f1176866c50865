"""What holds for every design, at every frame of every run."""

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from engine.design import DesignError, dumps
from engine.run.simulation import Simulation, simulate
from engine.study.intervals import mean_interval
from tests.engine.books import MOST_EVENTS, check_frames, check_instances, check_summary, finished
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
        check_instances(run)
        if done:
            break
    assert run.now <= run.end_s


@examples(40)
@given(designs())
def test_counts_are_of_arrivals_between_warm_up_and_end(made):
    # Poisson arrivals alone: none comes at the very instant of the warm-up
    scattered = {f"{n.id}.arrivals": "poisson" for n in made.sources}
    scattered |= {f"{n.id}.shape": "day" for n in made.sources if n.effective()["shape"] in ("herd", "batch")}
    run = finished(show(made.with_settings(scattered).replace(drain_s=0.0)))
    if not run.finished:
        return
    frames, got = run.frames(), run.summary()["nodes"]
    at = np.flatnonzero(np.isclose(frames.t, made.warmup_s))
    assert len(at) or not made.warmup_s
    for k, each in enumerate(made.nodes):
        before = frames.calls[at[0], k, 0] if made.warmup_s else 0
        assert got[each.id]["offered"] == pytest.approx(frames.calls[-1, k, 0] - before, abs=0)


@examples(100)
@given(designs(faults=False))
def test_nothing_is_left_behind(made):
    """Long after the last request there are only messages that nobody has taken."""
    quiet = {f"{n.id}.stop_s": min(n.effective()["stop_s"] or 3.0, 3.0) for n in made.sources}
    quiet |= {f"{n.id}.start_s": 0.0 for n in made.sources}
    # These go on at their usual rate after stop_s
    quiet |= {
        f"{n.id}.shape": "day" for n in made.sources if n.effective()["shape"] in ("ramp", "step", "spike")
    }
    quiet |= {f"{n.id}.max_receives": 3 for n in made.nodes if n.plan == "queue"}
    run = Simulation(show(made.with_settings(quiet).replace(duration_s=300.0)))
    run.advance(run.end_s, max_events=5 * MOST_EVENTS)
    check_frames(run)
    if run.finished and not run.state.node["in_flight"].any():
        assert int(run.state.sim[0]["calls_live"]) == run.state.node["backlog"].sum()


# --- determinism


def digest_of(made, seed=None):
    run = Simulation(made, seed)
    run.advance(run.end_s, max_events=MOST_EVENTS)
    return run.digest(), run.now, run.events


@examples(80)
@given(designs(), st.integers(0, 2**32))
def test_one_chunk_or_thousands(made, seed):
    whole = finished(show(made))
    if not whole.finished:
        return
    pace, pieces = random.Random(seed), Simulation(made)
    style = pace.choice(["events", "steps", "both"])
    while not pieces.finished:
        most = 0 if style == "steps" else pace.choice([1, 2, 50, 3000])
        until = pieces.end_s if style == "events" else pieces.now + pace.choice([1e-5, 0.01, 0.1, 1.7])
        pieces.advance(until, max_events=most)
    assert pieces.events == whole.events
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


@examples(40)
@given(designs(), st.sampled_from([0.1, 0.4, 0.9]))
def test_a_run_cut_short_is_the_beginning_of_the_whole(made, share):
    until = round(share * made.duration_s, 1)
    whole, cut = Simulation(show(made)), Simulation(made, until_s=until)
    for run in (whole, cut):
        run.advance(until, max_events=MOST_EVENTS)
    a, b = whole.frames(), cut.frames()
    for one, other in ((a.calls, b.calls), (a.nodes, b.nodes), (a.edges, b.edges), (a.began, b.began)):
        assert one[: len(b) - 1].tobytes() == other[: len(b) - 1].tobytes()


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
