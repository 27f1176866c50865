"""The frames of a run, kept from its start in bounded memory: recent ones all, older ones evenly thinned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.program import layout as L
from engine.program.lower import Program
from engine.program.state import State

HISTORY_BYTES = 48 << 20


@dataclass(frozen=True)
class Frames:
    """What was recorded at a number of instants (F), oldest first. Counters and integrals run from time 0.

    system: FRAME records (F,). nodes: FNODE (F, nodes). edges: FEDGE (F, edges). calls: calls offered, succeeded and
    failed (F, nodes, 3). failed: calls failed by reason (F, nodes, reasons). began: requests that failed, by the node
    where the failure began (F, nodes, reasons).
    """

    system: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    calls: np.ndarray
    failed: np.ndarray
    began: np.ndarray

    def __len__(self) -> int:
        return len(self.system)

    @property
    def t(self) -> np.ndarray:
        """Times in simulated s, shape (F,)."""
        return self.system["t"]


class History:
    """Collects frames from the kernel's buffer."""

    def __init__(self, program: Program) -> None:
        self._n, self._e = len(program.node_ids), len(program.edge_ids)
        each = L.FRAME.itemsize + self._n * (L.FNODE.itemsize + 8 * L.TALLY) + self._e * L.FEDGE.itemsize
        self._half = max(600, HISTORY_BYTES // each // 2)
        self._old: list[tuple[np.ndarray, ...]] = []
        self._new: list[tuple[np.ndarray, ...]] = []
        self._new_n = self._old_n = 0
        self._stride = 1

    def copy(self) -> History:
        twin = object.__new__(History)
        twin.__dict__.update(self.__dict__)
        twin._old, twin._new = list(self._old), list(self._new)
        return twin

    def take(self, state: State) -> None:
        """Takes the frames the state's buffer holds; the state gets a new buffer where this is cheaper than a copy."""
        w = state.sim[0]
        k = int(w["frame_n"])
        if k == 0:
            return
        w["frame_n"] = 0
        index = np.arange(int(w["frame_i"]) - k, int(w["frame_i"]))
        block = [index]
        for name, each in (
            ("frame", 1),
            ("fnode", self._n),
            ("fedge", self._e),
            ("freason", self._n * L.TALLY),
        ):
            old = state.arrays[name]
            if 2 * k > int(w["frame_cap"]):
                state.arrays[name] = np.empty_like(old)
            else:
                old = old[: k * each].copy()
            block.append(old[: k * each].reshape(k, -1) if name != "frame" else old[:k])
        self._new.append(tuple(block))
        self._new_n += k
        while self._new_n - len(self._new[0][0]) > self._half:
            self._age(self._new.pop(0))

    def _age(self, block: tuple[np.ndarray, ...]) -> None:
        self._new_n -= len(block[0])
        keep = block[0] % self._stride == 0
        self._old.append(tuple(a[keep] for a in block))
        self._old_n += int(keep.sum())
        if self._old_n > self._half:
            self._stride *= 2
            self._old = [tuple(a[b[0] % self._stride == 0] for a in b) for b in self._old]
            joined = tuple(np.concatenate(parts) for parts in zip(*self._old, strict=True))
            self._old, self._old_n = [joined], len(joined[0])

    def cut(self, t: float) -> None:
        """Forgets what was recorded after time t (s): the run has been rewound."""
        for blocks in (self._old, self._new):
            blocks[:] = [tuple(a[b[1]["t"] <= t + 1e-9] for a in b) for b in blocks]
        self._old_n = sum(len(b[0]) for b in self._old)
        self._new_n = sum(len(b[0]) for b in self._new)

    def frames(self, start: int = 0) -> Frames:
        """All frames kept, from the start-th on."""
        blocks = self._old + self._new
        if not blocks:
            blocks = [tuple(np.zeros((0, *shape), kind) for kind, shape in self._shapes())]
        _, system, nodes, edges, tally = (np.concatenate(p)[start:] for p in zip(*blocks, strict=True))
        tally = tally.reshape(len(system), self._n, 3, L.CNT)
        calls = tally[:, :, 0] + tally[:, :, 1]
        failed = calls[:, :, 2 : 2 + L.NR]
        calls = np.stack([calls[:, :, 0], calls[:, :, 1], failed.sum(axis=2)], axis=2)
        return Frames(system, nodes, edges, calls, failed, tally[:, :, 2, : L.NR])

    def _shapes(self) -> list[tuple[object, tuple[int, ...]]]:
        return [
            (np.int64, ()),
            (L.FRAME, ()),
            (L.FNODE, (self._n,)),
            (L.FEDGE, (self._e,)),
            (np.int64, (self._n * L.TALLY,)),
        ]
