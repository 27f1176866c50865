"""Where a command's results go: text for people, or one JSON object to a file or to stdout."""

import argparse
import json
import os
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
            folder = path.parent
            if path.is_dir():
                raise UserError(f"--json {where}: is a folder")
            if not folder.is_dir():
                raise UserError(f"--json {where}: there is no folder {folder}")
            if not os.access(path if path.exists() else folder, os.W_OK):
                raise UserError(f"--json {where}: no permission to write there")
        except (OSError, ValueError) as error:  # a name too long, or with a zero byte
            raise UserError(f"--json {where}: {getattr(error, 'strerror', None) or error}") from None

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
            raise UserError(f"--json {self.where}: {error.strerror or error}") from None
