"""Short ways to write designs for tests, free of the catalogue's own figures."""

from __future__ import annotations

import math
from collections.abc import Iterable

from engine.design import COMMON, PLANS, Design, Edge, Fault, Node, new_node

KINDS = {
    "source": "api-clients",
    "all": "app-service",
    "one_of": "lb-l7",
    "cache": "memory-cache",
    "queue": "message-queue",
    "breaker": "circuit-breaker",
    "loop": "lead-agent",
    "hedge": "hedge-proxy",
    "rate_limiter": "rate-limiter",
    "shedder": "load-shedder",
    "bulkhead": "bulkhead",
}


def node(id: str, plan: str = "all", **settings: object) -> Node:
    """A component whose settings are the plain defaults of the plan, but for those given.

    `ms` is a constant own time and `exp` the mean of an exponential one, in ms.
    """
    tables = [PLANS[plan]] if plan == "source" else [COMMON, PLANS[plan]]
    values = {name: row.default for table in tables for name, row in table.items() if row.default is not None}
    if "ms" in settings:
        settings |= {"p50_ms": settings["ms"], "latency_model": "constant"}
        del settings["ms"]
    if "exp" in settings:
        settings |= {"p50_ms": settings["exp"] * math.log(2), "latency_model": "exponential"}
        del settings["exp"]
    values |= settings
    if plan != "source":
        values.setdefault("p99_ms", values["p50_ms"])
    return new_node(KINDS[plan], id, settings=values)


def source(id: str = "users", **settings: object) -> Node:
    return node(id, "source", **settings)


def edge(path: str, id: str | None = None, **settings: object) -> Edge:
    """`edge("a->b", calls=2)`; `async_` stands for the setting `async`."""
    if "async_" in settings:
        settings["async"] = settings.pop("async_")
    begin, end = path.split("->")
    return Edge.make(begin, end, id, settings)


def fault(kind: str, at: float, duration: float, target: str, amount: float | None = None) -> Fault:
    where = {"edge": target} if kind in ("cut", "latency") else {"node": target}
    return Fault.make(kind, at_s=at, duration_s=duration, amount=amount, **where)


def design(
    nodes: Iterable[Node],
    edges: Iterable[Edge | str],
    faults: Iterable[Fault] = (),
    duration: float = 100.0,
    warmup: float = 0.0,
    drain: float = 0.0,
    seed: int = 1,
) -> Design:
    return Design(
        "",
        seed,
        duration,
        warmup,
        drain,
        nodes,
        [edge(each) if isinstance(each, str) else each for each in edges],
        faults,
    )
