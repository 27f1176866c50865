"""Traffic written as CSV: one line for each change of the rate."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from engine.design.errors import DesignError, show

MAX_POINTS = 100_000
MAX_RATE = 1e7
MAX_TRACE_BYTES = 5_000_000
MAX_TIME_S = 1e6


@lru_cache(maxsize=16)
def read_trace(text: str, path: str = "") -> tuple[tuple[float, float], ...]:
    """The [time in s, rate a second] pairs of a CSV trace, times ascending.

    A line is `time,rate` (comma, semicolon or tab); empty lines, lines that start with # and one heading are
    passed over.  Raises DesignError with the number of the line.
    """
    points: list[tuple[float, float]] = []
    heading_allowed = True
    for index, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.replace(";", ",").replace("\t", ",").split(",")]
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            values = []
        if not values and heading_allowed:
            heading_allowed = False
            continue
        heading_allowed = False
        if len(values) != 2 or not all(map(math.isfinite, values)):
            raise DesignError(f"line {index} is {show(line)}; allowed is: time in s, rate per s", path)
        t, rate = values
        if not (0 <= t <= MAX_TIME_S and 0 <= rate <= MAX_RATE):
            raise DesignError(
                f"line {index} is out of range; allowed are times of 0 to 1,000,000 s and rates of "
                "0 to 10,000,000 per s",
                path,
            )
        if points and t < points[-1][0]:
            raise DesignError(f"line {index} is earlier than the line above it; times ascend", path)
        if len(points) == MAX_POINTS:
            raise DesignError(f"has more than {MAX_POINTS:,} lines", path)
        points.append((t, rate))
    return tuple(points)


def trace_file(value: str, design_file: Path | None, path: str = "") -> str:
    """The lines of a trace: `value` itself, or the .csv file beside the design that it names.

    A design carries its trace with it, so that a saved file needs no other.  Raises DesignError.
    """
    if "\n" in value or not value.strip().lower().endswith(".csv"):
        return value
    name = value.strip()
    if Path(name).name != name or "\\" in name:
        raise DesignError(
            f"is {show(value)}; allowed is the name of a .csv file beside the design, or its lines", path
        )
    if design_file is None:
        raise DesignError(f"is {show(value)}, but this design is no file that another lies beside", path)
    file = design_file.parent / name
    try:
        if not file.is_file():
            raise DesignError(f"is {show(value)}, and there is no such file beside the design", path)
        if file.stat().st_size > MAX_TRACE_BYTES:
            raise DesignError(
                f"is a file of {file.stat().st_size:,} bytes; allowed are {MAX_TRACE_BYTES:,}", path
            )
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise DesignError(f"is {show(value)}, which cannot be read: {why}", path) from None
