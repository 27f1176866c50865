"""Downstream calls: groups, fallbacks, balancers, caches, breakers, guards and agents, worked out by hand."""

import pytest

from tests.engine.reference.build import design, edge, fault, node, source

close = pytest.approx


def near(value):
    """A percentile: histograms may be 1 % off."""
    return pytest.approx(value, rel=0.0101)


def herd(count, at=0.0, id="users", **settings):
    """`count` requests at one instant."""
    return source(id, shape="herd", count=count, at_s=at, spread_s=0, **settings)


def one_by_one(count, gap, id="users", **settings):
    """Single requests `gap` seconds apart, the first after half of it."""
    table = [[0.0, 0.0], [gap / 2, 1.0 / gap]]
    until = gap * (count + 0.75)
    return source(id, shape="schedule", schedule=table, arrivals="even", stop_s=until, **settings)


# --- all


def test_sequential_calls_add_up_and_parallel_ones_overlap(lab):
    nodes = [
        herd(1),
        node("s", ms=1),
        *(node(id, ms=ms) for id, ms in (("a", 10), ("b", 20), ("c", 40), ("d", 80))),
    ]
    edges = [
        edge("s->d", parallel=True),
        edge("s->a", calls=3),
        edge("s->c", parallel=True),
        edge("s->b"),
        "users->s",
    ]
    assert lab(design(nodes, edges, duration=1)).totals.mean_ms == close(1 + 30 + 20 + 80)


def test_groups_follow_their_order(lab):
    nodes = [herd(1), node("s"), node("a", ms=10), node("b", ms=20, error_rate=1.0), node("c", ms=40)]
    edges = [edge("s->c", order=7), edge("s->a", order=2, parallel=True), edge("s->b", order=5), "users->s"]
    got = lab(design(nodes, edges, duration=1))
    assert (got["a"].offered, got["b"].offered, got["c"].offered) == (1, 1, 0)
    assert got["s"].mean_ms == close(30)


def test_a_fraction_of_calls_is_a_chance(lab):
    nodes = [herd(4000), node("s"), node("a"), node("b")]
    edges = ["users->s", edge("s->a", calls=2.3), edge("s->b", calls=0.15, parallel=True)]
    got = lab(design(nodes, edges, duration=1))
    assert got["a"].offered == close(9200, rel=0.02)
    assert got["b"].offered == close(600, rel=0.15)


def test_a_failure_gives_up_the_rest_of_its_group(lab):
    nodes = [
        herd(1),
        node("s"),
        node("a", ms=10, error_rate=1.0),
        node("b", ms=50, cancel=True),
        node("c", ms=50),
    ]
    edges = ["users->s", *(edge(f"s->{to}", parallel=True) for to in "bac")]
    got = lab(design(nodes, edges, duration=1))
    assert got["s"].mean_ms == close(10)
    assert (got["b"].failures, got["c"].succeeded) == ({"cancelled": 1}, 1)
    assert got.totals.failures_by_node == {"a": 1}


def test_a_diamond_waits_for_its_slow_side(lab):
    nodes = [herd(1), node("s"), node("a", ms=1), node("b", ms=50), node("db", ms=5)]
    edges = ["users->s", edge("s->a", parallel=True), edge("s->b", parallel=True), "a->db", "b->db"]
    got = lab(design(nodes, edges, duration=1))
    assert got.totals.mean_ms == close(55)
    assert got["db"].offered == 2


def test_two_edges_may_join_the_same_nodes(lab):
    nodes = [herd(1), node("s"), node("db", ms=5)]
    edges = ["users->s", edge("s->db", "first", calls=2), edge("s->db", "second", order=1, latency_ms=10)]
    got = lab(design(nodes, edges, duration=1))
    assert (got["db"].offered, got.totals.mean_ms) == (3, close(10 + 25))


def test_need_completes_a_group(lab):
    nodes = [herd(1), node("s"), node("a", ms=10), node("b", ms=20), node("c", ms=300, cancel=True)]
    edges = [
        "users->s",
        edge("s->a", parallel=True),
        edge("s->b", parallel=True, need=2),
        edge("s->c", parallel=True),
    ]
    got = lab(design(nodes, edges, duration=1))
    assert got.totals.mean_ms == close(20)
    assert got["c"].failures == {"cancelled": 1}


def test_need_tolerates_failures_until_it_is_out_of_reach(lab):
    nodes = [herd(1), node("s"), node("a", ms=10, error_rate=1.0), node("b", ms=20), node("c", ms=30)]
    edges = [
        "users->s",
        edge("s->a", parallel=True, need=2),
        edge("s->b", parallel=True),
        edge("s->c", parallel=True),
    ]
    got = lab(design(nodes, edges, duration=1))
    assert (got.totals.succeeded, got["s"].mean_ms) == (1, close(30))
    got = lab(design(nodes, edges, [fault("quota", 0, 1, "b", 0)], duration=1))
    # b refuses at once; with a's error at 10 ms two successes are out of reach.
    assert (got.totals.failures, got.totals.failures_by_node) == ({"error": 1}, {"a": 1})
    assert got["s"].mean_ms == close(10)


def test_need_is_at_most_the_number_of_calls(lab):
    nodes = [herd(1), node("s"), node("a", ms=10), node("b", ms=20)]
    edges = ["users->s", edge("s->a", parallel=True, need=9), edge("s->b", parallel=True)]
    assert lab(design(nodes, edges, duration=1)).totals.mean_ms == close(20)


def test_a_failed_optional_call_is_neither_success_nor_failure(lab):
    nodes = [herd(1), node("s"), node("a", ms=10, error_rate=1.0), node("b", ms=20), node("c", ms=30)]
    edges = ["users->s", edge("s->a", optional=True), edge("s->b", parallel=True)]
    edges.append(edge("s->a", "again", parallel=True, optional=True))
    got = lab(design(nodes, edges, duration=1))
    assert (got.totals.succeeded, got.totals.mean_ms, got["a"].failed) == (1, close(30), 2)


@pytest.mark.parametrize(("share", "read", "write"), [(0.0, 100, 0), (1.0, 0, 100)])
def test_only_reads_or_writes(lab, share, read, write):
    nodes = [herd(100, write_share=share), node("s"), node("r"), node("w"), node("x")]
    edges = ["users->s", edge("s->r", only="read"), edge("s->w", only="write"), "s->x"]
    got = lab(design(nodes, edges, duration=1))
    assert (got["r"].offered, got["w"].offered, got["x"].offered) == (read, write, 100)


def test_an_async_call_is_sent_once_and_never_waited_for(lab):
    nodes = [
        herd(10, timeout_ms=20),
        node("s", ms=5, retries=3, cancel=True),
        node("log", ms=200, error_rate=1.0),
    ]
    nodes += [node("db", ms=100, cancel=True), node("bus", ms=7)]
    edges = [
        "users->s",
        edge("s->log", async_=True, latency_ms=10),
        edge("s->bus", async_=True, parallel=True),
    ]
    got = lab(design(nodes, edges, duration=1))
    assert (got.totals.succeeded, got.totals.mean_ms) == (10, close(5))
    assert (got["log"].failures, got["bus"].succeeded) == ({"error": 10}, 10)
    # Cancelled with its caller: only the ordinary call.
    got = lab(design(nodes, [*edges, edge("s->db", order=1)], duration=1))
    assert (got["db"].failures, got["log"].failures) == ({"cancelled": 10}, {"error": 10})


def test_fallbacks_are_tried_in_file_order_after_the_retries(lab):
    nodes = [herd(1), node("s", retries=1, backoff_ms=5), node("a", ms=10, error_rate=1.0)]
    nodes += [node("b", ms=20, error_rate=1.0), node("c", ms=40), node("d", ms=80)]
    edges = [
        "users->s",
        edge("s->b", fallback="s->a", retries=0),
        "s->a",
        edge("s->c", fallback="s->a"),
        edge("s->d", fallback="s->a"),
    ]
    got = lab(design(nodes, edges, duration=1))
    assert (got["a"].offered, got["b"].offered, got["c"].offered, got["d"].offered) == (2, 1, 1, 0)
    assert got.totals.mean_ms == close(10 + 5 + 10 + 20 + 40)


def test_one_fallback_call_for_each_failed_call(lab):
    nodes = [herd(1), node("s"), node("a", ms=10, error_rate=1.0), node("b", ms=20)]
    edges = ["users->s", edge("s->a", calls=3, parallel=True), edge("s->b", fallback="s->a")]
    got = lab(design(nodes, edges, duration=1))
    assert (got["a"].offered, got["b"].offered, got.totals.mean_ms) == (3, 3, close(30))


def test_an_optional_fallback_is_forgiven_too(lab):
    nodes = [
        herd(1),
        node("s"),
        node("a", ms=10, error_rate=1.0),
        node("b", ms=20, error_rate=1.0),
        node("c", ms=40),
    ]
    edges = ["users->s", "s->a", edge("s->b", fallback="s->a", optional=True), "s->c"]
    got = lab(design(nodes, edges, duration=1))
    assert (got.totals.succeeded, got.totals.mean_ms) == (1, close(70))
    edges[2] = edge("s->b", fallback="s->a")
    assert lab(design(nodes, edges, duration=1)).totals.failures_by_node == {"b": 1}


# --- one of


@pytest.mark.parametrize("policy", ["round_robin", "random", "weighted", "least_in_flight", "power_of_two"])
def test_two_equal_stores_get_the_same(lab, policy):
    nodes = [source(rate=500), node("lb", "one_of", policy=policy), node("a", ms=50), node("b", ms=50)]
    got = lab(design(nodes, ["users->lb", "lb->a", "lb->b"], duration=40))
    assert got["a"].offered / got.totals.offered == close(0.5, abs=0.02)
    assert got["a"].offered + got["b"].offered == got.totals.offered


def test_least_in_flight_goes_by_capacity(lab):
    nodes = [source(rate=190), node("lb", "one_of", policy="least_in_flight")]
    nodes += [node("small", slots=4, queue=99, ms=100), node("big", instances=4, slots=4, queue=99, ms=100)]
    got = lab(design(nodes, ["users->lb", "lb->small", "lb->big"], duration=100))
    assert got["small"].offered / got.totals.offered == close(0.2, abs=0.02)


def test_ties_of_least_in_flight_go_in_file_order(lab):
    nodes = [herd(5), node("lb", "one_of", policy="least_in_flight"), node("a", ms=9), node("b", ms=9)]
    got = lab(design(nodes, ["users->lb", "lb->b", "lb->a"], duration=1))
    assert (got["a"].offered, got["b"].offered) == (2, 3)


def test_weights_share_the_calls(lab):
    nodes = [herd(4000), node("lb", "one_of", policy="weighted"), node("a"), node("b"), node("c")]
    edges = ["users->lb", edge("lb->a", weight=1), edge("lb->b", weight=3), edge("lb->c", weight=0)]
    got = lab(design(nodes, edges, duration=1))
    assert got["b"].offered == close(3000, rel=0.04)
    assert got["c"].offered == 0


def test_every_target_in_turn_but_those_that_are_out(lab):
    balancer = node("lb", "one_of", interval_s=0.4, unhealthy_after=1)
    nodes = [herd(20, 1.0), balancer, node("a", ms=5), node("b", ms=5), node("c", ms=5)]
    faults = [fault("outage", 0.1, 5, "b")]
    got = lab(design(nodes, ["users->lb", "lb->a", "lb->b", "lb->c"], faults, duration=2))
    assert (got["a"].offered, got["b"].offered, got["c"].offered) == (10, 0, 10)


def test_health_checks_count_looks_in_a_row(lab):
    nodes = [one_by_one(20, 1.0), node("lb", "one_of", interval_s=2, unhealthy_after=2, healthy_after=3)]
    nodes.append(node("a", ms=5))
    # Looks at 2, 4, …: bad at 4 and 6, good at 8, 10 and 12.  Requests at 1.5, 2.5, …
    got = lab(design(nodes, ["users->lb", "lb->a"], [fault("outage", 3.1, 4.1, "a")], duration=22))
    assert got["a"].failures == {"unavailable": 3}
    assert got.totals.failures_by_node == {"a": 3, "lb": 6}
    assert got.totals.failures == {"unavailable": 9}


def test_a_balancer_retries_with_a_new_pick(lab):
    nodes = [
        herd(10),
        node("lb", "one_of", retries=1, backoff_ms=20),
        node("a", ms=5, error_rate=1.0),
        node("b", ms=7),
    ]
    got = lab(design(nodes, ["users->lb", "lb->a", "lb->b"], duration=1))
    # The first ten picks alternate; the five that failed come back one after the other and alternate again.
    assert got.totals.succeeded == 7
    assert (got["a"].offered, got["b"].offered, got["lb"].retries) == (8, 7, 5)


def test_a_balancer_falls_back_for_its_last_edge_or_for_any_where_none_is_left(lab):
    nodes = [herd(1), herd(1, 1.0, "later"), node("lb", "one_of", interval_s=0.3, unhealthy_after=1)]
    nodes += [node("a", ms=5), node("b", ms=5), node("fa", ms=10), node("fb", ms=20)]
    edges = ["users->lb", "later->lb", "lb->a", "lb->b", edge("lb->fa", fallback="lb->b")]
    edges.append(edge("lb->fb", fallback="lb->a"))
    faults = [fault("outage", 0, 5, "a"), fault("outage", 0, 5, "b")]
    got = lab(design(nodes, edges, faults, duration=2))
    assert got.sources["users"].mean_ms == close(20)
    assert got.sources["later"].mean_ms == close(10)


def test_a_key_stays_with_its_shard(lab):
    nodes = [herd(100, keys=1), node("lb", "one_of", policy="by_key"), node("a"), node("b"), node("c")]
    got = lab(design(nodes, ["users->lb", "lb->a", "lb->b", "lb->c"], duration=1))
    assert sorted(got[id].offered for id in "abc") == [0, 0, 100]


def test_a_key_survives_the_queue(lab):
    nodes = [source(rate=400, keys=10_000), node("q", "queue"), node("w", slots=50, ms=5)]
    nodes += [node("lb", "one_of", policy="by_key"), *(node(id) for id in "abcd")]
    edges = ["users->q", "q->w", "w->lb", *(f"lb->{id}" for id in "abcd")]
    got = lab(design(nodes, edges, duration=20))
    for id in "abcd":
        assert got[id].offered / got.totals.offered == close(0.25, abs=0.04)


def test_a_balancer_can_saturate(lab):
    nodes = [source(rate=3000), node("lb", "one_of", slots=2, queue=4, ms=5), node("a"), node("b")]
    got = lab(design(nodes, ["users->lb", "lb->a", "lb->b"], duration=10))
    assert got.totals.goodput_rps == close(400, rel=0.02)
    assert got.totals.failures == {"rejected": got.totals.failed}


# --- cache


@pytest.mark.parametrize(("rate", "writes", "misses"), [(1.0, 0, 0), (0.0, 0, 100), (1.0, 1, 100)])
def test_hits_make_no_downstream_call_and_writes_never_hit(lab, rate, writes, misses):
    nodes = [herd(100, write_share=writes), node("c", "cache", ms=1, hit_rate=rate), node("db", ms=9)]
    got = lab(design(nodes, ["users->c", "c->db"], duration=1))
    assert got["db"].offered == misses
    assert got.totals.mean_ms == close(10 if misses else 1)


def test_a_cold_cache_warms_up_in_a_line(lab):
    nodes = [source(rate=1000), node("c", "cache", hit_rate=0.8, warm_s=10), node("db")]
    got = lab(design(nodes, ["users->c", "c->db"], [fault("cold_cache", 5, 5, "c")], duration=25))
    # 5 s at 0.2 missed, 5 s at 1, 10 s at a mean of 0.6, 5 s at 0.2.
    assert got["db"].offered == close(1000 * (1 + 5 + 6 + 1), rel=0.03)


def test_a_restarted_cache_is_cold(lab):
    nodes = [source(rate=1000), node("c", "cache", hit_rate=1.0, warm_s=4), node("db")]
    got = lab(design(nodes, ["users->c", "c->db"], [fault("outage", 2, 1, "c")], duration=10))
    assert got["db"].offered == close(1000 * 2, rel=0.06)
    assert got["c"].failures == {"unavailable": got["c"].failed}


def test_one_fill_per_key_at_a_time(lab):
    nodes = [herd(5, keys=1), herd(2, 0.3, "later", keys=1)]
    nodes += [node("c", "cache", hit_rate=0.0, coalesce=True), node("db", ms=100)]
    got = lab(design(nodes, ["users->c", "later->c", "c->db"], duration=1))
    assert (got["db"].offered, got.totals.succeeded, got.totals.mean_ms) == (2, 7, close(100))
    nodes[:2] = [herd(5), herd(2, 0.3, "later")]
    assert lab(design(nodes, ["users->c", "later->c", "c->db"], duration=1))["db"].offered == 7


def test_a_failed_fill_fails_those_that_waited_for_it(lab):
    nodes = [
        herd(5, keys=1),
        node("c", "cache", hit_rate=0.0, coalesce=True),
        node("db", ms=100, error_rate=1),
    ]
    got = lab(design(nodes, ["users->c", "c->db"], duration=1))
    assert got["db"].offered == 1
    assert (got["c"].failures, got.totals.failures_by_node) == ({"error": 5}, {"db": 5})


# --- breaker


def breaker_design(*, probes=1, faults=(), count=20, **settings):
    breaker = node("cb", "breaker", min_calls=4, window_s=10, cooldown_s=5, probes=probes, **settings)
    nodes = [one_by_one(count, 1.0), breaker, node("db", ms=100), node("spare", ms=10)]
    return nodes, ["users->cb", "cb->db"], list(faults), count + 1.5


def test_a_breaker_opens_probes_and_closes(lab):
    # Requests at 1.5, 2.5, …; errors until 8: opens at 4.6, probes at 10.5 and closes.
    nodes, edges, faults, length = breaker_design(faults=[fault("errors", 0, 8, "db", 1.0)])
    got = lab(design(nodes, edges, faults, duration=length))
    assert got.totals.failures == {"error": 4, "breaker_open": 5}
    assert got.totals.failures_by_node == {"db": 4, "cb": 5}
    assert got["db"].offered == 4 + 11


def test_a_failed_probe_opens_it_again(lab):
    # Opens at 4.6; the probe at 10.5 fails at 10.6; that at 16.5 succeeds.
    nodes, edges, faults, length = breaker_design(faults=[fault("errors", 0, 12, "db", 1.0)])
    got = lab(design(nodes, edges, faults, duration=length))
    assert got.totals.failures == {"error": 5, "breaker_open": 10}
    assert got.totals.succeeded == 5


def test_no_more_probes_than_allowed_at_once(lab):
    # Closed again after two probes; each takes 2 s, so of the four calls meanwhile two are refused.
    nodes, edges, faults, length = breaker_design(probes=2, faults=[fault("errors", 0, 8, "db", 1.0)])
    nodes[2] = node("db", ms=2000)
    got = lab(design(nodes, edges, faults, duration=length))
    # The first outcomes come at 3.5 … 6.5, when it opens with one more call under way; the probes of 11.5 and
    # 12.5 leave no room at 13.5 and close it at 14.5, before the call of that instant is let through.
    assert got["db"].offered == 5 + 2 + 7
    assert got.totals.failures == {"error": 5, "breaker_open": 6}


def test_a_probe_without_an_answer_has_failed(lab):
    faults = [fault("errors", 0, 8, "db", 1.0), fault("cut", 9, 1, "cb->db")]
    nodes, edges, faults, length = breaker_design(faults=faults)
    nodes[1] = node("cb", "breaker", min_calls=4, window_s=4, cooldown_s=4.8)
    got = lab(design(nodes, edges, faults, duration=length))
    # The probe of 9.5 is lost; at 13.5 it counts as failed; the next one goes at 18.5.
    assert got["db"].offered == 4 + 3
    assert got.totals.in_flight == 1


def test_its_own_timeouts_open_a_breaker_after_its_retries(lab):
    nodes, edges, _, length = breaker_design(timeout_ms=50, retries=1, backoff_ms=0)
    got = lab(design(nodes, edges, duration=length))
    # Two attempts for each of the first four calls and for each probe, at 10.5 and 16.5.
    assert got["db"].offered == 2 * 6
    assert got.totals.failures["timeout"] == 6


def test_a_fallback_serves_what_a_breaker_refuses(lab):
    nodes, edges, faults, length = breaker_design(faults=[fault("errors", 0, 8, "db", 1.0)])
    got = lab(design(nodes, [*edges, edge("cb->spare", fallback="cb->db")], faults, duration=length))
    assert got.totals.failed == 0
    assert got["spare"].offered == 9
    assert got["db"].offered == 15


def test_a_breaker_before_two_parallel_calls_closes_again(lab):
    nodes = [one_by_one(20, 1.0), node("cb", "breaker", min_calls=4, cooldown_s=5)]
    nodes += [node("a", ms=100), node("b", ms=10)]
    edges = ["users->cb", edge("cb->a", parallel=True), edge("cb->b", parallel=True)]
    got = lab(design(nodes, edges, [fault("errors", 0, 8, "a", 1.0)], duration=22))
    # Good and bad in turn: opens at 2.6; the visit at 8.5 is one probe with both its calls, and closes it.
    assert got.totals.failures == {"error": 2, "breaker_open": 5}
    assert got["a"].offered == got["b"].offered == 2 + 13


# --- guards


def test_a_rate_limiter(lab):
    nodes = [
        herd(5),
        herd(5, 2.0, "more"),
        node("rl", "rate_limiter", limit_rps=1, limit_burst=3),
        node("db", ms=5),
    ]
    got = lab(design(nodes, ["users->rl", "more->rl", "rl->db"], duration=3))
    assert (got["rl"].failures, got["db"].offered) == ({"rate_limited": 5}, 5)


def test_a_shedder_goes_by_priority(lab):
    nodes = [herd(3, id="low", priority=1), herd(3, 0.001, "lowest", priority=5), herd(5, 0.002, "high")]
    nodes.append(node("sh", "shedder", slots=1, queue=100, ms=100, max_in_flight=[6, 2]))
    got = lab(design(nodes, ["high->sh", "low->sh", "lowest->sh"], duration=1))
    assert {id: figures.succeeded for id, figures in got.sources.items()} == {
        "low": 2,
        "lowest": 0,
        "high": 4,
    }
    assert got["sh"].failures == {"shed": 5}


@pytest.mark.parametrize(("room", "served"), [(0, 2), (1, 3)])
def test_a_bulkhead(lab, room, served):
    nodes = [herd(5), node("bh", "bulkhead", max_in_flight=2, queue=room, slots=1), node("db", ms=100)]
    got = lab(design(nodes, ["users->bh", "bh->db"], duration=1))
    assert (got["db"].offered, got["bh"].failures) == (served, {"full": 5 - served})
    assert got["bh"].utilisation == close(served * 0.1 / 2)


def test_a_hedge_sends_a_second_copy(lab):
    slow_at_first = [fault("slow", 0, 0.04, "db", 10)]
    nodes = [herd(1), node("h", "hedge", hedge_ms=50), node("db", ms=100, cancel=True)]
    got = lab(design(nodes, ["users->h", "h->db"], slow_at_first, duration=2))
    assert (got["db"].offered, got.totals.mean_ms) == (2, close(150))
    assert got["db"].failures == {"cancelled": 1}
    assert got["h"].retries == 0


@pytest.mark.parametrize(("after", "copies"), [(101, 1), (99, 2), (0, 2)])
def test_a_hedge_waits_for_its_time(lab, after, copies):
    nodes = [herd(1), node("h", "hedge", hedge_ms=after), node("db", ms=100)]
    got = lab(design(nodes, ["users->h", "h->db"], duration=2))
    assert (got["db"].offered, got.totals.mean_ms) == (copies, close(100))


def test_a_hedge_waits_for_the_other_copy_when_one_has_failed(lab):
    nodes = [herd(1), node("h", "hedge", hedge_ms=50), node("db", ms=100)]
    got = lab(design(nodes, ["users->h", "h->db"], [fault("errors", 0, 0.12, "db", 1.0)], duration=2))
    assert (got["db"].offered, got.totals.succeeded, got.totals.mean_ms) == (2, 1, close(150))


def test_a_hedge_goes_over_its_next_edge_and_its_timeout_covers_both_copies(lab):
    nodes = [herd(1), node("h", "hedge", hedge_ms=50, timeout_ms=120), node("a", ms=500), node("b", ms=60)]
    got = lab(design(nodes, ["users->h", "h->a", "h->b"], duration=2))
    assert (got["a"].offered, got["b"].offered, got.totals.mean_ms) == (1, 1, close(110))
    nodes[3] = node("b", ms=80)
    got = lab(design(nodes, ["users->h", "h->a", "h->b"], duration=2))
    assert (got["h"].failures, got["h"].mean_ms) == ({"timeout": 1}, close(120))
    assert got.totals.failures_by_node == {"a": 1}


# --- loop


def test_an_agent_draws_its_own_time_once_and_makes_its_calls_each_step(lab):
    nodes = [herd(2), node("ag", "loop", ms=7, steps=5), node("model", ms=10), node("tool", ms=20)]
    got = lab(design(nodes, ["users->ag", "ag->model", edge("ag->tool", calls=2)], duration=2))
    assert got.totals.mean_ms == close(7 + 5 * 50)
    assert (got["model"].offered, got["tool"].offered) == (10, 20)


@pytest.mark.parametrize(("model", "mean", "p99"), [("fixed", 4.5, 5), ("geometric", 4.5, 18)])
def test_the_number_of_steps(lab, model, mean, p99):
    nodes = [herd(4000), node("ag", "loop", steps=mean, steps_model=model), node("model", ms=10)]
    got = lab(design(nodes, ["users->ag", "ag->model"], duration=10))
    assert got["model"].offered == close(4000 * mean, rel=0.05)
    assert got.totals.p99_ms == close(p99 * 10, rel=0.15 if model == "geometric" else 0.01)


def agent(steps=6, faults=(), store=None, count=1, **settings):
    nodes = [herd(count), node("ag", "loop", steps=steps, **settings), node("model", ms=100)]
    nodes.append(store or node("store", ms=10))
    return design(nodes, ["users->ag", "ag->model", edge("ag->store", checkpoint=True)], faults, duration=20)


def test_checkpoints_are_written_every_few_steps_and_after_the_last(lab):
    got = lab(agent(checkpoint_every=2))
    assert (got["store"].offered, got.totals.mean_ms) == (3, close(6 * 100 + 3 * 10))
    assert lab(agent(checkpoint_every=4))["store"].offered == 1
    assert lab(agent(checkpoint_every=0))["store"].offered == 0


def test_a_failed_write_does_not_fail_the_step(lab):
    got = lab(agent(store=node("store", ms=10, error_rate=1.0)))
    assert (got.totals.succeeded, got["store"].failed, got.totals.mean_ms) == (1, 6, close(660))


def test_a_task_resumes_after_its_last_save(lab):
    # Step 4 fails at 430 ms; the save after step 2 was good.
    faults = [fault("errors", 0.35, 0.1, "model", 1.0)]
    got = lab(agent(faults=faults, checkpoint_every=2, max_resumes=1, resume_wait_s=2))
    assert got.totals.succeeded == 1
    assert got["model"].offered == 4 + 4
    assert got.totals.mean_ms == close(410 + 2000 + 400 + 20)
    assert lab(agent(faults=faults, checkpoint_every=2)).totals.failures == {"error": 1}
    assert lab(agent(faults=faults, checkpoint_every=5, max_resumes=1)).totals.failures_by_node == {
        "model": 1
    }


def test_a_task_resumes_only_when_the_last_write_was_good(lab):
    # Saves at 110, 220 and 330 ms; the third fails, and so does the step after it.
    faults = [fault("errors", 0.315, 0.02, "store", 1.0), fault("errors", 0.4, 0.1, "model", 1.0)]
    got = lab(agent(faults=faults, max_resumes=5, resume_wait_s=1))
    assert (got.totals.failed, got["model"].offered) == (1, 4)


def test_a_task_resumes_only_so_often(lab):
    faults = [fault("errors", 0.15, 18, "model", 1.0)]
    got = lab(agent(faults=faults, max_resumes=3, resume_wait_s=1))
    assert (got["model"].offered, got.totals.failures) == (1 + 1 + 3, {"error": 1})
    assert got["ag"].mean_ms == close(110 + 4 * 100 + 3 * 1000)


def test_an_async_checkpoint_counts_as_written(lab):
    nodes = [herd(1), node("ag", "loop", steps=3, max_resumes=1, resume_wait_s=1), node("model", ms=100)]
    nodes.append(node("store", ms=10, error_rate=1.0))
    edges = ["users->ag", "ag->model", edge("ag->store", checkpoint=True, async_=True)]
    got = lab(design(nodes, edges, [fault("errors", 0.15, 0.1, "model", 1.0)], duration=5))
    assert (got.totals.succeeded, got.totals.mean_ms) == (1, close(200 + 1000 + 200))


def test_a_crash_of_the_agent_fails_the_task(lab):
    got = lab(agent(faults=[fault("crash", 0.45, 1, "ag", 1)], max_resumes=9))
    assert got.totals.failures == {"crashed": 1}
    assert got["store"].succeeded == 4


# --- sources


def test_a_source_calls_all_its_edges_under_one_patience(lab):
    nodes = [herd(1, timeout_ms=100), node("a", ms=60), node("b", ms=60)]
    got = lab(design(nodes, ["users->a", "users->b"], duration=1))
    assert got.totals.failures_by_node == {"b": 1}
    nodes[0] = herd(1, timeout_ms=130)
    assert lab(design(nodes, ["users->a", "users->b"], duration=1)).totals.mean_ms == close(120)


def test_a_source_starts_anew_with_each_retry(lab):
    nodes = [
        herd(1, timeout_ms=100, retries=2, backoff_ms=50, backoff_factor=2),
        node("a", ms=60),
        node("b", ms=60),
    ]
    got = lab(design(nodes, ["users->a", "users->b"], duration=2))
    assert (got["a"].offered, got["b"].offered, got.totals.retries) == (3, 3, 2)
    assert got.totals.failed == 1


def test_patience_is_for_one_attempt(lab):
    nodes = [herd(1, timeout_ms=100, retries=1, backoff_ms=50), node("a", ms=80)]
    got = lab(design(nodes, ["users->a"], [fault("slow", 0, 0.1, "a", 5)], duration=2))
    assert (got.totals.succeeded, got.totals.mean_ms) == (1, close(100 + 50 + 80))


def test_an_edge_of_a_source_has_its_own_override(lab):
    nodes = [herd(1, timeout_ms=500), node("a", ms=80)]
    edges = [edge("users->a", timeout_ms=50, retries=2)]
    got = lab(design(nodes, edges, duration=2))
    assert (got["a"].offered, got.totals.failures) == (3, {"timeout": 1})
