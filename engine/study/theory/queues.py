"""Open queues: Poisson arrivals at one station."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass

from engine.study.theory.inputs import not_negative, positive, quantile_of_tail, stable, whole


def little(rate: float, time_s: float) -> float:
    """Mean number inside = arrival rate × mean time inside.

    Source: J. D. C. Little, "A proof for the queuing formula L = λW", Operations Research 9 (1961).
    """
    return not_negative("the rate", rate) * not_negative("the time", time_s)


def erlang_b(slots: int, erlangs: float) -> float:
    """Share of Poisson arrivals refused by `slots` slots without a queue, offered `erlangs` = λ·E[S].

    Depends on the mean service time alone. Source: A. K. Erlang (1917); recursion B(i) = aB(i−1)/(i +
    aB(i−1)).
    """
    slots = whole("slots", slots, 0)
    erlangs = not_negative("the offered erlangs", erlangs)
    blocked = 1.0
    for i in range(1, slots + 1):
        blocked = erlangs * blocked / (i + erlangs * blocked)
    return blocked


def erlang_c(slots: int, erlangs: float) -> float:
    """Share of arrivals that wait in M/M/c. ValueError at or above full load. Source: A. K. Erlang (1917)."""
    slots = whole("slots", slots)
    rho = stable(not_negative("the offered erlangs", erlangs), slots)
    blocked = erlang_b(slots, erlangs)
    return blocked / (1 - rho * (1 - blocked))


@dataclass(frozen=True, slots=True)
class MM1:
    """Steady state of M/M/1 (FIFO): one slot, exponential service, an unlimited queue."""

    rate: float
    service_rate: float
    utilisation: float
    sojourn_s: float
    wait_s: float
    in_system: float
    waiting: float

    def sojourn_tail(self, t_s: float) -> float:
        """P(sojourn > t)."""
        return math.exp(-(self.service_rate - self.rate) * max(t_s, 0.0))

    def sojourn_quantile_s(self, q: float) -> float:
        """The q-quantile of the sojourn time, 0 < q < 1."""
        return quantile_of_tail(self.sojourn_tail, q, self.sojourn_s)

    def wait_tail(self, t_s: float) -> float:
        """P(wait > t); 1 − P(wait > 0) of the calls do not wait at all."""
        return self.utilisation * self.sojourn_tail(t_s)


def mm1(rate: float, service_rate: float) -> MM1:
    """M/M/1 with arrivals at `rate` and service at `service_rate` per second. ValueError if rate ≥
    service_rate.

    Source: L. Kleinrock, Queueing Systems, vol. 1 (1975), ch. 3.
    """
    rate, service_rate = positive("the arrival rate", rate), positive("the service rate", service_rate)
    rho = stable(rate, service_rate)
    sojourn = 1 / (service_rate - rate)
    return MM1(rate, service_rate, rho, sojourn, rho * sojourn, rho / (1 - rho), rho * rho / (1 - rho))


@dataclass(frozen=True, slots=True)
class MMC:
    """Steady state of M/M/c (FIFO): `slots` slots, exponential service, an unlimited queue."""

    rate: float
    service_rate: float
    slots: int
    utilisation: float
    wait_share: float
    wait_s: float
    sojourn_s: float
    waiting: float
    in_system: float

    def wait_tail(self, t_s: float) -> float:
        """P(wait > t) = C·exp(−(cμ − λ)t)."""
        spare = self.slots * self.service_rate - self.rate
        return self.wait_share * math.exp(-spare * max(t_s, 0.0))

    def wait_quantile_s(self, q: float) -> float:
        """The q-quantile of the wait, 0 for those q at which nobody waits yet."""
        return quantile_of_tail(self.wait_tail, q, 1 / self.service_rate)

    def sojourn_tail(self, t_s: float) -> float:
        """P(wait + service > t), the wait and the service being independent."""
        t, mu = max(t_s, 0.0), self.service_rate
        theta = self.slots * mu - self.rate
        served = math.exp(-mu * t)
        gap = (theta - mu) * t
        if abs(gap) < 1e-4:
            both = served * (1 + mu * t * (1 - gap / 2 + gap * gap / 6))
        else:
            both = (theta * served - mu * math.exp(-theta * t)) / (theta - mu)
        return (1 - self.wait_share) * served + self.wait_share * both

    def sojourn_quantile_s(self, q: float) -> float:
        """The q-quantile of the sojourn time, 0 < q < 1."""
        return quantile_of_tail(self.sojourn_tail, q, self.sojourn_s)


def mmc(rate: float, service_rate: float, slots: int) -> MMC:
    """M/M/c with `slots` slots, each serving `service_rate` per second. ValueError if rate ≥
    slots·service_rate.

    Source: Kleinrock (1975), section 3.5; waiting times as in D. Gross et al., Fundamentals of Queueing
    Theory, ch. 2.
    """
    rate, service_rate = positive("the arrival rate", rate), positive("the service rate", service_rate)
    slots = whole("slots", slots)
    rho = stable(rate, slots * service_rate)
    wait_share = erlang_c(slots, rate / service_rate)
    wait = wait_share / (slots * service_rate - rate)
    sojourn = wait + 1 / service_rate
    return MMC(rate, service_rate, slots, rho, wait_share, wait, sojourn, rate * wait, rate * sojourn)


@dataclass(frozen=True, slots=True)
class MMCK:
    """Steady state of M/M/c/K: `slots` slots and `places` calls at most inside, refused beyond.

    `probabilities[n]` is P(n inside); times are those of the accepted calls.
    """

    rate: float
    slots: int
    places: int
    probabilities: tuple[float, ...]
    loss: float
    throughput: float
    utilisation: float
    in_system: float
    waiting: float
    sojourn_s: float
    wait_s: float


def mmck(rate: float, service_rate: float, slots: int, queue: int) -> MMCK:
    """M/M/c/K with K = slots + queue; any load. Source: Gross et al., Fundamentals of Queueing Theory,
    section 2.5.
    """
    rate, service_rate = positive("the arrival rate", rate), positive("the service rate", service_rate)
    slots, queue = whole("slots", slots), whole("the queue", queue, 0)
    places = slots + queue
    logs = [0.0]
    for n in range(1, places + 1):
        logs.append(logs[-1] + math.log(rate / (service_rate * min(n, slots))))
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    p = tuple(weight / total for weight in weights)
    busy = math.fsum(min(n, slots) * p[n] for n in range(places + 1))
    waiting = math.fsum((n - slots) * p[n] for n in range(slots, places + 1))
    through = rate * (1 - p[-1])
    return MMCK(
        rate,
        slots,
        places,
        p,
        p[-1],
        through,
        busy / slots,
        busy + waiting,
        waiting,
        (busy + waiting) / through,
        waiting / through,
    )


@dataclass(frozen=True, slots=True)
class MG1:
    """Mean values of M/G/1 (FIFO): one slot, any service law."""

    rate: float
    service_s: float
    cv2: float
    utilisation: float
    wait_s: float
    sojourn_s: float
    waiting: float
    in_system: float


def mg1(rate: float, service_s: float, cv2: float) -> MG1:
    """M/G/1 with mean service `service_s` and squared coefficient of variation `cv2` (0: constant, M/D/1).

    ValueError at or above full load. Source: Pollaczek (1930), Khinchine (1932): Wq = ρ·E[S]·(1 +
    cv²)/(2(1 − ρ)).
    """
    rate, service_s = positive("the arrival rate", rate), positive("the service time", service_s)
    cv2 = not_negative("cv2", cv2)
    rho = stable(rate, 1 / service_s)
    wait = rho * service_s * (1 + cv2) / (2 * (1 - rho))
    sojourn = wait + service_s
    return MG1(rate, service_s, cv2, rho, wait, sojourn, rate * wait, rate * sojourn)


def mdc_wait_s(rate: float, service_s: float, slots: int) -> float:
    """Mean wait of M/D/c (FIFO), constant service `service_s`. ValueError at or above full load.

    Source: C. D. Crommelin (1932). Seen every `service_s` seconds the number inside is a bulk-service
    queue, whose mean needs the c − 1 roots of z^c = exp(−λD(1 − z)) inside the unit circle; they are found
    by fixed point.
    """
    rate, service_s = positive("the arrival rate", rate), positive("the service time", service_s)
    slots = whole("slots", slots)
    rho = stable(rate, slots / service_s)
    work = rate * service_s
    inside = work / (2 * (slots - work)) + work / 2 - (slots - 1) / 2
    for k in range(1, slots):
        turn = cmath.exp(2j * math.pi * k / slots)
        z = 0j
        for _ in range(100_000):
            following = turn * cmath.exp(-rho * (1 - z))
            if abs(following - z) < 1e-15:
                break
            z = following
        inside += (1 / (1 - z)).real
    return max(inside - work, 0.0) / rate


@dataclass(frozen=True, slots=True)
class Sharing:
    """Mean values of processor sharing over `cores` cores, each call at most one core."""

    rate: float
    work_s: float
    cores: float
    utilisation: float
    in_system: float
    sojourn_s: float


def processor_sharing(rate: float, work_s: float, cores: float = 1.0) -> Sharing:
    """M/G-PS: n calls progress at min(1, cores/n) each; `work_s` is the mean CPU time of a call.

    The number inside depends on the mean work alone and, for whole `cores`, follows the law of M/M/c; on
    one core the mean sojourn is work/(1 − ρ). `cores` may be fractional. ValueError at or above full load.
    Source: F. P. Kelly, Reversibility and Stochastic Networks (1979), ch. 3 (symmetric queues).
    """
    rate, work_s = positive("the arrival rate", rate), positive("the work", work_s)
    cores = positive("cores", cores)
    rho = stable(rate, cores / work_s)
    load = rate * work_s
    # p(n) ∝ a^n ÷ Π min(i, C): term by term while n < C, then a geometric tail with ratio ρ
    below = math.floor(cores)
    weight, total, inside = 1.0, 1.0, 0.0
    for n in range(1, below + 1):
        weight *= load / n
        total += weight
        inside += n * weight
        if total > 1e200:
            weight, total, inside = weight / 1e200, total / 1e200, inside / 1e200
    tail = weight * rho / (1 - rho)
    total += tail
    inside += tail * (below + 1 / (1 - rho))
    inside /= total
    return Sharing(rate, work_s, cores, rho, inside, inside / rate)
