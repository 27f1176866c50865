"""Run: a simulation that plays in a thread of its own, steered by messages and looked at from outside."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from engine.design.model import Design
from engine.design.parts import Fault
from engine.run.history import Frames, Series
from engine.run.journal import Entry, Inject, Set
from engine.run.worker import (
    STATUSES,
    Notice,
    Pause,
    Play,
    Query,
    Restart,
    Rewind,
    RunState,
    Speed,
    Step,
    Wake,
    Worker,
)

__all__ = ["STATUSES", "Notice", "Run", "RunState"]


class Run:
    """A design being simulated in a thread of its own.

    Parameters: design; seed (default: the design's); on_change, called from the run's thread with the new
    RunState whenever the status changes (and at no other time). Nothing happens before `start`; `stop` ends
    the thread, and `with Run(design) as run:` does both. It does not play before `play`.

    Commands (play, pause, step, speed, set, inject, restart, rewind) return at once and are carried out in
    their order, within some milliseconds, by the thread; what they lead to is seen in `state`. A live
    change takes effect at one simulated time, after all that was due by then, and is remembered with it
    (`journal`), so that a rewind or a fork has it at the same time again. The numbers depend on design,
    seed and journal alone, never on speed, pauses or the machine. A bad command changes nothing and leaves
    a notice in the state.
    """

    def __init__(
        self,
        design: Design,
        seed: int | None = None,
        on_change: Callable[[RunState], None] | None = None,
    ) -> None:
        self._set_up(Worker(design, seed, 1.0, on_change))

    def _set_up(self, worker: Worker) -> None:
        self._worker = worker
        self._speed = worker.state.speed
        self._thread: threading.Thread | None = None
        self._summary: dict | None = None
        self._asked: Future | None = None

    # --- life ---
    def start(self) -> Run:
        """Starts the thread; it compiles the kernel where that is needed. Returns the run. Once only."""
        if self._thread is not None:
            raise RuntimeError("a run is started once; make another one")
        self._worker.open = True
        self._thread = threading.Thread(target=self._worker.main, name="redline-run", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread and waits for it, some milliseconds. What has been measured can still be read."""
        self._worker.stopping.set()
        self._worker.inbox.put(Wake())
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Run:
        return self.start() if self._thread is None else self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # --- commands ---
    def play(self) -> None:
        """Goes on until `pause` or the end; a finished run stays finished."""
        self._worker.inbox.put(Play())

    def pause(self) -> None:
        """Stands still at the end of the instant it has come to."""
        self._worker.inbox.put(Pause())

    def step(self, seconds: float = 0.1) -> None:
        """Goes on by so many simulated seconds as fast as it can, then stands still."""
        self._worker.inbox.put(Step(_time("seconds", seconds)))

    @property
    def speed(self) -> float:
        """Asked simulated seconds per wall second; inf (or None, when set) is as fast as it goes."""
        return self._speed

    @speed.setter
    def speed(self, value: float | None) -> None:
        value = math.inf if value is None else float(value)
        if not value > 0:
            raise ValueError(
                f"speed is {value:g}; allowed is a number above 0, or None for as fast as it goes"
            )
        self._speed = value
        self._worker.inbox.put(Speed(value))

    def set(self, target: str, setting: str, value: object) -> None:
        """Changes a setting of a node or edge (by id) from now on. Where only a new run can take it up, the
        run starts anew with the same seed and a notice says so.
        """
        self._worker.inbox.put(Set(target, setting, copy.deepcopy(value)))

    def inject(self, fault: Fault) -> None:
        """Fires a fault now; its at_s does not matter."""
        self._worker.inbox.put(Inject(fault))

    def restart(self, design: Design | None = None, seed: int | None = None) -> None:
        """Starts from 0 s, with another design or seed where given; settings changed by hand stay changed,
        faults fired by hand are gone. A playing run plays on.
        """
        self._worker.inbox.put(Restart(design, seed))

    def rewind(self, t: float) -> None:
        """Back to simulated time t (s), exactly as it was once all due by then had happened, commands given
        at t included. What came later is forgotten. A playing run plays on from there.
        """
        self._worker.inbox.put(Rewind(_time("t", t)))

    # --- looking ---
    @property
    def state(self) -> RunState:
        """How the run stands; reading it costs nothing and never waits."""
        return self._worker.state

    @property
    def seed(self) -> int:
        return self._worker.state.seed

    @property
    def design(self) -> Design:
        """The design with all settings changed by hand so far."""
        return self._worker.state.design

    def frames(self, start: int = 0) -> Frames | None:
        """The recorded frames with number `start` and above, without waiting; None before the run is ready.
        Whoever polls passes the last `index` + 1, and reads anew when `state.timeline` has grown.
        """
        history = self._worker.history
        return None if history is None else history.frames(start)

    def series(self, node: str, start: int = 0) -> Series | None:
        """The same of one node. Raises KeyError for a node the run does not have."""
        history = self._worker.history
        return None if history is None else history.series(history.node_index[node], start)

    @property
    def latest(self) -> Frames | None:
        """The newest frame (one, or none yet), without waiting; None before the run is ready."""
        history = self._worker.history
        return None if history is None else history.frames(history.count - 1)

    # --- asking: these wait for the thread, some milliseconds between two pieces of the run ---
    def summary(self) -> dict | None:
        """The object of `run --json` as the run stands, wall_s left out (None); None where there is no run.
        Waits.
        """
        return self._ask(_summary)

    def poll_summary(self) -> dict | None:
        """The summary as it was at the last poll but one at the latest, without waiting; None at first."""
        if self._asked is not None and self._asked.done():
            self._summary, self._asked = self._asked.result(), None
        if self._asked is None:
            self._asked = self._post(_summary)
        return self._summary

    def digest(self) -> str | None:
        """The fingerprint of everything measured so far; None where there is no run. Waits."""
        return self._ask(lambda worker: worker.sim.digest() if worker.sim else None)

    @property
    def journal(self) -> tuple[Entry, ...]:
        """What was done by hand and is still part of the run, with its simulated time. Waits."""
        return self._ask(Worker.journal)

    def fork(self, t: float | None = None) -> Run:
        """Another run that has been the same up to simulated time t (s; default: now): not started, not
        playing, at the same speed. Changing nothing, it ends like this one. Waits. Raises ValueError when t
        lies ahead.
        """
        twin = object.__new__(Run)
        twin._set_up(self._ask(lambda worker: worker.fork(None if t is None else _time("t", t))))
        return twin

    def flush(self) -> RunState:
        """Waits until all commands given so far have been carried out."""
        self._ask(lambda worker: None)
        return self.state

    def wait(self, *statuses: str, timeout: float | None = None) -> RunState:
        """Waits until all commands given so far have been carried out and the status is one of these (wall
        time at most, s), or the thread has ended.
        """
        worker = self._worker
        end = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if end is None else max(0.0, end - time.monotonic())

        try:
            self._post(lambda worker: None).result(left())
        except TimeoutError:
            return worker.state
        with worker.changed:
            while worker.state.status not in statuses and self._thread is not None and worker.open:
                if not worker.changed.wait(left()) and left() == 0.0:
                    break
        return worker.state

    def _post(self, ask: Callable[[Worker], object]) -> Future:
        query = Query(ask)
        with self._worker.gate:
            if self._worker.open:
                self._worker.inbox.put(query)
                return query.answer
        if self._thread is not None:
            self._thread.join()  # it is at its end; then nobody else touches the simulation
        try:
            query.answer.set_result(ask(self._worker))
        except Exception as error:
            query.answer.set_exception(error)
        return query.answer

    def _ask(self, ask: Callable[[Worker], object]) -> object:
        if self._thread is threading.current_thread():
            return ask(self._worker)
        return self._post(ask).result()


def _summary(worker: Worker) -> dict | None:
    return worker.sim.summary() if worker.sim else None


def _time(name: str, value: float) -> float:
    value = float(value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value:g}; allowed is a time of 0 s or more")
    return value
