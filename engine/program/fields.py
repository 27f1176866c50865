"""Settings to numbers: how the settings of one node or edge become the static fields of its record.

Used when a design is lowered and again when a setting is changed while running, so that both mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from engine.program import layout as L

Z99 = 2.3263478740408408
PLAN_CODES = {
    "source": L.P_SOURCE,
    "all": L.P_ALL,
    "one_of": L.P_ONE_OF,
    "cache": L.P_CACHE,
    "queue": L.P_QUEUE,
    "breaker": L.P_BREAKER,
    "loop": L.P_LOOP,
    "hedge": L.P_HEDGE,
    "rate_limiter": L.P_ALL,
    "shedder": L.P_ALL,
    "bulkhead": L.P_ALL,
}


def node_fields(plan: str, s: Mapping[str, object]) -> dict[str, object]:
    """The static fields of a NODE record for a component of this plan with these effective settings."""
    f: dict[str, object] = {
        "plan": PLAN_CODES[plan],
        "retries": s["retries"],
        "timeout_s": s["timeout_ms"] / 1e3,
        "backoff_s": s["backoff_ms"] / 1e3,
        "factor": s["backoff_factor"],
        "backoff_max_s": s["backoff_max_ms"] / 1e3,
        "jitter": s["jitter"],
    }
    if plan == "source":
        return f | {"instances": 1, "quota_burst": 1.0, "restart_s": 10.0}
    slots = s["slots"]
    if plan == "bulkhead" and s["max_in_flight"]:
        slots = s["max_in_flight"]
    cores = s["vcpu"]
    quota = s["quota_rpm"] / 60.0
    f |= {
        "instances": s["instances"],
        "slots": slots,
        "queue": s["queue"],
        "bulkhead": plan == "bulkhead",
        "cancel": s["cancel"],
        "vcpu": cores,
        "cpu_s": s["cpu_ms"] / 1e3 if cores > 0 else 0.0,
        "error": s["error_rate"],
        "budget": s["retry_budget"],
        "quota": quota,
        "quota_burst": max(1.0, s["quota_burst"] or quota),
        "crash_rate": s["crash_rate"],
        "restart_s": s["restart_s"],
        "scale_on": L.SCALES.index(s["scale_on"]),
        "scale_min": s["scale_min"],
        "scale_max": max(s["scale_max"], s["scale_min"]),
        "scale_target": s["scale_target"],
        "scale_every": s["scale_every_s"],
        "boot_s": s["boot_s"],
        "cooldown": s["scale_cooldown_s"],
    }
    f |= _own_time(s)
    if plan == "one_of":
        f |= {
            "policy": L.POLICIES.index(s["policy"]),
            "interval_s": s["interval_s"],
            "unhealthy_after": s["unhealthy_after"],
            "healthy_after": s["healthy_after"],
        }
    elif plan == "cache":
        f |= {"hit_rate": s["hit_rate"], "warm_s": s["warm_s"], "coalesce": s["coalesce"]}
    elif plan == "queue":
        f |= {
            "capacity": s["capacity"],
            "max_receives": s["max_receives"],
            "redeliver_s": s["redeliver_ms"] / 1e3,
            "partitions": s["partitions"],
            "copies": bool(s["copies"]),
        }
    elif plan == "breaker":
        f |= {
            "failure_rate": s["failure_rate"],
            "window_s": s["window_s"],
            "min_calls": s["min_calls"],
            "cooldown_s": s["cooldown_s"],
            "probes": s["probes"],
        }
    elif plan == "rate_limiter":
        f |= {"limit": s["limit_rps"], "limit_burst": max(1.0, s["limit_burst"] or s["limit_rps"])}
    elif plan == "hedge":
        f |= {"hedge_s": s["hedge_ms"] / 1e3}
    elif plan == "loop":
        f |= {
            "steps": s["steps"],
            "steps_model": int(s["steps_model"] == "geometric"),
            "checkpoint_every": s["checkpoint_every"],
            "max_resumes": s["max_resumes"],
            "resume_wait_s": s["resume_wait_s"],
        }
    return f


def _own_time(s: Mapping[str, object]) -> dict[str, float]:
    """A call's own time: median, and ln-mean and ln-deviation of a lognormal, or the mean of an exponential."""
    p50 = s["p50_ms"] / 1e3
    model = s["latency_model"]
    f = {"latency": L.LATENCY_MODELS.index(model), "p50_s": p50, "mu": 0.0, "sigma": 0.0}
    if model == "exponential":
        f["mu"] = p50 / math.log(2.0)
    elif model == "lognormal" and p50 > 0.0:
        p99 = s["p99_ms"] / 1e3 if s["p99_ms"] is not None else p50
        f["mu"] = math.log(p50)
        f["sigma"] = max(0.0, math.log(p99 / p50) / Z99)
        if f["sigma"] == 0.0:
            f["latency"] = L.L_CONSTANT
    elif model == "lognormal":
        f["latency"] = L.L_CONSTANT
    return f


def shed_levels(plan: str, s: Mapping[str, object]) -> list[int]:
    """Calls in flight above which each priority is shed; empty: no shedding."""
    if plan != "shedder":
        return []
    limit = s["max_in_flight"]
    if isinstance(limit, int | float):
        return [int(limit)] if limit else []
    return [int(v) for v in limit]


def edge_fields(s: Mapping[str, object], caller: Mapping[str, object], source: bool) -> dict[str, object]:
    """The static fields of an EDGE record; a source's own patience and retries are for the whole request."""
    timeout, retries = s["timeout_ms"], s["retries"]
    if timeout is None:
        timeout = 0.0 if source else caller["timeout_ms"]
    if retries is None:
        retries = 0 if source else caller["retries"]
    return {
        "order": s["order"],
        "parallel": s["parallel"],
        "need": s["need"],
        "only": ("any", "read", "write").index(s["only"]),
        "optional": s["optional"],
        "async_": s["async"],
        "checkpoint": s["checkpoint"],
        "dead_letter": s["dead_letter"],
        "calls": s["calls"],
        "weight": s["weight"],
        "latency_s": s["latency_ms"] / 1e3,
        "timeout_s": timeout / 1e3,
        "retries": retries,
    }


def write(record: np.void, fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        record[name] = value
