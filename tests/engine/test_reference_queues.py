"""Queues, streams and topics: numbers worked out by hand."""

import pytest

from tests.engine.reference.build import design, edge, fault, node, source

close = pytest.approx


def herd(count, at=0.0, id="users", **settings):
    """`count` requests at one instant."""
    return source(id, shape="herd", count=count, at_s=at, spread_s=0, **settings)


def test_the_producer_waits_for_the_acknowledgement_only(lab):
    nodes = [herd(1), node("q", "queue", ms=10), node("w", slots=1, ms=500)]
    got = lab(design(nodes, [edge("users->q", latency_ms=5), edge("q->w", latency_ms=50)], duration=2))
    assert (got.totals.succeeded, got.totals.mean_ms) == (1, close(20))
    assert (got["w"].succeeded, got["w"].mean_ms) == (1, close(500))
    assert got["q"].mean_ms == close(10)


def test_outcomes_of_consumers_do_not_reach_the_producer(lab):
    nodes = [herd(3), node("q", "queue", max_receives=1), node("w", slots=9, ms=10, error_rate=1.0)]
    got = lab(design(nodes, ["users->q", "q->w"], duration=1))
    assert (got.totals.succeeded, got.totals.failed, got.totals.lost) == (3, 0, 3)
    assert got.sources["users"].lost == 3
    assert (got["q"].succeeded, got["w"].failures) == (3, {"error": 3})


def test_a_consumer_pulls_when_a_slot_is_free(lab):
    nodes = [herd(7), node("q", "queue"), node("w", slots=2, queue=50, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w"], duration=0.25))
    # Pairs at 0, 100 and 200 ms; one message is left.
    assert (got["w"].offered, got["w"].queue_max, got["q"].backlog) == (6, 0, 1)
    assert got["q"].backlog_age_s == close(0.25)
    assert got["w"].in_flight == 2


def test_nothing_is_pulled_past_calls_that_wait_already(lab):
    nodes = [herd(2), herd(3, 0.01, "direct"), node("q", "queue"), node("w", slots=1, queue=50, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w", "direct->w"], duration=0.55))
    # The first message, three direct calls, and only then the second message.
    assert got.sources["direct"].mean_ms == close((190 + 290 + 390) / 3)
    assert (got["w"].succeeded, got["q"].backlog) == (5, 0)


def test_consumers_take_turns(lab):
    nodes = [herd(30), node("q", "queue"), node("a", slots=1, ms=10), node("b", slots=1, ms=10)]
    got = lab(design(nodes, ["users->q", "q->a", "q->b"], duration=1))
    assert (got["a"].offered, got["b"].offered) == (15, 15)


def test_a_full_queue_refuses_at_acknowledgement(lab):
    nodes = [herd(5), node("q", "queue", ms=20, capacity=3)]
    got = lab(design(nodes, ["users->q"], duration=1))
    assert (got["q"].failures, got["q"].mean_ms, got["q"].backlog) == ({"full": 2}, close(20), 3)
    assert got.totals.failures_by_node == {"q": 2}


def test_capacity_zero_is_unlimited(lab):
    got = lab(design([herd(500), node("q", "queue")], ["users->q"], duration=1))
    assert (got.totals.succeeded, got["q"].backlog) == (500, 500)


def test_a_failed_message_is_delivered_again_at_the_tail(lab):
    nodes = [
        herd(1),
        herd(1, 0.05, "second"),
        node("q", "queue", redeliver_ms=30),
        node("w", slots=1, ms=100),
    ]
    # The first delivery fails at 100; the second message runs 100 to 200, the first again 200 to 300.
    got = lab(
        design(nodes, ["users->q", "second->q", "q->w"], [fault("errors", 0, 0.15, "w")], duration=0.25)
    )
    assert (got["w"].offered, got["w"].succeeded, got["w"].failed, got["w"].in_flight) == (3, 1, 1, 1)
    got = lab(design(nodes, ["users->q", "second->q", "q->w"], [fault("errors", 0, 0.15, "w")], duration=1))
    assert (got["w"].succeeded, got.totals.lost, got["q"].backlog) == (2, 0, 0)


def test_redelivery_waits_its_time(lab):
    nodes = [herd(1), node("q", "queue", redeliver_ms=300), node("w", slots=1, ms=100)]
    for length, offered in ((0.39, 1), (0.41, 2)):
        got = lab(design(nodes, ["users->q", "q->w"], [fault("errors", 0, 0.15, "w")], duration=length))
        assert (got["w"].offered, got["q"].backlog) == (offered, 2 - offered)


def test_a_message_is_lost_after_so_many_receives(lab):
    nodes = [
        herd(4),
        node("q", "queue", max_receives=3, redeliver_ms=10),
        node("w", slots=2, ms=10, error_rate=1),
    ]
    got = lab(design(nodes, ["users->q", "q->w"], duration=1))
    assert (got["w"].offered, got.totals.lost, got["q"].backlog) == (12, 4, 0)


def test_a_dead_letter_edge_keeps_it(lab):
    nodes = [
        herd(4),
        node("q", "queue", max_receives=2, redeliver_ms=10),
        node("w", slots=2, ms=10, error_rate=1),
    ]
    nodes.append(node("dlq", "queue"))
    edges = ["users->q", "q->w", edge("q->dlq", dead_letter=True)]
    got = lab(design(nodes, edges, duration=1))
    assert (got["w"].offered, got.totals.lost, got["dlq"].backlog, got["dlq"].offered) == (8, 0, 4, 4)


def test_visibility_ends_a_delivery(lab):
    nodes = [herd(1), node("q", "queue", timeout_ms=100, max_receives=3), node("w", slots=5, ms=350)]
    got = lab(design(nodes, ["users->q", "q->w"], duration=1))
    # Deliveries at 0, 100 and 200; all run to their end, none in time.
    assert (got["w"].offered, got["w"].succeeded, got.totals.lost) == (3, 3, 1)
    nodes[2] = node("w", slots=5, ms=350, cancel=True)
    got = lab(design(nodes, ["users->q", "q->w"], duration=1))
    assert (got["w"].failures, got.totals.lost) == ({"cancelled": 3}, 1)


def test_a_partition_keeps_its_order_and_waits_behind_a_failure(lab):
    nodes = [herd(3, keys=1), node("q", "queue", partitions=4, redeliver_ms=50), node("w", slots=9, ms=100)]
    faults = [fault("errors", 0, 0.15, "w", 1.0)]
    # One at a time: fails at 100, again from 150, then from 250 and 350.
    for length, offered in ((0.14, 1), (0.16, 2), (0.24, 2), (0.26, 3), (0.34, 3), (0.36, 4)):
        got = lab(design(nodes, ["users->q", "q->w"], faults, duration=length))
        assert got["w"].offered == offered
    assert lab(design(nodes, ["users->q", "q->w"], faults, duration=1))["w"].succeeded == 3


def test_partitions_run_beside_each_other(lab):
    nodes = [herd(8), node("q", "queue", partitions=4), node("w", slots=9, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w"], duration=0.15))
    assert (got["w"].offered, got["q"].backlog) == (8, 0)
    got = lab(design([herd(8, keys=1), *nodes[1:]], ["users->q", "q->w"], duration=0.15))
    assert (got["w"].offered, got["q"].backlog) == (2, 6)


def test_a_lost_message_unblocks_its_partition(lab):
    nodes = [herd(2, keys=1), node("q", "queue", partitions=2, max_receives=1), node("w", slots=9, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w"], [fault("errors", 0, 0.15, "w", 1.0)], duration=1))
    assert (got["w"].offered, got["w"].succeeded, got.totals.lost) == (2, 1, 1)


def test_copies_reach_every_subscriber(lab):
    nodes = [herd(5), node("t", "queue", copies=True), *(node(id, slots=2, ms=10) for id in "abc")]
    got = lab(design(nodes, ["users->t", "t->a", "t->b", "t->c"], duration=1))
    assert (got.totals.offered, got.totals.succeeded) == (5, 5)
    assert [got[id].succeeded for id in "abc"] == [5, 5, 5]


def test_a_slow_subscriber_does_not_hold_up_the_others(lab):
    nodes = [
        herd(5),
        node("t", "queue", copies=True),
        node("a", slots=1, ms=10),
        node("b", slots=1, ms=10_000),
    ]
    got = lab(design(nodes, ["users->t", "t->a", "t->b"], duration=1))
    assert (got["a"].succeeded, got["b"].offered, got["t"].backlog) == (5, 1, 4)


def test_a_crashed_consumer_takes_and_loses_nothing(lab):
    nodes = [
        source(rate=10, arrivals="even"),
        node("q", "queue", redeliver_ms=10),
        node("w", slots=2, ms=100),
    ]
    got = lab(design(nodes, ["users->q", "q->w"], [fault("outage", 5.05, 10, "w")], duration=14.97))
    assert got["q"].backlog == close(100, abs=1)
    assert got["q"].backlog_age_s == close(9.9, abs=0.15)
    assert (got.totals.lost, got.totals.failed) == (0, 0)
    got = lab(design(nodes, ["users->q", "q->w"], [fault("outage", 5.05, 10, "w")], duration=40))
    assert got["q"].backlog <= 1
    assert got["w"].failures == {"crashed": 1}


def test_messages_survive_a_crash_of_the_queue(lab):
    nodes = [herd(5), node("q", "queue"), node("w", slots=1, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w"], [fault("outage", 0.15, 1, "q")], duration=1))
    # The delivery under way ends; nothing more is handed out while the queue is down.
    assert (got["w"].succeeded, got["q"].backlog) == (2, 3)
    got = lab(design(nodes, ["users->q", "q->w"], [fault("outage", 0.15, 1, "q")], duration=2))
    assert (got["w"].succeeded, got["q"].backlog) == (5, 0)


def test_nothing_is_pulled_over_a_cut_edge(lab):
    nodes = [herd(5), node("q", "queue"), node("w", slots=1, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w"], [fault("cut", 0, 0.7, "q->w")], duration=0.75))
    assert (got["w"].offered, got["q"].backlog) == (1, 4)


def test_a_lost_acknowledgement_is_delivered_again(lab):
    nodes = [herd(1), node("q", "queue", timeout_ms=300), node("w", slots=1, ms=100)]
    got = lab(design(nodes, ["users->q", "q->w"], [fault("cut", 0.05, 0.1, "q->w")], duration=1))
    assert (got["w"].succeeded, got["q"].backlog) == (2, 0)


def test_reads_and_writes_do_not_wait_behind_each_other(lab):
    nodes = [herd(200, write_share=0.5, keys=20), node("q", "queue", partitions=3), node("r", slots=9, ms=1)]
    nodes.append(node("w", slots=9, ms=1))
    edges = ["users->q", edge("q->r", only="read"), edge("q->w", only="write")]
    got = lab(design(nodes, edges, duration=2))
    assert (got["r"].offered + got["w"].offered, got["q"].backlog) == (200, 0)
    assert got["r"].offered == close(100, abs=35)
    alone = lab(design(nodes, edges[:2], duration=2))
    assert alone["r"].offered + alone["q"].backlog == 200
    assert alone["r"].offered == close(100, abs=35)


def test_a_consumer_that_refuses_a_message_asks_for_the_next(lab):
    nodes = [
        herd(9),
        node("q", "queue", max_receives=1),
        node("w", slots=1, ms=10, quota_rpm=60, quota_burst=1),
    ]
    got = lab(design(nodes, ["users->q", "q->w"], duration=3))
    assert (got["w"].offered, got["w"].failures, got["q"].backlog) == (9, {"throttled": 8}, 0)
    assert got.totals.lost == 8


def test_pull_keeps_up(lab):
    nodes = [source(rate=8), node("q", "queue"), node("w", slots=13, exp=1000)]
    got = lab(design(nodes, ["users->q", "q->w"], duration=200))
    assert got["q"].backlog < 40
    assert got["w"].utilisation == close(8 / 13, abs=0.08)


def test_a_fleet_scales_with_the_backlog_that_feeds_it(lab):
    scaled = {
        "scale_on": "queue",
        "scale_target": 10,
        "scale_every_s": 5,
        "boot_s": 5,
        "scale_cooldown_s": 10,
    }
    nodes = [source(rate=20), node("q", "queue"), node("w", slots=4, ms=1000, scale_max=8, **scaled)]
    got = lab(design(nodes, ["users->q", "q->w"], duration=200))
    assert got["q"].backlog < 400
    assert got["w"].succeeded > 0.9 * got.totals.offered
    assert got["w"].utilisation > 0.55
