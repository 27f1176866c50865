"""Rules of thumb for capacity: caches, backlogs, checkpoints, quotas, retry storms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.study.theory.inputs import not_negative, positive, stable, whole


def ttl_hit_ratio(key_rate: float, ttl_s: float) -> float:
    """Share of hits for one key asked for at `key_rate` whose entry lives exactly `ttl_s` after each
    instant fill.

    Source: J. Jung, A. W. Berger, H. Balakrishnan, "Modeling TTL-based Internet caches", INFOCOM 2003.
    """
    hits = positive("the key's rate", key_rate) * not_negative("the TTL", ttl_s)
    return hits / (1 + hits)


def ttl_origin_rate(key_rate: float, ttl_s: float) -> float:
    """Fills per second of that key: one for each life of `ttl_s` and wait for the next request."""
    return key_rate * (1 - ttl_hit_ratio(key_rate, ttl_s))


def backlog(rate: float, stopped_s: float) -> float:
    """Messages that pile up while consumers stand still for `stopped_s` (fluid approximation)."""
    return not_negative("the arrival rate", rate) * not_negative("the stop", stopped_s)


def drain_s(rate: float, service_rate: float, stopped_s: float) -> float:
    """Seconds to work that backlog off with `service_rate` messages/s in all: λD/(μ − λ) (fluid
    approximation).

    ValueError if rate ≥ service_rate. Source: G. F. Newell, Applications of Queueing Theory (1982), ch. 2.
    """
    stable(not_negative("the arrival rate", rate), positive("the service rate", service_rate))
    return backlog(rate, stopped_s) / (service_rate - rate)


def young_interval_s(save_s: float, between_faults_s: float) -> float:
    """Time between checkpoints that loses least: √(2·C·M), for C ≪ interval ≪ M.

    Source: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
    """
    return math.sqrt(2 * positive("the save", save_s) * positive("the time between faults", between_faults_s))


def young_overhead(interval_s: float, save_s: float, between_faults_s: float) -> float:
    """Share of time lost to saves and to redone work, half an interval per fault: C/τ + τ/(2M)."""
    interval_s = positive("the interval", interval_s)
    save_s = not_negative("the save", save_s)
    return save_s / interval_s + interval_s / (2 * positive("the time between faults", between_faults_s))


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A bucket of `burst` tokens refilled at `refill` per second; starts full, one token per admitted
    call.
    """

    refill: float
    burst: float

    def __post_init__(self) -> None:
        positive("the refill", self.refill)
        if not (math.isfinite(self.burst) and self.burst >= 1):
            raise ValueError(f"the burst must be a number of at least 1, not {self.burst}")

    def admitted(self, window_s: float) -> float:
        """The most that any window of `window_s` can admit: burst + refill·T."""
        return self.burst + self.refill * not_negative("the window", window_s)

    def refused_share(self, rate: float) -> float:
        """Share refused in the long run of a demand with little variation: 1 − refill/rate, at least 0."""
        return max(0.0, 1 - self.refill / positive("the demand", rate))

    def refused_share_poisson(self, rate: float) -> float:
        """Share refused in the long run of Poisson demand, exactly; `burst` must be whole.

        Tokens missing from the bucket drain at a constant rate and grow by one per admitted call: the work in
        M/D/1/K with K = burst, so its loss is the refused share.
        """
        return md1k_loss(rate, 1 / self.refill, whole("the burst", self.burst))


def md1k_loss(rate: float, service_s: float, places: int) -> float:
    """Share of Poisson arrivals refused by one slot of constant `service_s` with `places` inside at most;
    any load.

    Source: embedded chain at departures and its renewal with the time scale (H. C. Tijms, A First Course in
    Stochastic Models, section 9.3): with unnormalised q(n), n < K, summing to s: loss = 1 − s/(q(0) + ρ·s).
    """
    load = positive("the arrival rate", rate) * positive("the service time", service_s)
    places = whole("places", places)
    arrivals = [math.exp(k * math.log(load) - load - math.lgamma(k + 1)) for k in range(places + 1)]
    if arrivals[0] == 0.0:
        return 1 - 1 / load  # never empty: one call leaves per service time
    # Level cuts (all terms positive, so no cancellation): a0·q(j+1) = q(0)·P(A > j) + Σ q(i)·P(A > j + 1 − i)
    above = []
    tail = 1.0
    for probability in arrivals:
        tail = max(tail - probability, 0.0)
        above.append(tail)
    q = [1.0]
    for j in range(places - 1):
        value = q[0] * above[j] + math.fsum(q[i] * above[j + 1 - i] for i in range(1, j + 1))
        q.append(value / arrivals[0])
        if q[-1] > 1e250:
            q = [v / 1e250 for v in q]
    total = math.fsum(q)
    return 1 - total / (q[0] + load * total)


def safe_rate(capacity: float, retries: int, budget: float | None = None) -> float:
    """Traffic below which a retry storm cannot keep itself alive, whatever happens.

    Overloaded, each request makes retries + 1 attempts, or 1 + `budget` with a retry budget (retries per
    first attempt): capacity ÷ that. Source: L. Huang et al., "Metastable failures in the wild", OSDI 2022.
    """
    capacity = positive("the capacity", capacity)
    retries = whole("retries", retries, 0)
    extra = retries if budget is None else min(retries, not_negative("the budget", budget))
    return capacity / (1 + extra)
