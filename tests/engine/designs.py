"""Random designs for property tests: every plan, setting and fault, at a size that runs in an instant."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from engine.design import Design, Edge, Fault, Node
from tests.engine.reference.build import design, edge, node

BOUNDLESS = 10**9
MOST_CALLS = 400  # calls that one request may cause at worst


def some(**values: list) -> st.SearchStrategy[dict]:
    """Some of these settings, each at one of its values."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(pool) for name, pool in values.items()})


CALLING = {
    "timeout_ms": [0, 1, 30, 200],
    "retries": [1, 2, 3],
    "backoff_ms": [0, 5, 100],
    "backoff_factor": [1, 3],
    "backoff_max_ms": [0, 20],
    "jitter": [0.5, 1.0],
}
SERVING = {**CALLING, "retry_budget": [0.1, 1.0], "cancel": [True]}
CAPACITY = {
    "instances": [1, 2, 3],
    "slots": [1, 2, 4, 0],
    "queue": [0, 1, 5, BOUNDLESS],
    "p50_ms": [5, 20, 100, 0],
    "latency_model": ["lognormal", "exponential", "constant"],
}
TROUBLE = {
    "error_rate": [0.05, 0.3, 1.0],
    "quota_rpm": [60, 600, 6000],
    "quota_burst": [0, 1, 20],
    "crash_rate": [0, 0.2, 20],
    "restart_s": [0, 0.2, 2],
}
SCALING = {
    "scale_on": ["utilisation", "cpu", "queue"],
    "scale_target": [0.2, 0.7, 3],
    "scale_min": [1, 2],
    "scale_max": [2, 4],
    "scale_every_s": [0.2, 1],
    "boot_s": [0, 0.5],
    "scale_cooldown_s": [0, 0.7],
}
PLAN = {
    "all": {},
    "one_of": {
        "policy": ["round_robin", "random", "least_in_flight", "power_of_two", "weighted", "by_key"],
        "interval_s": [0, 0.1, 1],
        "unhealthy_after": [1, 2],
        "healthy_after": [1, 2],
    },
    "cache": {"hit_rate": [0, 0.5, 1.0], "warm_s": [0, 2], "coalesce": [True, False]},
    "queue": {
        "capacity": [0, 1, 10],
        "max_receives": [0, 1, 2, 3],
        "redeliver_ms": [0, 20],
        "partitions": [0, 1, 4],
        "copies": [True, False],
    },
    "breaker": {
        "failure_rate": [0.05, 0.3, 1.0],
        "window_s": [0.2, 2],
        "min_calls": [1, 3],
        "cooldown_s": [0, 0.3, 2],
        "probes": [1, 3],
    },
    "loop": {
        "steps": [1, 2.5, 4],
        "steps_model": ["fixed", "geometric"],
        "checkpoint_every": [0, 1, 2],
        "max_resumes": [0, 1, 2],
        "resume_wait_s": [0, 0.1],
    },
    "hedge": {"hedge_ms": [0, 5, 50]},
    "rate_limiter": {"limit_rps": [0, 5, 40], "limit_burst": [0, 1, 10]},
    "shedder": {"max_in_flight": [0, 1, 4, [8, 2], [5, 3, 1]]},
    "bulkhead": {"max_in_flight": [0, 1, 5]},
}
SOURCE = {
    "arrivals": ["poisson", "even"],
    "shape": ["constant", "ramp", "step", "spike", "burst", "day", "schedule", "trace", "herd", "batch"],
    "rate_to": [0, 50],
    "start_s": [0, 0.5],
    "stop_s": [0, 2],
    "spike_factor": [3],
    "on_s": [0.3, 1],
    "off_s": [0.2, 1],
    "off_rate": [0, 5],
    "period_s": [1, 10],
    "amplitude": [0.5, 1.0],
    "schedule": [[[0, 10], [1, 0], [2, 40]]],
    "trace_csv": ["0,20\n0.7,0\n1.4,60\n"],
    "count": [1, 60],
    "at_s": [0, 1],
    "spread_s": [0, 1],
    "every_s": [0.5, 2],
    "batch": [1, 20],
    "users": [1, 12],
    "think_s": [0.05, 0.4],
    "write_share": [0.3, 1.0],
    "keys": [1, 30],
    "zipf": [0, 1.1],
    "priority": [0, 1, 5],
}
EDGE = {
    "calls": [0, 0.4, 1.5, 3],
    "order": [0, 1, 2],
    "parallel": [True],
    "need": [1, 2],
    "only": ["read", "write"],
    "optional": [True],
    "async": [True],
    "latency_ms": [0, 2, 25],
    "weight": [0, 3],
    "timeout_ms": [0, 10, 100],
    "retries": [0, 1],
}
NODE_FAULTS = {
    "outage": None,
    "crash": [1, 2],
    "slow": [0, 0.5, 10],
    "errors": [0.5, 1.0],
    "quota": [0, 0.1, 3],
    "cold_cache": None,
    "traffic": [0, 0.5, 4],
}
EDGE_FAULTS = {"cut": None, "latency": [5, 300]}


@st.composite
def settings_of(draw, plan: str) -> dict:
    """Settings of a component of this plan."""
    values = draw(some(**SERVING, **PLAN[plan])) | {k: draw(st.sampled_from(v)) for k, v in CAPACITY.items()}
    if plan == "breaker":
        values = {"min_calls": 2, "failure_rate": 0.3} | values
    if draw(st.integers(0, 2)) == 2:
        values |= draw(some(**TROUBLE))
    if draw(st.integers(0, 2)) == 2:
        values |= {"vcpu": draw(st.sampled_from([0.5, 1, 4])), "cpu_ms": draw(st.sampled_from([1, 20]))}
    if draw(st.integers(0, 3)) == 3:
        values |= draw(some(**SCALING))
    if plan == "queue" and not values.get("redeliver_ms"):
        # Else a message that fails in no time comes back in no time, for ever
        values["max_receives"] = values.get("max_receives") or 3
    return spread(values, draw(st.sampled_from([1, 4, 30])))


def spread(values: dict, times: float) -> dict:
    """Adds the p99 of a lognormal own time."""
    return values | {"p99_ms": times * values["p50_ms"]} if values["latency_model"] == "lognormal" else values


@st.composite
def sources(draw, id: str, duration: float) -> Node:
    values = draw(some(**SOURCE, **CALLING))
    values["rate"] = draw(st.sampled_from([0, 30, 100, 300]))
    if values.get("shape") in ("schedule", "trace"):
        name = "schedule" if values["shape"] == "schedule" else "trace_csv"
        values.setdefault(name, SOURCE[name][0])
    return node(id, "source", **values)


@st.composite
def edges_of(draw, plans: dict[str, str], cycles: bool) -> list[Edge]:
    """Each serving node is called by a node before it; some further edges, and with `cycles` some back."""
    ids, found, used = list(plans), [], set()

    def add(begin: str, end: str, **more: object) -> None:
        values = draw(some(**EDGE)) | more
        if plans[begin] == "loop" and draw(st.integers(0, 3)) == 3:
            values["checkpoint"] = True
        if plans[begin] == "queue" and draw(st.integers(0, 3)) == 3:
            values["dead_letter"] = True
        others = [e.id for e in found if e.source == begin]
        if others and draw(st.integers(0, 4)) == 4:
            values["fallback"] = draw(st.sampled_from(others))
        name = f"{begin}->{end}" if (begin, end) not in used else f"{begin}-{end}-{len(found)}"
        used.add((begin, end))
        found.append(edge(f"{begin}->{end}", name, **values))

    serving = [id for id in ids if plans[id] != "source"]
    for id in serving:
        add(draw(st.sampled_from(ids[: ids.index(id)])), id)
    for _ in range(draw(st.integers(0, 3)) if serving else 0):
        end = draw(st.sampled_from(serving))
        add(draw(st.sampled_from(ids[: ids.index(end)])), end)
    if cycles and serving and draw(st.booleans()):
        begin = draw(st.sampled_from(serving))
        add(
            begin,
            draw(st.sampled_from(serving[: serving.index(begin) + 1])),
            calls=draw(st.sampled_from([0.4, 1])),
        )
    return found


@st.composite
def faults_of(draw, nodes: list[Node], edges: list[Edge], duration: float) -> list[Fault]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        if edges and draw(st.booleans()):
            kind = draw(st.sampled_from(sorted(EDGE_FAULTS)))
            pool, where = EDGE_FAULTS[kind], {"edge": draw(st.sampled_from([e.id for e in edges]))}
        else:
            target = draw(st.sampled_from(nodes))
            kinds = [
                kind
                for kind in NODE_FAULTS
                if not (kind == "cold_cache" and target.plan != "cache")
                and not (kind == "traffic" and not target.is_source)
                and not (kind == "slow" and target.is_source)
            ]
            kind = draw(st.sampled_from(kinds))
            pool, where = NODE_FAULTS[kind], {"node": target.id}
        at = draw(st.sampled_from([0.25, 0.5, 0.9, 0.0])) * duration
        lasts = draw(st.sampled_from([0.1, 0.4, 1.0])) * duration
        amount = draw(st.sampled_from(pool)) if pool else None
        found.append(Fault.make(kind, at_s=at, duration_s=lasts, amount=amount, **where))
    return found


@st.composite
def designs(draw, most: int = 12, cycles: bool = True, faults: bool = True) -> Design:
    """1 to `most` nodes with everything that may happen to them."""
    duration = draw(st.sampled_from([0.5, 3.0, 8.0]))
    size = draw(st.integers(1, most))
    origins = draw(st.integers(1, min(size, 3)))
    plans = {f"users{k}": "source" for k in range(origins)}
    plans |= {f"n{k}": draw(st.sampled_from(sorted(PLAN))) for k in range(size - origins)}
    nodes = [
        draw(sources(id, duration)) if plan == "source" else node(id, plan, **draw(settings_of(plan)))
        for id, plan in plans.items()
    ]
    edges = draw(edges_of(plans, cycles))
    if worst_calls(nodes, edges) > MOST_CALLS:
        edges = calmer(edges)
    if worst_calls(nodes, edges) > MOST_CALLS:
        edges = one_call_each(edges)
        nodes = [without_repeats(n) for n in nodes]
    warmup = draw(st.sampled_from([0.0, 0.2]))
    drain = draw(st.sampled_from([0.0, 0.5, 20.0]))
    happening = draw(faults_of(nodes, edges, duration)) if faults else []
    return design(nodes, edges, happening, duration, warmup, drain, draw(st.integers(0, 2**32)))


@st.composite
def plain_trees(draw) -> Design:
    """A tree without retries, timeouts, faults, limits and CPU, loaded so that its slots matter."""
    size = draw(st.integers(1, 6))
    plans = {"users": "source"}
    plans |= {f"n{k}": draw(st.sampled_from(["all", "all", "one_of", "cache", "loop"])) for k in range(size)}
    nodes = [node("users", "source", rate=draw(st.sampled_from([20, 100, 400])))]
    nodes += [
        node(id, plan, **draw(plain_settings()), **draw(some(**plain_plan(plan))))
        for id, plan in list(plans.items())[1:]
    ]
    ids = list(plans)
    edges = []
    for k, id in enumerate(ids[1:]):
        begin = draw(st.sampled_from(ids[: k + 1]))
        edges.append(edge(f"{begin}->{id}", **draw(some(calls=[1, 2], parallel=[True], latency_ms=[0, 5]))))
    return design(nodes, edges, duration=20.0, warmup=2.0)


@st.composite
def plain_settings(draw) -> dict:
    values = {name: draw(st.sampled_from(pool)) for name, pool in CAPACITY.items()}
    return spread(values, draw(st.sampled_from([1, 4])))


def plain_plan(plan: str) -> dict[str, list]:
    return {
        "one_of": {"policy": ["round_robin", "random", "power_of_two"]},
        "cache": {"hit_rate": [0, 0.5]},
        "loop": {"steps": [1, 3], "checkpoint_every": [0]},
    }.get(plan, {})


# --- how much one request can cause


def fan(n: Node, e: Edge) -> float:
    """Calls over an edge for one call of its node, retries and repeats included, at worst."""
    s, at = n.effective(), e.effective()
    tries = 1 + (at["retries"] if at["retries"] is not None else s["retries"])
    calls = math.ceil(at["calls"]) * tries if at["calls"] >= 1 else at["calls"] * tries
    if n.plan == "source":
        calls *= 1 + s["retries"]
    elif n.plan == "loop":
        calls *= 3 * s["steps"] * (1 + s["max_resumes"])
    elif n.plan == "hedge":
        calls = 2.0 * tries
    elif n.plan == "queue":
        calls = s["max_receives"] or 3
    return calls


def worst_calls(nodes: list[Node], edges: list[Edge]) -> float:
    """Calls caused by one request of every source, along paths of up to 33 calls."""
    by_id = {n.id: n for n in nodes}
    now, total = {n.id: 1.0 for n in nodes if n.is_source}, 0.0
    for _ in range(33):
        following: dict[str, float] = {}
        for e in edges:
            if e.source in now:
                following[e.target] = following.get(e.target, 0.0) + now[e.source] * fan(by_id[e.source], e)
        total += sum(following.values())
        if not following or total > 1e12:
            break
        now = following
    return total


def calmer(edges: list[Edge]) -> list[Edge]:
    """Without what makes calls multiply."""
    return [
        Edge.make(
            e.source, e.target, e.id, {k: v for k, v in e.settings.items() if k not in ("calls", "retries")}
        )
        for e in edges
    ]


def one_call_each(edges: list[Edge]) -> list[Edge]:
    """Each node called by the first edge that reaches it alone."""
    kept, seen = [], set()
    for e in edges:
        if e.target not in seen:
            seen.add(e.target)
            kept.append(e)
    ids = {e.id for e in kept}
    return [
        Edge.make(
            e.source, e.target, e.id, {k: v for k, v in e.settings.items() if k != "fallback" or v in ids}
        )
        for e in calmer(kept)
    ]


def without_repeats(n: Node) -> Node:
    fewest = {"retries": 0} | ({"steps": 1, "max_resumes": 0} if n.plan == "loop" else {})
    return Node.make(n.id, n.kind, settings={**n.settings, **fewest})
