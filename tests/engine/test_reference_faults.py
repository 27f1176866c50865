"""Faults, crashes by overload, autoscaling and the shapes of traffic: numbers worked out by hand."""

import math

import pytest

from tests.engine.reference.build import design, edge, fault, node, source

close = pytest.approx


def herd(count, at=0.0, id="users", **settings):
    """`count` requests at one instant."""
    return source(id, shape="herd", count=count, at_s=at, spread_s=0, **settings)


def offered(lab, duration=20.0, warmup=0.0, faults=(), **settings):
    """How many requests of one source arrive."""
    nodes = [source(**settings), node("s")]
    return lab(design(nodes, ["users->s"], faults, duration=duration, warmup=warmup)).totals.offered


# --- faults


def test_a_crash_fails_what_waits_and_what_is_in_service_at_that_instant(lab):
    nodes = [herd(34), node("db", slots=4, queue=30, ms=1000)]
    got = lab(design(nodes, ["users->db"], [fault("crash", 0.5, 1, "db", 1)], duration=5))
    assert got["db"].failures == {"crashed": 4, "unavailable": 30}
    assert got.totals.failures_by_node == {"db": 34}
    assert (got["db"].mean_ms, got["db"].crashes) == (close(500), 1)


@pytest.mark.parametrize(("length", "down"), [(0, 2.0), (1, 1.0)])
def test_a_crash_lasts_its_duration_or_else_the_restart(lab, length, down):
    requests = [herd(1, 0.6 + k / 2, f"at{k}") for k in range(6)]
    nodes = [*requests, node("s", ms=10, restart_s=2)]
    edges = [f"at{k}->s" for k in range(6)]
    got = lab(design(nodes, edges, [fault("crash", 0.5, length, "s", 1)], duration=5))
    assert got["s"].failures == {"unavailable": 2 * down}


def test_a_crash_of_one_instance_spares_the_others(lab):
    nodes = [herd(4), node("s", instances=2, slots=2, queue=9, ms=1000)]
    got = lab(design(nodes, ["users->s"], [fault("crash", 0.5, 1, "s", 1)], duration=5))
    assert (got["s"].failures, got["s"].succeeded, got["s"].crashes) == ({"crashed": 2}, 2, 1)
    # Two slots for half a second, two of them taken; the other second of the live capacity is idle or gone.
    got = lab(design(nodes, ["users->s"], [fault("crash", 0.5, 1, "s", 1)], duration=1))
    assert got["s"].utilisation == close((0.5 * 4 + 0.5 * 2) / (0.5 * 4 + 0.5 * 2))


def test_an_outage_takes_all_and_brings_all_back(lab):
    nodes = [herd(5), herd(1, 1.0, "during"), herd(1, 3.0, "after")]
    nodes.append(node("s", instances=2, slots=1, queue=9, ms=1000, restart_s=60))
    faults = [fault("crash", 0.4, 0, "s", 1), fault("outage", 0.5, 2, "s")]
    got = lab(design(nodes, ["users->s", "during->s", "after->s"], faults, duration=5))
    assert got["s"].failures == {"crashed": 2, "unavailable": 3 + 1}
    # The crashed instance does not crash again, and is back with the other one.
    assert got["s"].crashes == 2
    assert got.sources["after"].succeeded == 1
    assert got["s"].utilisation == close((0.4 * 2 + 0.1 + 1.0) / (0.4 * 2 + 0.1 + 2.5 * 2))


def test_a_crashed_caller_gives_up_its_calls(lab):
    nodes = [herd(1), node("a"), node("b", ms=1000, cancel=True), node("c", ms=1000)]
    edges = ["users->a", edge("a->b", parallel=True), edge("a->c", parallel=True)]
    got = lab(design(nodes, edges, [fault("crash", 0.5, 1, "a", 1)], duration=5))
    assert (got["a"].failures, got["b"].failures, got["c"].succeeded) == ({"crashed": 1}, {"cancelled": 1}, 1)


PLANS = ["all", "one_of", "cache", "queue", "breaker", "loop", "hedge", "rate_limiter", "shedder", "bulkhead"]


@pytest.mark.parametrize("plan", PLANS)
def test_slow_acts_on_every_kind(lab, plan):
    extra = {"cache": {"hit_rate": 1.0}}.get(plan, {})
    nodes = [herd(1), node("s", plan, ms=30, **extra), node("db")]
    edges = ["users->s", "s->db"]
    assert lab(design(nodes, edges, duration=5))["s"].mean_ms == close(30)
    got = lab(design(nodes, edges, [fault("slow", 0, 1, "s", 10)], duration=5))
    assert got["s"].mean_ms == close(300)


@pytest.mark.parametrize("plan", PLANS)
def test_errors_quota_and_outage_act_on_every_kind(lab, plan):
    nodes = [herd(3, 0.1), node("s", plan, ms=30), node("db")]
    edges = ["users->s", "s->db"]
    got = lab(design(nodes, edges, [fault("errors", 0, 1, "s", 1.0)], duration=5))
    assert (got["s"].failures, got["db"].offered) == ({"error": 3}, 0)
    got = lab(design(nodes, edges, [fault("quota", 0, 1, "s", 0)], duration=5))
    assert got["s"].failures == {"throttled": 3}
    got = lab(design(nodes, edges, [fault("outage", 0.11, 1, "s")], duration=5))
    assert (got["s"].failures, got["s"].mean_ms) == ({"crashed": 3}, close(10))


def test_slow_factors_multiply_and_the_cpu_part_stays(lab):
    nodes = [herd(1), node("s", vcpu=1, cpu_ms=100, ms=150)]
    faults = [fault("slow", 0, 1, "s", 2), fault("slow", 0, 0.01, "s", 3)]
    got = lab(design(nodes, ["users->s"], faults, duration=3))
    assert got["s"].mean_ms == close(900)
    assert got["s"].cpu_utilisation == close(0.1 / 3)
    # L is at least the CPU part before it is stretched.
    nodes[1] = node("s", vcpu=1, cpu_ms=100, ms=20)
    assert lab(design(nodes, ["users->s"], faults[:1], duration=3))["s"].mean_ms == close(200)


def test_slow_is_for_calls_that_start_during_it(lab):
    nodes = [herd(1), herd(1, 0.5, "second"), herd(1, 1.5, "third"), node("s", ms=100)]
    edges = ["users->s", "second->s", "third->s"]
    got = lab(design(nodes, edges, [fault("slow", 0.05, 1, "s", 5)], duration=3))
    assert [got.sources[id].mean_ms for id in ("users", "second", "third")] == [
        close(100),
        close(500),
        close(100),
    ]


def test_errors_add_up_like_chances(lab):
    nodes = [source(rate=2000), node("s", error_rate=0.2)]
    faults = [fault("errors", 0, 10, "s", 0.5), fault("errors", 0, 10, "s", 0.25)]
    got = lab(design(nodes, ["users->s"], faults, duration=10))
    assert got.totals.success_rate == close(0.8 * 0.5 * 0.75, rel=0.05)


def test_a_cut_loses_calls_and_answers(lab):
    nodes = [herd(1), herd(1, 0.5, "second"), herd(1, 2.0, "third")]
    nodes += [node("a", timeout_ms=1000), node("b", ms=100)]
    edges = ["users->a", "second->a", "third->a", "a->b"]
    got = lab(design(nodes, edges, [fault("cut", 0.05, 1, "a->b")], duration=5))
    # The answer of the first is lost, the call of the second is not even offered.
    assert (got["b"].offered, got["b"].succeeded) == (2, 2)
    assert (got["a"].failures, got.totals.failures_by_node) == ({"timeout": 2}, {"b": 2})
    assert got["a"].mean_ms == close((1000 + 1000 + 100) / 3)


def test_latency_is_added_to_each_way(lab):
    nodes = [herd(1), herd(1, 1.0, "later"), node("s", ms=100)]
    faults = [fault("latency", 0, 0.5, "users->s", 30), fault("latency", 0, 0.05, "users->s", 10)]
    got = lab(design(nodes, [edge("users->s", latency_ms=5), "later->s"], faults, duration=3))
    assert got.sources["users"].mean_ms == close(45 + 100 + 35)
    assert got.sources["later"].mean_ms == close(100)


def test_a_quota_fault_slows_the_refill_and_keeps_the_burst(lab):
    nodes = [herd(5), herd(5, 4.0, "later"), node("s", quota_rpm=60, quota_burst=4)]
    got = lab(design(nodes, ["users->s", "later->s"], [fault("quota", 0, 10, "s", 0.5)], duration=10))
    assert [got.sources[id].succeeded for id in ("users", "later")] == [4, 2]


def test_a_crashed_source_stops_acting(lab):
    settings = {"rate": 10, "arrivals": "even", "duration": 10}
    for kind in ("outage", "crash"):
        assert (
            offered(lab, faults=[fault(kind, 2.05, 5, "users")], **settings) == offered(lab, **settings) - 50
        )


@pytest.mark.parametrize(("kind", "amount", "reason"), [("errors", 1.0, "error"), ("quota", 0, "throttled")])
def test_faults_at_a_source_fail_its_requests_as_they_begin(lab, kind, amount, reason):
    nodes = [herd(7), herd(3, 2.0, "later"), node("s", ms=10)]
    faults = [fault(kind, 0, 1, "users", amount), fault(kind, 0, 1, "later", amount)]
    got = lab(design(nodes, ["users->s", "later->s"], faults, duration=3))
    assert (got.totals.failures, got.totals.failures_by_node) == ({reason: 7}, {"users": 7})
    assert got["s"].offered == 3


@pytest.mark.parametrize("factor", [0, 2.5])
def test_a_traffic_fault_acts_on_herds_batches_and_users(lab, factor):
    faults = [fault("traffic", 0.5, 10, "users", factor)]
    herds = {"shape": "herd", "count": 400, "at_s": 1, "spread_s": 2}
    assert offered(lab, duration=5, faults=faults, **herds) == close(400 * factor, abs=60)
    batches = {"shape": "batch", "batch": 40, "every_s": 1}
    assert offered(lab, duration=4.5, faults=faults, **batches) == close(40 + 160 * factor, abs=40)
    many = offered(lab, duration=20, warmup=10, users=100, think_s=1)
    some = offered(
        lab, duration=20, warmup=10, faults=[fault("traffic", 0.5, 30, "users", factor)], users=100
    )
    assert some == close(many * factor, rel=0.15)


def test_a_traffic_fault_is_a_factor(lab):
    settings = {"rate": 10, "arrivals": "even", "duration": 20, "stop_s": 19.5}
    assert offered(lab, **settings) == close(195, abs=1)
    assert offered(lab, faults=[fault("traffic", 5, 10, "users", 3)], **settings) == close(395, abs=1)
    assert offered(lab, faults=[fault("traffic", 5, 10, "users", 0)], **settings) == close(95, abs=1)


# --- overload


def test_no_crash_up_to_nine_tenths(lab):
    nodes = [source(rate=85, arrivals="even"), node("s", vcpu=1, cpu_ms=10, crash_rate=1000)]
    assert lab(design(nodes, ["users->s"], duration=60))["s"].crashes == 0


def test_a_saturated_instance_crashes_soon_after_nine_tenths_of_five_seconds(lab):
    # The hazard begins at 4.5 s and reaches 1000 per s at 5 s: a crash at about 4.53 s.  Ten seconds later it
    # is back, and idle before the next crowd, which takes as long to bring it down.
    nodes = [herd(1000), herd(1000, 14.7, "more"), node("s", vcpu=1, cpu_ms=10, crash_rate=1000)]
    edges = ["users->s", "more->s"]
    for length, crashes in ((4.49, 0), (4.7, 1), (19.19, 1), (19.4, 2)):
        assert lab(design(nodes, edges, duration=length))["s"].crashes == crashes


def test_the_hazard_is_exact(lab):
    # 91 % busy: a hazard of a tenth of crash_rate, from 5 s on; almost none before.
    nodes = [source(rate=91, arrivals="even"), node("s", vcpu=1, cpu_ms=10, crash_rate=1.0, restart_s=1)]
    crashes = [lab(design(nodes, ["users->s"], duration=400), seed)["s"].crashes for seed in range(1, 5)]
    # A cycle is 1 s down, 5 s of looking back and 10 s of waiting: about 25 in 400 s.
    assert sum(crashes) / 4 == close(25, abs=7)


# --- autoscaling


def scaled(on, **settings):
    usual = {"scale_every_s": 10, "boot_s": 5, "scale_cooldown_s": 0, "scale_target": 0.5}
    return node("s", scale_on=on, **{**usual, **settings})


def test_scaling_out_on_utilisation(lab):
    # Ten busy slots for ever.  Until 10 s one instance is full: two are wanted.  They serve at 15 s; of 10 to
    # 20 s the mean is 100 of 150 slot seconds: ceil(2 · 2/3 / 0.5) = 3.  At 30 s 100 of 250: 3; at 40 s
    # 100 of 300: 2.
    nodes = [herd(10), scaled("utilisation", slots=10, ms=1e6)]
    for length, mean in ((10, 1.0), (15, 1.0), (20, 200 / 250), (30, 300 / 500), (40, 400 / 800)):
        got = lab(design([*nodes], ["users->s"], duration=length))
        assert got["s"].utilisation == close(mean, rel=1e-6), length


def test_booting_instances_do_not_count_as_serving(lab):
    nodes = [herd(10), scaled("utilisation", slots=10, ms=1e6, boot_s=25, scale_max=3)]
    # Wanted at 10, 20 and 30 s: always two, of which one boots until 35 s.
    got = lab(design(nodes, ["users->s"], duration=40))
    assert got["s"].utilisation == close(400 / (10 * 35 + 20 * 5), rel=1e-6)


def test_the_cool_down_holds_back_a_change(lab):
    nodes = [herd(10), scaled("utilisation", slots=10, ms=1e6, scale_cooldown_s=25)]
    # Two at 15 s; the change to three is due at 20 s, held back until 40 s, when the mean is 0.5: two it is.
    got = lab(design(nodes, ["users->s"], duration=60))
    assert got["s"].utilisation == close(600 / (10 * 15 + 20 * 45), rel=1e-6)


def test_scaling_on_cpu(lab):
    nodes = [herd(100), scaled("cpu", vcpu=1, cpu_ms=1e6, crash_rate=0, scale_max=3, boot_s=0)]
    # One core until 10 s, two until 20 s, three from then on; all busy.
    got = lab(design(nodes, ["users->s"], duration=30))
    assert got["s"].cpu_utilisation == close(1.0)
    nodes[1] = scaled("cpu", vcpu=1, cpu_ms=1000, crash_rate=0, scale_max=3, boot_s=0)
    got = lab(design([herd(60), nodes[1]], ["users->s"], duration=31))
    assert (got["s"].succeeded, got["s"].in_flight) == (60, 0)


def test_scaling_on_the_queue(lab):
    # 1 works, 29 wait: ceil(29 / 10) = 3 from 11 s on.
    nodes = [herd(30), scaled("queue", slots=1, queue=99, ms=1e6, scale_target=10, boot_s=1)]
    got = lab(design(nodes, ["users->s"], duration=15))
    assert got["s"].utilisation == close(1.0)
    assert got["s"].queue_mean == close((29 * 11 + 27 * 4) / 15)


def test_scaling_in_drains(lab):
    nodes = [herd(4), scaled("utilisation", instances=4, slots=1, ms=15_000, scale_target=1.0)]
    edges = ["users->s"]
    # Busy until 15 s: at 20 s the mean is 0.5 and two go; at 30 s it is 0 and one stays.
    got = lab(design(nodes, edges, duration=40))
    assert got["s"].utilisation == close(60 / (4 * 20 + 2 * 10 + 1 * 10))
    assert got["s"].succeeded == 4
    # Two of four busy for ever: the idle ones of those that go are gone at once, the others when they end.
    nodes = [herd(2), scaled("utilisation", instances=4, slots=1, ms=35_000, scale_target=1.0)]
    got = lab(design(nodes, edges, duration=30))
    assert got["s"].succeeded + got["s"].in_flight == 2
    assert got["s"].utilisation == close(60 / (4 * 10 + 2 * 20))


def test_scaling_in_does_not_slow_what_still_runs(lab):
    # Two jobs of 30 s on two cores; at 20 s one instance of the two goes, at 30 s both jobs are done.
    nodes = [
        herd(2),
        scaled("queue", instances=2, slots=1, vcpu=1, cpu_ms=30_000, crash_rate=0, scale_every_s=20),
    ]
    got = lab(design(nodes, ["users->s"], duration=40))
    assert got["s"].mean_ms == close(30_000)


def test_a_component_that_is_down_does_not_scale(lab):
    nodes = [herd(10), scaled("utilisation", slots=10, ms=1e6), herd(15, 12.0, "later")]
    got = lab(design(nodes, ["users->s", "later->s"], [fault("outage", 9, 2, "s")], duration=14))
    assert got.sources["later"].failures == {"rejected": 5}


# --- shapes of traffic


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (100, {"rate": 5}),
        (50, {"rate": 5, "start_s": 5, "stop_s": 15}),
        (150, {"shape": "ramp", "rate": 5, "rate_to": 10}),
        (75, {"shape": "ramp", "rate": 5, "rate_to": 10, "start_s": 5, "stop_s": 15}),
        (160, {"shape": "step", "rate": 5, "rate_to": 10, "at_s": 8}),
        (220, {"shape": "spike", "rate": 5, "spike_factor": 4, "at_s": 6, "on_s": 8}),
        (92, {"shape": "burst", "rate": 10, "off_rate": 1, "on_s": 2, "off_s": 3}),
        (69, {"shape": "burst", "rate": 10, "off_rate": 1, "on_s": 2, "off_s": 3, "start_s": 5}),
        (100, {"shape": "day", "rate": 5, "amplitude": 0.8, "period_s": 20}),
        (100 + 160 / math.pi, {"shape": "day", "rate": 5, "amplitude": 0.8, "period_s": 40}),
        (90, {"shape": "schedule", "schedule": [[2, 5], [10, 0], [15, 10]]}),
        (90, {"shape": "trace", "trace_csv": "t,rate\n2,5\n10,0\n15,10\n"}),
    ],
)
def test_the_number_of_arrivals(lab, count, settings):
    assert offered(lab, arrivals="even", **settings) == close(count, abs=1.01)
    assert offered(lab, **settings) == close(count, abs=4 * math.sqrt(count))


def test_a_herd_comes_in_its_time(lab):
    settings = {"shape": "herd", "count": 1000, "at_s": 5, "spread_s": 4}
    for arrivals in ("poisson", "even"):
        assert offered(lab, arrivals=arrivals, **settings) == 1000
        assert offered(lab, duration=4.99, arrivals=arrivals, **settings) == 0
        assert offered(lab, duration=9.01, arrivals=arrivals, **settings) == 1000
        assert offered(lab, duration=7, arrivals=arrivals, **settings) == close(500, abs=60)


def test_batches_come_at_once(lab):
    settings = {"shape": "batch", "batch": 7, "every_s": 5}
    assert offered(lab, duration=0.01, **settings) == 7
    assert offered(lab, duration=12, **settings) == 21
    assert offered(lab, duration=12, stop_s=6, **settings) == 14


def test_users_think_first_and_wait_for_their_answer(lab):
    nodes = [source(users=50, think_s=4), node("s", ms=1000)]
    got = lab(design(nodes, ["users->s"], duration=400, warmup=50))
    assert got.totals.offered / 350 == close(50 / 5, rel=0.05)
    nodes[0] = source(users=50, think_s=1e5)
    assert lab(design(nodes, ["users->s"], duration=1)).totals.offered <= 1
    # With one slot the service sets the pace.
    nodes = [source(users=50, think_s=1), node("s", slots=1, queue=99, ms=500)]
    got = lab(design(nodes, ["users->s"], duration=100, warmup=20))
    assert got.totals.offered == close(160, abs=2)


def test_reads_and_writes_and_keys(lab):
    nodes = [herd(10_000, write_share=0.3, keys=4, zipf=1.0), node("lb", "one_of", policy="by_key")]
    nodes += [*(node(id) for id in "abcd"), node("w")]
    edges = ["users->lb", *(f"lb->{id}" for id in "abcd"), edge("a->w", only="write")]
    got = lab(design(nodes, edges, duration=1))
    assert got["w"].offered == close(0.3 * got["a"].offered, rel=0.12)
