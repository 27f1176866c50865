"""Processor sharing over the cores of a component, and how busy they were of late."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable

from .clock import Clock
from .metrics import Integral

LOOK_BACK_S = 5.0


class Cpu:
    """`runnable` jobs each progress at min(1, cores / runnable).

    `progress` is how much CPU time every job has received since the start of the run; a job that needs `work`
    is done when it has grown by that much.
    """

    def __init__(self, clock: Clock, remember: bool) -> None:
        self.clock = clock
        self.cores = 0.0
        self.runnable = 0
        self.progress = 0.0
        self.busy = Integral()
        self.capacity = Integral()
        self._since = 0.0
        self._jobs: list[list] = []
        self._added = 0
        self._next: list | None = None
        # Breakpoints of the integral of the busy share, for the hazard of a crash.
        self._remember = remember
        self._times = [0.0]
        self._areas = [0.0]
        self._share = 0.0

    def add(self, work: float, done: Callable[[object], None], argument: object) -> list:
        """Starts a job; `done(argument)` follows once it has had `work` seconds of CPU."""
        self._advance()
        self._added += 1
        job = [self.progress + work, self._added, done, argument]
        heapq.heappush(self._jobs, job)
        self.runnable += 1
        self._changed()
        return job

    def remove(self, job: list) -> None:
        """Takes out a job that is not done."""
        self._advance()
        job[2] = None
        self.runnable -= 1
        self._changed()

    def set_cores(self, cores: float) -> None:
        self._advance()
        self.cores = cores
        self.capacity.set(self.clock.now, cores)
        self._changed()

    def busy_share(self, since: float) -> float:
        """Mean busy share over the last 5 s, the time before `since` counting as idle."""
        now = self.clock.now
        begin = max(now - LOOK_BACK_S, since)
        return (self._area(now) - self._area(begin)) / LOOK_BACK_S if begin < now else 0.0

    def _area(self, time: float) -> float:
        index = bisect_right(self._times, time) - 1
        if index < 0:
            return 0.0
        start = self._times[index]
        if index + 1 < len(self._times):
            end = self._times[index + 1]
            slope = (self._areas[index + 1] - self._areas[index]) / (end - start)
        else:
            slope = self._share
        return self._areas[index] + slope * (time - start)

    def _rate(self) -> float:
        return min(1.0, self.cores / self.runnable) if self.runnable else 0.0

    def _advance(self) -> None:
        now = self.clock.now
        self.progress += (now - self._since) * self._rate()
        self._since = now

    def _changed(self) -> None:
        now = self.clock.now
        working = min(float(self.runnable), self.cores)
        if working != self.busy.value:
            self.busy.set(now, working)
        share = working / self.cores if self.cores > 0 else 0.0
        if self._remember and share != self._share:
            self._note(now)
            self._share = share
        while self._jobs and self._jobs[0][2] is None:
            heapq.heappop(self._jobs)
        self.clock.cancel(self._next)
        self._next = None
        rate = self._rate()
        if self._jobs and rate > 0:
            self._next = self.clock.after(max(0.0, self._jobs[0][0] - self.progress) / rate, self._finish)

    def _note(self, now: float) -> None:
        if now > self._times[-1]:
            area = self._area(now)
            self._times.append(now)
            self._areas.append(area)
            if len(self._times) > 4096:
                keep = max(0, bisect_right(self._times, now - LOOK_BACK_S) - 1)
                del self._times[:keep]
                del self._areas[:keep]

    def _finish(self, _: object) -> None:
        self._next = None
        self._advance()
        self.progress = max(self.progress, self._jobs[0][0])
        finished = []
        while self._jobs and (self._jobs[0][2] is None or self._jobs[0][0] <= self.progress + 1e-12):
            job = heapq.heappop(self._jobs)
            if job[2] is not None:
                finished.append((job[2], job[3]))
                job[2] = None
                self.runnable -= 1
        self._changed()
        for done, argument in finished:
            done(argument)
