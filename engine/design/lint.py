"""What an experienced colleague would say of a design.  Nothing here keeps it from running."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine.design.model import Design
from engine.design.parts import Edge, Node

# Attempts of one request that a chain of retries may multiply to before it is worth a word.
MANY_ATTEMPTS = 4
ROUTE_SHOWN = 6


@dataclass(frozen=True)
class Finding:
    """`level` is error (the design cannot do its work) or warning; `where` is the id of a node or edge, or
    empty for the whole design.
    """

    level: str
    where: str
    text: str


def lint(design: Design) -> list[Finding]:
    """Every finding, errors first, then in the order of the file."""
    found = [
        *_dead_ends(design),
        *_unreachable(design),
        *_cycles(design),
        *_timeouts(design),
        *_retry_chains(design),
        *_idle_settings(design),
    ]
    return sorted(found, key=lambda finding: finding.level != "error")


def _dead_ends(design: Design) -> Iterator[Finding]:
    if design.nodes and not design.sources:
        yield Finding("error", "", "nothing sends requests: there is no traffic source")
    # What was set aside may lie: a queue that is fed by dead letters alone needs no consumer.
    fed = {edge.target for edge in design.edges if not edge.effective()["dead_letter"]}
    for node in design.nodes:
        out = design.out_edges(node.id)
        if node.is_source and not out:
            yield Finding("error", node.id, "sends its requests nowhere: it has no connection")
        elif (
            node.plan == "queue"
            and node.id in fed
            and not any(not edge.effective()["dead_letter"] for edge in out)
        ):
            yield Finding("error", node.id, "has no consumer: its messages are never taken out")
        elif node.plan == "one_of" and not out:
            yield Finding("error", node.id, "has no target to pick: every call through it fails")


def _unreachable(design: Design) -> Iterator[Finding]:
    reached = {node.id for node in design.sources}
    if not reached:
        return
    ahead = list(reached)
    while ahead:
        for edge in design.out_edges(ahead.pop()):
            if edge.target not in reached:
                reached.add(edge.target)
                ahead.append(edge.target)
    for node in design.nodes:
        if node.id not in reached:
            yield Finding("warning", node.id, "no request reaches it: no traffic source leads here")


def _cycles(design: Design) -> Iterator[Finding]:
    import networkx

    graph = design.graph
    order = {node.id: index for index, node in enumerate(design.nodes)}
    for group in networkx.strongly_connected_components(graph):
        first = min(group, key=order.__getitem__)
        if len(group) == 1 and not graph.has_edge(first, first):
            continue
        steps = networkx.find_cycle(graph.subgraph(group), first)
        route = _route([step[0] for step in steps] + [steps[0][0]])
        queued = any(design.node(step[0]).plan == "queue" for step in steps)
        harm = (
            "messages may go round for ever"
            if queued
            else "each may hold its slots and wait for the other, and calls nested more than 32 deep fail"
        )
        yield Finding("warning", steps[0][0], f"calls lead back to it ({route}): {harm}")


def _route(ids: list[str]) -> str:
    if len(ids) > ROUTE_SHOWN:
        ids = [*ids[: ROUTE_SHOWN - 2], "…", ids[-1]]
    return " → ".join(ids)


def own_p99_ms(node: Node) -> float:
    """The 99th percentile of a component's own time when nothing else loads it (ms); 0 for a source.

    A call takes at least its CPU time; an exponential time of median m has its 99th percentile at
    m · ln 100 / ln 2.
    """
    if node.is_source:
        return 0.0
    values = node.effective()
    own = {
        "lognormal": values["p99_ms"],
        "exponential": values["p50_ms"] * math.log(100) / math.log(2),
        "constant": values["p50_ms"],
    }[values["latency_model"]]
    return max(own, values["cpu_ms"])


def _timeouts(design: Design) -> Iterator[Finding]:
    for edge in design.edges:
        values = edge.effective()
        if values["async"]:
            continue
        caller, callee = design.node(edge.source), design.node(edge.target)
        timeout = _override(edge, caller, "timeout_ms")
        needed = own_p99_ms(callee) + 2 * values["latency_ms"]
        if 0 < timeout < needed:
            what = "waits for" if caller.plan != "queue" else "hides a delivered message from others for"
            yield Finding(
                "warning",
                edge.id,
                f"{caller.id} {what} {_ms(timeout)}, but one call in a hundred takes {callee.id} "
                f"{_ms(needed)} or more, without any queue",
            )


def _override(edge: Edge, caller: Node, name: str) -> float:
    own = edge.effective()[name]
    return caller.effective()[name] if own is None else own


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.3g} ms"


def _retry_chains(design: Design) -> Iterator[Finding]:
    """The worst chains of layers that each retry, and how many calls one request can become at their end."""
    import networkx

    # A cycle has no end to multiply to; its own finding says what is wrong with it.
    groups = enumerate(networkx.strongly_connected_components(design.graph))
    group_of = {id: index for index, group in groups for id in group}
    onward = [edge for edge in design.edges if group_of[edge.source] != group_of[edge.target]]
    ways = networkx.DiGraph((edge.source, edge.target) for edge in onward)
    into: dict[str, list[Edge]] = {}
    for edge in onward:
        into.setdefault(edge.target, []).append(edge)
    # Of the chains that end at a node, the one with the most attempts, and the ids of its edges that retry.
    worst: dict[str, tuple[int, tuple[str, ...]]] = {}
    for id in networkx.topological_sort(ways):
        worst[id] = (1, ())
        for edge in into.get(id, ()):
            attempts, chain = worst[edge.source]
            times = _attempts(design, edge)
            if attempts * times > worst[id][0]:
                worst[id] = (attempts * times, (*chain, edge.id) if times > 1 else chain)
    chains = {chain: attempts for attempts, chain in worst.values() if len(chain) > 1}
    continued = {chain[:-1] for chain in chains}
    for chain, attempts in chains.items():
        if attempts >= MANY_ATTEMPTS and chain not in continued:
            edges = [design.edge(id) for id in chain]
            layers = _route([f"{edge.source} ×{_attempts(design, edge)}" for edge in edges])
            many = f"{attempts:,}" if attempts < 1e9 else "more than 1,000,000,000"
            yield Finding(
                "warning",
                chain[-1],
                f"retries multiply on the way to {edges[-1].target} ({layers}): one failing request can "
                f"become {many} calls",
            )


def _attempts(design: Design, edge: Edge) -> int:
    caller = design.node(edge.source)
    if edge.effective()["async"] or caller.plan == "queue":
        return 1
    return 1 + _override(edge, caller, "retries")


def _idle_settings(design: Design) -> Iterator[Finding]:
    """Settings that cannot have the effect they were given for."""
    for node in design.nodes:
        values = node.effective()
        if node.is_source:
            continue
        limit = "max_in_flight" if node.plan == "bulkhead" else "slots"
        if values["queue"] and not values[limit]:
            yield Finding("warning", node.id, f"queue has no effect: with {limit} 0 no call ever waits")
        groups: dict[int, list[tuple[Edge, dict]]] = {}
        for edge in design.out_edges(node.id):
            own = edge.effective()
            if own["parallel"]:
                groups.setdefault(own["order"], []).append((edge, own))
            elif own["need"]:
                yield Finding("warning", edge.id, "need has no effect: the edge is not parallel")
        for group in groups.values():
            edge, own = max(group, key=lambda pair: pair[1]["need"])
            calls = sum(other["calls"] for _, other in group)
            if own["need"] > calls:
                yield Finding(
                    "warning",
                    edge.id,
                    f"need is {own['need']}, but its group makes {calls:g} calls: all have to succeed",
                )
