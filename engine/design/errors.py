"""The one error of the design room, and the words it is put into."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class DesignError(ValueError):
    """A design, file or change that is refused.

    `str(error)` is one line: the file (when there is one), the path to the value, what is wrong and what is
    allowed.  `file`, `path` and `text` hold the three parts.
    """

    def __init__(self, text: str, path: str = "", file: str = "") -> None:
        self.text, self.path, self.file = text, path, file
        super().__init__(text, path, file)

    def __str__(self) -> str:
        line = ": ".join(part for part in (self.file, self.path, self.text) if part)
        # A line break inside a file's name must not make two lines of it.
        return " ".join(line.splitlines())

    def within(self, prefix: str) -> DesignError:
        """The same error with `prefix` put in front of its path."""
        return DesignError(self.text, join(prefix, self.path), self.file)

    def of_file(self, file: str) -> DesignError:
        """The same error with the name of the file it is in."""
        return DesignError(self.text, self.path, file)


def join(prefix: str, path: str) -> str:
    """`nodes[3]` and `settings.slots` make `nodes[3].settings.slots`."""
    if not prefix or not path:
        return prefix or path
    return prefix + path if path.startswith("[") else f"{prefix}.{path}"


def to_key(path: str, key: object) -> str:
    """The path of a key that may be anything: as long as it reads like one, it is part of the path."""
    plain = isinstance(key, str) and len(key) <= 60 and all(c.isalnum() or c in "_->." for c in key)
    return join(path, key) if plain else path


def show(value: object, limit: int = 40) -> str:
    """A value as a short piece of one line, whatever it is and however large."""
    if value is None:
        return "nothing"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, str):
        return repr(value if len(value) <= limit else value[:limit] + "…")
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return f"a {type(value).__name__}"


def number(value: float) -> str:
    """A bound as people write it: 10,000 and 0.001, never 1e+04."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,}"


def nearest(name: object, known: Iterable[str], limit: int = 8) -> str:
    """The hint that follows an unknown name: the likeliest one meant, else what there is to choose from."""
    names = sorted(known)
    if isinstance(name, str) and len(name) <= 100:
        close = difflib.get_close_matches(name.lower().replace(" ", "_"), names, n=1, cutoff=0.6)
        close = close or difflib.get_close_matches(name.lower().replace("_", "-"), names, n=1, cutoff=0.6)
        close = close or [known for known in names if len(name) >= 3 and name.lower() in known][:1]
        if close:
            return f"did you mean {close[0]!r}?"
    if not names:
        return "there are none"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return "there is " + ", ".join(names[:limit]) + more


def unknown(what: str, name: object, known: Iterable[str], of: str = "") -> str:
    """`unknown setting 'slot' of 'app-service'; did you mean 'slots'?`"""
    return f"unknown {what} {show(name)}{of and ' of ' + of}; {nearest(name, known)}"


def check_encodable(text: str, path: str) -> None:
    """Refuses text that cannot be written to any file.  Raises DesignError at `path`."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DesignError("holds half of a surrogate pair, which is no character", path) from None
