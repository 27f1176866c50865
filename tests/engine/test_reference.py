"""The life of a call, capacity, CPU, giving up, refusals and what is counted: numbers worked out by hand."""

import pytest

from tests.engine.reference.build import design, edge, fault, node, source
from tests.engine.reference.numbers import Numbers

close = pytest.approx


def near(value):
    """A percentile: histograms may be 1 % off."""
    return pytest.approx(value, rel=0.0101)


def herd(count, at=0.0, id="users", **settings):
    """`count` requests at one instant."""
    return source(id, shape="herd", count=count, at_s=at, spread_s=0, **settings)


# --- slots, queue, time


def test_one_waiter_waits_once_and_from_the_first_instant(lab):
    got = lab(design([herd(2), node("s", slots=1, queue=50, ms=100)], ["users->s"], duration=1))
    assert got.totals.succeeded == 2
    assert got.totals.mean_ms == close(150)
    assert (got.totals.p50_ms, got.totals.p99_ms) == (near(100), near(200))
    assert got["s"].queue_max == 1
    assert got["s"].queue_mean == close(0.1)
    assert got["s"].wait_mean_ms == close(50)
    assert got["s"].utilisation == close(0.2)


def test_balked_is_not_served(lab):
    got = lab(design([herd(3), node("s", slots=1, queue=1, ms=100)], ["users->s"], duration=1))
    assert (got.totals.succeeded, got.totals.failures) == (2, {"rejected": 1})
    assert got.totals.failures_by_node == {"s": 1}
    # The refused call has neither waited nor been inside.
    assert got["s"].wait_mean_ms == close(50)
    assert got["s"].mean_ms == close(150)


def test_a_queue_of_zero_refuses_at_once(lab):
    got = lab(design([herd(5), node("s", slots=2, ms=100)], ["users->s"], duration=1))
    assert (got.totals.succeeded, got["s"].failures) == (2, {"rejected": 3})


def test_without_slots_nobody_waits(lab):
    got = lab(design([herd(500), node("s", ms=100)], ["users->s"], duration=1))
    assert (got.totals.succeeded, got.totals.p99_ms) == (500, near(100))
    assert got["s"].utilisation is None
    assert got["s"].cpu_utilisation is None


def test_instances_share_one_queue(lab):
    got = lab(design([herd(8), node("s", instances=3, slots=2, queue=2, ms=100)], ["users->s"], duration=1))
    assert got["s"].succeeded == 8
    assert got["s"].wait_mean_ms == close(25)
    assert got["s"].utilisation == close(0.8 / 6)


@pytest.mark.parametrize("store_ms", [100, 300])
def test_a_slot_is_held_during_downstream_calls(lab, store_ms):
    nodes = [source(rate=20), node("s", slots=4, queue=5, ms=600), node("store", ms=store_ms)]
    got = lab(design(nodes, ["users->s", "s->store"], duration=200, warmup=50))
    assert got.totals.goodput_rps == close(4 / (0.6 + store_ms / 1e3), rel=0.02)
    assert got["s"].utilisation == close(1.0, rel=1e-3)
    light = [source(rate=2, arrivals="even"), *nodes[1:]]
    got = lab(design(light, ["users->s", "s->store"], duration=200, warmup=50))
    assert got["s"].utilisation == close(2 * (0.6 + store_ms / 1e3) / 4, rel=0.01)


def test_sojourn_shows_the_wait_of_a_leaf(lab):
    got = lab(design([herd(10), node("s", slots=1, queue=10, ms=100)], ["users->s"], duration=2))
    assert got["s"].mean_ms == close(550)
    assert got["s"].p99_ms == near(1000)
    assert got["s"].p50_ms == near(500)


def test_the_ways_there_and_back_count(lab):
    nodes = [herd(1), node("a", ms=10), node("b", ms=20)]
    edges = [edge("users->a", latency_ms=5), edge("a->b", latency_ms=40)]
    got = lab(design(nodes, edges, duration=1))
    assert got.totals.mean_ms == close(2 * 5 + 10 + 2 * 40 + 20)
    assert got["a"].mean_ms == close(10 + 80 + 20)
    assert got["b"].mean_ms == close(20)


def test_a_refusal_travels_back(lab):
    nodes = [herd(1), node("a", ms=10), node("b", slots=1, ms=500), node("c", ms=7), herd(1, id="other")]
    edges = [
        edge("a->b", latency_ms=30),
        edge("a->c", fallback="a->b", latency_ms=1),
        "users->a",
        "other->b",
    ]
    got = lab(design(nodes, edges, duration=2))
    assert got.sources["users"].mean_ms == close(10 + 60 + 2 + 7)
    assert got["b"].failures == {"rejected": 1}


@pytest.mark.parametrize("model", ["lognormal", "constant", "exponential"])
def test_distributions_of_the_own_time(lab, model):
    nodes = [source(rate=2000), node("s", p50_ms=50, p99_ms=120, latency_model=model)]
    got = lab(design(nodes, ["users->s"], duration=20))
    mean, p99 = {"lognormal": (53.6689, 120), "constant": (50, 50), "exponential": (72.1348, 332.193)}[model]
    assert got["s"].mean_ms == close(mean, rel=0.02)
    assert got["s"].p50_ms == close(50, rel=0.03)
    assert got["s"].p99_ms == close(p99, rel=0.05)


def test_percentiles_take_the_nearest_rank(lab):
    nodes = [herd(39), node("s", slots=1, queue=100, ms=100)]
    assert lab(design(nodes, ["users->s"], duration=10)).totals.p95_ms == near(3800)
    nodes = [herd(10), node("s", slots=1, queue=100, ms=100)]
    assert lab(design(nodes, ["users->s"], duration=10)).totals.p99_ms == near(1000)


# --- CPU


def test_two_jobs_share_a_core(lab):
    got = lab(design([herd(2), node("s", vcpu=1, cpu_ms=100)], ["users->s"], duration=1))
    assert got.totals.mean_ms == close(200)
    assert got["s"].cpu_utilisation == close(0.2)


def test_the_rest_of_the_own_time_passes_without_cpu(lab):
    got = lab(design([herd(2), node("s", vcpu=1, cpu_ms=100, ms=300)], ["users->s"], duration=1))
    assert got.totals.mean_ms == close(400)


def test_a_second_job_slows_the_first_only_while_it_runs(lab):
    nodes = [herd(1), herd(1, 0.05, "late"), node("s", vcpu=1, cpu_ms=100)]
    got = lab(design(nodes, ["users->s", "late->s"], duration=1))
    assert got.sources["users"].mean_ms == close(150)
    assert got.sources["late"].mean_ms == close(150)
    assert got["s"].cpu_utilisation == close(0.2)


def test_a_call_uses_one_core_at_most(lab):
    got = lab(design([herd(3), node("s", vcpu=4, cpu_ms=100)], ["users->s"], duration=1))
    assert got.totals.mean_ms == close(100)
    assert got["s"].cpu_utilisation == close(0.3 / 4)


def test_cores_of_all_instances_are_one_pool(lab):
    nodes = [herd(4), node("s", instances=2, slots=1, queue=9, vcpu=1, cpu_ms=100, ms=50)]
    got = lab(design(nodes, ["users->s"], duration=1))
    assert got.totals.mean_ms == close(150)
    assert got["s"].cpu_utilisation == close(0.2)


def test_a_slot_held_downstream_needs_no_cpu(lab):
    nodes = [herd(2), node("s", vcpu=1, cpu_ms=100), node("db", ms=500)]
    got = lab(design(nodes, ["users->s", "s->db"], duration=1))
    assert got.totals.mean_ms == close(700)
    assert got["s"].cpu_utilisation == close(0.2)


# --- errors, retries, timeouts


def test_an_error_comes_at_the_end_of_the_own_work(lab):
    nodes = [herd(4), node("s", ms=50, error_rate=1.0), node("db", ms=5)]
    got = lab(design(nodes, ["users->s", "s->db"], duration=1))
    assert got["s"].failures == {"error": 4}
    assert got["s"].mean_ms == close(50)
    assert got["db"].offered == 0
    assert got.totals.failures_by_node == {"s": 4}
    assert got.totals.mean_ms is None
    assert got.totals.offered_p50_ms is None


@pytest.mark.parametrize(("most", "inside"), [(0, 30 + 100 + 300), (200, 30 + 100 + 200)])
def test_waits_between_attempts(lab, most, inside):
    nodes = [
        herd(1),
        node("s", retries=2, backoff_ms=100, backoff_factor=3, backoff_max_ms=most),
        node("db", ms=10, error_rate=1.0),
    ]
    got = lab(design(nodes, ["users->s", "s->db"], duration=2))
    assert got["s"].mean_ms == close(inside)
    assert (got["db"].offered, got["s"].retries, got["db"].retries) == (3, 2, 0)
    assert got.totals.failures_by_node == {"db": 1}


def test_jitter_spreads_a_wait_evenly(lab):
    nodes = [source(rate=500), node("s", retries=1, backoff_ms=100, jitter=0.5), node("db", error_rate=1)]
    got = lab(design(nodes, ["users->s", "s->db"], duration=20))
    assert got["s"].mean_ms == close(100, rel=0.02)
    assert got["s"].p95_ms == close(145, rel=0.02)
    assert got["s"].p99_ms == close(149, rel=0.02)


def test_retries_count(lab):
    nodes = [source(rate=100, arrivals="even", stop_s=10), node("s", retries=2, backoff_ms=1)]
    nodes.append(node("db", error_rate=1.0))
    got = lab(design(nodes, ["users->s", "s->db"], duration=11))
    assert got.totals.offered == close(1000, abs=1)
    assert got["db"].offered == 3 * got.totals.offered
    assert got["s"].failed == got.totals.failed == got.totals.offered
    assert got["s"].retries == got.totals.retries == 2 * got.totals.offered


def test_each_parallel_branch_is_retried_by_itself(lab):
    nodes = [herd(1), node("s", retries=1, backoff_ms=100), node("a", ms=10), node("b", ms=20)]
    edges = ["users->s", edge("s->a", parallel=True), edge("s->b", parallel=True)]
    faults = [fault("errors", 0, 0.05, "a", 1.0), fault("errors", 0, 0.05, "b", 1.0)]
    got = lab(design(nodes, edges, faults, duration=1))
    assert (got["a"].offered, got["b"].offered) == (2, 2)
    assert (got.totals.succeeded, got.totals.mean_ms) == (1, close(20 + 100 + 20))
    assert got["s"].retries == 2


def test_an_edge_overrides_retries_and_timeout(lab):
    nodes = [herd(1), node("s", retries=4, backoff_ms=0, timeout_ms=1000), node("db", ms=100)]
    edges = ["users->s", edge("s->db", retries=1, timeout_ms=30)]
    got = lab(design(nodes, edges, duration=1))
    assert (got["db"].offered, got["db"].succeeded) == (2, 2)
    assert got["s"].mean_ms == close(60)
    assert got["s"].failures == {"timeout": 1}


def test_too_deep_is_not_retried(lab):
    got = lab(design([herd(1), node("a", retries=3, backoff_ms=0)], ["users->a", "a->a"], duration=1))
    assert got["a"].offered == 33
    assert got["a"].failures == {"too_deep": 33}
    assert got.totals.failures == {"too_deep": 1}
    assert got.totals.failures_by_node == {"a": 1}


def test_a_retry_budget_counts_first_attempts(lab):
    nodes = [
        herd(10),
        node("s", retries=3, backoff_ms=10, retry_budget=0.2),
        node("db", ms=1, error_rate=1.0),
    ]
    got = lab(design(nodes, ["users->s", "s->db"], duration=1))
    assert (got["db"].offered, got["s"].retries) == (12, 2)


def test_a_retry_budget_forgets_after_ten_seconds(lab):
    nodes = [herd(10), herd(10, 10.5, "more"), node("s", retries=1, backoff_ms=10, retry_budget=0.3)]
    nodes.append(node("db", ms=1, error_rate=1.0))
    got = lab(design(nodes, ["users->s", "more->s", "s->db"], duration=20))
    assert (got["db"].offered, got["s"].retries) == (26, 6)
    nodes[1] = herd(10, 9.0, "more")
    got = lab(design(nodes, ["users->s", "more->s", "s->db"], duration=20))
    # 20 first attempts and 3 retries in the window: 3 more are allowed.
    assert got["s"].retries == 6


@pytest.mark.parametrize(("timeout", "succeeded"), [(100, 1), (99, 0)])
def test_an_answer_at_the_very_instant_of_the_deadline_is_in_time(lab, timeout, succeeded):
    nodes = [herd(1, 0.1), node("s", timeout_ms=timeout), node("db", ms=50)]
    got = lab(design(nodes, ["users->s", edge("s->db", latency_ms=25)], duration=1))
    assert got.totals.succeeded == succeeded


def test_a_timeout_begins_in_the_deepest_open_call(lab):
    nodes = [herd(1, timeout_ms=100), node("a", ms=10), node("b", ms=10), node("c", ms=500)]
    got = lab(design(nodes, ["users->a", "a->b", "b->c"], duration=1))
    assert got.totals.failures == {"timeout": 1}
    assert got.totals.failures_by_node == {"c": 1}
    assert got["c"].succeeded == got["b"].succeeded == got["a"].succeeded == 1


def test_a_timeout_begins_at_the_component_that_waits_to_retry(lab):
    nodes = [herd(1, timeout_ms=100), node("a", ms=10, retries=1, backoff_ms=500), node("b", error_rate=1)]
    got = lab(design(nodes, ["users->a", "a->b"], duration=1))
    assert got.totals.failures_by_node == {"a": 1}


def test_a_timeout_begins_where_a_travelling_call_goes(lab):
    nodes = [herd(1, timeout_ms=100), node("a", ms=10), node("b", ms=10)]
    got = lab(design(nodes, ["users->a", edge("a->b", latency_ms=300)], duration=1))
    assert got.totals.failures_by_node == {"b": 1}


def test_of_parallel_calls_a_timeout_begins_in_the_one_sent_first(lab):
    nodes = [herd(1, timeout_ms=100), node("a"), node("b", ms=500), node("c", ms=900), node("d", ms=5)]
    edges = ["users->a", *(edge(f"a->{to}", parallel=True) for to in "dbc")]
    assert lab(design(nodes, edges, duration=1)).totals.failures_by_node == {"b": 1}


def test_failures_are_counted_once(lab):
    nodes = [source(rate=20, stop_s=18, timeout_ms=100), node("api", timeout_ms=80), node("db", ms=500)]
    got = lab(design(nodes, ["users->api", "api->db"], duration=20))
    assert got.totals.failed == got.totals.offered > 300
    assert got["api"].failed == got["api"].offered == got.totals.offered
    assert got["db"].succeeded == got["db"].offered == got.totals.offered
    assert got.totals.failures == {"timeout": got.totals.offered}
    assert got.totals.failures_by_node == {"db": got.totals.offered}


def test_failures_are_not_hidden_by_the_callee(lab):
    # Lognormal with mean 40 ms and a coefficient of variation of 1.2.
    nodes = [source(rate=40, timeout_ms=40), node("s", p50_ms=25.607, p99_ms=230.05)]
    got = lab(design(nodes, ["users->s"], duration=200))
    assert got["s"].mean_ms == close(40, rel=0.05)
    assert 0.25 < 1 - got.totals.success_rate < 0.4
    assert got["s"].failed == 0


# --- giving up


@pytest.mark.parametrize("cancels", [(), ("a",), ("a", "b"), ("b",)])
def test_each_component_decides_what_giving_up_means(lab, cancels):
    nodes = [
        herd(1, timeout_ms=100),
        node("a", slots=1, ms=10, cancel="a" in cancels),
        node("b", slots=1, ms=490, cancel="b" in cancels),
    ]
    got = lab(design(nodes, ["users->a", "a->b"], duration=1))
    assert got.totals.failures == {"timeout": 1}
    a_goes_on, b_goes_on = "a" not in cancels, cancels != ("a", "b")
    assert got["a"].failures == ({} if a_goes_on else {"cancelled": 1})
    assert got["b"].failures == ({} if b_goes_on else {"cancelled": 1})
    assert got["a"].utilisation == close(0.5 if a_goes_on else 0.1)
    assert got["b"].utilisation == close(0.49 if b_goes_on else 0.09)


def test_abandoned_waiting_calls_keep_their_place(lab):
    got = lab(
        design([herd(3, timeout_ms=100), node("s", slots=1, queue=2, ms=300)], ["users->s"], duration=1)
    )
    assert (got.totals.failed, got["s"].succeeded) == (3, 3)
    assert got["s"].utilisation == close(0.9)


def test_cancelled_waiting_calls_leave_the_queue(lab):
    nodes = [herd(3, timeout_ms=100), node("s", slots=1, queue=2, ms=300, cancel=True)]
    got = lab(design(nodes, ["users->s"], duration=1))
    assert got["s"].failures == {"cancelled": 3}
    assert got["s"].utilisation == close(0.1)
    assert got["s"].queue_mean == close(0.2)
    assert got["s"].mean_ms == close(100)


@pytest.mark.parametrize("cancel", [True, False])
def test_a_call_still_travelling(lab, cancel):
    nodes = [herd(1, timeout_ms=100), node("s", ms=10, cancel=cancel)]
    got = lab(design(nodes, [edge("users->s", latency_ms=200)], duration=1))
    assert got["s"].offered == (0 if cancel else 1)
    assert got.totals.failures_by_node == {"s": 1}


def test_abandoned_work_goes_on_with_its_retries(lab):
    nodes = [
        herd(1, timeout_ms=50),
        node("a", ms=10, retries=3, backoff_ms=0),
        node("b", ms=40, error_rate=1),
    ]
    got = lab(design(nodes, ["users->a", "a->b"], duration=1))
    assert got["b"].offered == 4
    assert got["a"].mean_ms == close(170)


def test_a_cancelled_call_frees_its_cpu(lab):
    nodes = [herd(1, timeout_ms=100), herd(1, 0.0, "other"), node("s", vcpu=1, cpu_ms=200, cancel=True)]
    got = lab(design(nodes, ["users->s", "other->s"], duration=1))
    # Half of the core until 100 ms, all of it for the remaining 150 ms.
    assert got.sources["other"].mean_ms == close(250)
    assert got["s"].cpu_utilisation == close(0.25)


# --- refusals in their order


def test_a_quota_refills_up_to_its_burst(lab):
    nodes = [herd(5), herd(5, 2.0, "more"), herd(5, 9.0, "most"), node("s", quota_rpm=60, quota_burst=3)]
    got = lab(design(nodes, ["users->s", "more->s", "most->s"], duration=10))
    assert [got.sources[id].succeeded for id in ("users", "more", "most")] == [3, 2, 3]
    assert got["s"].failures == {"throttled": 7}
    assert got.totals.success_rate == close(8 / 15)


@pytest.mark.parametrize(("rpm", "burst"), [(600, 10), (6, 1)])
def test_the_usual_burst_is_one_second_of_quota_and_at_least_one(lab, rpm, burst):
    got = lab(design([herd(20), node("s", quota_rpm=rpm)], ["users->s"], duration=0.05))
    assert got["s"].succeeded == burst


def test_shed_counts(lab):
    got = lab(design([herd(99), node("s", quota_rpm=1, quota_burst=9)], ["users->s"], duration=1))
    assert got.totals.success_rate == close(9 / 99)
    assert got.totals.failures == {"throttled": 90}


def test_a_component_that_is_down_takes_no_token(lab):
    nodes = [herd(1, 1.0), herd(1, 3.0, "later"), node("s", quota_rpm=0.001, quota_burst=1)]
    faults = [fault("outage", 0.5, 1, "s")]
    got = lab(design(nodes, ["users->s", "later->s"], faults, duration=5))
    assert got.sources["users"].failures == {"unavailable": 1}
    assert got.sources["later"].succeeded == 1


def test_a_quota_is_asked_before_the_slot(lab):
    nodes = [herd(3), herd(1, 1.0, "later"), node("s", slots=1, ms=100, quota_rpm=0.001, quota_burst=2)]
    got = lab(design(nodes, ["users->s", "later->s"], duration=5))
    # Two took a token, of them one found no slot; the third and the later one found no token.
    assert got["s"].failures == {"rejected": 1, "throttled": 2}


# --- what is counted


def test_calls_count_by_their_own_arrival_after_the_warm_up(lab):
    nodes = [herd(1, 0.5), herd(1, 1.5, "second"), node("a", ms=700), node("b", ms=100, slots=1)]
    got = lab(design(nodes, ["users->a", "second->a", "a->b"], duration=4, warmup=1))
    assert (got.totals.offered, got["a"].offered, got["b"].offered) == (1, 1, 2)
    assert got["b"].utilisation == close(0.2 / 3)


def test_in_flight_at_the_end_and_after_draining(lab):
    nodes = [herd(3), node("s", slots=1, queue=5, ms=400)]
    got = lab(design(nodes, ["users->s"], duration=1))
    assert (got.totals.succeeded, got.totals.in_flight, got["s"].in_flight) == (2, 1, 1)
    assert got.totals.success_rate == 1
    assert got.totals.offered_p99_ms == near(800)
    got = lab(design(nodes, ["users->s"], duration=1, drain=5))
    assert (got.totals.succeeded, got.totals.in_flight) == (3, 0)
    assert got["s"].utilisation == close(1.0)
    assert got.totals.goodput_rps == close(3)
    got = lab(design(nodes, ["users->s"], duration=1, drain=0.1))
    assert got.totals.in_flight == 1


def test_offered_percentiles_count_failures_as_endless(lab):
    nodes = [herd(100), node("s", slots=1, queue=96, ms=1)]
    got = lab(design(nodes, ["users->s"], duration=1))
    assert got.totals.failures == {"rejected": 3}
    assert got.totals.p99_ms == near(97)
    assert got.totals.offered_p95_ms == near(95)
    assert got.totals.offered_p99_ms is None


def test_idle_is_not_zero(lab):
    got = lab(design([source(rate=0), node("s", slots=1, ms=10)], ["users->s"], duration=10))
    assert (got.totals.offered, got.totals.goodput_rps, got["s"].utilisation) == (0, 0, 0)
    assert got.totals.success_rate is got.totals.p50_ms is got["s"].p99_ms is got["s"].wait_mean_ms is None


def test_a_dead_end_never_succeeds(lab):
    got = lab(design([herd(5), node("s")], [], duration=10))
    assert (got.totals.offered, got.totals.succeeded, got.totals.failed) == (5, 0, 5)
    assert got.totals.failures_by_node == {"users": 5}


def test_short_names():
    numbers = Numbers({"totals": {"failed": 1}, "sources": {}, "nodes": {"s": {"offered": 2}}})
    assert (numbers.totals.failed, numbers["s"].offered) == (1, 2)
