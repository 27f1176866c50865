"""The benchmark's workloads as a SimPy user would write them: a process per request, a Resource per station.

Not imported by the engine: SimPy is a peer to measure against, and may be missing.
"""

import random
import time

import simpy

ATTEMPTS = 3
PATIENCE_S = 0.200
ERROR_RATE = 0.10


class Tier:
    """A station: slots, a bounded waiting room, exponential or constant own time."""

    def __init__(self, env, rng, slots, room, mean_s, constant=False):
        self.env, self.rng, self.room = env, rng, room
        self.mean_s, self.constant = mean_s, constant
        self.slots = simpy.Resource(env, capacity=slots)

    @property
    def full(self):
        return len(self.slots.queue) >= self.room

    def work(self):
        return self.env.timeout(self.mean_s if self.constant else self.rng.expovariate(1 / self.mean_s))


class Tally:
    def __init__(self):
        self.succeeded = self.started = 0
        self.wait_s = self.sojourn_s = 0.0


def _single(env, rng, slots, tally):
    """W1 and W2: one station without a bound on its queue."""
    station = Tier(env, rng, slots, float("inf"), 0.010)

    def request():
        arrived = env.now
        with station.slots.request() as slot:
            yield slot
            tally.wait_s += env.now - arrived
            tally.started += 1
            yield station.work()
        tally.succeeded += 1
        tally.sojourn_s += env.now - arrived

    return request


def _chain(env, rng, tally):
    """W3: gateway, service and store, each holding its slot while it waits for the next."""
    gateway = Tier(env, rng, 64, 100, 0.001, constant=True)
    service = Tier(env, rng, 32, 100, 0.020)
    store = Tier(env, rng, 16, 100, 0.010)

    def store_call():
        with store.slots.request() as slot:
            yield slot
            yield store.work()

    def service_call():
        with service.slots.request() as slot:
            yield slot
            yield service.work()
            if rng.random() < ERROR_RATE or store.full:
                return False
            yield env.process(store_call())
            return True

    def request():
        if gateway.full:
            return
        arrived = env.now
        with gateway.slots.request() as slot:
            yield slot
            tally.wait_s += env.now - arrived
            tally.started += 1
            yield gateway.work()
            for _ in range(ATTEMPTS):
                if service.full:
                    continue
                answer = env.process(service_call())
                yield answer | env.timeout(PATIENCE_S)
                if answer.processed and answer.value:
                    tally.succeeded += 1
                    break
        tally.sojourn_s += env.now - arrived

    return request


def measure(workload: str, requests: int, seed: int) -> dict:
    """One run of W1, W2 or W3: requests, CPU seconds, mean wait, success share, mean time."""
    env, rng, tally = simpy.Environment(), random.Random(seed), Tally()
    rate = {"W1": 80.0, "W2": 700.0, "W3": 1000.0}[workload]
    if workload == "W3":
        request = _chain(env, rng, tally)
    else:
        request = _single(env, rng, {"W1": 1, "W2": 8}[workload], tally)

    def arrivals():
        for _ in range(requests):
            yield env.timeout(rng.expovariate(rate))
            env.process(request())

    env.process(arrivals())
    began = time.process_time()
    env.run()
    cpu_s = time.process_time() - began
    return {
        "requests": requests,
        "cpu_s": cpu_s,
        "wait_ms": 1e3 * tally.wait_s / tally.started,
        "success": tally.succeeded / requests,
        "mean_ms": 1e3 * tally.sojourn_s / tally.started,
    }
