"""Sources: when requests arrive, what they are, and what becomes of them.

An open-loop source has a rate(t) made of straight pieces. The next arrival is where the rate's integral has grown by
one exponential draw (or by exactly 1 for even arrivals): exact for every shape, and a change of the rate on the way
(a traffic fault) only re-solves the remaining exposure, without a new draw.
"""

from __future__ import annotations

import math

import numpy as np

from engine.kernel import rng
from engine.kernel.calls import ROOT, alloc, release, take_quota
from engine.kernel.events import NORMAL, TIMEOUT, lane_put, later, soon
from engine.kernel.memory import (
    adj,
    call,
    cnt,
    goal,
    hist,
    inlined,
    kernel,
    node,
    origin,
    segment,
    set_cnt,
    set_hist,
    set_origin,
    set_tick,
    source,
    tick,
)
from engine.kernel.metrics import bucket, observe, tally
from engine.program import layout as L


# --- when ---
@kernel
def solve(w, s, t, exposure):
    """When `exposure` is used up from time t on; inf if not before the source stops."""
    i = np.int64(s.seg_i)
    base = s.base
    at = t
    while at <= s.stop:
        if i >= s.seg_n:
            if s.period <= 0.0 or s.area <= 0.0:
                break
            i = 0
            base += s.period
            if exposure > s.area:  # whole periods at once, the last one piece by piece
                skip = math.floor(exposure / s.area * (1.0 - 1e-12))
                base += skip * s.period
                at += skip * s.period
                exposure -= skip * s.area
        g = segment(w, s.seg_off + i)
        end = g.t1 + base
        if at < end:
            lo = max(at, g.t0 + base)
            r = g.rate + g.slope * (lo - g.t0 - base)
            span = end - lo
            area = r * span + 0.5 * g.slope * span * span
            if area > 0.0 and area + L.SLACK >= exposure:
                exposure = min(exposure, area)
                if g.slope == 0.0:
                    return lo + exposure / r
                return lo + 2.0 * exposure / (r + math.sqrt(max(0.0, r * r + 2.0 * g.slope * exposure)))
            exposure -= area
            at = end
        i += 1
    return math.inf


@inlined
def settle_pointer(w, s, t):
    """Moves the segment pointer up to time t."""
    while True:
        if s.seg_i >= s.seg_n:
            if s.period <= 0.0:
                return
            s.seg_i = 0
            s.base += s.period * max(1.0, math.floor((t - segment(w, s.seg_off).t0 - s.base) / s.period))
        if segment(w, s.seg_off + s.seg_i).t1 + s.base > t:
            return
        s.seg_i += 1


@kernel
def consumed(w, s, t0, t1):
    """The integral of rate(t) over [t0, t1], from the pointer on (which is at or before t0)."""
    i = np.int64(s.seg_i)
    base = s.base
    total = 0.0
    while True:
        if i >= s.seg_n:
            if s.period <= 0.0:
                break
            i = 0
            base += s.period
            first = segment(w, s.seg_off).t0 + base
            skip = math.floor((t1 - first) / s.period)
            if skip >= 1.0 and first >= t0:
                base += skip * s.period
                total += skip * s.area
        g = segment(w, s.seg_off + i)
        a = max(t0, g.t0 + base)
        b = min(t1, g.t1 + base)
        if g.t0 + base >= t1:
            break
        if b > a:
            total += (b - a) * (g.rate + g.slope * (0.5 * (a + b) - g.t0 - base))
        i += 1
    return total


@kernel
def first_arrival(w):
    """Finds the first of the sources' next arrivals."""
    w.arrival_t = math.inf
    for k in range(w.sources):
        s = source(w, k)
        if s.next_t < w.arrival_t or (s.next_t == w.arrival_t and s.next_key < w.arrival_key):
            w.arrival_t = s.next_t
            w.arrival_key = s.next_key
            w.arrival_src = k


@inlined
def arrive_at(w, k, s, t):
    """Source k's next arrival is at t; after its stop, never."""
    if t > w.now or s.next_t != w.now:  # all of one batch arrive before what follows from the first
        s.next_key = NORMAL | (w.seq << 6) | L.E_ARRIVE
        w.seq += 1
    s.next_t = min(t, s.stop) if t <= s.stop + L.SLACK else math.inf
    if w.sources == 1:
        w.arrival_t = s.next_t
        w.arrival_key = s.next_key
    else:
        first_arrival(w)


@kernel
def plan_arrival(w, k, s):
    """Schedules the arrival that the remaining exposure leads to."""
    t = math.inf
    if s.gap_now > 0.0:
        t = s.from_t + s.left * s.gap_now
        s.anchor = t
        s.ticks = 0
    elif s.factor > 0.0:
        settle_pointer(w, s, s.from_t)
        t = solve(w, s, s.from_t, s.left / s.factor)
    arrive_at(w, k, s, t)


@kernel
def pause_exposure(w, s):
    """Takes what has run since `from_t` off the remaining exposure, before the rate changes."""
    if s.mode == L.T_OPEN and w.now > s.from_t:
        s.left = max(0.0, s.left - s.factor * consumed(w, s, s.from_t, w.now))
        s.from_t = w.now


@kernel
def next_arrival(w, k, s):
    """Schedules what comes after the arrival at `now` (or the first one)."""
    st = 3 * np.int64(s.node) + 1
    if s.mode == L.T_OPEN:
        s.left = 1.0 if s.even else rng.exponential(w, st)
        s.from_t = max(w.now, s.start)
        if s.even and s.gap_now > 0.0 and s.next_key > 0:
            s.ticks += 1
            arrive_at(w, k, s, s.anchor + s.ticks * s.gap_now)
            return
        plan_arrival(w, k, s)
        return
    t = math.inf
    if s.mode == L.T_HERD:
        if s.done < s.count:
            if s.even:
                t = s.at + s.spread * s.done / s.count
            else:
                s.base = s.spread if s.done == 0 else s.base
                s.base *= rng.uniform(w, st) ** (1.0 / (s.count - s.done))
                t = s.at + s.spread - s.base
            s.done += 1
    elif s.mode == L.T_BATCH and s.count > 0:
        turn = s.done // s.count
        t = s.start + turn * s.every
        if turn > 0 and s.every <= 0.0:
            t = math.inf
        s.done += 1
    arrive_at(w, k, s, max(t, w.now))


@kernel
def start_source(w, k):
    s = source(w, k)
    if s.mode == L.T_USERS:
        for _ in range(s.users):
            think(w, k, s, s.start)
    else:
        next_arrival(w, k, s)


@kernel
def think(w, k, s, t):
    """A user thinks from time t on, then asks again."""
    pause = s.think * rng.exponential(w, 3 * np.int64(s.node) + 1)
    if s.think <= 0.0 and s.asked_at == w.now:
        pause = L.LEAST_PAUSE
    t += pause
    if t <= s.stop:
        later(w, t, L.E_USER, k, s.gen)


# --- requests ---
@inlined
def new_request(w, k, s):
    """A request begins. Returns it to advance, or -1."""
    i = np.int64(s.node)
    n = node(w, i)
    st = 3 * i + 2
    write = s.write_share > 0.0 and rng.uniform(w, st) < s.write_share
    key = rng.zipf(w, st, s.keys, s.zipf) if s.keys > 0 else np.int64(-1)
    s.asked_at = w.now
    if n.live == 0:
        if s.mode == L.T_USERS:
            think(w, k, s, w.now)
        return np.int64(-1)
    c = alloc(w)
    a = call(w, c)
    a.node = i
    a.edge = -1
    a.base = -1
    a.parent = ROOT
    a.depth = 0
    a.cls = 1 if write else 0
    a.key = key
    a.prio = s.prio
    a.src = k
    a.t_arr = w.now
    a.t_start = w.now
    a.admitted = 1
    a.counted = w.now >= w.warmup
    a.tries = 0
    a.state = L.S_CALLING
    n.in_flight += 1
    w.open_requests += 1
    tally(w, i, a.counted, 0)
    if n.quota_zero > 0 or n.quota > 0.0:
        if not take_quota(w, n):
            request_ended(w, c, 0, L.R_THROTTLED, i)
            return np.int64(-1)
    if n.keep < 1.0 and rng.uniform(w, 3 * i) >= n.keep:
        request_ended(w, c, 0, L.R_ERROR, i)
        return np.int64(-1)
    return start_attempt(w, c)


@inlined
def start_attempt(w, c):
    """One attempt at the whole request; the source's patience begins."""
    a = call(w, c)
    n = node(w, a.node)
    a.state = L.S_CALLING
    a.tries += 1
    a.pos = 0
    a.left = -1
    a.phase = 0
    if n.timeout_s > 0.0:
        lane_put(w, np.int64(n.lane_to), w.now + n.timeout_s + L.SLACK, TIMEOUT, L.E_TIMEOUT, c, a.gen)
    return c


@inlined
def request_ended(w, c, ok, reason, where):
    """The final outcome of a request."""
    a = call(w, c)
    i = np.int64(a.node)
    n = node(w, i)
    k = np.int64(n.src)
    s = source(w, k)
    took = w.now - a.t_arr
    n.in_flight -= 1
    w.open_requests -= 1
    if ok:
        tally(w, i, a.counted, 1)
        observe(w, i, took, a.counted)
    else:
        tally(w, i, a.counted, 2 + reason)
        at = np.int64(where) * L.TALLY + L.BEGAN + reason
        set_cnt(w, at, cnt(w, at) + 1)
        if a.counted:
            at = k * w.nodes + where
            set_origin(w, at, origin(w, at) + 1)
    for j in range(s.goal_n):
        g = goal(w, adj(w, s.goal_off + j))
        if a.t_arr >= g.from_t and a.t_arr <= g.to_t:
            fine = ok != 0 and (g.within <= 0.0 or took <= g.within)
            if fine:
                g.ok += 1
                at = g.hist * L.H_SIZE + bucket(took)
                set_hist(w, at, hist(w, at) + 1)
            else:
                g.bad += 1
            if g.tick_n > 0 and a.t_arr >= g.tick_t:
                at = np.int64(a.t_arr - g.tick_t)
                if at < g.tick_n:
                    at = 2 * (g.tick_off + at) + (0 if fine else 1)
                    set_tick(w, at, tick(w, at) + 1)
    release(w, c)
    if s.mode == L.T_USERS:
        think(w, k, s, w.now)


@inlined
def on_arrive(w, k):
    """An open-loop arrival. Returns a request to advance, or -1."""
    s = source(w, k)
    if s.mode == L.T_HERD or s.mode == L.T_BATCH:
        if w.now < s.start - L.SLACK:
            next_arrival(w, k, s)
            return np.int64(-1)
        # Under a traffic factor each request of a herd comes that many times, one event each.
        if s.extra < 0:
            s.extra = 1 if s.factor == 1.0 else rng.count(w, 3 * np.int64(s.node) + 1, s.factor)
        s.extra -= 1
        if s.extra < 0:
            next_arrival(w, k, s)
            return np.int64(-1)
        if s.extra > 0:
            arrive_at(w, k, s, w.now)
        else:
            s.extra = -1
            next_arrival(w, k, s)
    elif s.gap_now > 0.0 and s.mode == L.T_OPEN and not s.even:
        s.left = rng.exponential(w, 3 * np.int64(s.node) + 1)
        s.from_t = w.now
        arrive_at(w, k, s, w.now + s.left * s.gap_now)
    else:
        next_arrival(w, k, s)
    return new_request(w, k, s)


@kernel
def on_user(w, k, gen):
    s = source(w, k)
    if s.gen != gen or w.now > s.stop:
        return np.int64(-1)
    if s.people > s.wanted:
        s.people -= 1
        return np.int64(-1)
    return new_request(w, k, s)


@kernel
def on_spawn(w, k):
    """People join until as many take part as the traffic factor wants, some at a time so that there is room."""
    s = source(w, k)
    for _ in range(64):
        if s.people >= s.wanted:
            return
        s.people += 1
        think(w, k, s, max(w.now, s.start))
    soon(w, L.E_SPAWN, k, 0)
