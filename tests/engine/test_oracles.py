"""The closed forms of queueing and reliability theory, measured: each at four sets of parameters.

A figure agrees when theory's value lies in the 99 % interval of the seeds' own figures, or within 2 % of
their mean.
"""

import math
import random
import zlib
from statistics import fmean

import numpy as np
import pytest

from engine.design import dumps
from engine.run.simulation import Simulation, simulate
from engine.study import theory
from engine.study.intervals import mean_interval, ratio_interval
from tests.engine.reference.build import design, edge, fault, node, source

pytestmark = pytest.mark.slow
ENDLESS = 10**9
RUNS = 6


def totals(name):
    return lambda run: run["totals"][name]


def of(id, name):
    return lambda run: run["nodes"][id][name]


def held(id, slots):
    """Mean number of busy slots."""
    return lambda run: run["nodes"][id]["utilisation"] * slots


def seeds(made):
    """Each design has its own: common ones would bring the same lucky or unlucky arrivals everywhere."""
    first = zlib.crc32(dumps(made, "toml").encode())
    return range(first, first + RUNS)


def several(made):
    """The design's runs."""
    return [simulate(made, seed) for seed in seeds(made)]


def measure(made, figures):
    """Runs a design on several seeds; `figures` maps what is read off a run to theory's value."""
    runs = several(made)
    for k, (read, exact) in enumerate(figures.items()):
        got = mean_interval([read(run) for run in runs])
        assert got.agrees(exact), f"figure {k}: {got}, exactly {exact:.6g}"
    return runs


def measure_share(runs, part, whole, exact):
    """A share of counts over all runs."""
    got = ratio_interval([part(run) for run in runs], [whole(run) for run in runs])
    assert got.agrees(exact), f"{got}, exactly {exact:.6g}"


def failed_with(reason, id=None):
    def read(run):
        return (run["nodes"][id] if id else run["totals"])["failures"].get(reason, 0)

    return read


def lasting(requests, rate):
    """Duration and warm-up (s) for so many requests."""
    return {"duration": 1.05 * requests / rate, "warmup": 0.05 * requests / rate}


def server(**settings):
    return node("store", **({"queue": ENDLESS} | settings))


def one(rate, served, requests=100_000, **arrivals):
    """Users in front of one component, the store."""
    return design([source(rate=rate, **arrivals), served], ["users->store"], **lasting(requests, rate))


# --- queues


@pytest.mark.parametrize(("rate", "mu"), [(8, 10), (300, 1000), (55, 100), (1400, 2000)])
def test_mm1(rate, mu):
    q = theory.mm1(rate, mu)
    measure(
        one(rate, server(slots=1, exp=1e3 / mu), 500_000),
        {
            totals("mean_ms"): q.sojourn_s * 1e3,
            totals("p50_ms"): q.sojourn_quantile_s(0.50) * 1e3,
            totals("p95_ms"): q.sojourn_quantile_s(0.95) * 1e3,
            totals("p99_ms"): q.sojourn_quantile_s(0.99) * 1e3,
            of("store", "wait_mean_ms"): q.wait_s * 1e3,
            of("store", "queue_mean"): q.waiting,
            of("store", "utilisation"): q.utilisation,
        },
    )


@pytest.mark.parametrize(
    ("rate", "mu", "instances", "slots"),
    [(180, 20, 1, 10), (100, 10, 3, 4), (300, 200, 2, 1), (850, 10, 5, 20)],
)
def test_mmc_with_erlang_c(rate, mu, instances, slots):
    q = theory.mmc(rate, mu, instances * slots)
    measure(
        one(rate, server(instances=instances, slots=slots, exp=1e3 / mu), 500_000),
        {
            totals("mean_ms"): q.sojourn_s * 1e3,
            totals("p95_ms"): q.sojourn_quantile_s(0.95) * 1e3,
            totals("p99_ms"): q.sojourn_quantile_s(0.99) * 1e3,
            of("store", "wait_mean_ms"): q.wait_s * 1e3,
            of("store", "queue_mean"): q.waiting,
            of("store", "utilisation"): q.utilisation,
        },
    )


@pytest.mark.parametrize(
    ("rate", "mu", "slots", "queue"), [(45, 10, 4, 6), (90, 100, 1, 4), (500, 20, 20, 10), (120, 100, 1, 20)]
)
def test_mmck_loses_what_finds_it_full(rate, mu, slots, queue):
    q = theory.mmck(rate, mu, slots, queue)
    runs = measure(
        one(rate, server(slots=slots, queue=queue, exp=1e3 / mu), 250_000),
        {
            totals("mean_ms"): q.sojourn_s * 1e3,
            totals("goodput_rps"): q.throughput,
            of("store", "wait_mean_ms"): q.wait_s * 1e3,
            of("store", "queue_mean"): q.waiting,
            of("store", "utilisation"): q.utilisation,
        },
    )
    measure_share(runs, failed_with("rejected"), totals("offered"), q.loss)
    assert max(run["nodes"]["store"]["queue_max"] for run in runs) == queue


@pytest.mark.parametrize("law", ["exp", "ms", "lognormal"])
@pytest.mark.parametrize(("slots", "erlangs"), [(10, 9.0), (1, 0.5), (4, 6.0), (30, 24.0)])
def test_erlang_b_asks_for_the_mean_alone(slots, erlangs, law):
    rate, mean = 100.0, 10.0 * erlangs
    own = {law: mean}
    if law == "lognormal":
        shape = theory.Lognormal(1.0, 4.0)
        own = {"p50_ms": mean / shape.mean_s, "p99_ms": 4.0 * mean / shape.mean_s}
    runs = measure(
        one(rate, server(slots=slots, queue=0, **own), 150_000),
        {held("store", slots): erlangs * (1 - theory.erlang_b(slots, erlangs))},
    )
    measure_share(runs, failed_with("rejected"), totals("offered"), theory.erlang_b(slots, erlangs))


@pytest.mark.parametrize(("rate", "p50", "p99"), [(6, 80, 400), (100, 5, 12), (40, 10, 60), (700, 1, 2)])
def test_mg1_by_pollaczek_and_khinchine(rate, p50, p99):
    law = theory.Lognormal(p50 / 1e3, p99 / 1e3)
    q = theory.mg1(rate, law.mean_s, law.cv2)
    measure(
        one(rate, server(slots=1, p50_ms=p50, p99_ms=p99), 250_000),
        {
            totals("mean_ms"): q.sojourn_s * 1e3,
            of("store", "wait_mean_ms"): q.wait_s * 1e3,
            of("store", "queue_mean"): q.waiting,
            of("store", "utilisation"): q.utilisation,
        },
    )


@pytest.mark.parametrize(("rate", "ms", "slots"), [(80, 10, 1), (30, 10, 1), (360, 10, 4), (85, 100, 10)])
def test_constant_work_waits_less(rate, ms, slots):
    wait = theory.mdc_wait_s(rate, ms / 1e3, slots)
    if slots == 1:
        assert wait == pytest.approx(theory.mg1(rate, ms / 1e3, 0.0).wait_s)
    measure(
        one(rate, server(slots=slots, ms=ms), 400_000),
        {
            of("store", "wait_mean_ms"): wait * 1e3,
            of("store", "queue_mean"): rate * wait,
            totals("mean_ms"): wait * 1e3 + ms,
        },
    )


@pytest.mark.parametrize(
    ("rate", "cpu", "vcpu", "instances"),
    [(80, 10, 1.0, 1), (150, 10, 2.0, 1), (35, 10, 0.5, 1), (520, 10, 2.0, 3)],
)
def test_processor_sharing(rate, cpu, vcpu, instances):
    # The law asks for the mean work alone, not for its form. Own time beyond the CPU part is not shared.
    q = theory.processor_sharing(rate, cpu / 1e3, vcpu * instances)
    rest = 30.0
    measure(
        one(rate, server(vcpu=vcpu, instances=instances, cpu_ms=cpu, ms=cpu + rest, crash_rate=0), 200_000),
        {totals("mean_ms"): q.sojourn_s * 1e3 + rest, of("store", "cpu_utilisation"): q.utilisation},
    )


@pytest.mark.parametrize(
    ("users", "think", "ms", "slots"),
    [(10, 1.0, 200, 1), (50, 2.0, 100, 2), (20, 0.5, 500, 10), (8, 0.1, 10, 3)],
)
def test_machine_repairman(users, think, ms, slots):
    q = theory.finite_source(users, think, ms / 1e3, slots)
    served = server(slots=slots, exp=ms)
    nodes = [source(users=users, think_s=think), served]
    measure(
        design(nodes, ["users->store"], **lasting(60_000, q.throughput)),
        {
            totals("goodput_rps"): q.throughput,
            totals("mean_ms"): q.sojourn_s * 1e3,
            of("store", "wait_mean_ms"): q.wait_s * 1e3,
            of("store", "utilisation"): q.utilisation,
        },
    )


@pytest.mark.parametrize(
    ("users", "think", "ms", "slots"),
    [(10, 1.0, 500, 2), (5, 0.1, 100, 1), (40, 2.0, 200, 4), (12, 1.0, 1000, 6)],
)
def test_engset_refuses_users_who_think_again(users, think, ms, slots):
    q = theory.finite_source(users, think, ms / 1e3, slots, queue=0)
    nodes = [source(users=users, think_s=think), server(slots=slots, queue=0, exp=ms)]
    made = design(nodes, ["users->store"], **lasting(60_000, q.offered_rate))
    runs = measure(made, {totals("goodput_rps"): q.throughput, of("store", "utilisation"): q.utilisation})
    measure_share(runs, failed_with("rejected"), totals("offered"), q.loss)


@pytest.mark.parametrize(
    ("users", "think", "front", "store"),
    [
        (20, 1.0, (50, 1), (80, 2)),
        (6, 0.2, (100, 1), (30, 1)),
        (40, 2.0, (20, None), (90, 2)),
        (15, 0.0, (10, 2), (40, 5)),
    ],
)
def test_closed_network_of_two_stations(users, think, front, store):
    stations = [theory.Station(ms / 1e3, slots) for ms, slots in (front, store)]
    q = theory.closed_network(users, think, stations)
    nodes = [
        source(users=users, think_s=think),
        node("front", queue=ENDLESS, exp=front[0], slots=front[1] or 0),
        server(exp=store[0], slots=store[1]),
    ]
    made = design(nodes, ["users->front", "users->store"], **lasting(40_000, q.throughput))
    measure(
        made,
        {
            totals("goodput_rps"): q.throughput,
            totals("mean_ms"): q.response_s * 1e3,
            of("front", "mean_ms"): q.station_s[0] * 1e3,
            of("store", "mean_ms"): q.station_s[1] * 1e3,
        },
    )


@pytest.mark.parametrize(("rate", "hold"), [(10.5, 23.4), (100, 0.5), (2.0, 60.0), (1000, 0.02)])
def test_little_fixes_the_slots_needed(rate, hold):
    slots = 4000
    made = one(rate, server(slots=slots, exp=hold * 1e3), 40_000)
    measure(made, {held("store", slots): theory.little(rate, hold)})


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_little_is_an_identity_of_every_run(seed):
    """Slots held and queue against arrivals and sojourn, in the midst of refusals, timeouts and retries."""
    nodes = [
        source(rate=60, timeout_ms=500),
        node("front", slots=16, queue=ENDLESS, exp=50, timeout_ms=300, retries=2, backoff_ms=20),
        node("store", slots=8, queue=10, exp=100, error_rate=0.05),
    ]
    run = simulate(design(nodes, ["users->front", "front->store"], duration=400, warmup=20), seed)
    front, store = run["nodes"]["front"], run["nodes"]["store"]
    refused = store["failures"]["rejected"]
    assert min(refused, front["failures"]["timeout"], run["totals"]["failures"]["timeout"]) > 20
    for n, slots, admitted in ((front, 16, front["offered"]), (store, 8, store["offered"] - refused)):
        inside = n["utilisation"] * slots + n["queue_mean"]
        assert inside == pytest.approx(theory.little(admitted / 380, n["mean_ms"] / 1e3), rel=5e-3)


@pytest.mark.parametrize(("rate", "ms"), [(50, 40), (5, 300), (200, 10), (80, 20)])
def test_little_holds_end_to_end(rate, ms):
    nodes = [source(rate=rate), node("front", ms=ms), server(slots=3, exp=ms)]
    run = Simulation(
        design(nodes, ["users->front", edge("front->store", latency_ms=5)], duration=1000, warmup=100)
    )
    run.advance(run.end_s)
    t = run.summary()["totals"]
    inside = run.frames().system["in_flight"][1000:].mean()
    assert inside == pytest.approx(theory.little(t["offered"] / 900, t["mean_ms"] / 1e3), rel=0.02)


# --- failures


@pytest.mark.parametrize(("p", "retries"), [(0.5, 3), (0.1, 1), (0.9, 8), (1.0, 3)])
def test_retries_amplify(p, retries):
    nodes = [source(rate=1000), node("front", retries=retries, backoff_ms=0), node("store", error_rate=p)]
    made = design(nodes, ["users->front", "front->store"], duration=20)
    runs = several(made)
    sent = of("store", "offered")
    measure_share(runs, sent, totals("offered"), theory.attempts(p, retries))
    measure_share(runs, totals("failed"), totals("offered"), theory.final_failure(p, retries))
    for run in runs:
        assert run["nodes"]["front"]["retries"] == sent(run) - run["totals"]["offered"]


@pytest.mark.parametrize(("tries", "layers"), [(3, 5), (2, 3), (4, 2), (2, 8)])
def test_stacked_retries_multiply(tries, layers):
    names = [f"layer{k}" for k in range(layers)] + ["store"]
    settings = {"retries": tries - 1, "backoff_ms": 0}
    nodes = [source(shape="herd", count=100), *(node(id, **settings) for id in names[:-1])]
    nodes.append(node("store", error_rate=1.0))
    edges = [f"{a}->{b}" for a, b in zip(["users", *names], names, strict=False)]
    run = simulate(design(nodes, edges, duration=10))
    assert run["nodes"]["store"]["offered"] == 100 * theory.layered_attempts(tries, layers)
    assert run["totals"]["failures_by_node"] == {"store": 100}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "parts", [(0.9995, 0.999, 0.9999, 0.995), (0.9, 0.8), (0.99,) * 8, (0.999, 0.5, 0.75)], ids=len
)
def test_availability_of_a_series(parts, nested):
    exact = theory.series(parts)
    names = [f"part{k}" for k in range(len(parts))]
    nodes = [node(id, error_rate=1 - a) for id, a in zip(names, parts, strict=True)]
    before = ["users", *names[:-1]] if nested else ["front"] * len(parts)
    edges = [f"{a}->{b}" for a, b in zip(before, names, strict=True)]
    if not nested:
        nodes.append(node("front"))
        edges.append("users->front")
    made = design([source(rate=1000), *nodes], edges, duration=25)
    runs = several(made)
    measure_share(runs, totals("succeeded"), totals("offered"), exact)
    measure_share(runs, totals("failed"), totals("offered"), 1 - exact)


@pytest.mark.parametrize(
    ("p", "steps", "tools"), [(0.01, 40, 1), (0.05, 10, 1), (0.002, 100, 2), (0.2, 3, 2)]
)
def test_availability_of_an_agents_steps(p, steps, tools):
    names = [f"tool{k}" for k in range(tools)]
    nodes = [node("agent", "loop", steps=steps), *(node(id, error_rate=p) for id in names)]
    edges = ["users->agent", *(f"agent->{id}" for id in names)]
    made = design([source(rate=100), *nodes], edges, duration=50)
    runs = several(made)
    exact = theory.series([1 - p] * (steps * tools))
    measure_share(runs, totals("succeeded"), totals("offered"), exact)
    measure_share(runs, totals("failed"), totals("offered"), 1 - exact)


@pytest.mark.parametrize(("needed", "members", "a"), [(4, 5, 0.95), (5, 5, 0.95), (2, 3, 0.7), (1, 4, 0.4)])
def test_quorum(needed, members, a):
    # Members of different speed: the order of their answers must not matter
    nodes = [source(rate=500), node("front"), node("store", exp=10, error_rate=1 - a)]
    call = edge("front->store", calls=members, parallel=True, need=needed)
    runs = several(design(nodes, ["users->front", call], duration=30, drain=5))
    exact = theory.k_of_n(needed, members, a)
    measure_share(runs, totals("succeeded"), totals("offered"), exact)
    measure_share(runs, totals("failed"), totals("offered"), 1 - exact)
    for run in runs:
        assert run["nodes"]["store"]["offered"] == members * run["totals"]["offered"]


@pytest.mark.parametrize(
    ("rate", "cool", "probe"), [(20, 5.0, 0.1), (100, 1.0, 0.0), (5, 2.0, 0.5), (50, 0.5, 0.02)]
)
def test_breaker_in_front_of_a_dead_dependency(rate, cool, probe):
    q = theory.breaker_duty(rate, cool, probe)
    nodes = [
        source(rate=rate),
        node("breaker", "breaker", min_calls=5, cooldown_s=cool, window_s=10),
        node("store", ms=probe * 1e3, error_rate=1.0),
    ]
    made = design(nodes, ["users->breaker", "breaker->store"], duration=20 + 400 * q.cycle_s, warmup=20)
    runs = measure(made, {lambda run: run["nodes"]["store"]["offered"] / 400: 1.0})
    measure_share(runs, of("store", "offered"), totals("offered"), q.share_through)


@pytest.mark.parametrize(("rate", "cool"), [(20, 5.0), (50, 2.0), (200, 1.0), (100, 3.0)])
def test_breaker_sees_the_recovery_half_a_cool_down_late(rate, cool):
    # An outage refuses at once: a cycle is the cool-down and the wait for a call. Outages end anywhere in it
    cycle, period, count = cool + 1 / rate, 12 * cool, 20
    nodes = [
        source(rate=rate),
        node("breaker", "breaker", min_calls=5, cooldown_s=cool, window_s=2),
        node("store"),
    ]

    def late(seed):
        ends = random.Random(seed)
        faults = [
            fault("outage", k * period, 4 * cool + 3 * cycle * ends.random(), "store")
            for k in range(1, count + 1)
        ]
        made = design(nodes, ["users->breaker", "breaker->store"], faults, duration=period * (count + 1))
        run = Simulation(made, seed)
        run.advance(run.end_s)
        frames = run.frames()
        closed = frames.nodes["breaker"][:, 1] == 0
        delays = []
        for f in faults:
            end = f.at_s + f.duration_s
            delays.append(
                frames.t[(frames.t >= end) & closed][0] - end - 0.05
            )  # seen half a frame late on average
        return fmean(delays)

    got = mean_interval([late(seed) for seed in range(20)])
    exact = cool * cool / (2 * cycle) + 1 / rate
    assert exact == pytest.approx(
        theory.breaker_duty(rate, cool, 0.0).recovery_delay_s, rel=0.02, abs=1 / rate
    )
    assert got.agrees(exact), f"{got}, exactly {exact:.6g}"


# --- latency


@pytest.mark.parametrize(("p50", "p99"), [(50, 120), (80, 400), (10, 200), (2000, 2500)])
def test_lognormal_through_two_percentiles(p50, p99):
    law = theory.Lognormal(p50 / 1e3, p99 / 1e3)
    measure(
        one(1000, server(p50_ms=p50, p99_ms=p99), 100_000),
        {
            totals("mean_ms"): law.mean_s * 1e3,
            totals("p50_ms"): p50,
            totals("p95_ms"): law.quantile_s(0.95) * 1e3,
            totals("p99_ms"): p99,
        },
    )
    full = one(30 / law.mean_s, server(slots=10, queue=20, p50_ms=p50, p99_ms=p99), 200_000)
    measure(full, {totals("goodput_rps"): 10 / law.mean_s})


@pytest.mark.parametrize(
    "law", [theory.Exponential(0.1), theory.Lognormal(0.02, 0.2)], ids=["exp", "lognormal"]
)
@pytest.mark.parametrize("q", [0.95, 0.5, 0.8, None])
def test_hedging_takes_the_first_of_two(law, q):
    delay = law.quantile_s(q) if q else 0.0
    own = {"exp": law.mean_s * 1e3}
    if isinstance(law, theory.Lognormal):
        own = {"p50_ms": law.p50_s * 1e3, "p99_ms": law.p99_s * 1e3}
    nodes = [source(rate=1000), node("hedge", "hedge", hedge_ms=delay * 1e3), node("store", **own)]
    made = design(nodes, ["users->hedge", "hedge->store"], duration=60, warmup=1)
    runs = measure(
        made,
        {
            totals("mean_ms"): theory.hedged_mean_s(law, delay) * 1e3,
            totals("p50_ms"): theory.hedged_quantile_s(law, delay, 0.50) * 1e3,
            totals("p95_ms"): theory.hedged_quantile_s(law, delay, 0.95) * 1e3,
            totals("p99_ms"): theory.hedged_quantile_s(law, delay, 0.99) * 1e3,
        },
    )
    load = 1 + theory.hedged_load(law, delay)
    measure_share(runs, of("store", "offered"), of("hedge", "offered"), load)


@pytest.mark.parametrize(
    ("n", "p50", "p99", "requests"),
    [(100, 10, 100, 2000), (10, 10, 100, 20_000), (3, 5, 20, 40_000), (30, 20, 30, 5000)],
)
def test_the_tail_of_a_fan_out(n, p50, p99, requests):
    law = theory.Lognormal(p50 / 1e3, p99 / 1e3)
    call = edge("front->leaf", calls=n, parallel=True)
    nodes = [source(rate=1000), node("front"), node("leaf", p50_ms=p50, p99_ms=p99)]
    made = design(nodes, ["users->front", call], duration=requests / 1000, drain=60)
    measure(
        made,
        {totals(f"p{q}_ms"): theory.fan_out_quantile_s(law, n, q / 100) * 1e3 for q in (50, 95)},
    )
    patience = [source(rate=1000, timeout_ms=p99), *nodes[1:]]
    runs = several(design(patience, ["users->front", call], duration=requests / 1000, drain=60))
    measure_share(runs, failed_with("timeout"), totals("offered"), theory.fan_out_slow_share(0.01, n))


# --- capacity


@pytest.mark.parametrize(
    ("rate", "slots", "ms", "stop"),
    [(100, 15, 100, 60), (40, 5, 100, 90), (300, 50, 125, 60), (90, 100, 1000, 100)],
)
def test_a_backlog_drains(rate, slots, ms, stop):
    nodes = [source(rate=rate), node("queue", "queue"), node("worker", slots=slots, ms=ms)]
    mu = slots / (ms / 1e3)
    exact = theory.drain_s(rate, mu, stop)
    at, back = 20.0, 20.0 + stop
    faults = [fault("outage", at, stop, "worker")]
    made = design(nodes, ["users->queue", "queue->worker"], faults, duration=back + 1.5 * exact + 20)
    most, drained, age = [], [], []
    for seed in seeds(made):
        run = Simulation(made, seed)
        run.advance(run.end_s)
        frames = run.frames()
        backlog = frames.nodes["backlog"][:, 1]
        most.append(float(backlog.max()))
        drained.append(float(frames.t[(frames.t > back) & (backlog == 0)][0]) - back)
        age.append(float(np.nanmax(frames.nodes["age"][:, 1])))
        assert np.all(backlog[frames.t < at] <= rate)
    assert mean_interval(most).agrees(theory.backlog(rate, stop))
    assert mean_interval(drained).agrees(exact, relative=0.05)
    assert mean_interval(age).agrees(stop)


@pytest.mark.parametrize(
    ("refill", "burst", "window", "demand"),
    [(20, 40, 10, 200), (5, 1, 20, 50), (100, 500, 4, 1000), (2, 10, 60, 40)],
)
@pytest.mark.parametrize("plan", ["all", "rate_limiter"])
def test_token_bucket(refill, burst, window, demand, plan):
    limit = {"limit_rps": refill, "limit_burst": burst}
    reason = "rate_limited"
    if plan == "all":
        limit, reason = {"quota_rpm": refill * 60, "quota_burst": burst}, "throttled"
    q = theory.TokenBucket(refill, burst)

    def made(arrivals, rate, seconds, warmup=0.0):
        nodes = [source(rate=rate, arrivals=arrivals), node("guard", plan, **limit)]
        return design(nodes, ["users->guard"], duration=seconds, warmup=warmup)

    first = simulate(made("even", demand, window))
    assert abs(first["totals"]["succeeded"] - q.admitted(window)) <= 1
    assert first["totals"]["failures"] == {reason: first["totals"]["offered"] - first["totals"]["succeeded"]}
    settled = 10 * burst / refill + 10
    late = simulate(made("even", demand, settled + 4000 / refill, settled))
    assert late["totals"]["failed"] / late["totals"]["offered"] == pytest.approx(
        q.refused_share(demand), rel=0.02
    )
    near = 1.1 * refill
    runs = several(made("poisson", near, settled + 100_000 / refill, settled))
    measure_share(runs, failed_with(reason), totals("offered"), q.refused_share_poisson(near))


@pytest.mark.parametrize(
    ("capacity", "retries", "budget"), [(100, 3, 0.1), (50, 1, 0.2), (200, 4, 0.05), (1000, 2, 0.1)]
)
def test_a_retry_storm_outlives_its_trigger_above_the_tipping_point(capacity, retries, budget):
    def after(rate, **more):
        """Share of successes long after a slow-down of 10 s."""
        settings = {"timeout_ms": 1000, "retries": retries, "backoff_ms": 0, **more}
        nodes = [
            source(rate=rate),
            node("front", **settings),
            node("store", slots=capacity // 10, queue=ENDLESS, ms=100),
        ]
        faults = [fault("slow", 20, 10, "store", 20.0)]
        made = design(nodes, ["users->front", "front->store"], faults, duration=500, warmup=400)
        return simulate(made)["totals"]["success_rate"]

    safe = theory.safe_rate(capacity, retries)
    assert after(0.85 * safe) > 0.999
    assert after(1.3 * safe) < 0.05
    saved = theory.safe_rate(capacity, retries, budget)
    assert after(0.8 * saved) < 0.05
    assert after(0.8 * saved, retry_budget=budget) > 0.99


def test_young_saves_every_second_step():
    """Steps of 2 s, a save of 50 ms, a failed step every 120 s: two steps to a save lose least."""
    step, save, p, steps = 2.0, 0.05, 2.0 / 120.0, 960

    def exact(every):
        """Overhead of a task that ends well: its first stretch cannot be resumed, the others are redone as
        often as it takes to see `every` good steps in a row."""
        redone = step * (1 - (1 - p) ** every) / (p * (1 - p) ** every)
        stretches = steps // every
        time = every * step + (stretches - 1) * redone + stretches * save
        return time / (steps * step) - 1

    measured = {}
    for every in (1, 2, 4, 8):
        nodes = [
            source(rate=0.5),
            node("agent", "loop", steps=steps, checkpoint_every=every, max_resumes=10**6, resume_wait_s=0),
            node("tool", ms=step * 1e3, error_rate=p),
            node("store", ms=save * 1e3),
        ]
        edges = ["users->agent", "agent->tool", edge("agent->store", checkpoint=True)]
        made = design(nodes, edges, duration=60, drain=9000)
        got = mean_interval([run["totals"]["mean_ms"] / (steps * step * 1e3) - 1 for run in several(made)])
        assert got.agrees(exact(every)), f"every {every}: {got}, exactly {exact(every):.6g}"
        measured[every] = got.mean
    best = theory.young_interval_s(save, 120.0)
    assert min(measured, key=measured.get) == min((1, 2, 4, 8), key=lambda k: abs(math.log(k * step / best)))
    assert measured[2] == pytest.approx(theory.young_overhead(2 * step, save, 120.0), rel=0.6)
