"""How many requests a source will send, before anything runs: the bound that keeps a design affordable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from engine.design.parts import Fault
from engine.design.trace import read_trace


def peak_rate(settings: Mapping[str, object]) -> float:
    """The highest rate (per s) that the shape of a source reaches, herds and batches left out."""
    shape, rate = settings["shape"], settings["rate"]
    if shape in ("ramp", "step"):
        return max(rate, settings["rate_to"])
    if shape == "spike":
        return rate * max(1.0, settings["spike_factor"])
    if shape == "burst":
        return max(rate, settings["off_rate"])
    if shape == "day":
        return rate * (1.0 + settings["amplitude"])
    if shape == "schedule":
        return max((pair[1] for pair in settings["schedule"]), default=0.0)
    if shape == "trace":
        return max((pair[1] for pair in read_trace(settings["trace_csv"])), default=0.0)
    return rate


def expected_arrivals(settings: Mapping[str, object], duration_s: float, faults: Sequence[Fault]) -> float:
    """An upper bound on the expected requests of a source in `duration_s`, its traffic faults included.

    A closed loop is bounded by users that never wait for an answer; retries are not counted.
    """
    if settings["users"]:
        return settings["users"] * duration_s / max(settings["think_s"], 0.001)
    if settings["shape"] == "herd":
        return float(settings["count"])
    if settings["shape"] == "batch":
        return settings["batch"] * (1.0 + duration_s / settings["every_s"])
    return peak_rate(settings) * _stretched(duration_s, faults)


def _stretched(duration_s: float, faults: Sequence[Fault]) -> float:
    """The run's length, each moment counted as often as the factors on the rate at that moment say."""
    times = {0.0, duration_s}
    for fault in faults:
        times.update(min(t, duration_s) for t in (fault.at_s, fault.at_s + fault.duration_s))
    marks = sorted(times)
    return sum(
        (b - a) * math.prod(f.amount for f in faults if f.at_s <= a < f.at_s + f.duration_s)
        for a, b in zip(marks, marks[1:], strict=False)
    )
