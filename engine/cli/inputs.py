"""What a command line names: designs, seeds, settings."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.cli.errors import UserError
from engine.design.errors import DesignError, show, unknown

if TYPE_CHECKING:
    from engine.design.model import Design
    from engine.design.parts import Change

_WORDS = {"yes": True, "no": False}


def seed(text: str) -> int:
    """A seed, in the range that a design file allows."""
    from engine.design.settings import HEADER

    try:
        return HEADER["seed"].check(int(text), "")
    except ValueError:  # DesignError too
        raise argparse.ArgumentTypeError(f"is {show(text)}; allowed is {HEADER['seed'].allowed()}") from None


def whole(text: str) -> int:
    """A whole number; its range is the command's to check."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {show(text)}; allowed is a whole number") from None


def until(text: str) -> float:
    """A time of the run; that it lies within the run is checked by `within`."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is {show(text)}; allowed is a number of simulated seconds"
        ) from None


def within(until_s: float | None, design: Design) -> float | None:
    """`until_s` if it lies within the design's run."""
    end_s = design.duration_s + design.drain_s
    if until_s is not None and not 0 < until_s <= end_s:
        raise UserError(
            f"--until is {until_s:g}; allowed is more than 0 and at most {end_s:g}, the end of the run"
        )
    return until_s


def with_settings(design: Design, assignments: Sequence[str]) -> Design:
    """The design with every `NODE.SETTING=VALUE` applied at once; values are written as in a TOML file."""
    values = {}
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        if not equals or "." not in target:
            raise UserError(f"--set {show(assignment)} is not NODE.SETTING=VALUE")
        values[target.strip()] = _value(text.strip())
    if not values:
        return design
    try:
        return design.with_settings(values)
    except DesignError as error:
        raise UserError(f"--set {error}") from None


def _value(text: str) -> object:
    """A TOML value (`4`, `0.5`, `true`, `[[0, 10], [5, 20]]`), `yes` or `no`, or else the bare word."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


def to_check(problem: str, file: str | None, solution: str | None, trap: str | None) -> Design:
    """What `check` judges: the problem's start, the start with a named change, or an attempt from a file."""
    from engine.design.files import load

    start = load(problem)
    if start.problem is None or start.attempt:
        raise UserError(f"{problem}: is no problem; check needs a problem's id or file")
    if file is not None:
        return _attempt(start, file)
    for name, known, what in (
        (solution, start.problem.solutions, "solution"),
        (trap, start.problem.traps, "trap"),
    ):
        if name is not None:
            return start.with_change(_named(name, known, what))
    return start


def _attempt(start: Design, file: str) -> Design:
    """The nodes and edges of `file` under the problem's traffic, faults and objectives, if the locks hold."""
    from engine.design.files import load
    from engine.design.problems import attempt_on, breaches

    design = load(file)
    if design.problem is not None and design.problem.id != start.problem.id:
        raise UserError(f"{file}: belongs to the problem {design.problem.id!r}, not {start.problem.id!r}")
    attempt = attempt_on(start, design.nodes, design.edges, design.name)
    broken = breaches(start, attempt)
    if broken:
        raise UserError(f"{file}: {broken[0]}")
    return attempt


def _named(name: str, known: Sequence[Change], what: str) -> Change:
    """The change called `name`, whatever the case of its letters."""
    by_name = {change.name.casefold(): change for change in known}
    if name.casefold() not in by_name:
        raise UserError(unknown(what, name, [change.name for change in known]))
    return by_name[name.casefold()]
