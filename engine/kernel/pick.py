"""Which edge a component takes: what an edge is meant for, and the policies of one-of components and hedges."""

from __future__ import annotations

import math

import numpy as np

from engine.kernel import rng
from engine.kernel.memory import adj, edge, inlined, kernel
from engine.program import layout as L


@inlined
def wanted(e, a):
    """Whether an edge is meant for this class of request."""
    return e.only == L.ONLY_ANY or (e.only == L.ONLY_WRITE) == (a.cls == 1)


# --- one of ---
@kernel
def usable(w, n, j, a):
    x = adj(w, n.plan_off + j)
    e = edge(w, x)
    return e.out == 0 and wanted(e, a)


@kernel
def load(w, x):
    e = edge(w, x)
    return np.float64(e.open) / e.load_cap


@kernel
def nth_usable(w, n, a, k):
    """The k-th usable target, -1 where there are fewer."""
    for j in range(n.plan_n):
        if usable(w, n, j, a):
            if k == 0:
                return np.int64(adj(w, n.plan_off + j))
            k -= 1
    return np.int64(-1)


@kernel
def pick(w, i, n, a):
    """The target a one-of component chooses for this attempt, -1 where none is left."""
    m = np.int64(0)
    total = 0.0
    for j in range(n.plan_n):
        if usable(w, n, j, a):
            m += 1
            total += edge(w, adj(w, n.plan_off + j)).weight
    if m == 0:
        return np.int64(-1)
    s = 3 * i
    if n.policy == L.PO_ROUND:
        for _ in range(n.plan_n):
            j = np.int64(n.rr)
            n.rr = (n.rr + 1) % n.plan_n
            if usable(w, n, j, a):
                return np.int64(adj(w, n.plan_off + j))
    if n.policy == L.PO_LEAST:
        best = np.int64(-1)
        least = math.inf
        for j in range(n.plan_n):
            if usable(w, n, j, a):
                x = np.int64(adj(w, n.plan_off + j))
                if load(w, x) < least:
                    least = load(w, x)
                    best = x
        return best
    if n.policy == L.PO_TWO and m > 1:
        p = rng.below(w, s, m)
        q = rng.below(w, s, m - 1)
        if q >= p:
            q += 1
        x = nth_usable(w, n, a, min(p, q))
        y = nth_usable(w, n, a, max(p, q))
        return y if load(w, y) < load(w, x) else x
    if n.policy == L.PO_WEIGHT and total > 0.0:
        u = rng.uniform(w, s) * total
        last = np.int64(-1)
        for j in range(n.plan_n):
            if usable(w, n, j, a):
                x = np.int64(adj(w, n.plan_off + j))
                if edge(w, x).weight > 0.0:
                    last = x
                    u -= edge(w, x).weight
                    if u < 0.0:
                        break
        return last
    if n.policy == L.PO_KEY and a.key >= 0:
        best = np.int64(-1)
        top = np.uint64(0)
        for j in range(n.plan_n):
            if usable(w, n, j, a):
                h = rng.mix(a.key, j + 1)
                if best < 0 or h > top:
                    top = h
                    best = np.int64(adj(w, n.plan_off + j))
        return best
    return nth_usable(w, n, a, rng.below(w, s, m))


@kernel
def hedge_target(w, n, a, k):
    """The edge of copy k: the ordinary edges in file order, the last one again where there are no more."""
    found = np.int64(-1)
    for j in range(n.plan_n):
        x = np.int64(adj(w, n.plan_off + j))
        if wanted(edge(w, x), a):
            found = x
            if k == 0:
                return x
            k -= 1
    return found
