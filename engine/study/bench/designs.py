"""The designs that the benchmark runs, as the text of design files (TOML)."""

import json
import math

NAMES = {"W1": "W1 M/M/1", "W2": "W2 M/M/8", "W3": "W3 3 tiers"}
RATES = {"W1": 80.0, "W2": 700.0, "W3": 1000.0}
SLOTS = {"W1": 1, "W2": 8}
SERVICE_RATE = 100.0  # of one slot in W1 and W2
_UNBOUNDED = 1_000_000_000
_PATIENT = {"timeout_ms": 0, "retries": 0}
_QUIET = {"cpu_ms": 0, "error_rate": 0, "quota_rpm": 0} | _PATIENT


def workload(name: str, requests: int) -> str:
    """W1 (M/M/1, 80 against 100 a second), W2 (M/M/8, 700 against 800) or W3, for about `requests` requests.

    W3 is three tiers that call one another synchronously at saturation: bounded queues, 10 % errors, a 200 ms
    timeout with two immediate retries, abandoned work goes on.
    """
    if name == "W3":
        tiers = [
            _node(
                "gateway", "app-service", slots=64, queue=100, latency_model="constant", p50_ms=1.0,
                timeout_ms=200, retries=2, backoff_ms=0,
            ),
            _node("service", "app-service", slots=32, queue=100, error_rate=0.1, **_exponential(20.0)),
            _node("store", "sql-primary", slots=16, queue=100, **_exponential(10.0)),
            _edge("gateway", "service"),
            _edge("service", "store"),
        ]  # fmt: skip
    else:
        mean_ms = 1e3 / SERVICE_RATE
        tiers = [
            _node("gateway", "app-service", slots=SLOTS[name], queue=_UNBOUNDED, **_exponential(mean_ms))
        ]
    return _design(NAMES[name], requests / RATES[name], RATES[name], *tiers)


def twenty_nodes(duration_s: float) -> str:
    """20 components, 1,000 requests/s, about 7.6 calls each: a gateway, six services with cache and store."""
    parts = [
        _node(
            "gateway", "app-service", instances=4, slots=64, queue=500, p50_ms=1.0, p99_ms=5.0,
            timeout_ms=1000, retries=1,
        )
    ]  # fmt: skip
    for i in range(1, 7):
        service, cache, store = f"service{i}", f"cache{i}", f"store{i}"
        parts += [
            _node(
                service, "app-service", instances=4, slots=32, queue=200, p50_ms=8.0, p99_ms=40.0,
                timeout_ms=500, retries=1,
            ),
            _node(cache, "memory-cache", slots=64, queue=200, p50_ms=0.5, p99_ms=2.0, hit_rate=0.8),
            _node(store, "sql-primary", slots=32, queue=200, p50_ms=5.0, p99_ms=30.0),
            _edge("gateway", service, calls=0.5, latency_ms=0.5),
            _edge(service, cache),
            _edge(cache, store),
        ]  # fmt: skip
    return _design("Twenty components", duration_s, 1_000.0, *parts)


def flood(duration_s: float) -> str:
    """1,000,000 requests/s on one large fleet."""
    fleet = _node("gateway", "app-service", instances=50, slots=100, queue=10_000, p50_ms=1.0, p99_ms=10.0)
    return _design("A million requests a second", duration_s, 1_000_000.0, fleet)


def _design(name: str, duration_s: float, rate: float, *parts: str) -> str:
    """A whole file: one traffic source of `rate`, infinitely patient, that calls `gateway`."""
    head = f"format = 1\nname = {json.dumps(name)}\nseed = 1\nduration_s = {duration_s}\nwarmup_s = 0\n"
    users = _node("users", "api-clients", rate=rate)
    return "\n".join([head, users, *parts, _edge("users", "gateway")])


def _exponential(mean_ms: float) -> dict:
    return {"latency_model": "exponential", "p50_ms": mean_ms * math.log(2)}


def _node(id: str, kind: str, **settings) -> str:
    quiet = _PATIENT if kind == "api-clients" else _QUIET
    return f'[[nodes]]\nid = "{id}"\nkind = "{kind}"\nsettings = {_table(**quiet | settings)}\n'


def _edge(source: str, target: str, **settings) -> str:
    return f'[[edges]]\nfrom = "{source}"\nto = "{target}"\nsettings = {_table(**settings)}\n'


def _table(**values) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + " }"
