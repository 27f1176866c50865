"""Traffic sources: when requests arrive, what they are, and what becomes of them."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from functools import partial

from .calls import Calls
from .clock import Process
from .parts import ENDED, WORKING, Call, Failure, Request, Source
from .plans import Plans
from .shapes import Shape

MAX_TABLE = 2_000_000
LEAST_THINKING_S = 1e-3


class Keys:
    """Keys 0, 1, … with probabilities in proportion to 1 / (rank ** zipf)."""

    def __init__(self, keys: int, zipf: float, stream: random.Random) -> None:
        self.keys = keys
        self.stream = stream
        self._sums: list[float] | None = None
        if keys and zipf > 0:
            ranks = range(1, min(keys, MAX_TABLE) + 1)
            self._sums = list(itertools.accumulate(rank**-zipf for rank in ranks))

    def draw(self) -> int | None:
        if not self.keys:
            return None
        if self._sums is None:
            return self.stream.randrange(self.keys)
        return bisect.bisect_right(self._sums, self.stream.random() * self._sums[-1])


def _by_chance(mean: float, stream: random.Random) -> int:
    """Its floor, and one more with the probability of the fraction."""
    whole = math.floor(mean)
    part = mean - whole
    return whole + (1 if part > 0 and stream.random() < part else 0)


class OpenLoop:
    """Arrivals at rate(t) times the factor of the traffic faults."""

    def __init__(self, traffic: Traffic, source: Source, seed: int) -> None:
        self.traffic = traffic
        self.source = source
        self.clock = traffic.clock
        self.stream = random.Random(f"{seed}/{source.id}/arrivals")
        self.even = source.settings["arrivals"] == "even"
        self.shape = Shape(source.settings, traffic.duration)
        self.factor = 1.0
        self._need = self._gap()
        self._since = 0.0
        self._next: list | None = None
        self._schedule()

    def _gap(self) -> float:
        return 1.0 if self.even else self.stream.expovariate(1.0)

    def _schedule(self) -> None:
        time = self.shape.time_of(self._since, self._need, self.factor)
        self._next = self.clock.at(time, self._arrive) if time <= self.traffic.duration else None

    def _arrive(self, _: object) -> None:
        self._since = self.clock.now
        self._need = self._gap()
        self._schedule()
        self.traffic.start(self.source)

    def set_factor(self, factor: float) -> None:
        now = self.clock.now
        self._need = max(0.0, self._need - self.shape.expected(self._since, now, self.factor))
        self._since = now
        self.factor = factor
        self.clock.cancel(self._next)
        self._schedule()


class Crowd:
    """Herds and batches: requests at given times, each as often as the traffic faults' factor says."""

    def __init__(self, traffic: Traffic, source: Source, seed: int) -> None:
        self.traffic = traffic
        self.source = source
        self.stream = random.Random(f"{seed}/{source.id}/arrivals")
        self.factor = 1.0
        settings = source.settings
        self.begin, self.stop = settings["start_s"], settings["stop_s"] or math.inf
        if settings["shape"] == "herd":
            number, spread = settings["count"], settings["spread_s"]
            if settings["arrivals"] == "even":
                times = [settings["at_s"] + spread * index / number for index in range(number)]
            else:
                times = sorted(settings["at_s"] + spread * self.stream.random() for _ in range(number))
            for time in times:
                self._at(time, 1)
        else:
            first, every = max(settings["at_s"], self.begin), settings["every_s"]
            number = 0
            while first + number * every <= min(self.stop, traffic.duration):
                self._at(first + number * every, settings["batch"])
                number += 1

    def _at(self, time: float, number: int) -> None:
        if self.begin <= time <= min(self.stop, self.traffic.duration):
            self.traffic.clock.at(time, self._arrive, number)

    def _arrive(self, number: int) -> None:
        for _ in range(sum(_by_chance(self.factor, self.stream) for _ in range(number))):
            self.traffic.start(self.source)

    def set_factor(self, factor: float) -> None:
        self.factor = factor


class ClosedLoop:
    """Users who think, ask, wait for the answer and think again; a traffic fault changes their number."""

    def __init__(self, traffic: Traffic, source: Source, seed: int) -> None:
        self.traffic = traffic
        self.source = source
        self.clock = traffic.clock
        self.stream = random.Random(f"{seed}/{source.id}/arrivals")
        self.wanted = source.settings["users"]
        self.present = 0
        self.clock.at(source.settings["start_s"], lambda _: self._fill())

    def _fill(self) -> None:
        while self.present < self.wanted:
            self.present += 1
            self.think()

    def think(self) -> None:
        if self.present > self.wanted:
            self.present -= 1
            return
        pause = self.stream.expovariate(1.0) * self.source.settings["think_s"]
        # Without a pause an answer at once would be followed by the next request without time going on.
        self.clock.after(pause or LEAST_THINKING_S, self._ask)

    def _ask(self, _: object) -> None:
        if self.present > self.wanted:
            self.present -= 1
        elif self.clock.now > min(self.traffic.duration, self.source.settings["stop_s"] or math.inf):
            self.present -= 1
        elif self.source.down:
            self.think()
        else:
            self.traffic.start(self.source)

    def set_factor(self, factor: float) -> None:
        self.wanted = _by_chance(self.source.settings["users"] * factor, self.stream)
        if self.clock.now >= self.source.settings["start_s"]:
            self._fill()


class Traffic:
    """Starts requests and books their outcome."""

    def __init__(self, calls: Calls, plans: Plans, sources: list[Source], duration: float, seed: int) -> None:
        self.calls = calls
        self.plans = plans
        self.clock = calls.clock
        self.duration = duration
        self.unanswered = 0
        self._loops = {}
        self._classes = {}
        self._keys = {}
        for source in sources:
            settings = source.settings
            self._classes[source] = random.Random(f"{seed}/{source.id}/classes")
            stream = random.Random(f"{seed}/{source.id}/keys")
            self._keys[source] = Keys(settings["keys"], settings["zipf"], stream)
            if settings["users"]:
                loop = ClosedLoop
            elif settings["shape"] in ("herd", "batch"):
                loop = Crowd
            else:
                loop = OpenLoop
            self._loops[source] = loop(self, source, seed)

    def factor_changed(self, source: Source) -> None:
        self._loops[source].set_factor(math.prod(source.factors))

    def start(self, source: Source) -> None:
        now = self.clock.now
        write = self._classes[source].random() < source.settings["write_share"]
        key = self._keys[source].draw()
        if source.down:
            return
        counted = self.calls.in_window(now)
        request = Request(source, now, counted, write, key)
        self.unanswered += 1
        if counted:
            source.totals.offered += 1
        call = Call(source, request, 0)
        call.state = WORKING
        source.running[call] = None
        call.process = Process(partial(self._answered, call))
        reason = self._refusal(source)
        if reason is not None:
            call.process.alive = False
            return self._answered(call, Failure(reason, source.id))
        call.process.start(self.plans.request(call, call.process))

    @staticmethod
    def _refusal(source: Source) -> str | None:
        """What faults at the source itself do to a request as it begins."""
        if 0.0 in source.quota_factors:
            return "throttled"
        share = 1.0 - math.prod(1.0 - amount for amount in source.errors)
        return "error" if share > 0 and source.random.random() < share else None

    def abort(self, call: Call, failure: Failure) -> None:
        """Ends a request from outside."""
        if call.state == WORKING:
            call.process.kill()
            self.calls.give_up_all(call)
            self._answered(call, failure)

    def _answered(self, call: Call, failure: Failure | None) -> None:
        source, request = call.node, call.request
        call.state = ENDED
        del source.running[call]
        self.unanswered -= 1
        if request.counted:
            totals = source.totals
            if failure is None:
                totals.latencies.append(self.clock.now - request.start)
            else:
                totals.failures[failure.reason] += 1
                totals.failures_by_node[failure.node] += 1
        loop = self._loops[source]
        if isinstance(loop, ClosedLoop):
            loop.think()
