"""The life of one call: sent, admitted, waiting, working, ended, answered, given up. Every kind goes through here."""

from __future__ import annotations

import math

import numpy as np

from engine.kernel import rng
from engine.kernel.events import NORMAL, TIMEOUT, lane_put, later, soon
from engine.kernel.memory import call, edge, fill, inlined, inst, kernel, level, node
from engine.kernel.metrics import cpu_touch, observe, observe_wait, tally, touch, touch_queue
from engine.kernel.windows import visit_ended
from engine.program import layout as L

ROOT = -2  # `parent` of a request; -1: nobody waits for this call


# --- records ---
@inlined
def alloc(w):
    """A call record off the free list; the caller of the kernel keeps enough of them."""
    c = w.free
    if c >= 0:
        w.free = np.int64(call(w, c).q_next)
    else:
        c = w.calls_high
        w.calls_high = c + 1
    w.calls_live += 1
    a = call(w, c)
    a.kid_head = -1
    a.kid_tail = -1
    a.q_prev = -1
    a.q_next = -1
    a.epoch = -1
    a.ticket = -2
    a.fill = 0
    a.pulled = 0
    a.ok = 0
    return c


@inlined
def release(w, c):
    a = call(w, c)
    a.gen += 1
    a.state = L.S_FREE
    a.q_next = w.free
    w.free = c
    w.calls_live -= 1


@inlined
def adopt(w, p, c):
    """Makes c the youngest open attempt of p."""
    a = call(w, c)
    b = call(w, p)
    a.parent = p
    a.sib_prev = b.kid_tail
    a.sib_next = -1
    if b.kid_tail >= 0:
        call(w, b.kid_tail).sib_next = c
    else:
        b.kid_head = c
    b.kid_tail = c


@inlined
def detach(w, c):
    """Takes c from its caller, who no longer waits for it."""
    a = call(w, c)
    b = call(w, a.parent)
    if a.sib_prev >= 0:
        call(w, a.sib_prev).sib_next = a.sib_next
    else:
        b.kid_head = a.sib_next
    if a.sib_next >= 0:
        call(w, a.sib_next).sib_prev = a.sib_prev
    else:
        b.kid_tail = a.sib_prev
    a.parent = -1
    if a.state != L.S_BACKOFF and a.state != L.S_REFUSED:
        edge(w, a.edge).open -= 1


# --- sending ---
@inlined
def inherit(w, c, p, x):
    """A new call over edge x on behalf of p: node, class, key, priority, depth."""
    a = call(w, c)
    b = call(w, p)
    a.node = edge(w, x).dst
    a.edge = x
    a.base = x
    a.key = b.key
    a.cls = b.cls
    a.prio = b.prio
    a.src = b.src
    a.depth = b.depth + 1
    a.state = L.S_TRAVEL


@inlined
def travel(w, c, x, kind):
    """The call (or its answer) sets out over edge x."""
    e = edge(w, x)
    gen = call(w, c).gen
    d = e.latency_s + e.extra_s
    if d > 0.0:
        lane_put(w, np.int64(e.lane_lat), w.now + d, NORMAL, kind, c, gen)
    else:
        soon(w, kind, c, gen)


@inlined
def send(w, p, x, base, attempt):
    """One attempt of p over edge x. Returns the call."""
    c = alloc(w)
    inherit(w, c, p, x)
    a = call(w, c)
    a.base = base
    a.attempt = attempt
    adopt(w, p, c)
    e = edge(w, x)
    e.open += 1
    e.sent += 1
    if e.timeout_s > 0.0:
        lane_put(w, np.int64(e.lane_to), w.now + e.timeout_s + L.SLACK, TIMEOUT, L.E_TIMEOUT, c, a.gen)
    travel(w, c, x, L.E_DELIVER)
    return c


@kernel
def send_async(w, p, x):
    """A call nobody waits for."""
    c = alloc(w)
    inherit(w, c, p, x)
    call(w, c).parent = -1
    w.spent += 1
    edge(w, x).sent += 1
    travel(w, c, x, L.E_DELIVER)


@kernel
def refused(w, p, x, attempt, reason):
    """Stands for a call that p's own component refused: answered at once with its own reason."""
    c = alloc(w)
    a = call(w, c)
    a.node = call(w, p).node
    a.edge = x
    a.base = x
    a.attempt = attempt
    a.state = L.S_REFUSED
    a.reason = reason
    a.origin = a.node
    adopt(w, p, c)
    soon(w, L.E_ANSWER, c, a.gen)


# --- capacity ---
@inlined
def pick_instance(w, n):
    """The live instance with the fewest busy slots that has one free, lowest index on ties; -1: none."""
    if n.inst_cap == 1:
        s = inst(w, n.inst_off)
        if s.state != L.I_LIVE or (n.slots > 0 and s.busy >= n.slots):
            return np.int64(-1)
        return np.int64(0)
    best = np.int64(-1)
    least = np.int64(1 << 40)
    for k in range(n.inst_cap):
        s = inst(w, n.inst_off + k)
        if s.state == L.I_LIVE and s.busy < least:
            best = k
            least = np.int64(s.busy)
            if least == 0:
                break
    if best >= 0 and n.slots > 0 and least >= n.slots:
        return np.int64(-1)
    return best


@kernel
def cpu_plan(w, i, n):
    """Schedules the next completion of CPU work; a later one is found when the earlier event fires."""
    if n.cpu_n == 0:
        n.cpu_v = 0.0
        return
    cores = n.vcpu * (n.live + n.draining)
    if cores <= 0.0:
        return
    rate = 1.0 if n.cpu_n <= cores else cores / n.cpu_n
    t = w.now + max(0.0, call(w, n.cpu_head).vt - n.cpu_v) / rate
    if t < n.cpu_t:
        n.cpu_gen += 1
        n.cpu_t = t
        later(w, t, L.E_CPU, i, n.cpu_gen)


@kernel
def cpu_join(w, i, n, c):
    cpu_touch(w, n)
    a = call(w, c)
    a.state = L.S_CPU
    a.vt = n.cpu_v + n.cpu_s
    after = np.int64(n.cpu_tail)
    while after >= 0 and call(w, after).vt > a.vt:  # only after cpu_ms was changed while running
        after = np.int64(call(w, after).q_prev)
    a.q_prev = after
    if after >= 0:
        a.q_next = call(w, after).q_next
        call(w, after).q_next = c
    else:
        a.q_next = n.cpu_head
        n.cpu_head = c
    if a.q_next >= 0:
        call(w, a.q_next).q_prev = c
    else:
        n.cpu_tail = c
    n.cpu_n += 1
    cpu_plan(w, i, n)


@kernel
def cpu_remove(w, n, c):
    a = call(w, c)
    if a.q_prev >= 0:
        call(w, a.q_prev).q_next = a.q_next
    else:
        n.cpu_head = a.q_next
    if a.q_next >= 0:
        call(w, a.q_next).q_prev = a.q_prev
    else:
        n.cpu_tail = a.q_prev
    a.q_prev = -1
    a.q_next = -1
    n.cpu_n -= 1


@kernel
def on_cpu(w, i):
    """The head of the shared CPU should be done: those that are go on without it."""
    n = node(w, i)
    n.cpu_t = math.inf
    cpu_touch(w, n)
    while n.cpu_n > 0:
        c = np.int64(n.cpu_head)
        a = call(w, c)
        if a.vt > n.cpu_v + 1e-9:
            break
        cpu_remove(w, n, c)
        a.state = L.S_WORK
        if a.rest > 0.0:
            later(w, w.now + a.rest, L.E_WORKED, c, a.gen)
        else:
            soon(w, L.E_WORKED, c, a.gen)
    cpu_plan(w, i, n)


@inlined
def begin(w, c, k):
    """A slot is free: the call starts on instance k and draws its own time."""
    a = call(w, c)
    i = np.int64(a.node)
    n = node(w, i)
    touch(w, n)
    a.inst = k
    inst(w, n.inst_off + k).busy += 1
    n.busy += 1
    a.t_start = w.now
    if a.counted:
        observe_wait(w, i, w.now - a.t_arr)
    own = n.p50_s
    if n.latency == L.L_EXPONENTIAL:
        own = n.mu * rng.exponential(w, 3 * i)
    elif n.latency == L.L_LOGNORMAL and n.sigma > 0.0:
        own = math.exp(n.mu + n.sigma * rng.normal(w, 3 * i))
    if own < n.cpu_s:
        own = n.cpu_s
    own *= n.slow
    if n.cpu_s > 0.0:
        a.rest = own - n.cpu_s
        cpu_join(w, i, n, c)
        return
    a.state = L.S_WORK
    if own <= 0.0:
        soon(w, L.E_WORKED, c, a.gen)
    elif n.latency == L.L_CONSTANT:
        lane_put(w, np.int64(n.lane_work), w.now + own, NORMAL, L.E_WORKED, c, a.gen)
    else:
        later(w, w.now + own, L.E_WORKED, c, a.gen)


@kernel
def unqueue(w, n, c):
    """Takes a waiting call out of its component's queue."""
    touch_queue(w, n)
    a = call(w, c)
    if a.q_prev >= 0:
        call(w, a.q_prev).q_next = a.q_next
    else:
        n.q_head = a.q_next
    if a.q_next >= 0:
        call(w, a.q_next).q_prev = a.q_prev
    else:
        n.q_tail = a.q_prev
    a.q_prev = -1
    a.q_next = -1
    n.qlen -= 1


@inlined
def serve_waiting(w, i):
    """Starts waiting calls while there are free slots; with none left waiting, asks the queues that feed it."""
    n = node(w, i)
    while n.qlen > 0:
        k = pick_instance(w, n)
        if k < 0:
            return
        c = np.int64(n.q_head)
        unqueue(w, n, c)
        begin(w, c, k)
    if n.feed_n > 0:
        soon(w, L.E_PULL, i, 0)


# --- admission ---
@kernel
def take_quota(w, n):
    """Whether a call passes the component's quota (requests per minute, a token bucket)."""
    if n.quota_zero > 0:
        return False
    if n.quota > 0.0:
        n.tokens = min(n.quota_burst, n.tokens + (w.now - n.tokens_t) * n.quota * n.quota_factor)
        n.tokens_t = w.now
        if n.tokens < 1.0 - 1e-9:
            return False
        n.tokens -= 1.0
    return True


@inlined
def refusal(w, n, a):
    """Why a call is not let in, or -1. The order of the checks is part of the rules."""
    if a.depth > L.MAX_DEPTH:
        return L.R_TOO_DEEP
    if n.live == 0:
        return L.R_UNAVAILABLE
    if (n.quota > 0.0 or n.quota_zero > 0) and not take_quota(w, n):
        return L.R_THROTTLED
    if n.limit > 0.0:
        n.ltokens = min(n.limit_burst, n.ltokens + (w.now - n.ltokens_t) * n.limit)
        n.ltokens_t = w.now
        if n.ltokens < 1.0 - 1e-9:
            return L.R_RATE_LIMITED
        n.ltokens -= 1.0
    if n.level_n > 0:
        p = min(np.int64(a.prio), np.int64(n.level_n - 1))
        if n.in_flight - 1 >= level(w, n.level_off + p):
            return L.R_SHED
    return -1


@inlined
def deliver(w, c):
    """The call arrives at its component."""
    a = call(w, c)
    i = np.int64(a.node)
    n = node(w, i)
    pulled = a.pulled != 0
    if pulled:
        a.pulled = 0
        n.reserved -= 1
    if edge(w, a.edge).cut > 0:
        if pulled:
            soon(w, L.E_PULL, i, 0)
        if a.parent >= 0:
            a.state = L.S_LOST
        else:
            release(w, c)
        return
    a.t_arr = w.now
    a.counted = w.now >= w.warmup and w.now <= w.duration + L.SLACK
    a.admitted = 0
    n.in_flight += 1
    tally(w, i, a.counted, 0)
    why = refusal(w, n, a)
    if why < 0:
        k = pick_instance(w, n)
        if k >= 0 and n.qlen == 0:
            a.admitted = 1
            begin(w, c, k)
            return
        if n.qlen < n.queue:
            a.admitted = 1
            touch_queue(w, n)
            a.state = L.S_WAITING
            a.q_prev = n.q_tail
            a.q_next = -1
            if n.q_tail >= 0:
                call(w, n.q_tail).q_next = c
            else:
                n.q_head = c
            n.q_tail = c
            n.qlen += 1
            if n.qlen > n.queue_max:
                n.queue_max = n.qlen
            return
        why = L.R_FULL if n.bulkhead else L.R_REJECTED
    a.reason = why
    a.origin = i
    ended(w, c)
    if pulled:  # the slot kept for it is still free
        soon(w, L.E_PULL, i, 0)


# --- the end ---
@kernel
def fill_slot(w, i, key):
    """Where the fill of (component, key) stands in the table, or where it would go."""
    at = np.int64(rng.mix(key, i)) & w.fill_mask
    while True:
        f = fill(w, at)
        if f.call < 0 or (f.key == key and f.node == i):
            return at
        at = (at + 1) & w.fill_mask


@kernel
def fill_forget(w, i, key):
    """Removes an entry, moving later ones of its run back (linear probing without tombstones)."""
    hole = fill_slot(w, i, key)
    w.fill_n -= 1
    at = hole
    while True:
        at = (at + 1) & w.fill_mask
        f = fill(w, at)
        if f.call < 0:
            break
        home = np.int64(rng.mix(f.key, np.int64(f.node))) & w.fill_mask
        if ((at - home) & w.fill_mask) >= ((at - hole) & w.fill_mask):
            g = fill(w, hole)
            g.key = f.key
            g.node = f.node
            g.call = f.call
            hole = at
    fill(w, hole).call = -1


@kernel
def filled(w, c):
    """A cache fill has ended: those that waited for it end as it did."""
    a = call(w, c)
    fill_forget(w, np.int64(a.node), a.key)
    m = np.int64(a.q_next)
    while m >= 0:
        b = call(w, m)
        nxt = np.int64(b.q_next)
        b.q_prev = -1
        b.q_next = -1
        b.fill = 0
        b.left = -1
        b.ok = a.ok
        b.reason = a.reason
        b.origin = a.origin
        soon(w, L.E_FILLED, m, b.gen)
        m = nxt
    a.q_next = -1


@inlined
def ended(w, c):
    """Counts an ended call (outcome in its record) and sends its answer back."""
    a = call(w, c)
    i = np.int64(a.node)
    node(w, i).in_flight -= 1
    if a.ok:
        tally(w, i, a.counted, 1)
    else:
        tally(w, i, a.counted, 2 + a.reason)
    if a.admitted:
        observe(w, i, w.now - a.t_arr, a.counted)
    if a.fill == 1:
        filled(w, c)
    if a.parent >= 0:
        a.state = L.S_ANSWER
        travel(w, c, np.int64(a.edge), L.E_ANSWER)
    else:
        release(w, c)


@kernel
def abandon(w, c):
    """Nobody waits for c any longer (it is detached); what follows is its own component's choice."""
    a = call(w, c)
    s = a.state
    n = node(w, a.node)
    if s == L.S_TRAVEL:
        if n.cancel:
            if a.pulled:
                n.reserved -= 1
                soon(w, L.E_PULL, np.int64(a.node), 0)
            release(w, c)
        else:
            n.abandoned += 1
    elif s == L.S_WAITING:
        if n.cancel:
            unqueue(w, n, c)
            a.reason = L.R_CANCELLED
            a.origin = a.node
            ended(w, c)
        else:
            n.abandoned += 1
    elif s >= L.S_CPU and s <= L.S_FILL:
        if n.cancel:
            a.gen += 1  # what it had planned for itself, this instant included, does not happen any more
            soon(w, L.E_GIVE_UP, c, a.gen)
        else:
            n.abandoned += 1
    else:
        release(w, c)


@kernel
def give_up_kids(w, p):
    """p gives up its open calls, oldest first."""
    b = call(w, p)
    while b.kid_head >= 0:
        c = np.int64(b.kid_head)
        detach(w, c)
        abandon(w, c)


@inlined
def end_call(w, c, ok, reason, origin):
    """A started call ends: open calls given up, slot freed, the oldest waiting call started, answer sent."""
    a = call(w, c)
    i = np.int64(a.node)
    n = node(w, i)
    if a.kid_head >= 0:
        give_up_kids(w, c)
    if a.state == L.S_CPU:
        cpu_touch(w, n)
        cpu_remove(w, n, c)
        cpu_plan(w, i, n)
    elif a.state == L.S_FILL:
        if a.q_prev >= 0:
            call(w, a.q_prev).q_next = a.q_next
        if a.q_next >= 0:
            call(w, a.q_next).q_prev = a.q_prev
        elif a.left >= 0:
            call(w, a.left).q_prev = a.q_prev
        a.q_prev = -1
        a.q_next = -1
    touch(w, n)
    n.busy -= 1
    s = inst(w, n.inst_off + a.inst)
    s.busy -= 1
    if s.state == L.I_DRAINING:
        n.drain_busy -= 1
        if s.busy == 0:
            cpu_touch(w, n)
            s.state = L.I_OFF
            n.draining -= 1
    if n.plan == L.P_BREAKER and a.ticket >= 0:
        visit_ended(
            w, n, np.int64(a.ticket), ok, reason == L.R_CANCELLED or (reason == L.R_CRASHED and origin == i)
        )
    a.ok = ok
    a.reason = reason
    a.origin = origin
    if n.qlen > 0 or n.feed_n > 0:
        serve_waiting(w, i)
    ended(w, c)


@kernel
def deepest(w, c):
    """Where the deepest open call of an attempt is: the node a timeout is charged to."""
    while True:
        a = call(w, c)
        if a.state != L.S_CALLING and a.state != L.S_MESSAGE:
            return np.int64(a.node)
        k = np.int64(a.kid_head)
        while k >= 0 and (call(w, k).state == L.S_BACKOFF or call(w, k).state == L.S_REFUSED):
            k = np.int64(call(w, k).sib_next)
        if k < 0:
            return np.int64(a.node)
        c = k
