"""What changes capacity from outside a call: faults, crashes, restarts, autoscaling, health checks."""

from __future__ import annotations

import math

import numpy as np

from engine.kernel import rng
from engine.kernel.calls import cpu_plan, end_call, ended, give_up_kids, pick_instance, serve_waiting, unqueue
from engine.kernel.events import later, schedule, soon
from engine.kernel.memory import adj, call, edge, fault, inst, kernel, node, source
from engine.kernel.metrics import cpu_history, cpu_touch, touch_all
from engine.kernel.queues import offer_all
from engine.kernel.traffic import pause_exposure, plan_arrival, request_ended
from engine.program import layout as L


# --- instances ---
@kernel
def fail_calls(w, i, k):
    """Every call in flight on instance k of node i fails at this instant, in the order of their records."""
    n = node(w, i)
    for c in range(w.calls_high):
        a = call(w, c)
        if a.node == i:
            if n.plan == L.P_SOURCE:
                if a.parent == -2 and (a.state == L.S_CALLING or a.state == L.S_BACKOFF):
                    give_up_kids(w, c)
                    request_ended(w, c, 0, L.R_CRASHED, i)
            elif a.inst == k and a.state >= L.S_CPU and a.state <= L.S_FILL:
                end_call(w, c, 0, L.R_CRASHED, i)


@kernel
def crash(w, i, k):
    """Instance k goes down with its calls; the last one takes the waiting calls along."""
    n = node(w, i)
    s = inst(w, n.inst_off + k)
    touch_all(w, n)
    if s.state == L.I_DRAINING:
        n.draining -= 1
        n.drain_busy -= s.busy
        s.state = L.I_OFF
    else:
        n.live -= 1
        n.crashes += 1
        s.state = L.I_DOWN
    s.gen += 1
    fail_calls(w, i, k)
    cpu_plan(w, i, n)
    if n.live == 0:
        while n.qlen > 0:
            c = np.int64(n.q_head)
            unqueue(w, n, c)
            a = call(w, c)
            a.reason = L.R_UNAVAILABLE
            a.origin = i
            ended(w, c)


@kernel
def bring_up(w, i, k):
    """An instance begins to serve; `woken` follows once all that come up at this instant are."""
    n = node(w, i)
    s = inst(w, n.inst_off + k)
    touch_all(w, n)
    if s.state == L.I_BOOTING:
        n.booting -= 1
    s.state = L.I_LIVE
    s.started = w.now
    s.busy = 0
    n.live += 1


@kernel
def woken(w, i):
    """A component has more capacity than before."""
    n = node(w, i)
    cpu_plan(w, i, n)
    if n.live > 0:
        serve_waiting(w, i)
        if n.plan == L.P_QUEUE:
            offer_all(w, i)


@kernel
def on_restart(w, at, gen):
    """A restart or a boot is over."""
    s = inst(w, at)
    if s.gen == gen and (s.state == L.I_DOWN or s.state == L.I_BOOTING):
        i = np.int64(s.node)
        if node(w, i).outages == 0:
            bring_up(w, i, at - np.int64(node(w, i).inst_off))
            woken(w, i)


@kernel
def crash_lowest(w, i, many, back):
    """Crashes `many` live instances, lowest index first; they are back at time `back`."""
    n = node(w, i)
    for k in range(n.inst_cap):
        if many <= 0:
            return
        s = inst(w, n.inst_off + k)
        if s.state == L.I_LIVE:
            many -= 1
            crash(w, i, np.int64(k))
            later(w, back, L.E_RESTART, n.inst_off + k, s.gen)


@kernel
def resize(w, i, want, boot_s):
    """Brings the number of instances that serve or will serve to `want`; surplus ones drain, highest first."""
    n = node(w, i)
    touch_all(w, n)
    have = np.int64(0)
    for k in range(n.inst_cap):
        st = inst(w, n.inst_off + k).state
        if st != L.I_OFF and st != L.I_DRAINING:
            have += 1
    for k in range(n.inst_cap):
        s = inst(w, n.inst_off + k)
        if have < want and s.state == L.I_OFF:
            have += 1
            s.gen += 1
            s.busy = 0
            s.state = L.I_BOOTING
            n.booting += 1
            if boot_s > 0.0:
                later(w, w.now + boot_s, L.E_RESTART, n.inst_off + k, s.gen)
            elif n.outages == 0:
                bring_up(w, i, np.int64(k))
    for turn in range(2):  # those that do not serve first
        for j in range(n.inst_cap):
            s = inst(w, n.inst_off + n.inst_cap - 1 - j)
            if have <= want:
                break
            if s.state == L.I_BOOTING or s.state == L.I_DOWN:
                if s.state == L.I_BOOTING:
                    n.booting -= 1
                s.gen += 1
                s.state = L.I_OFF
                have -= 1
            elif turn == 1 and s.state == L.I_LIVE:
                n.live -= 1
                have -= 1
                if s.busy > 0:
                    s.state = L.I_DRAINING
                    n.draining += 1
                    n.drain_busy += s.busy
                else:
                    s.state = L.I_OFF
    woken(w, i)


@kernel
def on_scale(w, i, gen):
    """The autoscaler looks at the last period."""
    n = node(w, i)
    if n.scale_gen != gen:
        return
    if n.scale_on == L.SC_OFF:
        n.scale_runs = 0
        return
    later(w, w.now + n.scale_every, L.E_SCALE, i, gen)
    touch_all(w, n)
    want = -1.0
    if n.scale_on == L.SC_UTIL and n.cap_int > n.sc_cap:
        want = n.live * ((n.busy_int - n.sc_busy) / (n.cap_int - n.sc_cap)) / n.scale_target
    elif n.scale_on == L.SC_CPU and n.cpu_cap_int > n.sc_ccap:
        want = n.live * ((n.cpu_int - n.sc_cpu) / (n.cpu_cap_int - n.sc_ccap)) / n.scale_target
    elif n.scale_on == L.SC_QUEUE:
        waiting = np.float64(n.qlen)
        for j in range(n.feed_n):
            waiting += node(w, edge(w, adj(w, n.feed_off + j)).src).backlog
        want = waiting / n.scale_target
    n.sc_busy = n.busy_int
    n.sc_cap = n.cap_int
    n.sc_cpu = n.cpu_int
    n.sc_ccap = n.cpu_cap_int
    if want < 0.0 or n.live == 0 or w.now < n.sc_after:
        return
    goal = min(max(np.int64(math.ceil(want - 1e-9)), np.int64(n.scale_min)), np.int64(n.scale_max))
    have = np.int64(0)
    for k in range(n.inst_cap):
        st = inst(w, n.inst_off + k).state
        if st != L.I_OFF and st != L.I_DRAINING:
            have += 1
    if goal != have:
        n.sc_after = w.now + n.cooldown
        resize(w, i, goal, n.boot_s)


@kernel
def on_hazard(w, i, gen):
    """A candidate crash by overload (thinning): kept with probability hazard ÷ its bound."""
    n = node(w, i)
    s = 3 * i + 1
    if n.hazard_gen != gen:
        return
    if n.crash_rate <= 0.0 or n.cpu_s <= 0.0:
        n.hazard_runs = 0
        return
    later(w, w.now + rng.exponential(w, s) / (n.crash_rate * n.inst_cap), L.E_HAZARD, i, gen)
    k = rng.below(w, s, np.int64(n.inst_cap))
    u = rng.uniform(w, s)
    m = inst(w, n.inst_off + k)
    if m.state != L.I_LIVE:
        return
    cpu_touch(w, n)
    since = max(w.now - L.CPU_WINDOW, m.started)
    share = (n.u_total - cpu_history(w, n, since)) / L.CPU_WINDOW
    if u < (share - 0.9) * 10.0:
        crash(w, i, k)
        later(w, w.now + n.restart_s, L.E_RESTART, n.inst_off + k, m.gen)


@kernel
def on_health(w, i, gen):
    """A balancer looks at its targets: down or cut off is bad; refusals and errors do not count."""
    n = node(w, i)
    if n.health_gen != gen:
        return
    if n.interval_s <= 0.0:
        n.health_runs = 0
        return
    later(w, w.now + n.interval_s, L.E_HEALTH, i, gen)
    for j in range(n.plan_n):
        e = edge(w, adj(w, n.plan_off + j))
        if node(w, e.dst).live == 0 or e.cut > 0:
            e.good = 0
            e.bad += 1
            if e.bad >= n.unhealthy_after:
                e.out = 1
        else:
            e.bad = 0
            e.good += 1
            if e.good >= n.healthy_after:
                e.out = 0


# --- faults ---
@kernel
def recompute(w, i):
    """The factors of all faults that act on node i now."""
    n = node(w, i)
    slow = 1.0
    keep = 1.0
    quota = 1.0
    zero = np.int64(0)
    cold = np.int64(0)
    traffic = 1.0
    for j in range(w.faults):
        f = fault(w, j)
        if f.active and f.node == i:
            if f.kind == L.F_SLOW:
                slow *= f.amount
            elif f.kind == L.F_ERRORS:
                keep *= 1.0 - f.amount
            elif f.kind == L.F_QUOTA:
                quota *= f.amount
                if f.amount <= 0.0:
                    zero += 1
            elif f.kind == L.F_COLD:
                cold += 1
            elif f.kind == L.F_TRAFFIC:
                traffic *= f.amount
    if n.quota > 0.0:  # what has refilled until now did so at the old rate
        n.tokens = min(n.quota_burst, n.tokens + (w.now - n.tokens_t) * n.quota * n.quota_factor)
        n.tokens_t = w.now
    n.slow = slow
    n.keep = keep
    n.quota_factor = quota
    n.quota_zero = zero
    if n.cold > 0 and cold == 0:
        n.warm_from = w.now
    n.cold = cold
    if n.src >= 0:
        s = source(w, n.src)
        if s.factor != traffic:
            pause_exposure(w, s)
            s.factor = traffic
            s.gap_now = s.gap / traffic if traffic > 0.0 else 0.0
            if s.mode == L.T_OPEN:
                plan_arrival(w, np.int64(n.src), s)
            elif s.mode == L.T_USERS:
                s.wanted = rng.count(w, 3 * i + 1, s.users * traffic)
                soon(w, L.E_SPAWN, np.int64(n.src), 0)


@kernel
def recompute_edge(w, x):
    e = edge(w, x)
    cut = np.int64(0)
    extra = 0.0
    for j in range(w.faults):
        f = fault(w, j)
        if f.active and f.edge == x:
            if f.kind == L.F_CUT:
                cut += 1
            elif f.kind == L.F_LATENCY:
                extra += f.amount
    healed = e.cut > 0 and cut == 0
    e.cut = cut
    e.extra_s = extra
    if healed:
        soon(w, L.E_PULL, np.int64(e.dst), 0)


@kernel
def on_fault_on(w, j):
    f = fault(w, j)
    f.active = 1
    if f.edge >= 0:
        recompute_edge(w, np.int64(f.edge))
        return
    i = np.int64(f.node)
    n = node(w, i)
    if f.kind == L.F_OUTAGE:
        n.outages += 1
        for k in range(n.inst_cap):
            s = inst(w, n.inst_off + k)
            if s.state == L.I_LIVE or s.state == L.I_DRAINING:
                crash(w, i, np.int64(k))
            elif s.state == L.I_BOOTING:
                n.booting -= 1
                s.state = L.I_DOWN
    elif f.kind == L.F_CRASH:
        back = f.end if f.end > f.at else w.now + n.restart_s
        crash_lowest(w, i, np.int64(f.amount), back)
    else:
        recompute(w, i)


@kernel
def on_fault_off(w, j):
    f = fault(w, j)
    if not f.active:
        return
    f.active = 0
    if f.edge >= 0:
        recompute_edge(w, np.int64(f.edge))
        return
    i = np.int64(f.node)
    n = node(w, i)
    if f.kind == L.F_OUTAGE:
        n.outages -= 1
        if n.outages == 0:
            for k in range(n.inst_cap):
                s = inst(w, n.inst_off + k)
                if s.state == L.I_DOWN or s.state == L.I_BOOTING:
                    s.gen += 1
                    bring_up(w, i, np.int64(k))
            woken(w, i)
    elif f.kind != L.F_CRASH:
        recompute(w, i)


@kernel
def add_fault(w, j):
    """Schedules a fault that was put into the table while running."""
    f = fault(w, j)
    schedule(w, f.at, L.C_FAULT, L.E_FAULT_ON, j, 0)
    schedule(w, max(f.end, f.at), L.C_FAULT, L.E_FAULT_OFF, j, 0)


@kernel
def start_clocks(w, i):
    """Starts what looks at a component from time to time, where its settings ask for it and it does not run yet."""
    n = node(w, i)
    if n.scale_on != L.SC_OFF and n.scale_runs == 0:
        n.scale_runs = 1
        later(w, w.now + n.scale_every, L.E_SCALE, i, n.scale_gen)
    if n.plan == L.P_ONE_OF and n.interval_s > 0.0 and n.health_runs == 0:
        n.health_runs = 1
        later(w, w.now + n.interval_s, L.E_HEALTH, i, n.health_gen)
    if n.crash_rate > 0.0 and n.cpu_s > 0.0 and n.hazard_runs == 0:
        n.hazard_runs = 1
        wait = rng.exponential(w, 3 * i + 1) / (n.crash_rate * n.inst_cap)
        later(w, w.now + wait, L.E_HAZARD, i, n.hazard_gen)


@kernel
def before_change(w, i):
    """Settings of node i are about to be changed: what has been until now was under the old ones."""
    n = node(w, i)
    touch_all(w, n)
    if n.quota > 0.0:
        n.tokens = min(n.quota_burst, n.tokens + (w.now - n.tokens_t) * n.quota * n.quota_factor)
        n.tokens_t = w.now
    if n.limit > 0.0:
        n.ltokens = min(n.limit_burst, n.ltokens + (w.now - n.ltokens_t) * n.limit)
        n.ltokens_t = w.now
    if n.src >= 0:
        pause_exposure(w, source(w, n.src))


@kernel
def after_change(w, i, what):
    """Settings of node i have been changed; what: bit 0 its `instances`, bits 1 to 3 what a clock of it runs by."""
    n = node(w, i)
    if what & 2:  # what was planned under the old setting is dropped
        n.scale_gen += 1
        n.scale_runs = 0
    if what & 4:
        n.hazard_gen += 1
        n.hazard_runs = 0
    if what & 8:
        n.health_gen += 1
        n.health_runs = 0
    if what & 1:
        resize(w, i, np.int64(n.instances), 0.0)
    cpu_plan(w, i, n)
    if pick_instance(w, n) >= 0:
        serve_waiting(w, i)
    start_clocks(w, i)
    if n.plan == L.P_QUEUE:
        offer_all(w, i)
    if n.src >= 0:
        s = source(w, n.src)
        if s.mode == L.T_OPEN:
            plan_arrival(w, np.int64(n.src), s)
