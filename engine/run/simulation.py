"""One run of one design, driven from outside: advance, look, change, copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engine.design.errors import DesignError
from engine.design.model import Design
from engine.design.parts import Fault
from engine.kernel import build
from engine.program import layout as L
from engine.program.lower import fault_record, lower
from engine.run import live
from engine.run.history import Frames, History
from engine.run.results import digest, summary

_lock = threading.Lock()
_kernel = None


def kernel():
    """The compiled entry point, loaded once (safe from several threads)."""
    global _kernel
    with _lock:
        if _kernel is None:
            build.ensure()
            _kernel = build.load()
    return _kernel


class Simulation:
    """A design being simulated.

    Parameters: design; seed (default: the design's); until_s cuts the run short; history=False forgets the frames as
    they come, for runs of which only the sums are wanted. Raises DesignError for a design that cannot run. `advance`
    releases the interpreter lock while it runs; one Simulation belongs to one thread at a time.
    """

    def __init__(
        self, design: Design, seed: int | None = None, until_s: float | None = None, history: bool = True
    ) -> None:
        self.program, self.state = lower(design, seed, until_s, history)
        self.design = design
        self.history = History(self.program) if history else None
        self.reached = True  # whether the last `advance` came to its time, not only to its number of steps
        self._call(L.OP_START)

    # --- the clock ---
    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return float(self.state.sim[0]["now"])

    @property
    def end_s(self) -> float:
        """When the run ends at the latest (duration and drain), in simulated seconds."""
        return float(self.state.sim[0]["end"])

    @property
    def finished(self) -> bool:
        return bool(self.state.sim[0]["finished"])

    @property
    def events(self) -> int:
        """Events processed so far."""
        return int(self.state.sim[0]["events"])

    def advance(self, until_s: float, max_events: int = 0) -> bool:
        """Runs to until_s (simulated), or for max_events steps (0: no limit). True when the run has finished."""
        w = self.state.sim[0]
        if self.finished:
            return True
        w["until"] = min(max(until_s, self.now), self.end_s)
        w["max_events"] = max_events or 1 << 62
        while True:
            status = self._call(L.OP_RUN)
            if status == L.ST_GROW:
                self.state.grow()
            elif status == L.ST_STUCK:
                raise DesignError(
                    f"time stands still at {self.now:g} s: calls go on without taking any; give a component a p50_ms"
                )
            elif status == L.ST_FRAMES:
                self._take_frames()
            else:
                self._take_frames()
                self.reached = status != L.ST_EVENTS
                return status == L.ST_DONE

    def _call(self, op: int, arg: int = 0, extra: int = 0) -> int:
        return kernel()(self.state.bind(), op, arg, extra)

    def _take_frames(self) -> None:
        if self.history is None:
            self.state.sim[0]["frame_n"] = 0
        else:
            self.history.take(self.state)

    # --- looking ---
    def frames(self, start: int = 0) -> Frames:
        """The recorded frames, oldest first, from index `start` on."""
        if self.history is None:
            raise ValueError("this run keeps no history")
        return self.history.frames(start)

    def summary(self, wall_s: float | None = None) -> dict:
        """The object that `run --json` writes."""
        return summary(self.program, self.state, wall_s)

    def digest(self) -> str:
        """A fingerprint of everything measured so far."""
        return digest(self.program, self.state)

    # --- changing ---
    def set(self, target: str, setting: str, value: object) -> None:
        """Changes a setting of a node or edge (by id) from now on. Raises DesignError on a bad value, and
        `live.RestartNeeded` (a DesignError) for one that only a new run can take up."""
        self.program = live.set_value(self, target, setting, value)
        self.design = self.program.design

    def inject(self, fault: Fault) -> None:
        """Starts a fault now; its at_s is ignored."""
        self.design.check_fault(fault)
        w = self.state.sim[0]
        k = int(w["faults"])
        if k >= len(self.state.fault):
            room = np.zeros(2 * len(self.state.fault), L.FAULT)
            room[:k] = self.state.fault
            self.state.arrays["fault"] = room
        self.state.fault[k] = fault_record(self.program, fault, self.now)
        w["faults"] = k + 1
        self._call(L.OP_FAULT, k)

    def copy(self) -> Simulation:
        """An exact checkpoint: what happens to one does not touch the other."""
        twin = object.__new__(Simulation)
        twin.program = replace(self.program, lanes=dict(self.program.lanes))
        twin.state, twin.design, twin.reached = self.state.copy(), self.design, self.reached
        twin.history = self.history.copy() if self.history is not None else None
        return twin


def simulate(
    design: Design,
    seed: int | None = None,
    until_s: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict:
    """Runs a design to its end and returns its summary, wall_s (the run alone) included.

    progress gets the share of simulated time that has passed, about ten times a second.
    """
    kernel()
    run = Simulation(design, seed, until_s, history=False)
    started = time.perf_counter()
    while not run.advance(run.end_s, max_events=2_000_000):  # in pieces, so that Ctrl-C is heard
        if progress is not None:
            progress(run.now / run.end_s)
    return run.summary(time.perf_counter() - started)


def warm_up(entry: Callable) -> None:
    """Compiles or loads the kernel's entry point by running the smallest design for an instant."""
    from engine.design.model import new_node

    _, state = lower(Design(duration_s=0.1, warmup_s=0.0, nodes=[new_node("api-clients", "users")]))
    entry(state.bind(), L.OP_START, 0, 0)
    state.sim[0]["until"] = 0.1
    entry(state.bind(), L.OP_RUN, 0, 0)
