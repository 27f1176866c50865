"""Traffic shapes as straight pieces of rate(t): (t0, t1, rate at t0, slope), in time order, and how they repeat."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.design.trace import read_trace

FAR = 1e18
DAY_PIECES = 360  # straight pieces to a day: off by at most 4e-5 of the amplitude

Piece = tuple[float, float, float, float]


def pieces(s: Mapping[str, object], duration_s: float) -> tuple[list[Piece], float, float, float]:
    """The rate of an open-loop source as pieces, the period after which they repeat (0: never), and from when to when
    requests arrive at all.

    start_s and stop_s bound the arrivals of every shape. A ramp goes from `rate` at start_s to `rate_to` at stop_s
    (or the end of the run). A step to `rate_to` is at at_s; a spike begins at at_s and lasts on_s. Without an at_s,
    a step is at start_s and a spike lasts from start_s to stop_s (or on_s): these do not bound the arrivals then.
    """
    shape, rate = s["shape"], float(s["rate"])
    start, stop, at = float(s["start_s"]), float(s["stop_s"]), float(s["at_s"])
    first, last = start, stop or FAR
    if shape == "ramp":
        end = stop or duration_s
        slope = (float(s["rate_to"]) - rate) / (end - start) if end > start else 0.0
        return [(start, end, rate, slope), (end, FAR, float(s["rate_to"]), 0.0)], 0.0, first, last
    if shape == "step":
        if at <= 0.0:
            first, last = 0.0, FAR
        return _steps([(0.0, rate), (at or start, float(s["rate_to"]))]), 0.0, first, last
    if shape == "spike":
        begin, end = at, at + float(s["on_s"])
        if at <= 0.0:
            begin, end = start, stop or start + float(s["on_s"])
            first, last = 0.0, FAR
        return _steps([(0.0, rate), (begin, rate * s["spike_factor"]), (end, rate)]), 0.0, first, last
    if shape == "burst":
        on, off = float(s["on_s"]), float(s["off_s"])
        cycle = [(start, start + on, rate, 0.0), (start + on, start + on + off, float(s["off_rate"]), 0.0)]
        return cycle, on + off, first, last
    if shape == "day":
        period, swing = float(s["period_s"]), float(s["amplitude"])
        knots = [
            max(0.0, rate * (1.0 + swing * math.sin(2.0 * math.pi * k / DAY_PIECES)))
            for k in range(DAY_PIECES + 1)
        ]
        width = period / DAY_PIECES
        return (
            [
                (k * width, (k + 1) * width, knots[k], (knots[k + 1] - knots[k]) / width)
                for k in range(DAY_PIECES)
            ],
            period,
            first,
            last,
        )
    if shape in ("schedule", "trace"):
        points = s["schedule"] if shape == "schedule" else read_trace(s["trace_csv"])
        return _steps([(float(t), float(r)) for t, r in points or ()]), 0.0, first, last
    return [(0.0, FAR, rate, 0.0)], 0.0, first, last


def _steps(points: list[tuple[float, float]]) -> list[Piece]:
    """A rate that holds from each point to the next."""
    ends = [t for t, _ in points[1:]] + [FAR]
    return [(t, end, rate, 0.0) for (t, rate), end in zip(points, ends, strict=True) if end > t]
