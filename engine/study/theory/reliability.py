"""Failures: retries, dependencies in series, quorums, circuit breakers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine.study.theory.inputs import not_negative, positive, share, whole


def attempts(failure: float, retries: int | None) -> float:
    """Mean attempts per request when each fails independently with share `failure`; None: retried for ever.

    Source: truncated geometric sum, (1 − p^(r+1))/(1 − p). ValueError for endless retries of what always
    fails.
    """
    failure = share("the failure share", failure)
    if retries is None:
        if failure == 1:
            raise ValueError("endless retries of calls that always fail have no mean number of attempts")
        return 1 / (1 - failure)
    retries = whole("retries", retries, 0)
    return math.fsum(failure**i for i in range(retries + 1))


def final_failure(failure: float, retries: int) -> float:
    """Share of requests that fail after `retries` further independent attempts: p^(r+1)."""
    return share("the failure share", failure) ** (whole("retries", retries, 0) + 1)


def layered_attempts(attempts_per_layer: int, layers: int) -> int:
    """Calls at the bottom per request when each of `layers` layers makes so many attempts and all fail:
    k^n.
    """
    return whole("attempts per layer", attempts_per_layer) ** whole("layers", layers, 0)


def series(availabilities: Iterable[float]) -> float:
    """Availability of a request that needs every one of these independent parts: their product."""
    return math.prod(share("an availability", a) for a in availabilities)


def downtime_min(availability: float, days: float = 30.0) -> float:
    """Expected minutes of downtime in `days` days."""
    return (1 - share("the availability", availability)) * not_negative("days", days) * 1440


def k_of_n(needed: int, members: int, availability: float) -> float:
    """P(at least `needed` of `members` independent members succeed). Source: the binomial tail."""
    members = whole("members", members)
    needed = whole("needed", needed, 0)
    if needed > members:
        raise ValueError(f"needed must be at most the members ({members}), not {needed}")
    a = share("the availability", availability)
    return math.fsum(
        math.comb(members, i) * a**i * (1 - a) ** (members - i) for i in range(needed, members + 1)
    )


@dataclass(frozen=True, slots=True)
class BreakerDuty:
    """What a breaker in front of a dead dependency lets through, and how late it sees the recovery."""

    cycle_s: float
    share_through: float
    relief: float
    recovery_delay_s: float


def breaker_duty(rate: float, cooldown_s: float, probe_s: float) -> BreakerDuty:
    """Duty cycle with Poisson arrivals at `rate`, one probe at a time that fails after `probe_s`.

    A cycle is the cool-down, the wait for the next arrival (1/rate) and the probe. After the dependency is
    back the breaker notices half a cool-down late on average. Source: renewal-reward argument (S. Ross,
    Stochastic Processes, ch. 3).
    """
    rate = positive("the arrival rate", rate)
    cooldown_s, probe_s = not_negative("the cool-down", cooldown_s), not_negative("the probe time", probe_s)
    cycle = cooldown_s + 1 / rate + probe_s
    return BreakerDuty(cycle, 1 / (rate * cycle), rate * cycle, cooldown_s / 2)
