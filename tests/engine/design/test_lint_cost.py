"""What is said of a design before it runs, and what it costs."""

import math

import pytest

from engine.design import (
    Change,
    Design,
    Edge,
    Finding,
    catalogue,
    credits,
    lint,
    load,
    loads,
    new_node,
    node_run_cost,
    problems,
    run_cost,
)
from engine.design.lint import own_p99_ms

KINDS = catalogue()


def lab(nodes: dict[str, str], *edges: str, **settings: dict) -> Design:
    """A design of kinds by id, edges as `users->app`, settings by id; unless set, nobody retries."""
    made = []
    for id, kind in nodes.items():
        quiet = {"timeout_ms": 0, "retries": 0}
        made.append(new_node(kind, id, settings=quiet | settings.get(id, {})))
    joined = [Edge.make(*edge.split("->")) for edge in edges]
    return Design("lab", nodes=made, edges=joined)


TIERS = {"users": "api-clients", "app": "app-service", "db": "sql-primary"}


def said(design: Design) -> dict[str, str]:
    return {finding.where: finding.text for finding in lint(design)}


def test_a_sound_design_needs_no_word():
    assert lint(lab(TIERS, "users->app", "app->db")) == []
    assert lint(Design()) == []


@pytest.mark.parametrize("id", [info.id for info in problems()])
def test_no_problem_begins_with_an_error(id):
    assert [finding for finding in lint(load(id)) if finding.level == "error"] == []


def test_a_source_without_an_edge():
    found = lint(lab(TIERS, "app->db"))
    assert found[0] == Finding("error", "users", "sends its requests nowhere: it has no connection")
    assert [(f.level, f.where) for f in found[1:]] == [("warning", "app"), ("warning", "db")]


def test_no_source_at_all():
    found = lint(lab({"app": "app-service"}))
    assert [(f.level, f.where) for f in found] == [("error", "")]


def test_an_unreachable_node():
    found = said(lab({**TIERS, "lost": "memory-cache"}, "users->app", "app->db", "lost->db"))
    assert found == {"lost": "no request reaches it: no traffic source leads here"}


def test_a_cycle_of_calls():
    found = lint(lab({**TIERS, "b": "app-service"}, "users->app", "app->b", "b->db", "db->app"))
    assert [f.where for f in found] == ["app"]
    assert "(app → b → db → app)" in found[0].text and "32 deep" in found[0].text
    assert "(app → app)" in said(lab(TIERS, "users->app", "app->app", "app->db"))["app"]
    two = lab(
        {**TIERS, "x": "app-service", "y": "app-service"}, "users->app", "app->x", "x->app", "app->y", "y->y"
    )
    assert len([f for f in lint(two) if "lead back" in f.text]) == 2
    around = lab(
        {"users": "api-clients", "q": "message-queue", "w": "worker-pool"}, "users->q", "q->w", "w->q"
    )
    assert "messages may go round for ever" in said(around)["q"]
    ids = [f"n{i}" for i in range(50)]
    ring = lab({"users": "api-clients", **dict.fromkeys(ids, "app-service")}, "users->n0",
               *(f"{a}->{b}" for a, b in zip(ids, [*ids[1:], "n0"], strict=True)))  # fmt: skip
    assert "(n0 → n1 → n2 → n3 → … → n0)" in said(ring)["n0"]


def test_a_timeout_below_what_the_callee_needs():
    design = lab(TIERS, "users->app", "app->db", app={"timeout_ms": 30})
    assert said(design) == {
        "app->db": "app waits for 30 ms, but one call in a hundred takes db 40 ms or more, without any queue"
    }
    assert said(design.with_setting("app->db.timeout_ms", 50)) == {}
    assert "app->db" in said(design.with_settings({"app->db.timeout_ms": 50, "app->db.latency_ms": 6}))
    assert said(design.with_setting("app->db.async", True)) == {}
    assert "app->db" in said(lab(TIERS, "users->app", "app->db").with_setting("app->db.timeout_ms", 3))
    patient = lab(TIERS, "users->app", "app->db", users={"timeout_ms": 100})
    assert "users waits for 100 ms" in said(patient)["users->app"]
    queue = lab({"users": "api-clients", "q": "message-queue", "w": "worker-pool"}, "users->q", "q->w",
                q={"timeout_ms": 500})  # fmt: skip
    assert "q hides a delivered message from others for 500 ms" in said(queue)["q->w"]


def test_the_99th_percentile_of_each_latency_model():
    def p99(**settings) -> float:
        return own_p99_ms(new_node("app-service", "a", settings=settings))

    assert p99() == 250 and p99(p50_ms=500) == 2500
    assert p99(latency_model="constant", p50_ms=40) == 40
    assert p99(latency_model="exponential", p50_ms=math.log(2)) == pytest.approx(
        max(math.log(100), 10)
    )  # the CPU time is longer
    assert p99(latency_model="exponential", p50_ms=10 * math.log(2)) == pytest.approx(10 * math.log(100))
    assert own_p99_ms(new_node("api-clients", "u")) == 0


def test_retries_that_multiply():
    chain = {"users": "api-clients", "a": "app-service", "b": "app-service", "db": "sql-primary"}
    edges = ("users->a", "a->b", "b->db")
    layers = {"users": {"retries": 2}, "a": {"retries": 1}, "b": {"retries": 3}}
    found = lint(lab(chain, *edges, **layers))
    assert [f.where for f in found] == ["b->db"]
    assert "(users ×3 → a ×2 → b ×4): one failing request can become 24 calls" in found[0].text
    # One layer alone multiplies nothing, and a layer that does not retry is passed over.
    assert lint(lab(chain, *edges, users={"retries": 9})) == []
    found = lint(lab(chain, *edges, users={"retries": 2}, b={"retries": 1}))
    assert [f.where for f in found] == ["b->db"] and "(users ×3 → b ×2)" in found[0].text
    assert lint(lab(chain, *edges, a={"retries": 1}).with_setting("users->a.retries", 0)) == []
    assert "×4" in said(lab(chain, *edges, a={"retries": 1}).with_setting("users->a.retries", 3))["a->b"]
    gone = lab(chain, *edges, **layers).with_settings({"a->b.async": True, "b->db.retries": 0})
    assert lint(gone) == []


def test_of_several_ways_the_worst_is_told():
    nodes = {
        "users": "api-clients",
        "a": "app-service",
        "b": "app-service",
        "c": "app-service",
        "db": "sql-primary",
    }
    retries = {"users": 1, "a": 1, "b": 4, "c": 1}
    layers = {id: {"retries": count} for id, count in retries.items()}
    design = lab(nodes, "users->a", "users->b", "a->c", "b->c", "c->db", **layers)
    assert "(users ×2 → b ×5 → c ×2): one failing request can become 20 calls" in said(design)["c->db"]


def test_endless_multiplication_is_told_in_one_line():
    ids = [f"n{i}" for i in range(60)]
    many = lab({"users": "api-clients", **dict.fromkeys(ids, "app-service")}, "users->n0",
               *(f"{a}->{b}" for a, b in zip(ids, ids[1:], strict=False)),
               **dict.fromkeys(ids, {"retries": 1000}))  # fmt: skip
    found = lint(many)
    assert [f.where for f in found] == ["n58->n59"] and "more than 1,000,000,000 calls" in found[0].text


def test_a_queue_without_a_consumer():
    nodes = {"users": "api-clients", "q": "message-queue", "dead": "dead-letter-queue", "w": "worker-pool"}
    alone = lab(nodes, "users->q", "users->w", "q->dead").with_setting("q->dead.dead_letter", True)
    assert said(alone) == {"q": "has no consumer: its messages are never taken out"}
    worked = alone.with_change(Change("", add_edges=[Edge.make("q", "w")]))
    assert said(worked) == {}


def test_a_balancer_without_a_target():
    assert "no target" in said(lab({"users": "api-clients", "lb": "lb-l7"}, "users->lb"))["lb"]


def test_settings_without_effect():
    slotless = lab(TIERS, "users->app", "app->db", app={"slots": 0, "queue": 5})
    assert said(slotless) == {"app": "queue has no effect: with slots 0 no call ever waits"}
    bulkhead = {"users": "api-clients", "b": "bulkhead", "db": "sql-primary"}
    assert said(lab(bulkhead, "users->b", "b->db", b={"queue": 5})) == {}
    assert (
        "max_in_flight 0" in said(lab(bulkhead, "users->b", "b->db", b={"queue": 5, "max_in_flight": 0}))["b"]
    )
    assert (
        "not parallel" in said(lab(TIERS, "users->app", "app->db").with_setting("app->db.need", 1))["app->db"]
    )
    twins = lab({**TIERS, "db2": "sql-primary"}, "users->app", "app->db", "app->db2")
    twins = twins.with_settings({"app->db.parallel": True, "app->db2.parallel": True, "app->db.need": 2})
    assert said(twins) == {}
    assert "need is 3, but its group makes 2 calls" in said(twins.with_setting("app->db.need", 3))["app->db"]
    assert "need" in said(twins.with_setting("app->db2.order", 1))["app->db"]


# --- cost


def test_credits_are_the_kinds_times_instances():
    design = lab(TIERS, "users->app", "app->db", app={"instances": 3})
    expected = KINDS["api-clients"].credits + 3 * KINDS["app-service"].credits + KINDS["sql-primary"].credits
    assert credits(design) == expected
    assert credits(Design()) == run_cost(Design()) == 0


def test_placing_and_removing_ten_times_costs_nothing():
    design = lab(TIERS, "users->app", "app->db")
    before = credits(design), run_cost(design)
    for _ in range(10):
        design = design.with_change(Change("", add_nodes=[new_node("vector-db", "v")]))
        assert credits(design) == before[0] + KINDS["vector-db"].credits
        design = design.with_change(Change("", remove=["v"]))
    assert (credits(design), run_cost(design)) == before


def test_run_cost_follows_the_price_list():
    store = KINDS["checkpoint-store"]
    price = store.prices["slots"]
    assert price > 0
    for slots, instances in ((10, 1), (40, 1), (7, 3)):
        node = new_node("checkpoint-store", "s", settings={"slots": slots, "instances": instances})
        assert node_run_cost(node) == pytest.approx(instances * (store.prices["base"] + price * slots))


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.id)
def test_no_setting_makes_a_price_absurd_or_nothing(kind):
    usual = node_run_cost(new_node(kind.id, "a"))
    assert 0 <= usual < 1000
    for name, price in kind.prices.items():
        setting = kind.settings.get(name)
        if setting is None or not price:
            continue
        least, most = (setting.low, setting.high)
        huge = node_run_cost(new_node(kind.id, "a", settings={name: most} if name != "vcpu" else {}))
        assert usual <= huge <= 1e9
        if setting.unbounded_at_zero:
            # Switching a limit off is not a way to get it for nothing.
            assert node_run_cost(new_node(kind.id, "a", settings={name: least})) > usual


def test_an_objective_may_cap_it():
    design = loads("""
format = 1
nodes = [{ id = "users", kind = "api-clients" }]
[problem]
id = "cheap"
category = "agents"
budget = { run_cost = 12.5, credits = 3 }
objectives = [{ metric = "run_cost", op = "<=", target = 12 }]
""")
    assert (design.problem.budget.run_cost, design.problem.budget.credits) == (12.5, 3.0)
    assert design.problem.objectives[0].of is None
