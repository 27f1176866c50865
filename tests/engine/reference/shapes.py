"""Rates over time: every shape is a sequence of pieces on which the rate is a straight line."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

DAY_PIECES = 2000


class Piece(NamedTuple):
    """The rate at its first moment, how fast it grows, and where it ends."""

    rate: float
    slope: float
    end: float


class Shape:
    """The rate of a source over time, before any fault."""

    def __init__(self, settings: Mapping[str, object], duration: float) -> None:
        self.settings = settings
        self.start = settings["start_s"]
        self.stop = settings["stop_s"] or math.inf
        self._until = min(self.stop, duration)
        # Without at_s, start_s and stop_s are when a step or a spike begins and ends, and bound nothing.
        self.bounded = settings["shape"] not in ("step", "spike") or settings["at_s"] > 0
        self._piece = getattr(self, f"_{settings['shape']}")
        if settings["shape"] in ("schedule", "trace"):
            rows = settings["schedule"] if settings["shape"] == "schedule" else _rows(settings["trace_csv"])
            self._times = [float(time) for time, _ in rows]
            self._rates = [float(rate) for _, rate in rows]

    def piece(self, time: float) -> Piece:
        """The piece that begins at `time`."""
        if self.bounded and time < self.start:
            return Piece(0.0, 0.0, self.start)
        if self.bounded and time >= self.stop:
            return Piece(0.0, 0.0, math.inf)
        piece = self._piece(time)
        return piece._replace(end=min(piece.end, self.stop)) if self.bounded else piece

    def time_of(self, begin: float, expected: float, factor: float) -> float:
        """When `expected` arrivals, on average, have come since `begin`; infinity for never."""
        if factor <= 0:
            return math.inf
        need, time = expected / factor, begin
        while True:
            piece = self.piece(time)
            here = _area(piece, piece.end - time)
            if here >= need * (1 - 1e-12) - 1e-9:
                return min(time + _time(piece, need), piece.end)
            if piece.end == math.inf:
                return math.inf
            need -= here
            time = piece.end

    def expected(self, begin: float, end: float, factor: float) -> float:
        total, time = 0.0, begin
        while time < end:
            piece = self.piece(time)
            total += _area(piece, min(piece.end, end) - time)
            time = piece.end
        return total * factor

    def _constant(self, time: float) -> Piece:
        return Piece(self.settings["rate"], 0.0, math.inf)

    def _ramp(self, time: float) -> Piece:
        rate, to, length = self.settings["rate"], self.settings["rate_to"], self._until - self.start
        if time >= self._until or length <= 0:
            return Piece(to, 0.0, math.inf)
        slope = (to - rate) / length
        return Piece(rate + slope * (time - self.start), slope, self._until)

    def _step(self, time: float) -> Piece:
        at = self.settings["at_s"] or self.start
        if time < at:
            return Piece(self.settings["rate"], 0.0, at)
        return Piece(self.settings["rate_to"], 0.0, math.inf)

    def _spike(self, time: float) -> Piece:
        rate, at, length = self.settings["rate"], self.settings["at_s"], self.settings["on_s"]
        if not at:
            at = self.start
            length = self.settings["stop_s"] - at if self.settings["stop_s"] else length
        if time < at:
            return Piece(rate, 0.0, at)
        if time < at + length:
            return Piece(rate * self.settings["spike_factor"], 0.0, at + length)
        return Piece(rate, 0.0, math.inf)

    def _burst(self, time: float) -> Piece:
        on, off = self.settings["on_s"], self.settings["off_s"]
        cycle = math.floor((time - self.start) / (on + off) + 1e-9)
        begin = self.start + cycle * (on + off)
        if time < begin + on - 1e-9:
            return Piece(self.settings["rate"], 0.0, begin + on)
        return Piece(self.settings["off_rate"], 0.0, self.start + (cycle + 1) * (on + off))

    def _day(self, time: float) -> Piece:
        width = self.settings["period_s"] / DAY_PIECES
        number = math.floor(time / width + 1e-6)
        low, high = self._of_day(number), self._of_day(number + 1)
        slope = (high - low) / width
        return Piece(low + slope * max(0.0, time - number * width), slope, (number + 1) * width)

    def _of_day(self, number: int) -> float:
        swing = self.settings["amplitude"] * math.sin(2 * math.pi * number / DAY_PIECES)
        return max(0.0, self.settings["rate"] * (1 + swing))

    def _schedule(self, time: float) -> Piece:
        index = bisect_right(self._times, time)
        end = self._times[index] if index < len(self._times) else math.inf
        return Piece(self._rates[index - 1] if index else 0.0, 0.0, end)

    _trace = _schedule


def _rows(text: str) -> list[tuple[float, float]]:
    rows = []
    for line in text.replace(";", ",").replace("\t", ",").splitlines():
        try:
            time, rate = (float(cell) for cell in line.split(","))
        except ValueError:
            continue
        rows.append((time, rate))
    return rows


def _area(piece: Piece, length: float) -> float:
    if length == math.inf:
        return math.inf if piece.rate > 0 else 0.0
    return piece.rate * length + piece.slope * length * length / 2


def _time(piece: Piece, area: float) -> float:
    if piece.slope == 0:
        return area / piece.rate
    return 2 * area / (piece.rate + math.sqrt(max(0.0, piece.rate**2 + 2 * piece.slope * area)))
