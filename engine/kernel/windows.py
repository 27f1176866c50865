"""Sliding windows: the circuit breaker's outcomes and the retry budget's attempts, in a thousand cells each."""

from __future__ import annotations

import numpy as np

from engine.kernel.memory import kernel, set_wheel, wheel
from engine.program import layout as L


@kernel
def breaker_roll(w, n):
    """Forgets outcomes older than the window."""
    cell = np.int64(w.now / n.window_s * L.CELLS)
    gone = cell - n.br_cell
    if gone <= 0:
        return
    if gone > L.CELLS:
        gone = np.int64(L.CELLS)
    for k in range(cell - gone + 1, cell + 1):
        at = n.breaker_off + 2 * (k % L.CELLS)
        n.br_fail -= wheel(w, at)
        n.br_total -= wheel(w, at + 1)
        set_wheel(w, at, 0)
        set_wheel(w, at + 1, 0)
    n.br_cell = cell


@kernel
def breaker_clear(w, n):
    for k in range(2 * L.CELLS):
        set_wheel(w, n.breaker_off + k, 0)
    n.br_fail = 0
    n.br_total = 0


@kernel
def breaker_trip(w, n):
    n.br_state = L.B_OPEN
    n.br_epoch += 1
    n.br_until = w.now + n.cooldown_s


@kernel
def breaker_outcome(w, n, epoch, ok):
    """An outcome of a primary edge, counted only in the state that let the call through."""
    if epoch != n.br_epoch:
        return
    if n.br_state == L.B_HALF:
        if not ok:
            breaker_trip(w, n)
        return
    if n.br_state != L.B_CLOSED:
        return
    breaker_roll(w, n)
    at = n.breaker_off + 2 * (n.br_cell % L.CELLS)
    set_wheel(w, at + 1, wheel(w, at + 1) + 1)
    n.br_total += 1
    if not ok:
        set_wheel(w, at, wheel(w, at) + 1)
        n.br_fail += 1
    if n.br_fail > 0 and n.br_total >= n.min_calls and n.br_fail >= n.failure_rate * n.br_total:
        breaker_trip(w, n)


@kernel
def visit_ended(w, n, ticket, ok, own):
    """A visit of a half-open breaker has ended: a success is a probe passed; one that was cancelled or crashed (`own`)
    makes room for another."""
    if n.br_state != L.B_HALF or ticket != n.br_epoch:
        return
    if ok:
        n.br_ok += 1
        if n.br_ok >= n.probes:
            n.br_state = L.B_CLOSED
            n.br_epoch += 1
            breaker_clear(w, n)
    elif own:
        n.br_let -= 1


@kernel
def let_through(w, i, n):
    """The epoch under which a call may pass, or -1: the breaker is open."""
    if n.br_state == L.B_OPEN and w.now >= n.br_until:
        n.br_state = L.B_HALF
        n.br_epoch += 1
        n.br_let = 0
        n.br_ok = 0
    if n.br_state == L.B_CLOSED:
        return np.int64(n.br_epoch)
    if n.br_state == L.B_HALF and n.br_let < n.probes:
        n.br_let += 1
        return np.int64(n.br_epoch)
    return np.int64(-1)


@kernel
def budget_roll(w, n):
    cell = np.int64(w.now / L.BUDGET_WINDOW * L.CELLS)
    gone = cell - n.bu_cell
    if gone <= 0:
        return
    if gone > L.CELLS:
        gone = np.int64(L.CELLS)
    for k in range(cell - gone + 1, cell + 1):
        at = n.budget_off + 2 * (k % L.CELLS)
        n.bu_first -= wheel(w, at)
        n.bu_retry -= wheel(w, at + 1)
        set_wheel(w, at, 0)
        set_wheel(w, at + 1, 0)
    n.bu_cell = cell


@kernel
def budget_first(w, n):
    """A first attempt, for the retry budget."""
    budget_roll(w, n)
    at = n.budget_off + 2 * (n.bu_cell % L.CELLS)
    set_wheel(w, at, wheel(w, at) + 1)
    n.bu_first += 1


@kernel
def budget_allows(w, n):
    """Whether the budget has room for a retry; if so it is spent."""
    if n.budget <= 0.0:
        return True
    budget_roll(w, n)
    if n.bu_retry + 1 > n.budget * n.bu_first + 1e-9:
        return False
    at = n.budget_off + 2 * (n.bu_cell % L.CELLS) + 1
    set_wheel(w, at, wheel(w, at) + 1)
    n.bu_retry += 1
    return True
