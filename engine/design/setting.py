"""One setting: its type, unit and range, and the check that a value is of that type and in that range."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from engine.design.errors import DesignError, number, show
from engine.design.trace import MAX_POINTS, MAX_RATE, MAX_TIME_S, read_trace

MAX_PRIORITIES = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    `type` is one of number, count, share, ms, s, flag, choice, text, id, points (a list of [t, rate] pairs)
    and limits (a count, or a list of counts by priority).  `low` and `high` are inclusive.  `zero` says
    what 0 means where it does not mean the number.  `default` None means: taken from elsewhere (an edge's
    overrides from its caller, p99_ms from p50_ms, a fallback from nowhere).
    """

    name: str
    type: str
    unit: str
    default: object
    low: float
    high: float
    choices: tuple[str, ...]
    doc: str
    group: str
    zero: str = ""

    @property
    def numeric(self) -> bool:
        return self.type in ("number", "count", "share", "ms", "s")

    @property
    def unbounded_at_zero(self) -> bool:
        """Whether 0 switches the limit off, so that 0 is the largest value and not the smallest."""
        return self.zero == "no limit"

    def allowed(self) -> str:
        """What may be written, in words: `a whole number between 0 and 1,000`."""
        bounds = f"between {number(self.low)} and {number(self.high)}"
        if self.numeric:
            unit = f" ({self.unit})" if self.unit else ""
            return f"{'a whole number' if self.type == 'count' else 'a number'} {bounds}{unit}"
        return {
            "flag": "true or false",
            "choice": "one of " + ", ".join(self.choices),
            "text": "text",
            "id": "the id of an edge",
            "points": f"a list of [time in s, rate] pairs, at most {number(MAX_POINTS)}",
            "limits": f"a whole number {bounds}, or a list of them by priority",
        }[self.type]

    def check(self, value: object, path: str = "") -> object:
        """`value` in this setting's own type (3.0 becomes 3 in a count, 3 becomes 3.0 in a time).

        Raises DesignError at `path` when the value has another type, is not finite or is out of range.
        """
        if self.numeric:
            return self._number(value, path, self.type == "count")
        if self.type == "flag":
            # Other people's files count the subscribers of a topic here.
            if self.name == "copies" and type(value) is int and 0 <= value <= 10_000:
                return value > 0
            if type(value) is bool:
                return value
        elif self.type == "choice":
            if isinstance(value, str) and value in self.choices:
                return value
            raise self._refuse(value, path, self.choices if isinstance(value, str) else ())
        elif self.type == "points":
            return read_points(value, path)
        elif self.type == "limits":
            return self._limits(value, path)
        elif isinstance(value, str):
            if self.name == "trace_csv":
                read_trace(value, path)
            return value
        raise self._refuse(value, path)

    def _number(self, value: object, path: str, whole: bool) -> float | int:
        if type(value) is int or type(value) is float:
            # Compared before any conversion: a whole number may be too long for a float.
            if self.low <= value <= self.high and (not whole or value == int(value)):
                return int(value) if whole else float(value)
        raise self._refuse(value, path)

    def _limits(self, value: object, path: str) -> int | list[int]:
        if not isinstance(value, list):
            return self._number(value, path, True)
        if not 1 <= len(value) <= MAX_PRIORITIES:
            raise DesignError(f"has {len(value)} entries; a list by priority has 1 to {MAX_PRIORITIES}", path)
        return [self._number(entry, f"{path}[{index}]", True) for index, entry in enumerate(value)]

    def _refuse(self, value: object, path: str, choices: tuple[str, ...] = ()) -> DesignError:
        text = f"is {show(value)}; allowed is {self.allowed()}"
        close = difflib.get_close_matches(str(value)[:60].lower(), choices, n=1) if choices else []
        return DesignError(text + (f" (did you mean {close[0]!r}?)" if close else ""), path)


def read_points(value: object, path: str) -> list[list[float]]:
    """A schedule: [[time in s, rate a second], …], times ascending, as floats."""
    if not isinstance(value, list) or not value or len(value) > MAX_POINTS:
        count = f"a list of {len(value):,}" if isinstance(value, list) else show(value)
        raise DesignError(f"is {count}; allowed is 1 to {number(MAX_POINTS)} pairs [time in s, rate]", path)
    points: list[list[float]] = []
    for index, pair in enumerate(value):
        here = f"{path}[{index}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise DesignError(f"is {show(pair)}; allowed is a pair [time in s, rate]", here)
        t, rate = _TIME.check(pair[0], f"{here}[0]"), _RATE.check(pair[1], f"{here}[1]")
        if points and t < points[-1][0]:
            raise DesignError(
                f"is {show(t)}, before the time of the pair above it; times ascend", f"{here}[0]"
            )
        points.append([t, rate])
    return points


_TIME = Setting("time", "s", "s", 0, 0, MAX_TIME_S, (), "", "traffic")
_RATE = Setting("rate", "number", "per s", 0, 0, MAX_RATE, (), "", "traffic")
