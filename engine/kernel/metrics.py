"""What is measured from single calls: histograms, time integrals, windows, frames and marks."""

from __future__ import annotations

import math

import numpy as np

from engine.kernel.memory import (
    bits,
    call,
    cnt,
    copy_record,
    edge,
    fedge,
    fnode,
    frame,
    freason,
    hist,
    inlined,
    kernel,
    mark,
    node,
    set_cnt,
    set_hist,
    set_ugrid,
    set_whist,
    set_woct,
    tallies,
    ugrid,
    whist,
    woct,
)
from engine.program import layout as L

H_BASE = (1023 + L.H_MIN_EXP) << 6
H_LOW = 2.0**L.H_MIN_EXP
H_LAST = L.H_SIZE - 1


@inlined
def bucket(v):
    """The histogram bucket of a duration in seconds."""
    if v < H_LOW:
        return np.int64(0)
    b = (bits(v) >> 46) - H_BASE + 1
    return b if b < H_LAST else np.int64(H_LAST)


@kernel
def bucket_value(b):
    """The middle of a bucket, in seconds."""
    if b <= 0:
        return 0.0
    octave = (b - 1) >> 6
    part = (b - 1) & 63
    return math.ldexp(1.0 + (part + 0.5) / 64.0, np.int32(octave + L.H_MIN_EXP))


@inlined
def tally(w, i, counted, k):
    """Adds one to counter k of node i; `counted` says which side of the warm-up the call arrived on."""
    at = np.int64(i) * L.TALLY + counted * L.CNT + k
    set_cnt(w, at, cnt(w, at) + 1)


@inlined
def observe(w, i, v, counted):
    """A sojourn (for a source: a success's latency) into the run's and the window's histogram."""
    b = bucket(v)
    n = node(w, i)
    if counted:
        at = 2 * i * L.H_SIZE + b
        set_hist(w, at, hist(w, at) + 1)
        n.soj_sum += v
    at = i * L.H_SIZE + b
    set_whist(w, at, whist(w, at) + 1)
    at = i * (L.H_OCTAVES + 1) + ((b + 63) >> 6)
    set_woct(w, at, woct(w, at) | (np.int64(1) << ((b + 63) & 63)))
    n.w_n += 1


@inlined
def observe_wait(w, i, v):
    n = node(w, i)
    n.wait_sum += v
    at = (2 * i + 1) * L.H_SIZE + bucket(v)
    set_hist(w, at, hist(w, at) + 1)


@inlined
def touch(w, n):
    """Brings the integral of busy slots up to now; called before their number changes."""
    dt = w.now - n.busy_last
    if dt > 0.0:
        n.busy_int += (n.busy - n.drain_busy) * dt
        n.busy_last = w.now


@inlined
def touch_queue(w, n):
    """The same for the number of waiting calls."""
    dt = w.now - n.queue_last
    if dt > 0.0:
        n.queue_int += n.qlen * dt
        n.queue_last = w.now


@kernel
def cpu_touch(w, n):
    """Brings the shared CPU up to now: virtual time, its integrals, and the 5 s history kept for overload."""
    dt = w.now - n.cpu_last
    if dt <= 0.0:
        return
    cores = n.vcpu * (n.live + n.draining)
    share = 0.0
    if n.cpu_n > 0 and cores > 0.0:
        run = n.cpu_n if n.cpu_n < cores else cores
        n.cpu_v += dt * run / n.cpu_n
        n.cpu_int += run * dt
        share = run / cores
    n.cpu_cap_int += cores * dt
    if n.hazard_runs:
        first = n.u_next
        if w.now - first > L.UGRID * L.UCELL:  # a long quiet stretch: only the last window matters
            first += math.floor((w.now - first) / L.UCELL - L.UGRID + 1) * L.UCELL
        while first <= w.now:
            k = np.int64(math.floor(first / L.UCELL + 0.5)) & (L.UGRID - 1)
            set_ugrid(w, n.ugrid_off + k, n.u_total + share * max(0.0, first - n.cpu_last))
            first += L.UCELL
        n.u_next = first
        n.u_total += share * dt
    n.cpu_last = w.now


@kernel
def touch_all(w, n):
    """All time integrals of a node, its capacity's and its CPU's too."""
    touch(w, n)
    touch_queue(w, n)
    dt = w.now - n.cap_last
    if dt > 0.0:
        n.cap_int += np.float64(n.slots) * n.live * dt
        n.cap_last = w.now
    if n.vcpu > 0.0:
        cpu_touch(w, n)


@kernel
def cpu_history(w, n, t):
    """The integral of the CPU busy share up to time t, at most a window ago."""
    if t <= 0.0:
        return 0.0
    x = t / L.UCELL
    k = np.int64(math.floor(x))
    a = ugrid(w, n.ugrid_off + (k & (L.UGRID - 1)))
    b = n.u_total
    if (k + 1) * L.UCELL < n.u_next - 0.5 * L.UCELL:
        b = ugrid(w, n.ugrid_off + ((k + 1) & (L.UGRID - 1)))
        return a + (b - a) * (x - k)
    span = w.now - k * L.UCELL
    return a + (b - a) * ((t - k * L.UCELL) / span) if span > 0.0 else b


@kernel
def close_window(w, i, n):
    """Percentiles of the second that has passed, then an empty window. NaN where there was no sample."""
    total = np.int64(n.w_n)
    n.w50 = np.nan
    n.w95 = np.nan
    n.w99 = np.nan
    if total == 0:
        return
    n.w_n = 0
    r50 = (total * 50 + 99) // 100
    r95 = (total * 95 + 99) // 100
    r99 = (total * 99 + 99) // 100
    off = i * (L.H_OCTAVES + 1)
    at = i * L.H_SIZE
    seen = np.int64(0)
    o = np.int64(0)
    while seen < total:
        mask = woct(w, off + o)
        if mask != 0:
            set_woct(w, off + o, 0)
            while mask != 0:
                low = mask & -mask
                mask ^= low
                b = ((bits(np.float64(low)) >> 52) & 2047) - 1023 + o * 64 - 63
                m = np.int64(whist(w, at + b))
                set_whist(w, at + b, 0)
                upto = seen + m
                if (
                    (seen < r50 and upto >= r50)
                    or (seen < r95 and upto >= r95)
                    or (seen < r99 and upto >= r99)
                ):
                    v = bucket_value(b)
                    if seen < r50 and upto >= r50:
                        n.w50 = v
                    if seen < r95 and upto >= r95:
                        n.w95 = v
                    if seen < r99 and upto >= r99:
                        n.w99 = v
                seen = upto
        o += 1


@kernel
def oldest(w, n):
    """When the oldest message that waits (not out for delivery) came, or -1."""
    m = np.int64(n.age_head)
    while m >= 0:
        a = call(w, m)
        if a.kid_head < 0:
            return a.t_arr
        m = np.int64(a.sib_next)
    return -1.0


@kernel
def take_frame(w):
    """Records a frame at `now` into the buffer."""
    k = w.frame_n
    w.frame_n = k + 1
    whole = w.frame_i % 10 == 9
    w.frame_i += 1
    f = frame(w, k)
    f.t = w.now
    f.events = w.events
    for i in range(w.nodes):
        n = node(w, i)
        touch_all(w, n)
        if whole:
            close_window(w, i, n)
        q = fnode(w, k * w.nodes + i)
        r = freason(w, k * w.nodes + i)
        copy_record(r, tallies(w, i))
        q.retries = n.retries_sent
        q.crashes = n.crashes
        q.backlog = n.backlog
        q.abandoned = n.abandoned
        q.busy_int = n.busy_int
        q.cap_int = n.cap_int
        q.cpu_int = n.cpu_int
        q.cpu_cap_int = n.cpu_cap_int
        q.queue_int = n.queue_int
        q.p50 = n.w50
        q.p95 = n.w95
        q.p99 = n.w99
        since = oldest(w, n) if n.backlog > 0 else -1.0
        q.age = np.float32(w.now - since) if since >= 0.0 else np.float32(np.nan)
        q.in_flight = n.in_flight
        q.busy = n.busy - n.drain_busy
        q.queue = n.qlen
        q.live = n.live
        q.breaker = n.br_state
        q.samples = n.w_n
    f.in_flight = w.open_requests
    for x in range(w.edges):
        e = edge(w, x)
        g = fedge(w, k * w.edges + x)
        g.sent = e.sent
        g.failed = e.failed


@kernel
def take_mark(w):
    """Copies every node's record (integrals, counters) as it is now; the queue's maximum starts anew."""
    k = w.mark_i
    w.mark_i = k + 1
    for i in range(w.nodes):
        n = node(w, i)
        touch_all(w, n)
        n.age_t = oldest(w, n) if n.backlog > 0 else -1.0
        copy_record(mark(w, k * w.nodes + i), n)
        n.queue_max = n.qlen
