"""What a user can get wrong, told in one line."""

LONGEST_LINE = 600


class UserError(Exception):
    """Bad input. `str(error)` says what is wrong and what is allowed."""


def one_line(message: object) -> str:
    """`message` as a single printable line of bounded length."""
    text = " ".join(str(message).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 3] + "..."
