"""The commands of `python main.py`: a module each, with `arguments(parser)` and `execute(args) -> code`."""

import argparse
import contextlib
import importlib
import os
import sys

from engine.cli.errors import UserError, one_line
from engine.design.errors import DesignError

DONE, NOT_PASSED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "run": ("run", "simulate a design and print what happened"),
    "check": ("check", "judge a design by its problem's objectives, over several seeds"),
    "problems": ("problems", "list the problems"),
    "components": ("components", "list the components of the catalogue"),
    "bench": ("bench", "measure the engine beside its peers"),
}


class _Parser(argparse.ArgumentParser):
    """Reports a bad argument in one line instead of two paragraphs."""

    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of `main.py`, with the arguments of `command` only, so that help imports nothing else."""
    parser = _Parser(
        prog="main.py",
        description="Redline: learn system architecture by simulating it. Without a command, opens the lab.",
        epilog="FILE and PROBLEM take a path or a problem's id. Exit codes: 0 done, 1 check not passed, "
        "2 bad input, 130 interrupted.",
        allow_abbrev=False,
    )
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, (module, text) in COMMANDS.items():
        about = f"{text[0].upper()}{text[1:]}."
        added = sub.add_parser(name, help=text, description=about, allow_abbrev=False)
        if name == command:
            importlib.import_module(f"engine.cli.{module}").arguments(added)
    return parser


def main(argv: list[str]) -> int:
    """Run one command line and return its exit code; bad input is one line on stderr, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the terminal cannot show must not end the run
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")
    try:
        code = _command(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`… | head`): not an error, and nobody is left to tell.
        _discard_stdout()
        return DONE
    except (UserError, DesignError) as error:
        return _refuse(error)
    except MemoryError:
        return _refuse("not enough memory for this design")
    except OSError as error:
        _discard_stdout()
        return _refuse(error)


def _command(argv: list[str]) -> int:
    named = next((word for word in argv if not word.startswith("-")), None)
    if named not in COMMANDS:
        named = None
    try:
        args = _parser(named).parse_args(argv)
    except SystemExit as end:  # --help
        return int(end.code or 0)
    return importlib.import_module(f"engine.cli.{COMMANDS[args.command][0]}").execute(args)


def _refuse(error: object) -> int:
    with contextlib.suppress(OSError, AttributeError):
        print(f"redline: {one_line(error)}", file=sys.stderr)
    return BAD_INPUT


def _discard_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
