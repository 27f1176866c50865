"""Queues, streams and pub-sub: messages kept, pulled by consumers, delivered again, given to the dead-letter edge."""

from __future__ import annotations

import numpy as np

from engine.kernel import rng
from engine.kernel.calls import alloc, end_call, release, send, send_async
from engine.kernel.events import later, soon
from engine.kernel.memory import adj, call, edge, kernel, node, source, sub
from engine.program import layout as L


@kernel
def takes(w, x, m):
    """Whether edge x is meant for message m's class."""
    e = edge(w, x)
    return e.only == L.ONLY_ANY or (e.only == L.ONLY_WRITE) == (call(w, m).cls == 1)


@kernel
def can_pull(w, x):
    """Whether the consumer at the end of edge x would take a message now."""
    e = edge(w, x)
    if e.cut > 0:
        return False
    n = node(w, e.dst)
    if n.live == 0 or n.qlen > 0:
        return False
    return n.slots == 0 or n.busy - n.drain_busy + n.reserved < np.int64(n.slots) * n.live


@kernel
def put_message(w, i, n, c, x, place):
    """Stores one message for the call c; x: the subscription's edge, or -1."""
    m = alloc(w)
    b = call(w, m)
    a = call(w, c)
    b.node = i
    b.edge = x
    b.base = x
    b.parent = -1
    b.key = a.key
    b.cls = a.cls
    b.prio = a.prio
    b.src = a.src
    b.depth = a.depth
    b.counted = a.counted
    b.state = L.S_MESSAGE
    b.t_arr = w.now
    b.receives = 0
    part = np.int64(0)
    if n.partitions > 0:
        if a.key >= 0:
            part = np.int64(rng.mix(a.key, 7) % np.uint64(n.partitions))
        else:
            part = n.enqueued % n.partitions
    b.pos = n.sub_off + (place * max(np.int64(n.partitions), 1) + part) * n.classes
    if n.classes == 2:
        b.pos += a.cls
    b.sib_next = -1
    b.sib_prev = n.age_tail
    if n.age_tail >= 0:
        call(w, n.age_tail).sib_next = m
    else:
        n.age_head = m
    n.age_tail = m
    enqueue(w, n, m, False)


@kernel
def enqueue(w, n, m, first):
    """Puts a message at the tail (or, redelivered in a partition, at the head) of its list, and offers it."""
    b = call(w, m)
    s = sub(w, b.pos)
    n.backlog += 1
    if first:
        b.q_prev = -1
        b.q_next = s.head
        if s.head >= 0:
            call(w, s.head).q_prev = m
        else:
            s.tail = m
        s.head = m
    else:
        b.q_next = -1
        b.q_prev = s.tail
        if s.tail >= 0:
            call(w, s.tail).q_next = m
        else:
            s.head = m
        s.tail = m
    s.n += 1


@kernel
def hand_over(w, n, s, x):
    """Delivers the head of a list to the consumer of edge x."""
    m = np.int64(s.head)
    b = call(w, m)
    s.head = b.q_next
    if s.head >= 0:
        call(w, s.head).q_prev = -1
    else:
        s.tail = -1
    s.n -= 1
    b.q_next = -1
    n.backlog -= 1
    b.receives += 1
    b.t_start = w.now
    if n.partitions > 0:
        s.blocked = 1
    w.spent += 1
    node(w, edge(w, x).dst).reserved += 1
    c = send(w, m, x, x, 1)
    call(w, c).pulled = 1


@kernel
def offer(w, i, at):
    """Hands out what list `at` of queue i can give to consumers that are free, in turn."""
    n = node(w, i)
    if n.live == 0:
        return
    s = sub(w, at)
    while s.head >= 0 and s.blocked == 0:
        x = np.int64(-1)
        if n.copies:
            y = np.int64(call(w, s.head).edge)
            if can_pull(w, y):
                x = y
        else:
            for _ in range(n.plan_n):
                y = np.int64(adj(w, n.plan_off + n.rr))
                n.rr = (n.rr + 1) % n.plan_n
                if takes(w, y, np.int64(s.head)) and can_pull(w, y):
                    x = y
                    break
        if x < 0:
            return
        if 4 * w.spent > w.burst:  # the rest in a step of its own, so that the arrays may grow between
            soon(w, L.E_PULL, np.int64(edge(w, x).dst), 0)
            return
        hand_over(w, n, s, x)


@kernel
def accept_message(w, i, n, c):
    """The queue acknowledges: the message is kept (a copy for each subscription) and the producer is done."""
    if n.capacity > 0 and n.backlog >= n.capacity:
        end_call(w, c, 0, L.R_FULL, i)
        return
    if n.copies:
        for j in range(n.plan_n):
            x = np.int64(adj(w, n.plan_off + j))
            if takes(w, x, c):
                put_message(w, i, n, c, x, np.int64(j))
                offer(w, i, np.int64(call(w, n.age_tail).pos))
    else:
        put_message(w, i, n, c, np.int64(-1), np.int64(0))
        offer(w, i, np.int64(call(w, n.age_tail).pos))
    n.enqueued += 1
    end_call(w, c, 1, 0, i)


@kernel
def drop_message(w, n, m):
    b = call(w, m)
    if b.sib_prev >= 0:
        call(w, b.sib_prev).sib_next = b.sib_next
    else:
        n.age_head = b.sib_next
    if b.sib_next >= 0:
        call(w, b.sib_next).sib_prev = b.sib_prev
    else:
        n.age_tail = b.sib_prev
    release(w, m)


@kernel
def message_result(w, m, ok):
    """A delivery has ended or its visibility has run out."""
    b = call(w, m)
    i = np.int64(b.node)
    n = node(w, i)
    at = np.int64(b.pos)
    s = sub(w, at)
    if not ok and (n.max_receives == 0 or b.receives < n.max_receives):
        wait = n.redeliver_s
        if wait <= 0.0 and b.t_start == w.now:
            wait = L.LEAST_PAUSE
        if wait > 0.0:
            n.backlog += 1
            later(w, w.now + wait, L.E_REDELIVER, m, b.gen)
        else:
            s.blocked = 0
            enqueue(w, n, m, n.partitions > 0)
            offer(w, i, at)
        return
    if not ok:
        if n.dead_letter >= 0:
            send_async(w, m, np.int64(n.dead_letter))
        elif b.counted:
            n.lost += 1
            source(w, b.src).lost += 1
    drop_message(w, n, m)
    s.blocked = 0
    if n.partitions > 0:
        offer(w, i, at)


@kernel
def on_redeliver(w, m):
    """A failed message is visible again."""
    b = call(w, m)
    i = np.int64(b.node)
    n = node(w, i)
    n.backlog -= 1
    sub(w, b.pos).blocked = 0
    enqueue(w, n, m, n.partitions > 0)
    offer(w, i, np.int64(b.pos))


@kernel
def offer_all(w, i):
    """A queue is back: every list is offered anew."""
    n = node(w, i)
    for k in range(n.plan_n):
        soon(w, L.E_PULL, np.int64(edge(w, adj(w, n.plan_off + k)).dst), 0)


@kernel
def pull_from(w, x):
    """One message of queue edge x for its consumer. Whether there was one."""
    e = edge(w, x)
    q = node(w, e.src)
    if q.live == 0 or q.backlog == 0:
        return False
    parts = max(np.int64(q.partitions), 1)
    first = np.int64(q.sub_off)
    if q.copies:
        first += e.place * parts * q.classes
    for _ in range(parts):
        best = np.int64(-1)
        for c in range(q.classes):
            k = first + (q.rr_sub % parts) * q.classes + c
            s = sub(w, k)
            if s.head >= 0 and s.blocked == 0 and takes(w, x, np.int64(s.head)):
                if best < 0 or call(w, s.head).t_arr < call(w, sub(w, best).head).t_arr:
                    best = k
        q.rr_sub = (q.rr_sub + 1) % parts
        if best >= 0:
            hand_over(w, q, sub(w, best), x)
            return True
    return False


@kernel
def pull(w, i):
    """A consumer has room: it takes from the queues that feed it, in turn."""
    n = node(w, i)
    misses = np.int64(0)
    while misses < n.feed_n:
        if 4 * w.spent > w.burst:
            soon(w, L.E_PULL, i, 0)
            return
        x = np.int64(adj(w, n.feed_off + n.rr_feed))
        n.rr_feed = (n.rr_feed + 1) % n.feed_n
        if can_pull(w, x) and pull_from(w, x):
            misses = 0
        else:
            misses += 1
