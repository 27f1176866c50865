"""Checkpoints of a run: its state now and then, packed, in bounded memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np

from engine.program import layout as L
from engine.program.state import SHARED, State
from engine.run.simulation import Simulation

EVERY_S = 5.0
MOST = 720  # checkpoints of one run at most, however long it is
CHECKPOINT_BYTES = 64 << 20
_FRAME_BUFFER = ("frame", "fnode", "fedge", "freason")
_SPARSE = ("hist", "whist", "wheel")  # mostly zero


def interval(end_s: float) -> float:
    """Simulated seconds from one checkpoint to the next of a run of this length (s)."""
    return max(EVERY_S, end_s / MOST)


@dataclass(frozen=True)
class _Part:
    """The part of an array that is in use: length of the whole, where the part stands in it, and the
    part.
    """

    length: int
    where: slice | np.ndarray
    values: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if isinstance(self.where, slice) else self.where.nbytes)

    def whole(self) -> np.ndarray:
        out = np.zeros(self.length, self.values.dtype)
        out[self.where] = self.values
        return out


def _in_use(state: State, name: str, a: np.ndarray) -> slice | np.ndarray:
    """Which entries of an array mean anything; the others are zero or never read before they are
    written.
    """
    w = state.sim[0]
    if name == "call":
        return slice(0, int(w["calls_high"]))
    if name == "heap":
        return slice(0, int(w["heap_n"]))
    if name == "agenda":
        return (int(w["agenda_head"]) + np.arange(int(w["agenda_n"]))) & int(w["agenda_mask"])
    if name == "item":
        lanes = state.lane[state.lane["n"] > 0]
        rings = [q["off"] + ((q["head"] + np.arange(q["n"])) & q["mask"]) for q in lanes]
        return np.concatenate(rings) if rings else slice(0, 0)
    if name in _FRAME_BUFFER and not w["frame_n"]:
        return slice(0, 0)
    if name in _SPARSE:
        return np.flatnonzero(a).astype(np.int32)
    return slice(0, len(a))


class Checkpoint:
    """A simulation as it stood at one time, without its history.

    t: simulated s. applied: commands by hand it has been through.
    """

    def __init__(self, sim: Simulation, applied: int) -> None:
        self.t, self.applied = sim.now, applied
        self._shell = _detached(sim)
        self._shell.state = None
        self._sim = sim.state.sim.copy()
        self._shared: dict[str, np.ndarray] = {}
        self._parts: dict[str, _Part] = {}
        self._names = list(sim.state.arrays)
        for name, a in sim.state.arrays.items():
            if name in SHARED:
                self._shared[name] = a
            else:
                where = _in_use(sim.state, name, a)
                part = a[where]
                self._parts[name] = _Part(len(a), where, part.copy() if isinstance(where, slice) else part)
        self.nbytes = self._sim.nbytes + sum(part.nbytes for part in self._parts.values())

    def restore(self) -> Simulation:
        """A simulation that goes on from here; without history. May be called again."""
        twin = _detached(self._shell)
        arrays = {n: self._shared[n] if n in self._shared else self._parts[n].whole() for n in self._names}
        twin.state = State(self._sim.copy(), arrays)
        return twin


def _detached(sim: Simulation) -> Simulation:
    """The same simulation as another object, without history; its state is still shared, its lanes are its
    own.
    """
    twin = copy.copy(sim)
    twin.history = None
    twin.program = replace(sim.program, lanes=dict(sim.program.lanes))
    return twin


class Checkpoints:
    """The checkpoints of a run, in order of time. The first, at the start, always stays.

    At most about `limit` bytes: the latest stay as long as they fill less than half of it; of older ones
    those go first whose neighbours are nearest.
    """

    def __init__(self, limit: int = CHECKPOINT_BYTES) -> None:
        self.limit = limit
        self._kept: list[Checkpoint] = []

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self._kept)

    @property
    def times(self) -> list[float]:
        """When the kept checkpoints were taken (s), ascending."""
        return [c.t for c in self._kept]

    def fits(self, sim: Simulation) -> bool:
        """Whether a checkpoint of this state is worth its memory."""
        return not self._kept or int(sim.state.sim[0]["calls_high"]) * L.CALL.itemsize < self.limit // 2

    def add(self, checkpoint: Checkpoint) -> None:
        """Adds one that is later than all others."""
        self._kept.append(checkpoint)
        while len(self._kept) > 2 and self.nbytes > self.limit:
            del self._kept[self._least()]

    def _least(self) -> int:
        """Which checkpoint to give up: never the first or the last."""
        recent, size = len(self._kept) - 1, self._kept[-1].nbytes
        while recent > 1 and size + self._kept[recent - 1].nbytes <= self.limit // 2:
            recent -= 1
            size += self._kept[recent].nbytes
        if recent == 1:
            return 1
        times = self.times
        return min(range(1, recent), key=lambda k: (times[k + 1] - times[k - 1], k))

    def before(self, t: float) -> Checkpoint:
        """The latest checkpoint at or before t (s)."""
        return [c for c in self._kept if c.t <= t][-1]

    def until(self, t: float) -> Checkpoints:
        """Those at or before t (s), as a list of its own."""
        twin = Checkpoints(self.limit)
        twin._kept = [c for c in self._kept if c.t <= t]
        return twin
