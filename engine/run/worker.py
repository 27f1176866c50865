"""The thread behind a Run: it alone touches the simulation. Messages come in, states and frames go out."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from engine.design.errors import DesignError
from engine.design.model import Design
from engine.kernel import build
from engine.program import layout as L
from engine.run import journal
from engine.run.checkpoints import Checkpoint, Checkpoints, interval
from engine.run.history import History
from engine.run.journal import Entry, Inject, Set, Stopped
from engine.run.live import RestartNeeded
from engine.run.pace import TICK_S, Meter, Pace
from engine.run.simulation import Simulation, kernel

STATUSES = ("compiling", "ready", "playing", "paused", "finished", "failed")
NOTICES = 50  # the latest that are kept
_building = threading.Lock()


@dataclass(frozen=True)
class Notice:
    """Something the learner should be told. number counts from 1; t: simulated s; kind: info, restart or
    error.
    """

    number: int
    t: float
    kind: str
    text: str


@dataclass(frozen=True)
class RunState:
    """How a run stands; a new one whenever something has changed, never changed itself.

    status: compiling (getting ready), ready (at 0 s), playing, paused, finished or failed; failure: why, in
    one line. now, end_s: simulated s; the run ends at end_s at the latest. speed: asked, simulated s per
    wall s, inf = as fast as it goes; achieved: over the last second, None where it does not play; behind:
    this machine cannot keep the asked speed. events: so far; events_per_s: per wall s. progress: share done
    while compiling or rewinding, else None. frames: recorded so far. timeline grows when the past has
    changed (a restart or rewind), restarts with every start from 0. design and seed are what is being
    simulated now.
    """

    status: str
    design: Design
    seed: int
    now: float = 0.0
    end_s: float = 0.0
    speed: float = 1.0
    achieved: float | None = None
    behind: bool = False
    events: int = 0
    events_per_s: float | None = None
    progress: float | None = None
    failure: str = ""
    frames: int = 0
    timeline: int = 0
    restarts: int = 0
    notices: tuple[Notice, ...] = ()


# --- messages; Set and Inject are messages too ---
@dataclass(frozen=True)
class Play:
    pass


@dataclass(frozen=True)
class Pause:
    pass


@dataclass(frozen=True)
class Step:
    seconds: float


@dataclass(frozen=True)
class Speed:
    speed: float


@dataclass(frozen=True)
class Restart:
    design: Design | None
    seed: int | None


@dataclass(frozen=True)
class Rewind:
    t: float


@dataclass(frozen=True)
class Wake:
    """Only says: look whether you are to stop."""


@dataclass(frozen=True)
class Query:
    """A question answered between two pieces of the run."""

    ask: Callable[[Worker], object]
    answer: Future = field(default_factory=Future)


@dataclass(frozen=True)
class Origin:
    """Where a fork begins: a checkpoint, what was done by hand from there to t, and the past up to t."""

    sim: Simulation | None  # at t already; else it is run there from the checkpoint
    t: float
    checkpoints: Checkpoints
    journal: list[Entry]
    history: History


class Worker:
    """Carries a Simulation through a run. All methods are for its own thread, except that anyone may put
    messages in `inbox`, set `stopping` (with a Wake in the inbox), and read `state`, `history` and the
    flags.
    """

    def __init__(
        self,
        design: Design,
        seed: int | None,
        speed: float,
        on_change: Callable[[RunState], None] | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        self.stopping = threading.Event()
        self.gate = threading.Lock()  # around `open`
        self.open = False  # whether messages are still taken
        self.history: History | None = None
        self.sim: Simulation | None = None
        self._design, self._seed = design, design.seed if seed is None else seed
        self._on_change, self._origin = on_change, origin
        self._pace, self._meter = Pace(speed), Meter()
        self._journal: list[Entry] = []
        self._checkpoints = Checkpoints()
        self._next_checkpoint = 0.0
        self._status, self._failure, self._progress = "compiling", "", None
        self._timeline = self._restarts = 0
        self._notices: list[Notice] = []
        self._told = 0
        self.changed = threading.Condition()  # notified when the status changes
        self.state = self._snapshot()

    # --- the thread ---
    def main(self) -> None:
        """The thread's whole life. Raises nothing."""
        try:
            self._guarded(self._prepare)
            while not self.stopping.is_set():
                self._take_messages()
                if self._status == "playing":
                    self._guarded(self._play_on)
                    self._publish()
        except Stopped:
            pass
        finally:
            self._close()

    def _guarded(self, action: Callable, *args: object) -> None:
        """Carries out what may go wrong in ways that end the run and not the thread."""
        try:
            action(*args)
        except Stopped:
            raise
        except DesignError as error:
            self._fail(str(error))
        except MemoryError:
            self._fail(
                "the run needs more memory than this machine has; give it less traffic or shorter queues"
            )
        except Exception as error:
            self._fail(f"{error}" if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}")

    def _close(self) -> None:
        with self.gate:
            self.open = False
        while True:
            try:
                message = self.inbox.get_nowait()
            except queue.Empty:
                break
            if isinstance(message, Query):
                self._answer(message)
        with self.changed:
            self.changed.notify_all()

    def _go_on(self, progress: float | None = None) -> bool:
        """Asked during long work: False when the run is to stop. Shows the share done."""
        if self.stopping.is_set():
            return False
        self._progress = progress
        self._publish()
        return True

    def _compiling(self, share: float) -> None:
        if not self._go_on(share):
            raise Stopped

    # --- getting ready ---
    def _prepare(self) -> None:
        while not _building.acquire(timeout=0.1):
            self._compiling(0.0)  # another run compiles; what it has done will be there
        try:
            build.ensure(self._compiling)
        finally:
            _building.release()
        kernel()
        self._progress = None
        if self._origin is None:
            self._begin()
        else:
            self._begin_fork(self._origin)
            self._origin = None

    def _begin(self, status: str = "ready") -> None:
        """A new simulation from 0 s on."""
        try:
            sim = Simulation(self._design, self._seed)
        except BaseException:
            self.sim = self.history = None
            raise
        self._failure = ""
        self._journal, self._checkpoints = [], Checkpoints()
        self.history = sim.history
        self._take_over(sim)
        self._checkpoint()
        self._set_status(status)

    def _begin_fork(self, origin: Origin) -> None:
        self._checkpoints, self._journal = origin.checkpoints, origin.journal
        sim = origin.sim
        if sim is None:
            sim = self._run_from_checkpoint(origin.t, self._journal)
        self.history = origin.history
        self.history.cut(int(sim.state.sim[0]["frame_i"]))
        sim.history = self.history
        self._take_over(sim)
        self._set_status(self._resting())

    def _take_over(self, sim: Simulation) -> None:
        self.sim = sim
        self._design = sim.design
        self._pace.rest()
        self._meter.clear()
        every = interval(sim.end_s)
        self._next_checkpoint = (math.floor(sim.now / every) + 1) * every

    def _resting(self) -> str:
        """The status of a run that does not play."""
        return "finished" if self.sim.finished else "paused" if self.sim.now > 0 else "ready"

    # --- going on ---
    def _play_on(self) -> None:
        """One piece of a playing run."""
        self._piece(self._pace.due(self.sim.now, time.perf_counter()))

    def _piece(self, t: float) -> None:
        """Goes on towards t (s), for some milliseconds at most."""
        sim = self.sim
        until = min(t, self._next_checkpoint)
        began = time.perf_counter()
        finished = sim.advance(until, self._pace.chunk)
        ended = time.perf_counter()
        self._pace.took(ended - began, full=not sim.reached)
        self._meter.mark(ended, sim.now, sim.events)
        if finished:
            self._set_status("finished")
        elif sim.now >= self._next_checkpoint:
            every = interval(sim.end_s)
            self._next_checkpoint = (math.floor(sim.now / every) + 1) * every
            self._checkpoint()

    def _checkpoint(self) -> None:
        if self._checkpoints.fits(self.sim):
            self._checkpoints.add(Checkpoint(self.sim, len(self._journal)))

    def _step(self, seconds: float) -> None:
        if self.sim is None or self._status in ("finished", "failed"):
            return
        t = self.sim.now + seconds
        grid = round(t / L.FRAME_S) * L.FRAME_S
        t = min(grid if abs(t - grid) < 1e-6 else t, self.sim.end_s)
        self._set_status("paused")
        self._piece(t)
        while self._status == "paused" and not (self.sim.reached and self.sim.now >= t):
            if not self._go_on():
                raise Stopped
            self._piece(t)

    def _settle(self) -> None:
        """Brings the instant to its end: commands act after all that was due by now."""
        if self.sim is None or self._status in ("finished", "failed"):
            return
        if journal.settle(self.sim, lambda now: self._go_on()):
            self._set_status("finished")

    # --- messages ---
    def _take_messages(self) -> None:
        """Handles what waits in the inbox; waits for a message where there is nothing to do before one
        comes.
        """
        wait = None
        if self._status == "playing":
            ahead = (
                self._pace.due(self.sim.now, time.perf_counter()) - self.sim.now
                < TICK_S * self._pace.speed / 2
            )
            wait = TICK_S if ahead else 0.0
        while not self.stopping.is_set():
            try:
                message = self.inbox.get(timeout=wait) if wait != 0.0 else self.inbox.get_nowait()
            except queue.Empty:
                return
            wait = 0.0
            if isinstance(message, Query):
                self._answer(message)
            else:
                self._guarded(self._handle, message)
                self._publish()

    def _answer(self, query: Query) -> None:
        try:
            query.answer.set_result(query.ask(self))
        except BaseException as error:
            query.answer.set_exception(error)

    def _handle(self, message: object) -> None:
        match message:
            case Play():
                if self._status in ("ready", "paused"):
                    self._pace.rest()
                    self._meter.clear()
                    self._set_status("playing")
            case Pause():
                if self._status == "playing":
                    self._settle()
                    if self._status == "playing":
                        self._set_status("paused")
            case Step(seconds):
                self._step(seconds)
            case Speed(speed):
                self._pace.speed = speed
                self._pace.rest()
                self._meter.clear()
            case Set() | Inject():
                self._change(message)
            case Restart(design, seed):
                self._restart(design, seed)
            case Rewind(t):
                self._rewind(t)

    def _change(self, command: Set | Inject) -> None:
        """A live change: takes effect now, after all else that was due by now, and goes into the
        journal.
        """
        self._settle()
        if self.sim is None or self._status in ("finished", "failed"):
            self._change_later(command)
            return
        before = self.sim.program
        try:
            command.apply(self.sim)
        except RestartNeeded as reason:
            self._design = self.sim.design.with_setting(f"{command.target}.{command.setting}", command.value)
            self._restart(None, None, str(reason))
            return
        except DesignError as error:
            self._tell("error", str(error))
            return
        self._design = self.sim.design
        if isinstance(command, Inject) or self.sim.program is not before:
            self._journal.append(Entry(self.sim.now, command))

    def _change_later(self, command: Set | Inject) -> None:
        """A change of a run that does not go on: a failed one begins anew with it, a finished one keeps its
        results.
        """
        if isinstance(command, Inject):
            self._tell("error", "the run does not go on: start it again before a fault is fired")
            return
        try:
            design = self._design.with_setting(f"{command.target}.{command.setting}", command.value)
        except DesignError as error:
            self._tell("error", str(error))
            return
        if self._status == "failed":
            self._restart(design, None, "the design has changed: the run starts anew")
        else:
            self._design = design
            self._tell("info", "the run is over: the change counts from the next start on")

    def _restart(self, design: Design | None, seed: int | None, reason: str = "") -> None:
        if design is not None:
            if not reason and design != self._design:
                reason = "the design has changed: the run starts anew"
            self._design = design
        if seed is not None:
            self._seed = seed
        self._timeline += 1
        self._restarts += 1
        if reason:
            self._tell("restart", f"{reason} (seed {self._seed})")
        self._begin("playing" if self._status == "playing" else "ready")

    # --- the past ---
    def _rewind(self, t: float) -> None:
        """Back to time t: commands by hand up to and at t have been carried out, those after it are
        forgotten.
        """
        if self.sim is None:
            return
        if t > self.sim.now:
            self._tell("error", f"{t:g} s lies ahead: the run has come to {self.sim.now:g} s")
            return
        self._settle()
        if t == self.sim.now and self._status != "failed":
            return
        entries = [entry for entry in self._journal if entry.t <= t]
        sim = self._run_from_checkpoint(t, entries)
        self.history.cut(int(sim.state.sim[0]["frame_i"]))
        sim.history = self.history
        self._journal, self._checkpoints = entries, self._checkpoints.until(t)
        self._timeline += 1
        self._failure = ""
        self._take_over(sim)
        self._set_status("playing" if self._status == "playing" else self._resting())

    def _run_from_checkpoint(self, t: float, entries: list[Entry]) -> Simulation:
        """The simulation as it was at t, all entries (none later than t) carried out."""
        start = self._checkpoints.before(t)
        sim = start.restore()

        def go_on(now: float) -> bool:
            return self._go_on((now - start.t) / (t - start.t))

        journal.replay(sim, entries[start.applied :], t, go_on)
        self._progress = None
        return sim

    def fork(self, t: float | None) -> Worker:
        """A worker for another run that has been the same up to t (None: now); not started, not playing."""
        if self.sim is None:
            return Worker(self._design, self._seed, self._pace.speed)
        now = self.sim.now
        if t is not None and t > now:
            raise ValueError(f"{t:g} s lies ahead: the run has come to {now:g} s")
        at = now if t is None else t
        sim = Checkpoint(self.sim, 0).restore() if at == now else None
        entries = [entry for entry in self._journal if entry.t <= at]
        origin = Origin(sim, at, self._checkpoints.until(at), entries, self.history.copy())
        return Worker(self.sim.design, self._seed, self._pace.speed, origin=origin)

    def journal(self) -> tuple[Entry, ...]:
        return tuple(self._journal)

    # --- outwards ---
    def _fail(self, reason: str) -> None:
        self._failure = " ".join(reason.split())
        self._progress = None
        self._tell("error", self._failure)
        self._set_status("failed")

    def _tell(self, kind: str, text: str) -> None:
        self._told += 1
        self._notices.append(Notice(self._told, self.sim.now if self.sim else 0.0, kind, text))
        del self._notices[:-NOTICES]

    def _set_status(self, status: str) -> None:
        if status == self._status:
            return
        self._status = status
        self._publish()
        with self.changed:
            self.changed.notify_all()
        if self._on_change is not None:
            try:
                self._on_change(self.state)
            except Exception as error:
                self._tell("error", f"on_change failed: {type(error).__name__}: {error}")

    def _publish(self) -> None:
        self.state = self._snapshot()

    def _snapshot(self) -> RunState:
        sim, playing = self.sim, self._status == "playing"
        achieved, rate = self._meter.rates() if playing else (None, None)
        at = self._origin.t if self._origin else 0.0
        return RunState(
            status=self._status,
            design=self._design,
            seed=self._seed,
            now=sim.now if sim else at,
            end_s=sim.end_s if sim else self._design.duration_s + self._design.drain_s,
            speed=self._pace.speed,
            achieved=achieved,
            behind=playing and time.perf_counter() - self._pace.late_at < 1.0,
            events=sim.events if sim else 0,
            events_per_s=rate,
            progress=self._progress,
            failure=self._failure,
            frames=self.history.count if self.history else 0,
            timeline=self._timeline,
            restarts=self._restarts,
            notices=tuple(self._notices),
        )
