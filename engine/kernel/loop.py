"""The event loop: the one compiled entry point."""

from __future__ import annotations

import math

import numba
import numpy as np

from engine.kernel import faults, metrics, plans, queues, traffic
from engine.kernel.calls import deliver, end_call, on_cpu
from engine.kernel.events import KIND, heap_drop, lane_next
from engine.kernel.memory import OPTIONS, agenda, call, edge, event, inlined, item, kernel, lane, node, when
from engine.program import layout as L


@inlined
def short_of_room(w):
    """Which array has to grow before the next step may run, or -1."""
    if w.calls_live >= w.live_soft:
        return L.G_CALLS
    if w.heap_n >= w.heap_soft:
        return L.G_HEAP
    if w.agenda_n >= w.agenda_soft:
        return L.G_AGENDA
    return w.need - 1


@kernel
def next_mark(w):
    """Takes the mark that is due and sets the time of the next one."""
    metrics.take_mark(w)
    w.next_mark = when(w, w.mark_i) if w.mark_i < w.mark_n else math.inf


@inlined
def set_stop(w):
    w.stop = min(w.until, min(w.next_frame, w.next_mark))


@inlined
def on_worked(w, c):
    """A call's own work is done: its own error, then its plan. Returns a call to advance, or -1."""
    a = call(w, c)
    i = np.int64(a.node)
    n = node(w, i)
    if n.error > 0.0 or n.keep < 1.0:
        from_self = 1.0 - (1.0 - n.error) * n.keep
        if plans.rng.uniform(w, 3 * i) < from_self:
            end_call(w, c, 0, L.R_ERROR, i)
            return np.int64(-1)
    if n.plan == L.P_ALL and n.plan_n == 0:
        end_call(w, c, 1, 0, i)
        return np.int64(-1)
    return plans.begin_plan(w, c)


@inlined
def on_answer(w, c):
    a = call(w, c)
    if a.state != L.S_REFUSED and edge(w, a.edge).cut > 0:
        a.state = L.S_LOST
        return np.int64(-1)
    return plans.settle(w, c, False)


@kernel
def on_timeout(w, c):
    a = call(w, c)
    if a.parent == -2:
        plans.plan_failed(w, c, L.R_TIMEOUT, plans.deepest(w, c))
        return np.int64(-1)
    if a.parent < 0:
        return np.int64(-1)
    return plans.settle(w, c, True)


@kernel
def boundary(w):
    """What is due when the clock reaches `stop` with no event before it."""
    w.now = w.stop
    if w.now >= w.next_mark:
        next_mark(w)
    if w.now >= w.next_frame:
        metrics.take_frame(w)
        w.next_frame = (w.frame_i + 1) * L.FRAME_S
    set_stop(w)


@inlined
def dispatch(w, kind, c, gen):
    """One event. Returns a call to advance, or -1."""
    if kind <= L.E_WORKED or (kind >= L.E_TIMEOUT and kind <= L.E_HEDGE) or kind == L.E_RESUME:
        if call(w, c).gen != gen:
            return np.int64(-1)
        if kind == L.E_DELIVER:
            deliver(w, c)
            return np.int64(-1)
        if kind == L.E_WORKED:  # a call that has crashed at work may still be on its way back
            return on_worked(w, c) if call(w, c).state == L.S_WORK else np.int64(-1)
        if kind == L.E_ANSWER:
            return on_answer(w, c)
        if kind == L.E_TIMEOUT:
            return on_timeout(w, c)
        if kind == L.E_RETRY:
            return plans.on_retry(w, c)
        if kind == L.E_HEDGE:
            plans.on_hedge(w, c)
            return np.int64(-1)
        if call(w, c).state == L.S_RESUME:
            plans.on_resume(w, c)
        return np.int64(-1)
    if kind == L.E_CPU:
        if node(w, c).cpu_gen == gen:
            on_cpu(w, c)
    elif kind == L.E_USER:
        return traffic.on_user(w, c, gen)
    elif kind == L.E_CARRY_ON:
        if call(w, c).gen == gen and call(w, c).state == L.S_CALLING:
            return c
    elif kind == L.E_SPAWN:
        traffic.on_spawn(w, c)
    elif kind == L.E_GIVE_UP:
        a = call(w, c)
        if a.gen == gen and a.state >= L.S_CPU and a.state <= L.S_FILL:
            end_call(w, c, 0, L.R_CANCELLED, np.int64(a.node))
    elif kind == L.E_FILLED:
        a = call(w, c)
        if a.gen == gen and a.state == L.S_FILL:
            a.state = L.S_CALLING
            end_call(w, c, np.int64(a.ok), np.int64(a.reason), np.int64(a.origin))
    elif kind == L.E_PULL:
        queues.pull(w, c)
    elif kind == L.E_REDELIVER:
        if call(w, c).gen == gen:
            queues.on_redeliver(w, c)
    elif kind == L.E_PROBE:
        if call(w, c).gen == gen:
            plans.on_probe(w, c)
    elif kind == L.E_FAULT_ON:
        faults.on_fault_on(w, c)
    elif kind == L.E_FAULT_OFF:
        faults.on_fault_off(w, c)
    elif kind == L.E_RESTART:
        faults.on_restart(w, c, gen)
    elif kind == L.E_SCALE:
        faults.on_scale(w, c, gen)
    elif kind == L.E_HEALTH:
        faults.on_health(w, c, gen)
    elif kind == L.E_HAZARD:
        faults.on_hazard(w, c, gen)
    return np.int64(-1)


@inlined
def overtaken(w):
    """Whether something planned for this instant was scheduled before the head of the agenda."""
    key = agenda(w, w.agenda_head).key
    if w.heap_n > 0:
        top = event(w, 0)
        if top.t <= w.now and top.key < key:
            return True
    return w.arrival_t <= w.now and w.arrival_key < key


@inlined
def first_is_arrival(w):
    """Whether the next event is a source's arrival (where there is no event at all: one at time infinity)."""
    if w.heap_n == 0:
        return True
    top = event(w, 0)
    return w.arrival_t < top.t or (w.arrival_t == top.t and w.arrival_key < top.key)


@inlined
def take(w):
    """Pops the heap's first event, or that of the lane whose head it is. Returns kind, id, generation."""
    top = event(w, 0)
    kind = top.key & KIND
    c = np.int64(top.id)
    gen = np.int64(top.gen)
    if kind == L.E_LANE:
        q = lane(w, c)
        e = item(w, q.off + q.head)
        kind = e.key & KIND
        ln = c
        c = np.int64(e.id)
        gen = np.int64(e.gen)
        lane_next(w, ln)
    else:
        heap_drop(w)
    return kind, c, gen


@numba.njit(cache=True, **OPTIONS)
def advance(ws, op, arg, extra):
    """Runs the simulation to `until`, or carries out one command.

    ws: the SIM array, addresses bound. op: OP_RUN; OP_START (first events); OP_TOUCH (settings of node `arg`
    will change); OP_APPLY (they have; `extra`: see faults.after_change); OP_FAULT (fault `arg` is new).
    Returns ST_UNTIL, ST_DONE, ST_GROW (array `w.need` is short), ST_FRAMES (the frame buffer is full), ST_EVENTS
    (`max_events` steps made) or ST_STUCK (time does not move on).
    """
    w = ws[0]
    if op == L.OP_TOUCH:
        faults.before_change(w, arg)
        return L.ST_UNTIL
    if op == L.OP_APPLY:
        faults.after_change(w, arg, extra)
        return L.ST_UNTIL
    if op == L.OP_FAULT:
        faults.add_fault(w, arg)
        return L.ST_UNTIL
    if op == L.OP_START:
        if w.next_mark <= 0.0:
            next_mark(w)
        for j in range(w.faults):
            faults.add_fault(w, j)
        for i in range(w.nodes):
            faults.start_clocks(w, i)
        for k in range(w.sources):
            traffic.start_source(w, k)
        return L.ST_UNTIL
    set_stop(w)
    count = np.int64(0)
    steps = np.int64(0)
    most = w.max_events
    moved = -w.steps  # when, counted in steps of this call, time has last moved on
    limit = min(most, moved + L.STUCK)
    while True:
        lack = short_of_room(w)
        if lack >= 0:
            w.events += count
            w.need = np.int64(lack)
            w.steps = steps - moved
            return L.ST_GROW
        if steps >= limit:
            w.events += count
            w.steps = steps - moved
            return L.ST_EVENTS if steps < moved + L.STUCK else L.ST_STUCK
        steps += 1
        w.spent = 0
        if w.agenda_n > 0 and not overtaken(w):
            e = agenda(w, w.agenda_head)
            w.agenda_head = (w.agenda_head + 1) & w.agenda_mask
            w.agenda_n -= 1
            kind = e.key & KIND
            c = np.int64(e.id)
            gen = np.int64(e.gen)
        else:
            beside = first_is_arrival(w)
            t = w.arrival_t if beside else event(w, 0).t
            if t > w.stop or (w.now >= w.duration and w.open_requests == 0):
                if w.now >= w.duration and w.open_requests == 0 and w.next_mark == math.inf:
                    w.finished = 1
                    w.events += count
                    return L.ST_DONE
                if t > w.stop:
                    if w.frame_n >= w.frame_cap:
                        if w.frame_keep:
                            w.events += count
                            return L.ST_FRAMES
                        w.frame_n = 0
                    reached = w.stop
                    w.events += count
                    count = 0
                    boundary(w)
                    if reached >= w.end:
                        w.finished = 1
                        return L.ST_DONE
                    if reached >= w.until:
                        return L.ST_UNTIL
                    continue
            count += 1
            if t > w.now:
                w.now = t
                moved = steps
                limit = min(most, moved + L.STUCK)
            if beside:
                kind = np.int64(L.E_ARRIVE)
                c = w.arrival_src
                gen = np.int64(0)
            else:
                kind, c, gen = take(w)
        if kind == L.E_ARRIVE:
            a = traffic.on_arrive(w, c)
        else:
            a = dispatch(w, kind, c, gen)
        if a >= 0:
            plans.carry_on(w, a)
