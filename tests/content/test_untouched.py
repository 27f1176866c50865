"""Every kind works as it comes out of the palette: placed, connected and left alone at a modest load."""

import math

import pytest

from engine.design.catalogue import Kind, catalogue
from engine.design.model import Design, new_node
from engine.design.parts import Edge, Node
from engine.run.simulation import simulate

SERVING = [kind for kind in catalogue().values() if not kind.is_source]
TRAFFIC = [kind for kind in catalogue().values() if kind.is_source]
FORWARDING = ("one_of", "cache", "breaker", "hedge", "rate_limiter", "shedder", "bulkhead", "queue")


def capacity(kind: Kind) -> float:
    """Calls a second that slots, cores and quota allow, from the kind's own settings."""
    values = kind.values
    spread = math.log(values["p99_ms"] / values["p50_ms"]) / 2.3263478740408408 if values["p50_ms"] else 0.0
    mean_s = max(values["p50_ms"] * math.exp(spread * spread / 2), values["cpu_ms"]) / 1000
    limits = [values["instances"] * values["slots"] / mean_s if values["slots"] and mean_s else math.inf]
    if values["cpu_ms"]:
        limits.append(values["instances"] * values["vcpu"] / values["cpu_ms"] * 1000)
    if values["quota_rpm"]:
        limits.append(values["quota_rpm"] / 60)
    return min(limits)


def around(kind: Kind, rate: float) -> Design:
    """A source, the component untouched, and behind one that passes calls on two plain servers."""
    users = new_node("api-clients", "users", settings={"rate": rate, "timeout_ms": 0, "retries": 0})
    nodes: list[Node] = [users, new_node(kind.id, "it")]
    edges = [Edge.make("users", "it")]
    if kind.plan in FORWARDING:
        for id in ("a", "b"):
            nodes.append(new_node("web-server", id))
            edges.append(Edge.make("it", id))
    return Design(kind.id, duration_s=max(120.0, 200 / rate), drain_s=2000.0, nodes=nodes, edges=edges)


@pytest.mark.parametrize("kind", SERVING, ids=lambda kind: kind.id)
def test_untouched_it_serves_a_modest_load(kind):
    design = around(kind, min(5.0, 0.3 * capacity(kind)))
    summary = simulate(design)
    totals = summary["totals"]
    assert totals["offered"] > 100 and totals["in_flight"] == 0
    assert totals["success_rate"] > 0.95, totals["failures"]
    assert totals["lost"] == 0


@pytest.mark.parametrize("kind", TRAFFIC, ids=lambda kind: kind.id)
def test_untouched_traffic_arrives(kind):
    nodes = [new_node(kind.id, "users"), new_node("app-service", "app", settings={"instances": 10})]
    design = Design(kind.id, duration_s=200.0, nodes=nodes, edges=[Edge.make("users", "app")])
    totals = simulate(design)["totals"]
    values = kind.values
    expected = (
        values["count"]
        if values["shape"] == "herd"
        else values["rate"] * ((values["stop_s"] or 200.0) - values["start_s"])
    )
    assert totals["offered"] == pytest.approx(expected, rel=0.1)
    assert totals["success_rate"] > 0.95
