"""Redline's door: `python main.py` opens the lab, `python main.py COMMAND …` runs a command of the engine."""

from __future__ import annotations

import sys

FIRST_PROBLEM = "checkpointing-every-step"


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's arguments) and return its exit code.

    0: done, or every objective met; 1: a check that did not pass; 2: bad input; 130: interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        from engine.cli import main as command

        return command(argv or ["run", FIRST_PROBLEM])
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] in ("engine", "ui"):
            raise
        # Most often the system's Python instead of the one that everything was installed for.
        python = f"{sys.executable} (Python {sys.version.split()[0]})"
        need = "Redline needs Python 3.11 or newer and the first command of README.md"
        print(f"redline: {python} has no {error.name}; {need}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
