"""What a component does with its edges: the plans. Everything they send goes through :mod:`engine.kernel.calls`."""

from __future__ import annotations

import math

import numpy as np

from engine.kernel import rng
from engine.kernel.calls import (
    abandon,
    adopt,
    alloc,
    deepest,
    detach,
    end_call,
    fill_slot,
    give_up_kids,
    refused,
    release,
    send,
    send_async,
)
from engine.kernel.events import later, schedule, soon
from engine.kernel.memory import adj, call, edge, fill, inlined, inst, kernel, node
from engine.kernel.pick import hedge_target, pick, wanted
from engine.kernel.queues import accept_message, message_result
from engine.kernel.traffic import request_ended, start_attempt
from engine.kernel.windows import breaker_outcome, budget_allows, budget_first, let_through
from engine.program import layout as L

GIVEN_UP = 32000  # an attempt number beyond every retry
NOT_ASKED = -2  # a breaker's ticket before its first call


# --- one of ---
@kernel
def try_target(w, i, n, p, attempt):
    """One attempt of a one-of component. True when it is done at once (an async target)."""
    x = pick(w, i, n, call(w, p))
    if x < 0:
        refused(w, p, np.int64(-1), attempt, L.R_UNAVAILABLE)
        return False
    if edge(w, x).async_:
        send_async(w, p, x)
        return True
    send(w, p, x, x, attempt)
    return False


# --- hedge ---
@kernel
def on_hedge(w, c):
    """The first copy has not been answered in time: a second one sets out."""
    a = call(w, c)
    if a.parent < 0:
        return
    p = np.int64(a.parent)
    b = call(w, p)
    if b.state == L.S_CALLING and b.mode == L.M_HEDGE and b.kid_head == b.kid_tail:
        n = node(w, b.node)
        x = hedge_target(w, n, b, 1)
        if x < 0:
            return
        if edge(w, x).async_:
            send_async(w, p, x)
            return
        d = send(w, p, x, np.int64(a.base), np.int64(a.attempt))
        limit = edge(w, a.edge).timeout_s
        if limit > 0.0:  # the two are one attempt, which began with the first
            t = max(w.now, w.now - n.hedge_s + limit + L.SLACK)
            schedule(w, t, L.C_TIMEOUT, L.E_TIMEOUT, d, call(w, d).gen)


@kernel
def send_hedged(w, n, p, attempt):
    """The first copy, and the clock of the second. True where there is nothing to send."""
    x = hedge_target(w, n, call(w, p), 0)
    if x < 0:
        return True
    if edge(w, x).async_:
        send_async(w, p, x)
        return True
    c = send(w, p, x, x, attempt)
    if n.hedge_s > 0.0:
        later(w, w.now + n.hedge_s + L.SLACK, L.E_HEDGE, c, call(w, c).gen)
    else:
        on_hedge(w, c)
    return False


# --- all ---
@kernel
def launch(w, i, n, p, x):
    """One call the plan asks for, through the component's own breaker where it has one."""
    if n.plan == L.P_BREAKER:
        a = call(w, p)
        if a.ticket == NOT_ASKED:  # once a visit, whatever it calls
            a.ticket = let_through(w, i, n)
            if a.ticket >= 0 and n.br_state == L.B_HALF:
                later(w, w.now + n.window_s + L.SLACK, L.E_PROBE, p, a.gen)
        if a.ticket < 0:
            refused(w, p, x, GIVEN_UP, L.R_BREAKER_OPEN)
            return
        c = send(w, p, x, x, 1)
        call(w, c).epoch = a.ticket
    else:
        send(w, p, x, x, 1)
    if n.budget > 0.0:
        budget_first(w, n)


@kernel
def launch_group(w, i, n, p, off, m):
    """All calls of the parallel edges of one group at this instant. Returns how many are waited for."""
    a = call(w, p)
    j = np.int64(a.pos)
    order = edge(w, adj(w, off + j)).order
    total = np.int64(0)
    need = np.int64(0)
    while j < m:
        x = np.int64(adj(w, off + j))
        e = edge(w, x)
        if e.order != order or not e.parallel:
            break
        j += 1
        if wanted(e, a):
            k = rng.count(w, 3 * i, e.calls)
            if e.async_:
                for _ in range(k):
                    send_async(w, p, x)
                if k > 0:
                    a.write_any = 1
            else:
                if e.need > need:
                    need = np.int64(e.need)
                for _ in range(k):
                    launch(w, i, n, p, x)
                total += k
    a.pos = j
    a.left = -1
    a.open = total
    a.good = 0
    a.need = min(need, total)
    a.mode = L.M_PAR
    return total


@kernel
def next_step(w, a, n):
    """A loop's list of edges is done. True when the whole task is."""
    if a.steps <= 0:
        return True
    if a.phase == 0:
        a.step += 1
        if n.ck_n > 0 and n.checkpoint_every > 0 and a.step % n.checkpoint_every == 0:
            a.phase = 1
            a.write_any = 0
            a.write_failed = 0
            a.pos = 0
            a.left = -1
            return False
    else:
        a.phase = 0
        if a.write_failed:
            a.written = 0
        elif a.write_any:
            a.written = 1
            a.saved = a.step
    a.pos = 0
    a.left = -1
    return a.step >= a.steps


@kernel
def request_failed(w, p, reason, where):
    """An attempt at a whole request failed: the source retries or gives up."""
    b = call(w, p)
    n = node(w, b.node)
    if reason != L.R_TOO_DEEP and b.tries <= n.retries and budget_allows(w, n):
        b.state = L.S_BACKOFF
        b.gen += 1
        d = backoff(w, np.int64(b.node), n, np.int64(b.tries))
        later(w, w.now + d, L.E_RETRY, p, b.gen)
    else:
        request_ended(w, p, 0, reason, where)


@kernel
def backoff(w, i, n, attempt):
    """Seconds before attempt + 1."""
    d = n.backoff_s * n.factor ** (attempt - 1)
    if n.backoff_max_s > 0.0 and d > n.backoff_max_s:
        d = n.backoff_max_s
    if n.jitter > 0.0 and d > 0.0:
        d *= 1.0 - n.jitter + 2.0 * n.jitter * rng.uniform(w, 3 * i)
    return d


@kernel
def serves(w, n, a):
    """Whether any edge of a source is meant for this class of request: one that goes nowhere has not succeeded."""
    if n.plan_n == 1:
        return wanted(edge(w, adj(w, n.plan_off)), a)
    for j in range(n.plan_n):
        if wanted(edge(w, adj(w, n.plan_off + j)), a):
            return True
    return False


@inlined
def carry_on(w, p):
    """Carries a call's plan on until it has to wait for something or is done."""
    a = call(w, p)
    i = np.int64(a.node)
    n = node(w, i)
    if n.simple:
        if a.pos == 0 and a.left < 0:
            a.pos = 1
            a.mode = L.M_SEQ
            x = np.int64(adj(w, n.plan_off))
            send(w, p, x, x, 1)
        elif n.plan == L.P_SOURCE:
            request_ended(w, p, 1, 0, i)
        else:
            end_call(w, p, 1, 0, i)
        return
    while True:
        off = np.int64(n.plan_off)
        m = np.int64(n.plan_n)
        if a.phase == 1:
            off = np.int64(n.ck_off)
            m = np.int64(n.ck_n)
        if a.pos >= m:
            if n.plan == L.P_LOOP:
                if not next_step(w, a, n):
                    if (
                        4 * w.spent > w.burst
                    ):  # go on in a step of its own, so that the arrays may grow between
                        soon(w, L.E_CARRY_ON, p, a.gen)
                        return
                    continue
            if n.plan == L.P_SOURCE:
                if serves(w, n, a):
                    request_ended(w, p, 1, 0, i)
                else:
                    request_failed(w, p, L.R_UNAVAILABLE, i)
            else:
                end_call(w, p, 1, 0, i)
            return
        x = np.int64(adj(w, off + a.pos))
        e = edge(w, x)
        if e.parallel:
            if launch_group(w, i, n, p, off, m) > 0:
                if a.phase == 1:
                    a.write_any = 1
                return
            continue
        if a.left < 0:
            a.left = rng.count(w, 3 * i, e.calls) if wanted(e, a) else 0
        if a.left == 0:
            a.pos += 1
            a.left = -1
            continue
        a.left -= 1
        a.write_any = 1
        if e.async_:
            send_async(w, p, x)
            continue
        a.mode = L.M_SEQ
        launch(w, i, n, p, x)
        return


@inlined
def begin_plan(w, c):
    """The call's own work is done and it survived it: its component's plan begins. Returns c to advance, or -1."""
    a = call(w, c)
    i = np.int64(a.node)
    n = node(w, i)
    a.state = L.S_CALLING
    a.pos = 0
    a.left = -1
    a.phase = 0
    a.ticket = NOT_ASKED
    if n.plan == L.P_ALL or n.plan == L.P_BREAKER:
        return c
    if n.plan == L.P_ONE_OF:
        a.mode = L.M_ONE
        if n.budget > 0.0:
            budget_first(w, n)
        if not try_target(w, i, n, c, 1):
            return np.int64(-1)
        a.pos = n.plan_n
        return c
    if n.plan == L.P_CACHE:
        return begin_cache(w, i, n, c)
    if n.plan == L.P_QUEUE:
        accept_message(w, i, n, c)
        return np.int64(-1)
    if n.plan == L.P_LOOP:
        a.step = 0
        a.saved = 0
        a.written = 0
        a.resumes = 0
        a.steps = draw_steps(w, i, n)
        if a.steps <= 0:
            a.pos = n.plan_n
        return c
    a.mode = L.M_HEDGE
    if n.budget > 0.0:
        budget_first(w, n)
    if send_hedged(w, n, c, 1):
        a.pos = n.plan_n
        return c
    return np.int64(-1)


@kernel
def draw_steps(w, i, n):
    if n.steps_model == 1 and n.steps > 1.0:
        return 1 + np.int64(math.log(rng.uniform(w, 3 * i)) / math.log(1.0 - 1.0 / n.steps))
    return rng.count(w, 3 * i, n.steps)


@kernel
def begin_cache(w, i, n, c):
    """Hit: done. Miss: the plan `all`, one fill per key at a time where the cache coalesces."""
    a = call(w, c)
    if a.cls == 0:
        rate = n.hit_rate
        if n.cold > 0:
            rate = 0.0
        elif n.warm_s > 0.0:
            since = w.now - max(n.warm_from, inst(w, n.inst_off + a.inst).started)
            if since < n.warm_s:
                rate *= since / n.warm_s
        if rate > 0.0 and rng.uniform(w, 3 * i) < rate:
            end_call(w, c, 1, 0, i)
            return np.int64(-1)
        if n.coalesce and a.key >= 0:
            at = fill_slot(w, i, a.key)
            f = fill(w, at)
            if f.call >= 0:
                b = call(w, f.call)
                a.state = L.S_FILL
                a.left = f.call
                a.q_next = -1
                if b.q_prev >= 0:
                    a.q_prev = b.q_prev
                    call(w, b.q_prev).q_next = c
                else:
                    a.q_prev = f.call
                    b.q_next = c
                b.q_prev = c
                return np.int64(-1)
            f.key = a.key
            f.node = i
            f.call = c
            w.fill_n += 1
            if 2 * w.fill_n > w.fill_mask:
                w.need = L.G_FILLS + 1
            a.fill = 1
            a.q_next = -1
            a.q_prev = -1
    return c


# --- outcomes ---
@kernel
def plan_failed(w, p, reason, where):
    """The plan of p has failed: a loop may resume, a source may try again, the rest end."""
    b = call(w, p)
    n = node(w, b.node)
    give_up_kids(w, p)
    if n.plan == L.P_SOURCE:
        request_failed(w, p, reason, where)
    elif n.plan == L.P_LOOP and b.written and b.resumes < n.max_resumes:
        b.resumes += 1
        b.state = L.S_RESUME
        later(w, w.now + n.resume_wait_s, L.E_RESUME, p, b.gen)
    else:
        end_call(w, p, 0, reason, where)


@kernel
def on_resume(w, p):
    """The agent goes on at the step after its last save."""
    a = call(w, p)
    a.state = L.S_CALLING
    a.step = a.saved
    a.phase = 0
    a.pos = 0
    a.left = -1
    carry_on(w, p)


@kernel
def call_failed(w, p, base, x, reason, where):
    """A call of p has failed for good (retries and fallbacks spent). Returns p to advance, or -1."""
    b = call(w, p)
    forgiven = (base >= 0 and edge(w, base).optional != 0) or (x >= 0 and edge(w, x).optional != 0)
    if b.phase == 1:
        b.write_failed = 1
        forgiven = True
    if b.mode == L.M_PAR:
        b.open -= 1
        if forgiven:
            return p if b.open == 0 else np.int64(-1)
        if b.need > 0 and b.good + b.open >= b.need:
            return np.int64(-1)
    elif forgiven:
        if b.mode != L.M_SEQ:
            b.pos = node(w, b.node).plan_n
        return p
    plan_failed(w, p, reason, where)
    return np.int64(-1)


@inlined
def call_succeeded(w, p):
    """A call of p has succeeded. Returns p to advance, or -1."""
    b = call(w, p)
    if b.mode == L.M_SEQ:
        return p
    if b.mode == L.M_PAR:
        b.open -= 1
        b.good += 1
        if b.need > 0 and b.good >= b.need:
            give_up_kids(w, p)
            return p
        return p if b.open == 0 else np.int64(-1)
    give_up_kids(w, p)
    b.pos = node(w, b.node).plan_n
    return p


@kernel
def retry(w, i, n, p, x, base, attempt, epoch):
    """Sends attempt `attempt` of a call. Returns p where an async target ended a one-of plan, else -1."""
    n.retries_sent += 1
    mode = call(w, p).mode
    stand_in = x >= 0 and edge(w, x).fallback >= 0
    if n.plan == L.P_ONE_OF and not stand_in:
        if try_target(w, i, n, p, attempt):
            call(w, p).pos = n.plan_n
            return p
    elif mode == L.M_HEDGE and not stand_in:
        if send_hedged(w, n, p, attempt):
            call(w, p).pos = n.plan_n
            return p
    else:
        c = send(w, p, x, base, attempt)
        call(w, c).epoch = epoch
    return np.int64(-1)


@kernel
def next_fallback(w, n, x, a):
    """The edge to try after a call of edge x (-1: no target) has failed for good, or -1."""
    y = np.int64(n.fb_any) if x < 0 else np.int64(edge(w, x).on_fail)
    while y >= 0 and not wanted(edge(w, y), a):
        y = np.int64(edge(w, y).on_fail)
    return y


@inlined
def settle(w, c, timed_out):
    """An attempt's outcome has reached its caller. Returns a call to advance, or -1."""
    a = call(w, c)
    p = np.int64(a.parent)
    x = np.int64(a.edge)
    base = np.int64(a.base)
    attempt = np.int64(a.attempt)
    epoch = np.int64(a.epoch)
    ok = a.ok != 0 and not timed_out
    reason = np.int64(a.reason)
    where = np.int64(a.origin)
    own = a.state == L.S_REFUSED
    if timed_out:
        reason = np.int64(L.R_TIMEOUT)
        where = deepest(w, c)
    detach(w, c)
    if timed_out:
        abandon(w, c)
    else:
        release(w, c)
    if not ok and not own:
        edge(w, x).failed += 1
    b = call(w, p)
    if b.state == L.S_MESSAGE:
        message_result(w, p, ok)
        return np.int64(-1)
    i = np.int64(b.node)
    n = node(w, i)
    if ok:
        if epoch >= 0:
            breaker_outcome(w, n, epoch, True)
        return call_succeeded(w, p)
    if b.mode == L.M_HEDGE and b.kid_head >= 0:
        if not timed_out:
            return np.int64(-1)
        give_up_kids(w, p)  # the deadline is the attempt's: both copies are late
    limit = np.int64(n.retries)
    if x >= 0:
        limit = np.int64(edge(w, x).retries)
    if attempt <= limit and reason != L.R_TOO_DEEP and budget_allows(w, n):
        d = backoff(w, i, n, attempt)
        if d <= 0.0:
            return retry(w, i, n, p, x, base, attempt + 1, epoch)
        r = alloc(w)
        z = call(w, r)
        z.node = i
        z.edge = x
        z.base = base
        z.attempt = attempt + 1
        z.epoch = epoch
        z.state = L.S_BACKOFF
        adopt(w, p, r)
        later(w, w.now + d, L.E_RETRY, r, z.gen)
        return np.int64(-1)
    if epoch >= 0:
        breaker_outcome(w, n, epoch, False)
    y = next_fallback(w, n, x, b)
    if y >= 0:
        if edge(w, y).async_:
            send_async(w, p, y)
            return call_succeeded(w, p)
        send(w, p, y, base if base >= 0 else y, 1)
        if n.budget > 0.0:
            budget_first(w, n)
        return np.int64(-1)
    return call_failed(w, p, base, x, reason, where)


@kernel
def on_retry(w, c):
    """A wait before a retry is over. Returns a call to advance, or -1."""
    a = call(w, c)
    if a.parent == -2:
        node(w, a.node).retries_sent += 1
        return start_attempt(w, c)
    if a.parent < 0:
        return np.int64(-1)
    p = np.int64(a.parent)
    x = np.int64(a.edge)
    base = np.int64(a.base)
    attempt = np.int64(a.attempt)
    epoch = np.int64(a.epoch)
    detach(w, c)
    release(w, c)
    i = np.int64(call(w, p).node)
    return retry(w, i, node(w, i), p, x, base, attempt, epoch)


@kernel
def on_probe(w, c):
    """A breaker's trial visit has not been answered within the window: it counts as failed."""
    a = call(w, c)
    if a.state == L.S_CALLING and a.ticket >= 0:
        breaker_outcome(w, node(w, a.node), np.int64(a.ticket), False)
