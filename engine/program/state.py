"""The state of a run: a fixed set of numpy arrays, copied as a whole for a checkpoint."""

from __future__ import annotations

import numpy as np

from engine.design.errors import DesignError
from engine.program import layout as L

# Arrays that never change after lowering are shared by copies.
SHARED = ("adj", "level", "zig", "when")
MAX_EVENTS = 30_000_000
MAX_CALLS = 6_000_000  # about 2 GB with the events they need


class State:
    """All arrays of a run by name; `sim` is the SIM record (shape (1,)) that ties them together.

    The kernel works on them in place. `bind` must come before each kernel call: it writes the arrays' addresses.
    """

    def __init__(self, sim: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
        self.sim = sim
        self.arrays = arrays
        self._bound: list[np.ndarray] = []

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None

    def bind(self) -> np.ndarray:
        """Writes the addresses of all arrays into the SIM record; returns it for the kernel."""
        arrays = list(self.arrays.values())
        if len(arrays) != len(self._bound) or any(
            a is not b for a, b in zip(arrays, self._bound, strict=True)
        ):
            record = self.sim[0]
            for name in L.POINTERS:
                record[name] = self.arrays[name].ctypes.data
            self._bound = arrays
        return self.sim

    def copy(self) -> State:
        """An independent copy: what the one goes through does not touch the other."""
        arrays = {k: v if k in SHARED else v.copy() for k, v in self.arrays.items()}
        return State(self.sim.copy(), arrays)

    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.arrays.values())

    # --- growing ---
    def grow(self) -> None:
        """Makes room where the kernel has asked for it (`need`), before it goes on."""
        w = self.sim[0]
        need, live, burst = int(w["need"]), int(w["calls_live"]), int(w["burst"])
        if need == L.G_CALLS:
            if live > MAX_CALLS:
                raise DesignError(
                    f"more than {MAX_CALLS:,} calls and messages are open at {w['now']:g} s; "
                    "give the slowest component slots and a queue, or send less traffic"
                )
            room = max(2 * int(w["calls_cap"]), live + 2 * burst + 64)
            self.arrays["call"] = _longer(self.call, room)
            w["calls_cap"] = room
            self._grow_heap(int(w["heap_n"]) + 4 * room + 2 * burst)
            self._grow_agenda(int(w["agenda_n"]) + 3 * room + 2 * burst)
        elif need == L.G_HEAP:
            self._grow_heap(int(w["heap_n"]) + 4 * int(w["calls_cap"]) + 2 * burst)
        elif need == L.G_AGENDA:
            self._grow_agenda(int(w["agenda_n"]) + 3 * int(w["calls_cap"]) + 2 * burst)
        elif need == L.G_LANE:
            self._grow_lane(int(w["need_id"]))
        elif need == L.G_FILLS:
            self._grow_fills()
        w["need"] = 0
        self.set_room()

    def set_room(self) -> None:
        """The counts below which a step needs no growing: a step can at most touch every open call twice."""
        w = self.sim[0]
        burst = int(w["burst"])
        w["live_soft"] = live = int(w["calls_cap"]) - burst - 8
        w["heap_soft"] = int(w["heap_cap"]) - 2 * live - burst
        w["agenda_soft"] = int(w["agenda_mask"]) + 1 - 2 * live - burst

    def _grow_heap(self, least: int) -> None:
        if least > len(self.heap):
            if self.sim[0]["heap_n"] > MAX_EVENTS:
                raise DesignError(
                    f"more than {MAX_EVENTS:,} events are planned at {self.sim[0]['now']:g} s; send less traffic"
                )
            self.arrays["heap"] = _longer(self.heap, max(least, 3 * len(self.heap) // 2))
            self.sim[0]["heap_cap"] = len(self.heap)

    def _grow_agenda(self, least: int) -> None:
        w = self.sim[0]
        if least <= len(self.agenda):
            return
        room = _power(least)
        order = (int(w["agenda_head"]) + np.arange(int(w["agenda_n"]))) & int(w["agenda_mask"])
        new = np.zeros(room, L.EVENT)
        new[: len(order)] = self.agenda[order]
        self.arrays["agenda"] = new
        w["agenda_head"] = 0
        w["agenda_mask"] = room - 1

    def _grow_lane(self, index: int) -> None:
        lane = self.lane[index]
        old, room = int(lane["mask"]) + 1, 2 * (int(lane["mask"]) + 1)
        order = int(lane["off"]) + ((int(lane["head"]) + np.arange(int(lane["n"]))) & (old - 1))
        start = len(self.item)
        self.arrays["item"] = _longer(self.item, start + room)
        self.item[start : start + len(order)] = self.item[order]
        lane["off"], lane["mask"], lane["head"] = start, room - 1, 0

    def _grow_fills(self) -> None:
        from engine.kernel.rng import mix

        old = self.fill[self.fill["call"] >= 0]
        room = 2 * len(self.fill)
        new = np.zeros(room, L.FILL)
        new["call"] = -1
        for entry in old:
            with np.errstate(over="ignore"):  # a hash wraps around
                at = int(np.int64(mix.py_func(entry["key"], entry["node"]))) & (room - 1)
            while new[at]["call"] >= 0:
                at = (at + 1) & (room - 1)
            new[at] = entry
        self.arrays["fill"] = new
        self.sim[0]["fill_mask"] = room - 1


def _longer(old: np.ndarray, room: int) -> np.ndarray:
    new = np.zeros(room, old.dtype)
    new[: len(old)] = old
    return new


def _power(n: int) -> int:
    return 1 << max(4, (int(n) - 1).bit_length())
