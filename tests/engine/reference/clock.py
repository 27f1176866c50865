"""The event list, and processes: generators that sleep until something wakes them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator

FAULT, ORDINARY, TIMEOUT = 0, 1, 2

# Deadlines lie this much late, so that an answer at the very instant of one is in time whatever way the
# two sums were rounded.
LATE = 1e-9


class Clock:
    """Simulated time.  Events at one instant run faults first, then in order of scheduling, timeouts last."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[list] = []
        self._scheduled = 0

    def at(self, time: float, action: Callable, argument: object = None, rank: int = ORDINARY) -> list:
        """Schedules `action(argument)`; the entry returned can be given to `cancel`."""
        self._scheduled += 1
        entry = [time, rank, self._scheduled, action, argument]
        heapq.heappush(self._heap, entry)
        return entry

    def after(self, delay: float, action: Callable, argument: object = None, rank: int = ORDINARY) -> list:
        return self.at(self.now + delay, action, argument, rank)

    def deadline(self, delay: float, action: Callable, argument: object = None) -> list:
        return self.at(self.now + delay + LATE, action, argument, TIMEOUT)

    @staticmethod
    def cancel(entry: list | None) -> None:
        if entry is not None:
            entry[3] = None

    def run(self, until: float, enough: Callable[[], bool] | None = None) -> None:
        """Runs every event up to and including `until`; before each, `enough()` may end it earlier."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            if enough is not None and enough():
                return
            time, _, _, action, argument = heapq.heappop(heap)
            if action is not None:
                self.now = time
                self.events += 1
                action(argument)
        if enough is None and self.now < until:
            self.now = until


class Process:
    """A generator that is woken with `step(value)`; what it returns goes to `done`.

    It yields only to sleep: whoever is to wake it has been told before.  A killed process runs its `finally`
    blocks and is never woken again.
    """

    __slots__ = ("alive", "done", "generator")

    def __init__(self, done: Callable[[object], None]) -> None:
        self.done = done
        self.alive = True
        self.generator: Generator | None = None

    def start(self, generator: Generator) -> None:
        self.generator = generator
        self.step(None)

    def step(self, value: object = None) -> None:
        if not self.alive:
            return
        try:
            self.generator.send(value)
        except StopIteration as stop:
            self.alive = False
            self.done(stop.value)

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            if self.generator is not None:
                self.generator.close()
