"""Small designs that together exercise every rule, under load and with chance in it."""

from __future__ import annotations

from collections.abc import Callable

from engine.design import Design

from .build import design, edge, fault, node, source

DESIGNS: dict[str, Callable[..., Design]] = {}


def _named(name: str):
    def register(make: Callable[..., Design]) -> Callable[..., Design]:
        DESIGNS[name] = make
        return make

    return register


@_named("queue with a limit")
def _(queue: int = 6) -> Design:
    nodes = [source(rate=45), node("store", slots=4, queue=queue, exp=100)]
    return design(nodes, ["users->store"], duration=60, warmup=5)


@_named("lognormal times, several instances, way there and back")
def _() -> Design:
    nodes = [
        source(rate=40),
        node("s", instances=3, slots=2, queue=20, p50_ms=80, p99_ms=700, error_rate=0.05),
    ]
    nodes.append(node("db", slots=6, queue=10, exp=70))
    edges = [edge("users->s", latency_ms=12), edge("s->db", latency_ms=3)]
    return design(nodes, edges, duration=60, warmup=10)


@_named("processor sharing")
def _() -> Design:
    nodes = [
        source(rate=30),
        node("s", instances=2, slots=8, queue=10, vcpu=1, cpu_ms=50, exp=40, crash_rate=0),
    ]
    nodes.append(node("db", vcpu=2, cpu_ms=40, p50_ms=20, p99_ms=200))
    return design(nodes, ["users->s", "s->db"], duration=60)


@_named("timeouts, retries, abandoned work at saturation")
def _() -> Design:
    nodes = [
        source(rate=60, timeout_ms=900, retries=1, backoff_ms=50),
        node("gw", slots=32, queue=20, ms=1, timeout_ms=300, retries=2, backoff_ms=20, jitter=0.5),
        node("s", slots=12, queue=20, exp=100, error_rate=0.1),
        node("db", slots=6, queue=20, exp=60),
    ]
    return design(nodes, ["users->gw", "gw->s", "s->db"], duration=40, warmup=4, drain=20)


@_named("cancelling at every depth")
def _() -> Design:
    nodes = [
        source(rate=40, timeout_ms=350, retries=2, backoff_ms=10, backoff_factor=3, backoff_max_ms=60),
        node("a", slots=30, queue=10, ms=5, cancel=True, retries=1, backoff_ms=5),
        node("b", slots=6, queue=30, exp=80, cancel=True),
        node("c", slots=5, queue=30, exp=60),
        node("d", vcpu=2, cpu_ms=30, exp=50, cancel=True),
    ]
    edges = ["users->a", "a->b", edge("a->d", parallel=True, latency_ms=5), edge("b->c", latency_ms=20)]
    return design(nodes, edges, duration=50)


@_named("retry budget")
def _() -> Design:
    nodes = [
        source(rate=30),
        node("s", retries=3, backoff_ms=100, retry_budget=0.15, timeout_ms=200),
        node("db", slots=5, queue=5, exp=90, error_rate=0.2),
        node("log", exp=5),
    ]
    return design(nodes, ["users->s", "s->db", edge("s->log", parallel=True)], duration=60)


@_named("quotas and a rate limiter")
def _() -> Design:
    nodes = [
        source(rate=25),
        source("batch", shape="batch", batch=30, every_s=7),
        node("rl", "rate_limiter", limit_rps=22, limit_burst=30, ms=1),
        node("api", quota_rpm=1000, quota_burst=12, exp=50),
    ]
    return design(nodes, ["users->rl", "batch->rl", "rl->api"], duration=60)


@_named("shedding by priority")
def _() -> Design:
    nodes = [
        source("gold", rate=12),
        source("silver", rate=12, priority=1),
        source("bronze", rate=12, priority=3),
        node("sh", "shedder", slots=5, queue=30, ms=10, max_in_flight=[20, 9, 5]),
        node("db", exp=160),
    ]
    return design(nodes, ["gold->sh", "silver->sh", "bronze->sh", "sh->db"], duration=60)


@_named("bulkheads with and without waiting")
def _() -> Design:
    nodes = [
        source(rate=30),
        node("s", ms=2),
        node("one", "bulkhead", max_in_flight=3, queue=4),
        node("two", "bulkhead", max_in_flight=4),
        node("db", slots=8, queue=50, exp=100),
    ]
    edges = ["users->s", edge("s->one", optional=True), edge("s->two", optional=True), "one->db", "two->db"]
    return design(nodes, edges, duration=60)


@_named("hedging")
def _() -> Design:
    nodes = [
        source(rate=30),
        node("h", "hedge", hedge_ms=80, timeout_ms=400, retries=1, backoff_ms=10),
        node("db", slots=8, queue=8, p50_ms=60, p99_ms=900, error_rate=0.1, cancel=True),
    ]
    return design(nodes, ["users->h", "h->db"], duration=60)


@_named("groups, need, optional calls and only")
def _() -> Design:
    nodes = [source(rate=20, write_share=0.3), node("s", exp=5), node("log", exp=10, error_rate=0.3)]
    nodes += [node(id, slots=4, queue=4, exp=60, error_rate=0.1, cancel=id != "b") for id in "abcde"]
    edges = [
        "users->s",
        edge("s->a", "read", calls=1.4, only="read"),
        edge("s->log", optional=True),
        *(edge(f"s->{id}", order=1, parallel=True, need=3) for id in "abcd"),
        edge("s->e", order=1, parallel=True, calls=0.5, optional=True),
        edge("s->e", "write", order=2, only="write", retries=1),
    ]
    return design(nodes, edges, duration=60)


@_named("fallbacks")
def _() -> Design:
    nodes = [
        source(rate=20, timeout_ms=2000),
        node("s", timeout_ms=200, retries=1, backoff_ms=20, exp=3),
        node("a", slots=3, queue=3, exp=100, error_rate=0.2),
        node("b", slots=2, queue=1, exp=100, error_rate=0.3),
        node("c", exp=60, error_rate=0.1),
    ]
    edges = ["users->s", edge("s->a", calls=2, parallel=True), edge("s->b", fallback="s->a", retries=0)]
    edges.append(edge("s->c", fallback="s->a", timeout_ms=80))
    return design(nodes, edges, duration=60)


@_named("async calls")
def _() -> Design:
    nodes = [
        source(rate=20, timeout_ms=150),
        node("s", slots=10, queue=5, exp=40, cancel=True),
        node("log", slots=2, queue=10, exp=120, error_rate=0.1, retries=1),
        node("db", exp=80, cancel=True),
        node("disk", slots=3, queue=2, exp=100),
    ]
    edges = ["users->s", edge("s->log", async_=True, calls=1.5, latency_ms=10), "s->db", "log->disk"]
    edges.append(edge("s->disk", order=1, async_=True, parallel=True))
    return design(nodes, edges, duration=60)


def _balanced(policy: str, **settings: object) -> Design:
    nodes = [
        source(rate=60, keys=5000, timeout_ms=1500),
        node("lb", "one_of", policy=policy, retries=1, backoff_ms=10, slots=40, queue=10, ms=1, **settings),
        node("a", slots=2, queue=4, exp=50),
        node("b", slots=4, queue=4, exp=60, error_rate=0.1),
        node("c", instances=2, slots=3, queue=4, p50_ms=40, p99_ms=400),
    ]
    edges = [
        "users->lb",
        edge("lb->a", weight=1),
        edge("lb->b", weight=2, timeout_ms=150),
        edge("lb->c", weight=3),
    ]
    return design(nodes, edges, duration=40, warmup=2)


for _policy in ("round_robin", "random", "least_in_flight", "power_of_two", "weighted"):
    DESIGNS[f"balancing: {_policy}"] = lambda policy=_policy: _balanced(policy)


@_named("balancing by key, with health checks, outages and fallbacks")
def _() -> Design:
    nodes = [source(rate=40, keys=9000, write_share=0.5), node("spare", exp=30, slots=4, queue=4)]
    nodes.append(
        node("lb", "one_of", policy="by_key", interval_s=2, unhealthy_after=2, healthy_after=1, retries=1)
    )
    nodes += [node(id, slots=3, queue=9, exp=60) for id in "abc"]
    edges = [
        "users->lb",
        "lb->a",
        "lb->b",
        edge("lb->c", timeout_ms=400),
        edge("lb->spare", fallback="lb->a"),
    ]
    faults = [fault("outage", 10, 15, "a"), fault("cut", 20, 20, "lb->c"), fault("outage", 22, 6, "b")]
    return design(nodes, edges, faults, duration=60)


@_named("no target left")
def _() -> Design:
    nodes = [
        source(rate=20),
        node("lb", "one_of", interval_s=1, unhealthy_after=2, healthy_after=2, retries=2),
    ]
    nodes += [node("a", exp=50), node("b", exp=50), node("spare", exp=10)]
    edges = ["users->lb", edge("lb->a", only="read"), edge("lb->b", only="read")]
    return design(nodes, edges, [fault("outage", 5, 20, "a"), fault("outage", 12, 20, "b")], duration=50)


@_named("cache with warm-up, coalescing and a cold start")
def _() -> Design:
    nodes = [
        source(rate=60, write_share=0.1, keys=40, zipf=0.9),
        node("c", "cache", hit_rate=0.7, warm_s=8, coalesce=True, ms=2, slots=60, queue=10, timeout_ms=500),
        node("db", slots=4, queue=10, exp=120, error_rate=0.05),
    ]
    faults = [fault("cold_cache", 15, 5, "c"), fault("outage", 35, 4, "c")]
    return design(nodes, ["users->c", "c->db"], faults, duration=55)


@_named("cache without keys")
def _() -> Design:
    nodes = [
        source(rate=60),
        node("c", "cache", instances=2, hit_rate=0.8, warm_s=10, coalesce=True, exp=4, restart_s=3),
        node("db", slots=3, queue=10, exp=80),
    ]
    return design(nodes, ["users->c", "c->db"], [fault("crash", 15, 0, "c", 1)], duration=50)


@_named("queue with two consumers and failing deliveries")
def _() -> Design:
    nodes = [
        source(rate=25, timeout_ms=300),
        node("q", "queue", exp=10, slots=8, queue=20, max_receives=3, redeliver_ms=150),
        node("w", slots=3, ms=5, error_rate=0.15),
        node("v", slots=2, queue=5, exp=60),
        node("db", exp=80, error_rate=0.1),
        node("dead", "queue", ms=3),
    ]
    edges = ["users->q", edge("q->w", latency_ms=5), "q->v", "w->db", edge("q->dead", dead_letter=True)]
    return design(nodes, edges, duration=60)


@_named("queue with visibility, capacity and loss")
def _() -> Design:
    nodes = [
        source(rate=20, shape="burst", on_s=6, off_s=6, off_rate=3),
        node("q", "queue", ms=5, capacity=25, timeout_ms=400, max_receives=2, redeliver_ms=50),
        node("w", slots=3, exp=180, cancel=True),
    ]
    return design(nodes, ["users->q", "q->w"], duration=72)


@_named("queue whose consumers also serve others")
def _() -> Design:
    nodes = [
        source(rate=8),
        source("jobs", rate=9),
        node("q", "queue"),
        node("r", "queue", ms=1),
        node("w", slots=3, queue=6, exp=120),
    ]
    edges = ["users->w", edge("jobs->q"), edge("jobs->r", calls=0.5), "q->w", "r->w"]
    return design(nodes, edges, duration=60)


@_named("partitions")
def _() -> Design:
    nodes = [
        source(rate=20, keys=200, zipf=0.6),
        node("q", "queue", ms=2, partitions=6, redeliver_ms=100, max_receives=4, timeout_ms=1500),
        node("w", slots=10, exp=150, error_rate=0.1),
    ]
    return design(nodes, ["users->q", "q->w"], duration=60)


@_named("a topic with copies")
def _() -> Design:
    nodes = [
        source(rate=12, write_share=0.4),
        node("t", "queue", exp=5, copies=True, max_receives=2),
        node("a", slots=2, exp=100, error_rate=0.2),
        node("b", slots=1, exp=60),
        node("c", slots=2, exp=50),
    ]
    edges = ["users->t", "t->a", edge("t->b", latency_ms=15), edge("t->c", only="write")]
    return design(nodes, edges, [fault("outage", 20, 8, "b")], duration=60)


@_named("a queue under faults")
def _() -> Design:
    nodes = [
        source(rate=12),
        node("q", "queue", ms=5, timeout_ms=2000, redeliver_ms=200),
        node("w", instances=2, slots=2, exp=150, restart_s=4),
    ]
    faults = [
        fault("outage", 10, 6, "q"),
        fault("crash", 25, 0, "w", 1),
        fault("cut", 35, 5, "q->w"),
        fault("outage", 48, 5, "w"),
    ]
    return design(nodes, ["users->q", "q->w"], faults, duration=70)


def _broken(**settings: object) -> Design:
    nodes = [
        source(rate=20, timeout_ms=1000),
        node(
            "cb",
            "breaker",
            timeout_ms=250,
            min_calls=8,
            window_s=4,
            cooldown_s=2,
            slots=50,
            queue=5,
            **settings,
        ),
        node("db", slots=6, queue=12, exp=90, error_rate=0.1),
        node("spare", exp=20),
    ]
    faults = [
        fault("errors", 10, 10, "db", 0.6),
        fault("slow", 30, 10, "db", 8),
        fault("outage", 48, 4, "db"),
    ]
    return design(nodes, ["users->cb", "cb->db"], faults, duration=60)


@_named("breaker")
def _() -> Design:
    return _broken(failure_rate=0.5, probes=1)


@_named("breaker with retries, several probes and cancelled calls")
def _() -> Design:
    return _broken(failure_rate=0.35, probes=4, retries=1, backoff_ms=30, cancel=True)


@_named("breaker with a fallback, over flaky ways")
def _() -> Design:
    made = _broken(failure_rate=0.5, probes=2)
    nodes = [*made.nodes, source("more", rate=5, start_s=5)]
    edges = [*made.edges, edge("cb->spare", fallback="cb->db"), "more->cb"]
    return design(nodes, edges, [*made.faults, fault("cut", 42, 3, "cb->db")], duration=60)


@_named("agents that save and resume")
def _() -> Design:
    nodes = [
        source(rate=1.5),
        node(
            "agent", "loop", steps=8, slots=40, queue=10, exp=20, checkpoint_every=2, max_resumes=2,
            resume_wait_s=1.5, timeout_ms=2000, retries=1, backoff_ms=200,
        ),
        node("model", slots=12, queue=6, p50_ms=300, p99_ms=1500, error_rate=0.08),
        node("tool", exp=80),
        node("store", slots=2, queue=3, exp=60, error_rate=0.1),
    ]  # fmt: skip
    edges = ["users->agent", "agent->model", edge("agent->tool", calls=1.3, parallel=True)]
    edges.append(edge("agent->store", checkpoint=True, retries=0))
    return design(nodes, edges, [fault("outage", 40, 8, "model")], duration=120, drain=100)


@_named("agents with a geometric number of steps, crashing")
def _() -> Design:
    nodes = [
        source(rate=2, timeout_ms=20_000),
        node("agent", "loop", instances=3, steps=5, steps_model="geometric", slots=8, queue=5, cancel=True,
             checkpoint_every=1, max_resumes=1, resume_wait_s=0.5, restart_s=6),
        node("model", slots=9, queue=20, exp=400, error_rate=0.05, cancel=True),
        node("store", exp=10),
    ]  # fmt: skip
    edges = ["users->agent", "agent->model", edge("agent->store", checkpoint=True, async_=True)]
    faults = [fault("crash", 30, 0, "agent", 2), fault("crash", 60, 15, "agent", 1)]
    return design(nodes, edges, faults, duration=100)


@_named("a cycle that locks itself up")
def _() -> Design:
    nodes = [
        source(rate=12, timeout_ms=2000),
        node("a", slots=10, queue=5, exp=30, timeout_ms=800, cancel=True),
        node("b", slots=10, queue=5, exp=30, cancel=True),
    ]
    edges = ["users->a", edge("a->b", calls=0.8), edge("b->a", calls=0.8)]
    return design(nodes, edges, duration=50)


@_named("calls that get too deep")
def _() -> Design:
    nodes = [source(rate=3), node("a", retries=2, backoff_ms=1), node("b", ms=1)]
    return design(nodes, ["users->a", edge("a->b", calls=0.99), edge("b->a", calls=0.99)], duration=60)


@_named("crashes by overload")
def _() -> Design:
    nodes = [
        source(rate=38, timeout_ms=3000),
        node("s", instances=2, slots=60, queue=60, vcpu=1, cpu_ms=50, exp=60, crash_rate=0.4, restart_s=5),
    ]
    return design(nodes, ["users->s"], duration=120, warmup=5)


def _scaled(on: str, **settings: object) -> Design:
    usual = {
        "scale_every_s": 4,
        "boot_s": 5,
        "scale_cooldown_s": 6,
        "scale_max": 6,
        "scale_target": 0.6,
        "slots": 4,
    }
    nodes = [
        source(rate=12, shape="schedule", schedule=[[0, 8], [20, 30], [80, 6]]),
        node(
            "s",
            queue=30,
            scale_on=on,
            exp=80,
            vcpu=1,
            cpu_ms=20,
            crash_rate=0,
            **{**usual, **settings},
        ),
        node("db", exp=60),
    ]
    return design(nodes, ["users->s", "s->db"], [fault("crash", 60, 5, "s", 1)], duration=140)


@_named("autoscaling on busy slots")
def _() -> Design:
    return _scaled("utilisation")


@_named("autoscaling on CPU")
def _() -> Design:
    return _scaled("cpu", scale_target=0.4, slots=20)


@_named("autoscaling on the queue")
def _() -> Design:
    return _scaled("queue", scale_target=3, instances=2, scale_min=2)


@_named("autoscaling on the backlog of a queue")
def _() -> Design:
    nodes = [
        source(rate=14),
        node("q", "queue", ms=4),
        node("w", slots=2, exp=300, scale_on="queue", scale_target=8, scale_every_s=4, boot_s=3,
             scale_cooldown_s=5, scale_max=5),
    ]  # fmt: skip
    return design(nodes, ["users->q", "q->w"], [fault("outage", 50, 5, "w")], duration=100)


@_named("faults on the way and at work")
def _() -> Design:
    nodes = [
        source(rate=25, timeout_ms=1500, retries=1),
        node(
            "a",
            slots=20,
            queue=10,
            timeout_ms=400,
            retries=1,
            backoff_ms=40,
            exp=10,
            instances=2,
            restart_s=3,
        ),
        node("b", slots=5, queue=10, exp=60, quota_rpm=1500),
    ]
    faults = [
        fault("latency", 5, 10, "a->b", 60),
        fault("latency", 10, 10, "users->a", 25),
        fault("cut", 24, 3, "a->b"),
        fault("cut", 30, 2, "users->a"),
        fault("slow", 36, 8, "b", 4),
        fault("slow", 40, 8, "b", 1.5),
        fault("errors", 50, 6, "b", 0.3),
        fault("quota", 58, 8, "b", 0.2),
        fault("crash", 68, 0, "a", 1),
        fault("outage", 74, 5, "b"),
        fault("traffic", 82, 6, "users", 2.5),
    ]
    return design(nodes, ["users->a", "a->b"], faults, duration=95, warmup=2)


@_named("every shape of traffic")
def _() -> Design:
    sources = [
        source("ramp", shape="ramp", rate=2, rate_to=10),
        source("step", shape="step", rate=3, rate_to=8, at_s=20),
        source("spike", shape="spike", rate=3, spike_factor=5, at_s=10, on_s=5),
        source("burst", shape="burst", rate=12, off_rate=1, on_s=2, off_s=5, start_s=4, stop_s=36),
        source("day", shape="day", rate=5, amplitude=0.9, period_s=25),
        source("trace", shape="trace", trace_csv="0,3\n10,9\n20,0\n30,5"),
        source("herd", shape="herd", count=60, at_s=12, spread_s=6),
        source("batch", shape="batch", batch=9, every_s=6),
        source("closed", users=20, think_s=3, timeout_ms=600),
    ]
    nodes = [*sources, node("s", slots=6, queue=12, exp=70)]
    faults = [
        fault("traffic", 15, 8, "day", 2),
        fault("traffic", 25, 6, "step", 0.3),
        fault("outage", 30, 5, "spike"),
    ]
    return design(nodes, [f"{each.id}->s" for each in sources], faults, duration=40)


@_named("a closed loop under a crash")
def _() -> Design:
    nodes = [
        source(users=40, think_s=1.5, timeout_ms=800, retries=1, backoff_ms=200, jitter=1.0),
        node("s", slots=5, queue=15, p50_ms=100, p99_ms=900, restart_s=4),
    ]
    return design(nodes, ["users->s"], [fault("crash", 20, 0, "s", 1)], duration=60, drain=10)


@_named("a source with several edges")
def _() -> Design:
    nodes = [
        source(rate=15, timeout_ms=400, retries=2, backoff_ms=30, write_share=0.3),
        node("a", slots=4, queue=4, exp=80, cancel=True),
        node("b", slots=3, queue=4, exp=90, error_rate=0.1),
        node("c", exp=40),
    ]
    edges = [
        edge("users->a", timeout_ms=200, retries=1),
        edge("users->b", parallel=True, only="write"),
        edge("users->c", parallel=True),
        edge("users->c", "again", order=1, calls=0.5, optional=True),
    ]
    return design(nodes, edges, duration=60)
