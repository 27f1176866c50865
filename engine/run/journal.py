"""What was done to a run by hand, with the times: enough, with the design and the seed, to have the run
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.design.parts import Fault
from engine.run.simulation import Simulation

CHUNK = 200_000  # steps between two looks at whether to go on


class Stopped(Exception):
    """The run is being ended; what was under way is given up."""


@dataclass(frozen=True)
class Set:
    """A setting of a node or edge (by id) changed."""

    target: str
    setting: str
    value: object

    def apply(self, sim: Simulation) -> None:
        sim.set(self.target, self.setting, self.value)


@dataclass(frozen=True)
class Inject:
    """A fault fired by hand."""

    fault: Fault

    def apply(self, sim: Simulation) -> None:
        sim.inject(self.fault)


@dataclass(frozen=True)
class Entry:
    """A command that took effect at simulated time t (s), after everything else due by then."""

    t: float
    command: Set | Inject


def run_to(sim: Simulation, t: float, go_on: Callable[[float], bool] | None = None) -> bool:
    """Runs to exactly t (s), all that is due by then included. True when the run has finished.

    `go_on(now)` is asked from time to time; raises Stopped when it says no.
    """
    while not sim.advance(t, CHUNK):
        if sim.reached:
            return False
        if go_on is not None and not go_on(sim.now):
            raise Stopped
    return True


def settle(sim: Simulation, go_on: Callable[[float], bool] | None = None) -> bool:
    """Runs what is due by now and has not happened yet, so that `now` says all about where the run stands.

    A run stopped after a number of steps may stand in the middle of an instant; commands act after it. True
    when the run has finished.
    """
    return run_to(sim, sim.now, go_on)


def replay(
    sim: Simulation, entries: Iterable[Entry], t: float, go_on: Callable[[float], bool] | None = None
) -> None:
    """Runs to exactly t (s), carrying out the entries, none later than t, on the way. Raises what they
    raise.
    """
    for entry in entries:
        run_to(sim, entry.t, go_on)
        entry.command.apply(sim)
    run_to(sim, t, go_on)
