"""Simulated time against wall time: how far a run may go next, in pieces how large, and how fast it
goes.
"""

from __future__ import annotations

import math
from collections import deque

CHUNK_S = 0.005  # wall time of one piece: commands wait no longer
TICK_S = 1 / 60  # a run that is ahead of its speed looks again after so long
SLACK_S = 0.1  # wall time a run may be late and still catch up
_FEWEST, _MOST = 64, 20_000_000
_MARK_S = 0.02


class Pace:
    """Keeps an asked speed (simulated s per wall s, inf: as fast as it goes). Wall times in s."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.chunk = 2_000  # steps the kernel takes at once
        self.late_at = -math.inf  # when it last was too late to catch up
        self._from: tuple[float, float] | None = None

    def rest(self) -> None:
        """The clock has been stopped or moved: counts from the next `due` on."""
        self._from = None
        self.late_at = -math.inf

    def due(self, now: float, wall: float) -> float:
        """The simulated time to be reached by now. What cannot be caught up soon is let go of."""
        if math.isinf(self.speed):
            return math.inf
        if self._from is None:
            self._from = (wall, now)
        began, start = self._from
        due = start + (wall - began) * self.speed
        if due - now > SLACK_S * self.speed:
            due = now + SLACK_S * self.speed
            self._from = (wall, due)
            self.late_at = wall
        return due

    def took(self, seconds: float, full: bool) -> None:
        """The last piece took so long; full: it ended after its number of steps and not where it should."""
        if full or seconds > CHUNK_S:
            grow = min(2.0, max(0.25, CHUNK_S / max(seconds, 1e-6)))
            self.chunk = int(min(_MOST, max(_FEWEST, self.chunk * grow)))


class Meter:
    """Simulated seconds and events per wall second, over the last wall second."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float, int]] = deque()

    def clear(self) -> None:
        self._marks.clear()

    def mark(self, wall: float, now: float, events: int) -> None:
        """So far had it come at this wall time."""
        marks = self._marks
        if len(marks) > 1 and marks[-1][0] - marks[-2][0] < _MARK_S:
            marks.pop()
        marks.append((wall, now, events))
        while len(marks) > 2 and marks[1][0] < wall - 1.0:
            marks.popleft()

    def rates(self) -> tuple[float | None, float | None]:
        """Simulated s and events per wall s; None before anything can be said."""
        if len(self._marks) < 2 or self._marks[-1][0] <= self._marks[0][0]:
            return None, None
        (w0, t0, e0), (w1, t1, e1) = self._marks[0], self._marks[-1]
        return (t1 - t0) / (w1 - w0), (e1 - e0) / (w1 - w0)
