"""Where a command's results go: text for people, or one JSON object to a file or to stdout."""

import argparse
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from engine.cli.errors import UserError


def json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="also write the result as JSON; `-` for stdout, without text"
    )


class Target:
    """The destination that `--json` names: None (text only), `-` (JSON on stdout, no text) or a file (both).

    A file that cannot be written is refused here, before any long work.
    """

    def __init__(self, where: str | None):
        self.where = where
        if where is None or where == "-":
            return
        path = Path(where)
        try:
            exists = stat.S_IFMT(os.stat(path).st_mode)
        except FileNotFoundError:
            exists = 0
        except (OSError, ValueError) as error:  # a name too long, or with a zero byte
            raise self._refusal(error) from None
        if exists == stat.S_IFDIR:
            raise UserError(f"--json {where}: is a folder")
        if not path.parent.is_dir():
            raise UserError(f"--json {where}: there is no folder {path.parent}")
        if not os.access(path if exists else path.parent, os.W_OK):
            raise UserError(f"--json {where}: may not be written")

    def _refusal(self, error: Exception) -> UserError:
        return UserError(f"--json {self.where}: {getattr(error, 'strerror', None) or error}")

    def say(self, lines: Iterable[str]) -> None:
        """Print lines of text, unless stdout is for the JSON."""
        if self.where != "-":
            for line in lines:
                print(line)

    def write(self, result: dict) -> None:
        """Write the JSON, where it is asked for. NaN and infinity are not JSON: a ValueError."""
        if self.where is None:
            return
        text = json.dumps(result, allow_nan=False)
        if self.where == "-":
            print(text)
            return
        try:
            Path(self.where).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise self._refusal(error) from None
