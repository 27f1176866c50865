"""Every component of the catalogue: alone, as its page has it, and under every fault."""

import pytest

from engine.design import Node, catalogue
from engine.run.simulation import simulate
from tests.engine.books import check_frames, check_summary, finished
from tests.engine.reference.build import design, fault, node, source

pytestmark = pytest.mark.slow
ENDLESS = 10**9


@pytest.mark.parametrize("kind", list(catalogue()))
def test_one_node_of_each_kind(kind):
    made = design([Node.make("it", catalogue()[kind])], [], duration=5)
    run = finished(made)
    check_frames(run)
    got = check_summary(run)["nodes"]["it"]
    assert got["succeeded"] == 0


@pytest.mark.parametrize("kind", list(catalogue()))
def test_each_kind_as_the_catalogue_has_it(kind):
    plain = catalogue()[kind]
    if plain.is_source:
        nodes = [Node.make("it", plain), node("store", ms=5)]
        edges = ["it->store"]
    else:
        nodes = [source(rate=2), Node.make("it", plain), node("store", ms=5)]
        edges = ["users->it", "it->store"]
    run = finished(design(nodes, edges, duration=200))
    check_frames(run)
    got = check_summary(run)
    assert got["totals"]["succeeded"] > 0


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


def with_kind(kind, faults=(), duration=20.0, users=None, **more):
    """users -> the kind -> a store, with an own time of 30 ms and nothing else in its way."""
    plan = catalogue()[kind].plan
    it = Node.make("it", catalogue()[kind], settings=CALM | QUIET.get(plan, {}) | more)
    nodes = [source(rate=50, **(users or {})), it, node("store")]
    return design(nodes, ["users->it", "it->store"], faults, duration)


def kind_under_test(*args, **more):
    return simulate(with_kind(*args, **more))


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
        # The answers of crashed calls are still on their way when those would have been done
        faults = [fault("outage", 5, 10, "it"), fault("latency", 0, 30, "users->it", 40)]
        run = finished(with_kind(kind, faults, instances=3))
        check_frames(run)
        it = run.summary()["nodes"]["it"]
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
        users = Node.make("users", catalogue()[kind], settings=STEADY | more)
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
