"""Closed loops: a fixed number of users who think, send, wait, and think again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.study.theory.inputs import not_negative, positive, whole


@dataclass(frozen=True, slots=True)
class FiniteSource:
    """Steady state of users in front of one station; `probabilities[n]` is P(n inside), times of accepted
    calls.
    """

    users: int
    probabilities: tuple[float, ...]
    offered_rate: float
    throughput: float
    loss: float
    utilisation: float
    in_system: float
    sojourn_s: float
    wait_s: float


def finite_source(
    users: int, think_s: float, service_s: float, slots: int, queue: int | None = None
) -> FiniteSource:
    """M/M/c with `users` users of mean think time `think_s` and exponential service of mean `service_s`.

    `queue` None: room for all (the machine repairman); 0: a refused user thinks again (Engset's loss
    system). `loss` is the share of sent calls that are refused. Source: Gross et al., Fundamentals of
    Queueing Theory, section 2.8; T. Engset (1918).
    """
    users, slots = whole("users", users), whole("slots", slots)
    think_s, service_s = positive("the think time", think_s), positive("the service time", service_s)
    places = users if queue is None else min(users, slots + whole("the queue", queue, 0))
    logs = [0.0]
    for n in range(1, places + 1):
        logs.append(logs[-1] + math.log((users - n + 1) * service_s / (think_s * min(n, slots))))
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    p = tuple(weight / total for weight in weights)
    busy = math.fsum(min(n, slots) * p[n] for n in range(places + 1))
    waiting = math.fsum((n - slots) * p[n] for n in range(slots, places + 1))
    inside = busy + waiting
    offered = (users - inside) / think_s
    through = busy / service_s
    lost = p[places] * (users - places) / (users - inside) if users > places else 0.0
    return FiniteSource(
        users,
        p,
        offered,
        through,
        lost,
        busy / slots,
        inside,
        inside / through,
        waiting / through,
    )


@dataclass(frozen=True, slots=True)
class Station:
    """One station: mean `demand_s` of a request in all its visits, `slots` servers (None: no queueing)."""

    demand_s: float
    slots: int | None = 1


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Mean values of a closed network; lists have one entry per station."""

    throughput: float
    response_s: float
    station_s: tuple[float, ...]
    in_station: tuple[float, ...]
    utilisation: tuple[float | None, ...]


def closed_network(users: int, think_s: float, stations: Sequence[Station]) -> ClosedNetwork:
    """Exact means for `users` users who think and then visit every station (exponential service, FIFO or PS).

    `station_s` is the time a request spends at each station in all. Source: M. Reiser, S. S. Lavenberg,
    "Mean-value analysis of closed multichain queuing networks", JACM 27 (1980), with J. P. Buzen's
    convolution (CACM 16, 1973) for stations of several slots.
    """
    users, think_s = whole("users", users), not_negative("the think time", think_s)
    if not stations:
        raise ValueError("a closed network needs at least one station")
    demands = [positive("a demand", station.demand_s) for station in stations]
    slots = [users if s.slots is None else whole("slots", s.slots) for s in stations]
    # Scaled by about the time between two answers, the constants stay in range; throughput scales back
    scale = max([think_s / users] + [d / min(c, users) for d, c in zip(demands, slots, strict=True)])
    factors = [_factors(d / scale, c, users) for d, c in zip(demands, slots, strict=True)]
    if think_s > 0:
        factors.append(_factors(think_s / scale, users, users))
    g = _product(factors, users)
    through = float(g[users - 1] / g[users] / scale)
    inside = []
    for k in range(len(stations)):
        others = _product(factors[:k] + factors[k + 1 :], users)
        inside.append(float(np.dot(np.arange(users + 1) * factors[k], others[::-1]) / g[users]))
    return ClosedNetwork(
        through,
        users / through - think_s,
        tuple(n / through for n in inside),
        tuple(inside),
        tuple(None if s.slots is None else through * s.demand_s / s.slots for s in stations),
    )


def _factors(demand: float, slots: int, users: int) -> np.ndarray:
    """P(n alone at the station) up to a constant factor, n = 0 … users: demand^n ÷ Π min(i, slots)."""
    steps = np.log(demand / np.minimum(np.arange(1, users + 1), slots))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    return np.exp(logs - logs.max())


def _product(factors: Sequence[np.ndarray], users: int) -> np.ndarray:
    """The normalising constants G(0) … G(users) of these stations, up to a constant factor: their
    convolution.
    """
    g = np.zeros(users + 1)
    g[0] = 1.0
    for values in factors:
        g = np.convolve(g, values)[: users + 1]
    return g
