"""Input checks and the one numeric inversion that the closed forms share."""

from __future__ import annotations

import math
from collections.abc import Callable


def positive(name: str, value: float) -> float:
    """`value` as a float; ValueError unless it is finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0, not {value}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """`value` as a float; ValueError unless it is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number of at least 0, not {value}")
    return float(value)


def share(name: str, value: float) -> float:
    """`value` as a float; ValueError unless it lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, not {value}")
    return float(value)


def inner_share(name: str, value: float) -> float:
    """`value` as a float; ValueError unless it lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, both excluded, not {value}")
    return float(value)


def whole(name: str, value: int, least: int = 1) -> int:
    """`value` as an int; ValueError unless it is a whole number of at least `least`."""
    if not math.isfinite(value) or value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value}")
    return int(value)


def stable(rate: float, capacity: float) -> float:
    """The load rate ÷ capacity; ValueError if it is 1 or more, since the queue then grows for ever."""
    if rate >= capacity:
        raise ValueError(f"no steady state: {rate:g} arrivals/s for a capacity of {capacity:g}/s")
    return rate / capacity


def quantile_of_tail(tail: Callable[[float], float], q: float, scale: float) -> float:
    """The t ≥ 0 with tail(t) = 1 − q for a non-increasing tail; `scale` is a typical t to start from."""
    inner_share("the quantile", q)
    want = 1 - q
    if tail(0.0) <= want:
        return 0.0
    low, high = 0.0, scale
    while tail(high) > want:
        low, high = high, 2 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if tail(middle) > want:
            low = middle
        else:
            high = middle
    return high
