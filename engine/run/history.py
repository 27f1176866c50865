"""The frames of a run, kept from its start in bounded memory: recent ones all, older ones evenly
thinned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.program import layout as L
from engine.program.lower import Program
from engine.program.state import State

HISTORY_BYTES = 48 << 20
BLOCK_FRAMES = 64  # small pieces are joined until there are so many frames in one
MOST_FRAMES = 4 * BLOCK_FRAMES
# Per node: offered, succeeded, failed by reason; then requests that failed because of it, by reason.
_COUNTS = 2 + L.NR
_KEPT = _COUNTS + L.NR


@dataclass(frozen=True)
class Frames:
    """What was recorded at a number of instants (F), oldest first. Counters and integrals run from time 0.

    index: numbers of the frames, counted from the start of the run (F,); frame k was taken at (k + 1)·0.1
    s, and older ones may be missing. system: FRAME records (F,). nodes: FNODE (F, nodes). edges: FEDGE (F,
    edges). calls: calls offered, succeeded and failed (F, nodes, 3). failed: calls failed by reason (F,
    nodes, reasons). began: requests that failed, by the node where the failure began (F, nodes, reasons).
    """

    index: np.ndarray
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


@dataclass(frozen=True)
class Series:
    """The frames of one node: index and t (F,), node FNODE (F,), calls (F, 3), failed and began (F,
    reasons).
    """

    index: np.ndarray
    t: np.ndarray
    node: np.ndarray
    calls: np.ndarray
    failed: np.ndarray
    began: np.ndarray

    def __len__(self) -> int:
        return len(self.t)


@dataclass(frozen=True, slots=True)
class _Block:
    """Some frames in a row, never changed once made. Most counters are 0 in most designs: only the columns
    (ascending) that are not are kept, of the nodes' counters laid side by side.
    """

    index: np.ndarray
    system: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    columns: np.ndarray
    counts: np.ndarray

    @property
    def nbytes(self) -> int:
        return sum(
            a.nbytes for a in (self.index, self.system, self.nodes, self.edges, self.columns, self.counts)
        )

    def rows(self, which: slice | np.ndarray) -> _Block:
        parts = (self.index, self.system, self.nodes, self.edges)
        return _Block(*(a[which] for a in parts), self.columns, self.counts[which])

    def spread(self, first: int, last: int) -> np.ndarray:
        """The columns from `first` to before `last` with their zeros, as int64."""
        out = np.zeros((len(self.index), last - first), np.int64)
        a, b = np.searchsorted(self.columns, (first, last))
        out[:, self.columns[a:b] - first] = self.counts[:, a:b]
        return out


def _joined(blocks: list[_Block]) -> _Block:
    columns = np.unique(np.concatenate([b.columns for b in blocks]))
    counts = np.zeros(
        (sum(len(b.index) for b in blocks), len(columns)), np.result_type(*(b.counts for b in blocks))
    )
    at = 0
    for b in blocks:
        counts[at : at + len(b.index), np.searchsorted(columns, b.columns)] = b.counts
        at += len(b.index)
    parts = zip(*((b.index, b.system, b.nodes, b.edges) for b in blocks), strict=True)
    return _Block(*(np.concatenate(p) for p in parts), columns, counts)


def _size(blocks: list[_Block]) -> int:
    return sum(b.nbytes for b in blocks)


class History:
    """Collects frames from the kernel's buffer. One thread records; any thread may read meanwhile, without
    waiting.

    At most about `limit` bytes (HISTORY_BYTES): one half for the latest frames, all of them; the other for
    the older ones, of which every second, then every fourth, and so on, is kept.
    """

    def __init__(self, program: Program, limit: int | None = None) -> None:
        self.node_index = program.node_index
        self._n, self._e = len(program.node_ids), len(program.edge_ids)
        self._half = (HISTORY_BYTES if limit is None else limit) // 2
        self._old: list[_Block] = []
        self._new: list[_Block] = []
        self._old_bytes = self._new_bytes = 0
        self._stride = 1
        self._count = 0
        self._shown: tuple[_Block, ...] = ()  # what readers see: replaced as a whole

    def copy(self) -> History:
        """A history that goes its own way from here; what has been recorded is shared. For the thread that
        records.
        """
        twin = object.__new__(History)
        twin.__dict__.update(self.__dict__)
        twin._old, twin._new = list(self._old), list(self._new)
        return twin

    @property
    def count(self) -> int:
        """Frames recorded since the start of the run, those thinned out included."""
        return self._count

    @property
    def nbytes(self) -> int:
        """What the kept frames take in memory."""
        return self._old_bytes + self._new_bytes

    # --- recording ---
    def take(self, state: State) -> None:
        """Takes the frames out of the state's buffer."""
        w = state.sim[0]
        k = int(w["frame_n"])
        if k == 0:
            return
        w["frame_n"] = 0
        end = int(w["frame_i"])
        for a in range(0, k, MOST_FRAMES):
            b = min(k, a + MOST_FRAMES)
            self._append(self._block(state, a, b, np.arange(end - k + a, end - k + b)))
            while len(self._new) > 1 and self._new_bytes > self._half:
                self._age(self._new.pop(0))
        self._show(end)

    def _block(self, state: State, a: int, b: int, index: np.ndarray) -> _Block:
        """The frames from a to before b of the state's buffer."""

        def part(name: str, width: int) -> np.ndarray:
            return state.arrays[name][a * width : b * width]

        k = b - a
        tally = part("freason", self._n * L.TALLY).reshape(k, self._n, 3, L.CNT)
        counts = np.empty((k, self._n, _KEPT), np.int64)
        np.add(tally[:, :, 0, :_COUNTS], tally[:, :, 1, :_COUNTS], out=counts[:, :, :_COUNTS])
        counts[:, :, _COUNTS:] = tally[:, :, 2, : L.NR]
        counts = counts.reshape(k, -1)
        columns = np.flatnonzero(counts[-1])  # counters never fall: the last frame has them all
        counts = counts[:, columns]
        if len(columns) == 0 or counts[-1].max() < 1 << 32:
            counts = counts.astype(np.uint32)
        nodes = part("fnode", self._n).reshape(k, self._n).copy()
        edges = part("fedge", self._e).reshape(k, self._e).copy()
        return _Block(index, part("frame", 1).copy(), nodes, edges, columns, counts)

    def _append(self, block: _Block) -> None:
        """Adds the latest block; small ones before it are joined once there are enough frames in them."""
        self._new.append(block)
        self._new_bytes += block.nbytes
        small = frames = size = 0
        for b in reversed(self._new):
            if len(b.index) >= BLOCK_FRAMES or size + b.nbytes > self._half // 8:
                break
            small, frames, size = small + 1, frames + len(b.index), size + b.nbytes
        if small > 1 and frames >= BLOCK_FRAMES:
            self._new[-small:] = [_joined(self._new[-small:])]
            self._new_bytes = _size(self._new)

    def _age(self, block: _Block) -> None:
        """What is no longer recent goes to the older frames, as thin as those are."""
        self._new_bytes -= block.nbytes
        self._keep(block)
        while self._old_bytes > self._half:
            self._stride *= 2
            blocks, self._old, self._old_bytes = self._old, [], 0
            for b in blocks:
                self._keep(b)

    def _keep(self, block: _Block) -> None:
        kept = (block.index + 1) % self._stride == 0
        if not kept.any():
            return
        block = block if kept.all() else block.rows(kept)
        last = self._old[-1] if self._old else None
        if last is not None and len(last.index) + len(block.index) <= BLOCK_FRAMES:
            self._old_bytes -= self._old.pop().nbytes
            block = _joined([last, block])
        self._old.append(block)
        self._old_bytes += block.nbytes

    def cut(self, count: int) -> None:
        """Forgets all but the first `count` frames of the run: it has been rewound."""
        for blocks in (self._old, self._new):
            kept = [b if b.index[-1] < count else b.rows(b.index < count) for b in blocks]
            blocks[:] = [b for b in kept if len(b.index)]
        self._old_bytes, self._new_bytes = _size(self._old), _size(self._new)
        while self._stride > 1 and 2 * self._old_bytes <= self._half:
            self._stride //= 2
        self._show(min(self._count, count))

    def _show(self, count: int) -> None:
        self._shown = (*self._old, *self._new)
        self._count = count

    # --- reading ---
    def _since(self, start: int) -> list[_Block]:
        blocks = [b for b in self._shown if b.index[-1] >= start]
        if blocks and blocks[0].index[0] < start:
            blocks[0] = blocks[0].rows(slice(int(np.searchsorted(blocks[0].index, start)), None))
        return blocks or [self._nothing()]

    def _nothing(self) -> _Block:
        records = (np.zeros((0, *shape), kind) for kind, shape in self._shapes())
        return _Block(*records, np.zeros(0, np.int64), np.zeros((0, 0), np.uint32))

    def _shapes(self) -> list[tuple[object, tuple[int, ...]]]:
        return [(np.int64, ()), (L.FRAME, ()), (L.FNODE, (self._n,)), (L.FEDGE, (self._e,))]

    def frames(self, start: int = 0) -> Frames:
        """The kept frames with number `start` and above. Whoever polls asks for the last `index` + 1."""
        blocks = self._since(start)
        columns = zip(*((b.index, b.system, b.nodes, b.edges) for b in blocks), strict=True)
        counts = np.concatenate([b.spread(0, self._n * _KEPT) for b in blocks])
        return Frames(
            *(np.concatenate(c) for c in columns), *_named(counts.reshape(len(counts), self._n, _KEPT))
        )

    def series(self, node: int, start: int = 0) -> Series:
        """The same of one node (its row) only: cheap for a long run of a large design."""
        blocks = self._since(start)
        first = node * _KEPT
        counts = np.concatenate([b.spread(first, first + _KEPT) for b in blocks])
        return Series(
            np.concatenate([b.index for b in blocks]),
            np.concatenate([b.system["t"] for b in blocks]),
            np.concatenate([b.nodes[:, node] for b in blocks]),
            *_named(counts),
        )


def _named(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calls, failed and began out of the kept columns (the last axis)."""
    failed = counts[..., 2:_COUNTS]
    calls = np.concatenate([counts[..., :2], failed.sum(axis=-1, keepdims=True)], axis=-1)
    return calls, failed, counts[..., _COUNTS:]
