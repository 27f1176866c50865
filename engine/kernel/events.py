"""The order of events: a binary heap, first-in-first-out lanes for constant delays, an agenda for what follows at once.

An event is (time, key, id, generation); the key holds the class (faults, normal, timeouts), a sequence number and
the kind, so that events of one instant come in the documented order. A lane's entries are in time order by
construction and only its head stands in the heap; entries whose call has ended meanwhile (most timeouts) are skipped
when they reach the head and never cost a heap operation.
"""

from __future__ import annotations

import numpy as np

from engine.kernel.memory import agenda, call, event, inlined, item, kernel, lane
from engine.program import layout as L

KIND = 63
NORMAL = L.C_NORMAL << 60
TIMEOUT = L.C_TIMEOUT << 60


@inlined
def heap_put(w, t, key, ident, gen):
    i = w.heap_n
    w.heap_n = i + 1
    while i > 0:
        p = (i - 1) >> 1
        e = event(w, p)
        if t > e.t or (t == e.t and key > e.key):
            break
        d = event(w, i)
        d.t = e.t
        d.key = e.key
        d.id = e.id
        d.gen = e.gen
        i = p
    d = event(w, i)
    d.t = t
    d.key = key
    d.id = ident
    d.gen = gen


@inlined
def heap_fix(w, n, t, key, ident, gen):
    """Puts an event into the hole at the root of a heap of n entries."""
    i = np.int64(0)
    c = np.int64(1)
    while c < n:
        e = event(w, c)
        if c + 1 < n:
            f = event(w, c + 1)
            if f.t < e.t or (f.t == e.t and f.key < e.key):
                c += 1
                e = f
        if e.t > t or (e.t == t and e.key > key):
            break
        d = event(w, i)
        d.t = e.t
        d.key = e.key
        d.id = e.id
        d.gen = e.gen
        i = c
        c = 2 * i + 1
    d = event(w, i)
    d.t = t
    d.key = key
    d.id = ident
    d.gen = gen


@inlined
def heap_drop(w):
    """Takes the first event away."""
    n = w.heap_n - 1
    w.heap_n = n
    if n > 0:
        e = event(w, n)
        heap_fix(w, n, e.t, e.key, np.int64(e.id), np.int64(e.gen))


@inlined
def later(w, t, kind, ident, gen):
    """Schedules a normal event."""
    key = NORMAL | (w.seq << 6) | kind
    w.seq += 1
    heap_put(w, t, key, np.int64(ident), np.int64(gen))


@kernel
def schedule(w, t, cls, kind, ident, gen):
    key = (cls << 60) | (w.seq << 6) | kind
    w.seq += 1
    heap_put(w, t, key, np.int64(ident), np.int64(gen))


@inlined
def lane_put(w, ln, t, top, kind, ident, gen):
    """Schedules an event of constant delay; `top` is its class bits. Out of order or out of room: the heap."""
    key = top | (w.seq << 6) | kind
    w.seq += 1
    if ln < 0:
        heap_put(w, t, key, np.int64(ident), np.int64(gen))
        return
    q = lane(w, ln)
    n = q.n
    if n > 0:
        if n > q.mask:
            heap_put(w, t, key, np.int64(ident), np.int64(gen))
            w.need = L.G_LANE + 1
            w.need_id = ln
            return
        if t < item(w, q.off + ((q.head + n - 1) & q.mask)).t:
            heap_put(w, t, key, np.int64(ident), np.int64(gen))
            return
    e = item(w, q.off + ((q.head + n) & q.mask))
    e.t = t
    e.key = key
    e.id = ident
    e.gen = gen
    q.n = n + 1
    if n == 0:
        heap_put(w, t, (key & ~KIND) | L.E_LANE, np.int64(ln), np.int64(0))


@inlined
def lane_next(w, ln):
    """The lane's head has been taken: brings the next live entry into the heap's root, or empties the root."""
    q = lane(w, ln)
    h = (q.head + 1) & q.mask
    n = q.n - 1
    while n > 0:
        e = item(w, q.off + h)
        if call(w, e.id).gen == e.gen:
            break
        h = (h + 1) & q.mask
        n -= 1
    q.head = h
    q.n = n
    if n > 0:
        e = item(w, q.off + h)
        heap_fix(w, w.heap_n, e.t, (e.key & ~KIND) | L.E_LANE, np.int64(ln), np.int64(0))
    else:
        heap_drop(w)


@inlined
def soon(w, kind, ident, gen):
    """Schedules a normal event for this very instant: no heap is needed to keep these in order."""
    e = agenda(w, (w.agenda_head + w.agenda_n) & w.agenda_mask)
    w.agenda_n += 1
    e.key = NORMAL | (w.seq << 6) | kind
    w.seq += 1
    e.id = ident
    e.gen = gen
