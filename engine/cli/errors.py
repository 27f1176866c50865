"""What a user can get wrong, told in one line."""

import difflib
from collections.abc import Iterable

LONGEST_LINE = 600


class UserError(Exception):
    """Bad input. `str(error)` says what is wrong and what is allowed."""


def one_line(message: object) -> str:
    """`message` as a single printable line of bounded length."""
    text = " ".join(str(message).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 3] + "..."


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """`; did you mean X?` for the known name most like `word`, or nothing."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {by_lower[found[0]]!r}?" if found else ""
