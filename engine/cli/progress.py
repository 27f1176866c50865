"""Progress of long work: one line on stderr, redrawn in place. Silent where stderr is no terminal."""

import sys
import time

from engine.cli.errors import UserError
from engine.cli.text import clean, clip, terminal_width

REDRAW_S = 0.1
BAR = 24


class Progress:
    """A context manager that long work calls with the share done (0 to 1, or None where it is not known).

    `with Progress("simulating") as progress: simulate(design, progress=progress)`
    """

    def __init__(self, label: str, stream=None):
        self.label = label
        self.stream = stream or sys.stderr
        self.on = self.stream is not None and self.stream.isatty()
        self._began = time.monotonic()
        self._next = self._began + 0.3  # what is over at once draws nothing
        self._drawn = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_error) -> None:
        self.clear()

    def __call__(self, done: float | None = None, text: str = "") -> None:
        """Redraw the line, at most ten times a second."""
        now = time.monotonic()
        if not self.on or now < self._next:
            return
        self._next = now + REDRAW_S
        self._drawn = True
        elapsed = f"{now - self._began:.0f}s"
        if done is None:
            state = elapsed
        else:
            done = min(1.0, max(0.0, done))
            filled = round(BAR * done)
            state = f"[{'#' * filled}{'.' * (BAR - filled)}] {100 * done:3.0f}% {elapsed}"
        columns = terminal_width(self.stream) - 1
        line = clip(f"{self.label} {state} {clean(text)}".rstrip(), columns)
        self.stream.write("\r" + line.ljust(columns))
        self.stream.flush()

    def clear(self) -> None:
        """Take the line away, so that something else can be printed."""
        if self._drawn:
            self._drawn = False
            self.stream.write("\r" + " " * (terminal_width(self.stream) - 1) + "\r")
            self.stream.flush()


def compiled() -> None:
    """Have the engine's kernel on disk: compiled now, with progress, if this is its first use."""
    from engine.kernel import build

    if not build.ready():
        with Progress("compiling the engine, once") as progress:
            try:
                build.ensure(progress)
            except RuntimeError as error:
                raise UserError(error) from None
