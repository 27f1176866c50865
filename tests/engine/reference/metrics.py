"""What is counted and measured: by component, by traffic source, and over time."""

from __future__ import annotations

import math
from collections import Counter


class Integral:
    """The time integral of a value that changes in steps."""

    __slots__ = ("_area", "_since", "value")

    def __init__(self, value: float = 0.0) -> None:
        self.value = value
        self._area = 0.0
        self._since = 0.0

    def set(self, now: float, value: float) -> None:
        self._area += self.value * (now - self._since)
        self._since = now
        self.value = value

    def total(self, now: float) -> float:
        return self._area + self.value * (now - self._since)


def nearest_rank(ordered: list[float], share: float) -> float | None:
    """The smallest value that at least `share` of the sorted values do not exceed; None without a value."""
    if not ordered:
        return None
    value = ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]
    return value if math.isfinite(value) else None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


class NodeMetrics:
    """Calls of one component that arrived in the window, retries and crashes that happened in it."""

    def __init__(self) -> None:
        self.offered = 0
        self.succeeded = 0
        self.failures: Counter[str] = Counter()
        self.waits: list[float] = []
        self.sojourns: list[float] = []
        self.retries = 0
        self.crashes = 0
        self.queue_max = 0

    def summary(self) -> dict[str, object]:
        failed = sum(self.failures.values())
        ordered = sorted(self.sojourns)
        return {
            "offered": self.offered,
            "succeeded": self.succeeded,
            "failed": failed,
            "failures": dict(self.failures),
            "in_flight": self.offered - self.succeeded - failed,
            "queue_max": self.queue_max,
            "wait_mean_ms": _milliseconds(_mean(self.waits)),
            "mean_ms": _milliseconds(_mean(self.sojourns)),
            "p50_ms": _milliseconds(nearest_rank(ordered, 0.50)),
            "p95_ms": _milliseconds(nearest_rank(ordered, 0.95)),
            "p99_ms": _milliseconds(nearest_rank(ordered, 0.99)),
            "retries": self.retries,
            "crashes": self.crashes,
        }


class SourceMetrics:
    """Requests of one source that arrived in the window."""

    def __init__(self) -> None:
        self.offered = 0
        self.latencies: list[float] = []
        self.failures: Counter[str] = Counter()
        self.failures_by_node: Counter[str] = Counter()
        self.lost = 0
        self.retries = 0


def totals(parts: list[SourceMetrics], window_s: float) -> dict[str, object]:
    """The end-to-end figures of some sources together."""
    offered = sum(part.offered for part in parts)
    good = sorted(latency for part in parts for latency in part.latencies)
    failures = sum((part.failures for part in parts), Counter())
    by_node = sum((part.failures_by_node for part in parts), Counter())
    failed = sum(failures.values())
    ended = good + [math.inf] * failed
    return {
        "offered": offered,
        "succeeded": len(good),
        "failed": failed,
        "in_flight": offered - len(good) - failed,
        "success_rate": len(good) / len(ended) if ended else None,
        "goodput_rps": len(good) / window_s if window_s > 0 else None,
        "mean_ms": _milliseconds(_mean(good)),
        **{f"p{p}_ms": _milliseconds(nearest_rank(good, p / 100)) for p in (50, 95, 99)},
        **{f"offered_p{p}_ms": _milliseconds(nearest_rank(ended, p / 100)) for p in (50, 95, 99)},
        "failures": dict(failures),
        "failures_by_node": dict(by_node),
        "lost": sum(part.lost for part in parts),
        "retries": sum(part.retries for part in parts),
    }
