"""Latency laws, and what hedging and fan-out make of them (no queueing)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Protocol

import numpy as np

from engine.study.theory.inputs import inner_share, not_negative, positive, quantile_of_tail, share, whole

Z99 = 2.3263478740408408
_NORMAL = NormalDist()


class Latency(Protocol):
    """A law of non-negative times: mean, squared coefficient of variation, P(T > t) and quantiles."""

    @property
    def mean_s(self) -> float: ...

    @property
    def cv2(self) -> float: ...

    def tail(self, t_s: float) -> float: ...

    def quantile_s(self, q: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Every call takes `time_s`."""

    time_s: float

    def __post_init__(self) -> None:
        positive("the time", self.time_s)

    @property
    def mean_s(self) -> float:
        return self.time_s

    @property
    def cv2(self) -> float:
        return 0.0

    def tail(self, t_s: float) -> float:
        return 1.0 if t_s < self.time_s else 0.0

    def quantile_s(self, q: float) -> float:
        inner_share("the quantile", q)
        return self.time_s


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential with mean `mean_s`; its median is mean·ln 2."""

    mean_s: float

    def __post_init__(self) -> None:
        positive("the mean", self.mean_s)

    @property
    def cv2(self) -> float:
        return 1.0

    def tail(self, t_s: float) -> float:
        return math.exp(-max(t_s, 0.0) / self.mean_s)

    def quantile_s(self, q: float) -> float:
        return -self.mean_s * math.log1p(-inner_share("the quantile", q))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lognormal through its median and 99th percentile: σ = ln(p99/p50)/2.3263, mean = p50·exp(σ²/2).

    ValueError if p99 < p50. Source: Johnson, Kotz, Balakrishnan, Continuous Univariate Distributions 1,
    ch. 14.
    """

    p50_s: float
    p99_s: float
    sigma: float = field(init=False)

    def __post_init__(self) -> None:
        positive("p50", self.p50_s)
        positive("p99", self.p99_s)
        if self.p99_s < self.p50_s:
            raise ValueError(f"p99 must be at least p50 ({self.p50_s:g} s), not {self.p99_s:g} s")
        object.__setattr__(self, "sigma", math.log(self.p99_s / self.p50_s) / Z99)

    @property
    def mean_s(self) -> float:
        return self.p50_s * math.exp(self.sigma**2 / 2)

    @property
    def cv2(self) -> float:
        return math.expm1(self.sigma**2)

    def tail(self, t_s: float) -> float:
        if t_s <= 0:
            return 1.0
        if self.sigma == 0:
            return 1.0 if t_s < self.p50_s else 0.0
        return 0.5 * math.erfc(math.log(t_s / self.p50_s) / (self.sigma * math.sqrt(2)))

    def quantile_s(self, q: float) -> float:
        return self.p50_s * math.exp(self.sigma * _NORMAL.inv_cdf(inner_share("the quantile", q)))


def hedged_tail(law: Latency, delay_s: float, t_s: float) -> float:
    """P(T > t) when a second, independent copy is sent after `delay_s` and the first answer wins.

    Source: J. Dean, L. A. Barroso, "The tail at scale", CACM 56(2), 2013; S(t)·S(t − d) from the delay on.
    """
    delay_s = not_negative("the delay", delay_s)
    return law.tail(t_s) * (law.tail(t_s - delay_s) if t_s >= delay_s else 1.0)


def hedged_load(law: Latency, delay_s: float) -> float:
    """Second copies per call: the share of calls not answered before `delay_s`."""
    return law.tail(not_negative("the delay", delay_s))


def hedged_mean_s(law: Latency, delay_s: float) -> float:
    """Mean of the hedged time: the integral of `hedged_tail`, to about 1e-8 relative."""
    delay_s = not_negative("the delay", delay_s)
    end = law.quantile_s(1 - 1e-13)
    # Panels that grow from the scale of the fastest answers to the slowest, broken at the delay where the
    # tail kinks
    first = law.quantile_s(1e-6)
    ladder = np.geomspace(first, max(end, first * 2), 400)
    kinks = [delay_s, law.quantile_s(0.5), delay_s + law.quantile_s(0.5)]
    edges = np.unique(np.concatenate(([0.0], ladder, delay_s + ladder, kinks)))
    points, weights = np.polynomial.legendre.leggauss(8)
    total = 0.0
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        half = 0.5 * (high - low)
        values = [hedged_tail(law, delay_s, low + half * (1 + x)) for x in points]
        total += half * float(np.dot(weights, values))
    return total


def hedged_quantile_s(law: Latency, delay_s: float, q: float) -> float:
    """The q-quantile of the hedged time, 0 < q < 1."""
    return quantile_of_tail(lambda t: hedged_tail(law, delay_s, t), q, law.quantile_s(0.5))


def fan_out_slow_share(slow: float, calls: int) -> float:
    """Share of requests with at least one slow call among `calls` independent ones, each slow with share
    `slow`.

    Source: Dean & Barroso (2013): 1 − (1 − p)^n.
    """
    slow, calls = share("the slow share", slow), whole("calls", calls)
    return 1.0 if slow == 1 else -math.expm1(calls * math.log1p(-slow))


def fan_out_quantile_s(law: Latency, calls: int, q: float) -> float:
    """The q-quantile of the slowest of `calls` independent calls: the q^(1/n)-quantile of one."""
    return law.quantile_s(inner_share("the quantile", q) ** (1 / whole("calls", calls)))
