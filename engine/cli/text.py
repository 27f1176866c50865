"""Numbers and tables as plain text: three significant digits, aligned columns, colour where it is seen."""

import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

NONE = "-"
MIN_FIRST_COLUMN = 8
_STYLES = {"bold": "1", "dim": "2", "green": "32", "red": "31", "yellow": "33"}
_SGR = re.compile(r"\x1b\[[0-9;]*m")


# --- numbers ---------------------------------------------------------------------------------------------


def digits(value: float | None, significant: int = 3) -> str:
    """`value` to so many digits, whole numbers without a point (`40`, `9.50`, `12,300`); "-" for None."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e9:
        return f"{value:.{significant - 1}e}"
    rounded = float(f"{value:.{significant - 1}e}")
    decimals = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{0 if value == round(value) else decimals}f}"


def count(value: float | None) -> str:
    """A count: exact below a million, then `12.3M`, `4.56G`."""
    if value is None:
        return NONE
    if abs(value) < 1e6:
        return f"{value:,.0f}" if value == round(value) else digits(value)
    factor, unit = next(
        (f, u)
        for below, f, u in ((999.5e6, 1e6, "M"), (999.5e9, 1e9, "G"), (math.inf, 1e12, "T"))
        if value < below
    )
    return digits(value / factor) + unit


def share(value: float | None, significant: int = 3) -> str:
    """A share as a percentage. One below 1 is never rounded up to 100%."""
    if value is None:
        return NONE
    percent = 100 * value
    text = digits(round(percent, 9), significant)
    if value < 1 and text.startswith("100"):
        text = f"{math.floor(percent * 100) / 100:.2f}"
    return text + "%"


def duration(milliseconds: float | None, significant: int = 3) -> str:
    """A time given in milliseconds, in the unit that fits: `85us`, `12.3ms`, `1.50s`, `2.00h`."""
    if milliseconds is None:
        return NONE
    size = abs(milliseconds)
    if size == 0:
        return "0ms"
    for below, factor, unit in ((0.9995, 1e3, "us"), (999.5, 1, "ms"), (3_599_500, 1e-3, "s")):
        if size < below:
            return digits(milliseconds * factor, significant) + unit
    return digits(milliseconds / 3.6e6, significant) + "h"


# --- text ------------------------------------------------------------------------------------------------


def clean(text: object) -> str:
    """One line without control characters: text from a file must not steer the terminal."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "?" for c in line)


def width(text: str) -> int:
    """Columns that `text` takes on a terminal (wide characters take two, combining ones and colour none)."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in _SGR.sub("", text)
    )


def clip(text: str, columns: int) -> str:
    """`text` cut to `columns`, its end marked with `~` where something was cut."""
    if width(text) <= columns:
        return text
    kept = ""
    for c in text:
        if width(kept + c) > columns - 1:
            break
        kept += c
    return kept + "~"


def terminal_width(stream=None) -> int:
    """Columns to fill: the terminal's, at most 120, or 80 where the output is not a terminal."""
    stream = stream or sys.stdout
    if stream is None or not stream.isatty():
        return 80
    return max(60, min(120, shutil.get_terminal_size((80, 24)).columns))


class Paint:
    """Styles text on a terminal and leaves it plain elsewhere or where NO_COLOR is set."""

    def __init__(self, stream=None):
        stream = stream or sys.stdout
        self.on = bool(
            stream is not None
            and stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        if self.on and os.name == "nt":
            os.system("")  # an old console starts to understand colours only after a sub-shell ran

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.on else text


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int] = (0,), columns: int = 80
) -> list[str]:
    """Lines of an aligned table; the columns in `left` are flush left, the others flush right.

    A column that is empty (`-` or nothing in every row) is dropped. Where the table is wider than `columns`,
    first the gaps and then the first column shrink.
    """
    rows = [list(row) for row in rows]
    used = [
        i
        for i, title in enumerate(header)
        if i == 0 or not rows or any(row[i] not in (NONE, "") for row in rows) or not title
    ]
    lines = [[header[i] for i in used]] + [[row[i] for i in used] for row in rows]
    flush_left = {k for k, i in enumerate(used) if i in set(left)}
    widths = [max(width(line[k]) for line in lines) for k in range(len(used))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= columns else 1
    excess = sum(widths) + gap * (len(widths) - 1) - columns
    if excess > 0:
        widths[0] = max(min(widths[0], MIN_FIRST_COLUMN), widths[0] - excess)
        for line in lines:
            line[0] = clip(line[0], widths[0])
    out = []
    for line in lines:
        cells = [
            cell + " " * (w - width(cell)) if k in flush_left else " " * (w - width(cell)) + cell
            for k, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        out.append((" " * gap).join(cells).rstrip())
    return out


def wrap(text: str, columns: int, at: str = " ") -> list[str]:
    """`text` broken into lines of at most `columns`, at spaces or at another separator such as ", "."""
    lines, line = [], ""
    for piece in text.split(at):
        if line and width(line + at + piece + at.rstrip()) > columns:
            lines.append(line + at.rstrip())
            line = piece
        else:
            line = f"{line}{at}{piece}" if line else piece
    return [*lines, line]
