"""Designs for the tests of runs."""

from __future__ import annotations

from engine.design import Design
from tests.engine.reference.build import design, edge, fault, node, source


def small(**users: object) -> Design:
    """Users, a service with a queue and retries, a store that fails now and then; 20 s."""
    nodes = [
        source(**{"rate": 60, "timeout_ms": 900} | users),
        node("api", slots=8, queue=30, exp=40, timeout_ms=250, retries=2, backoff_ms=20, jitter=0.5),
        node("store", slots=5, queue=10, exp=50, error_rate=0.05),
    ]
    faults = [fault("slow", 6, 3, "store", 3)]
    return design(nodes, ["users->api", "api->store"], faults, duration=20, warmup=2)


def every_plan() -> Design:
    """One component of each plan, under load; 30 s."""
    nodes = [
        source(rate=40, write_share=0.2, keys=50, zipf=1.0, timeout_ms=2000, retries=1),
        source("crew", users=5, think_s=0.5),
        node("lb", "one_of", policy="least_in_flight", interval_s=1, retries=1),
        node("limit", "rate_limiter", limit_rps=60, limit_burst=5),
        node("shed", "shedder", slots=20, queue=20, ms=2, max_in_flight=[30, 20]),
        node("guard", "bulkhead", max_in_flight=12, queue=10, ms=1),
        node("breaker", "breaker", min_calls=5, window_s=4, timeout_ms=300),
        node(
            "api",
            instances=2,
            slots=6,
            queue=20,
            vcpu=2,
            cpu_ms=8,
            exp=15,
            scale_on="utilisation",
            scale_every_s=2,
            boot_s=1,
            scale_cooldown_s=3,
            retries=1,
            cancel=True,
        ),
        node("cache", "cache", hit_rate=0.6, warm_s=2, coalesce=True, ms=1),
        node("hedge", "hedge", hedge_ms=40, timeout_ms=400),
        node("store", slots=6, queue=30, exp=30, error_rate=0.05),
        node("jobs", "queue", ms=1, max_receives=3, redeliver_ms=100, capacity=500),
        node("worker", slots=3, exp=60, error_rate=0.1, timeout_ms=200),
        node("agent", "loop", steps=5, max_resumes=2, resume_wait_s=0.2, exp=50, slots=20),
        node("log", ms=2),
    ]
    edges = [
        "users->lb",
        "lb->limit",
        "lb->shed",
        "limit->guard",
        "shed->guard",
        "guard->breaker",
        edge("breaker->api", latency_ms=2),
        edge("api->cache", only="read"),
        edge("api->store", only="write", order=1),
        edge("api->jobs", order=2, calls=0.5, async_=True),
        "cache->hedge",
        "hedge->store",
        "jobs->worker",
        edge("jobs->log", dead_letter=True),
        "crew->agent",
        edge("agent->store", calls=1.5, parallel=True),
        edge("agent->log", checkpoint=True),
        edge("worker->log", optional=True),
    ]
    faults = [fault("errors", 5, 4, "store", 0.5), fault("cut", 12, 1, "guard->breaker")]
    return design(nodes, edges, faults, duration=30, warmup=2, drain=5)
