"""Confidence intervals for what a run measures.

Calls of one run depend on each other (a long queue makes many of them late), so an interval from their own
spread would be far too narrow. Two sound ways are here: replications (one value per seed, independent by
construction) and batch means (one long run cut into pieces long enough to forget each other). Both use
Student's t, since the variance is estimated from few values. Source: A. M. Law, Simulation Modeling and
Analysis, ch. 9; B. Schmeiser, "Batch size effects in the analysis of simulation output", Operations
Research 30 (1982).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval, mean ± half; `count` values went into it."""

    mean: float
    half: float
    confidence: float
    count: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def agrees(self, exact: float, relative: float = 0.02) -> bool:
        """Whether `exact` lies within the interval or within `relative` of the mean, whichever is wider."""
        return abs(self.mean - exact) <= max(self.half, relative * abs(exact))

    def __str__(self) -> str:
        return f"{self.mean:.6g} ± {self.half:.2g} ({self.confidence:.0%}, {self.count} values)"


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The interval of the mean of independent `values`, one per seed: mean ± t·s/√n.

    ValueError for fewer than two values or one that is not finite.
    """
    count = len(values)
    if count < 2:
        raise ValueError(f"an interval needs at least two values, not {count}")
    if not all(math.isfinite(v) for v in values):
        raise ValueError("an interval needs finite values")
    mean = math.fsum(values) / count
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1))
    return Interval(mean, _two_sided(confidence, count - 1) * spread / math.sqrt(count), confidence, count)


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], confidence: float = CONFIDENCE
) -> Interval:
    """The interval of a share Σ parts ÷ Σ wholes over seeds (such as failed ÷ offered), by the delta method.

    Better than the mean of the seeds' own shares where the wholes differ. `count` seeds, t with one degree
    less. ValueError for fewer than two pairs, lists of different length, or no whole above 0.
    """
    count = len(parts)
    if count != len(wholes):
        raise ValueError(f"each of the {count} parts needs its whole, not {len(wholes)} of them")
    if count < 2:
        raise ValueError(f"an interval needs at least two values, not {count}")
    total = math.fsum(wholes)
    if not (math.isfinite(total) and total > 0):
        raise ValueError("a share needs something to be a share of")
    share = math.fsum(parts) / total
    rest = math.fsum((p - share * w) ** 2 for p, w in zip(parts, wholes, strict=True))
    error = math.sqrt(rest / (count - 1) / count) / (total / count)
    return Interval(share, _two_sided(confidence, count - 1) * error, confidence, count)


def batch_means(values: Sequence[float], batches: int = 20, confidence: float = CONFIDENCE) -> Interval:
    """The interval of the mean of one long, steady series (in order of time), cut into equal `batches`.

    Left-over values at the start are dropped. Sound only where a batch is long against the memory of the
    series (some hundred times its busy period); 10 to 30 batches are enough. ValueError for fewer than two
    values a batch.
    """
    if batches < 2:
        raise ValueError(f"batch means need at least two batches, not {batches}")
    size = len(values) // batches
    if size < 2:
        raise ValueError(f"{batches} batches need at least {2 * batches} values, not {len(values)}")
    start = len(values) - size * batches
    means = [math.fsum(values[i : i + size]) / size for i in range(start, len(values), size)]
    return mean_interval(means, confidence)


def student_t(q: float, degrees: int) -> float:
    """The q-quantile of Student's t with `degrees` ≥ 1 degrees of freedom, to about 1e-12.

    Found by Newton steps, kept inside a bracket, on the distribution function below.
    """
    if not 0 < q < 1:
        raise ValueError(f"the quantile must lie between 0 and 1, both excluded, not {q}")
    if degrees < 1:
        raise ValueError(f"the degrees of freedom must be at least 1, not {degrees}")
    if q == 0.5:
        return 0.0
    if q < 0.5:
        return -student_t(1 - q, degrees)
    low, high = 0.0, max(1.0, NormalDist().inv_cdf(q))
    while student_t_cdf(high, degrees) < q:
        low, high = high, 2 * high
    t = 0.5 * (low + high)
    constant = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(
        degrees * math.pi
    )
    for _ in range(100):
        excess = student_t_cdf(t, degrees) - q
        low, high = (t, high) if excess < 0 else (low, t)
        density = constant * (1 + t * t / degrees) ** (-(degrees + 1) / 2)
        following = t - excess / density
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - t) <= 1e-13 * max(1.0, t):
            return following
        t = following
    return t


def student_t_cdf(t: float, degrees: int) -> float:
    """P(T ≤ t) for whole degrees of freedom, by its finite sum.

    Source: M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(0, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = sine * total
    return 0.5 * (1 + inside)


def _two_sided(confidence: float, degrees: int) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must lie between 0 and 1, both excluded, not {confidence}")
    return student_t(0.5 + confidence / 2, degrees)
