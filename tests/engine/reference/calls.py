"""The life of a call: sending, travelling, admission, waiting, working, ending, answering; and giving up."""

from __future__ import annotations

import math
from collections.abc import Callable

from .clock import ORDINARY, Clock, Process
from .parts import (
    ENDED,
    LOST,
    NEVER,
    TINY,
    TRAVELLING,
    WAITING,
    WORKING,
    Attempt,
    Call,
    Caller,
    Edge,
    Failure,
    Instance,
    Node,
    Request,
)

MAX_DEPTH = 32


class Calls:
    """`run_plan(call)` is told when a call has done its own work without an error; `pull(node)` when a
    component may have a slot for a message.  Both are set by the simulation."""

    def __init__(self, clock: Clock, window: tuple[float, float]) -> None:
        self.clock = clock
        self.begin, self.end = window
        self.run_plan: Callable[[Call], None]
        self.pull: Callable[[Node], None]

    def in_window(self, time: float) -> bool:
        return self.begin - TINY <= time <= self.end + TINY

    # --- the caller's side

    def send(
        self,
        caller: Call | None,
        edge: Edge,
        notify: Callable[[Failure | None], None],
        timeout: float = 0.0,
        owner: Process | None = None,
        request: Request | None = None,
        depth: int = 0,
    ) -> Attempt:
        """One attempt over an edge.  `notify` hears None for success, else the failure.  `request` and
        `depth` are those of a message, which has no caller."""
        if caller is not None:
            request, depth = caller.request, caller.depth + 1
        call = Call(edge.target, request, depth, edge)
        attempt = Attempt(caller, edge, call, notify, owner)
        call.attempt = attempt
        edge.in_flight += 1
        if caller is not None:
            caller.open[attempt] = None
            caller.sent += 1
        self.clock.after(edge.delay(), self._arrive, call)
        if timeout > 0:
            attempt.timer = self.clock.deadline(timeout, self._timed_out, attempt)
        return attempt

    def send_async(self, caller: Call, edge: Edge) -> None:
        caller.sent += 1
        call = Call(edge.target, caller.request, caller.depth + 1, edge)
        self.clock.after(edge.delay(), self._arrive, call)

    def _close(self, attempt: Attempt) -> None:
        attempt.open = False
        attempt.edge.in_flight -= 1
        if attempt.caller is not None:
            del attempt.caller.open[attempt]
        self.clock.cancel(attempt.timer)

    def _answered(self, attempt: Attempt) -> None:
        if attempt.open and not attempt.edge.cuts:
            self._close(attempt)
            attempt.notify(attempt.call.failure)

    def _timed_out(self, attempt: Attempt) -> None:
        if attempt.open:
            failure = Failure("timeout", self.deepest(attempt.call).id)
            self.give_up(attempt)
            attempt.notify(failure)

    @staticmethod
    def deepest(call: Call) -> Caller:
        """Where the deepest open call below `call` is; at a fork along the one sent first."""
        while call.open:
            call = next(iter(call.open)).call
        return call.node

    def give_up(self, attempt: Attempt) -> None:
        """The caller no longer waits.  What becomes of the call is for its own component to decide."""
        if not attempt.open:
            return
        self._close(attempt)
        call = attempt.call
        if not call.node.cancel:
            return
        if call.state == TRAVELLING:
            call.state = NEVER
        elif call.state in (WAITING, WORKING):
            self.finish(call, Failure("cancelled", call.node.id))

    def give_up_all(self, call: Call, owner: Process | None = None) -> None:
        """Gives up the open attempts of a call, or only those that one process of it made."""
        for attempt in list(call.open):
            if owner is None or attempt.owner is owner:
                self.give_up(attempt)

    # --- admission

    def _arrive(self, call: Call) -> None:
        node, now = call.node, self.clock.now
        if call.delivery:
            node.inbound -= 1
        if call.state == NEVER:
            return
        if call.edge.cuts:
            call.state = LOST
            return
        call.arrived = now
        call.counted = self.in_window(now)
        if call.counted:
            node.metrics.offered += 1
        reason = self._refusal(node, call, now)
        if reason is not None:
            return self._refuse(call, reason)
        instance = node.free_instance()
        if instance is None and node.n_waiting >= node.room:
            return self._refuse(call, node.full_reason)
        if instance is not None:
            return self._start(call, instance)
        call.state = WAITING
        node.waiting.append(call)
        self._set_waiting(node, node.n_waiting + 1)

    def _refusal(self, node: Node, call: Call, now: float) -> str | None:
        if call.depth > MAX_DEPTH:
            return "too_deep"
        if not node.live:
            return "unavailable"
        if not node.quota_allows(now):
            return "throttled"
        if node.limit is not None and not node.limit.take(now):
            return "rate_limited"
        if node.shed_above:
            limit = node.shed_limit(call.request.priority)
            if node.n_working + node.n_waiting >= limit:
                return "shed"
        return None

    def _refuse(self, call: Call, reason: str) -> None:
        call.state = ENDED
        call.failure = Failure(reason, call.node.id)
        if call.counted:
            call.node.metrics.failures[reason] += 1
        self._reply(call)
        if call.delivery:
            # Its slot stays free: there may be another message for it.
            self.clock.after(0.0, self.pull, call.node)

    def _set_waiting(self, node: Node, count: int) -> None:
        node.n_waiting = count
        node.queue_length.set(self.clock.now, count)
        if count > node.metrics.queue_max and self.in_window(self.clock.now):
            node.metrics.queue_max = count

    # --- work

    def _start(self, call: Call, instance: Instance) -> None:
        node, now = call.node, self.clock.now
        call.state = WORKING
        call.started = now
        call.instance = instance
        instance.busy += 1
        instance.calls[call] = None
        node.n_working += 1
        node.refresh_busy(now)
        if call.counted:
            node.metrics.waits.append(now - call.arrived)
        own = max(node.draw_time(), node.cpu_work)
        if node.slow:
            own *= math.prod(node.slow)
        rest = max(0.0, own - node.cpu_work)
        if node.cpu_work > 0:
            call.job = node.cpu.add(node.cpu_work, self._computed, (call, rest))
        else:
            call.timer = self.clock.after(rest, self._worked, call)

    def _computed(self, argument: tuple[Call, float]) -> None:
        call, rest = argument
        call.job = None
        call.timer = self.clock.after(rest, self._worked, call)

    def _worked(self, call: Call) -> None:
        node = call.node
        call.timer = None
        share = node.error_share()
        if share > 0 and node.random.random() < share:
            self.finish(call, Failure("error", node.id))
        else:
            self.run_plan(call)

    # --- the end

    def finish(self, call: Call, failure: Failure | None) -> None:
        """Ends a waiting or working call: its slot is free, the oldest waiting call starts, it answers."""
        node, now = call.node, self.clock.now
        was_waiting = call.state == WAITING
        call.state = ENDED
        call.failure = failure
        if call.process is not None:
            call.process.kill()
        self.give_up_all(call)
        self.clock.cancel(call.timer)
        if call.job is not None:
            node.cpu.remove(call.job)
            call.job = None
        if call.counted:
            if failure is None:
                node.metrics.succeeded += 1
            else:
                node.metrics.failures[failure.reason] += 1
            node.metrics.sojourns.append(now - call.arrived)
        if was_waiting:
            self._set_waiting(node, node.n_waiting - 1)
        else:
            self._free(call)
        self.start_waiting(node)
        self._reply(call)

    def _free(self, call: Call) -> None:
        node, instance = call.node, call.instance
        instance.busy -= 1
        del instance.calls[call]
        node.n_working -= 1
        node.refresh_busy(self.clock.now)
        if instance.draining and not instance.busy:
            node.instances.remove(instance)
            node.refresh_capacity(self.clock.now)

    def start_waiting(self, node: Node) -> None:
        """Starts waiting calls while there are free slots, then pulls messages for those still free."""
        while node.n_waiting:
            instance = node.free_instance()
            if instance is None:
                return
            call = node.waiting.popleft()
            if call.state == WAITING:
                self._set_waiting(node, node.n_waiting - 1)
                self._start(call, instance)
        node.waiting.clear()
        if node.feeds:
            self.pull(node)

    def _reply(self, call: Call) -> None:
        attempt = call.attempt
        if attempt is not None and attempt.open:
            self.clock.at(self.clock.now + attempt.edge.delay(), self._answered, attempt, ORDINARY)

    # --- instances

    def take_down(self, node: Node, instances: list[Instance]) -> None:
        """Instances crash at one instant: the calls on them fail; with the last one the waiting calls do."""
        for instance in instances:
            instance.up = False
            instance.epoch += 1
            if self.in_window(self.clock.now):
                node.metrics.crashes += 1
        node.refresh_capacity(self.clock.now)
        for instance in instances:
            for call in list(instance.calls):
                if call.state == WORKING:
                    self.finish(call, Failure("crashed", node.id))
            if instance.draining and instance in node.instances:
                node.instances.remove(instance)
        if not node.live:
            for call in list(node.waiting):
                if call.state == WAITING:
                    self.finish(call, Failure("unavailable", node.id))
            node.waiting.clear()

    def bring_up(self, node: Node, instances: list[Instance]) -> None:
        for instance in instances:
            instance.up = True
            instance.epoch += 1
            instance.since = instance.warm_from = self.clock.now
        node.refresh_capacity(self.clock.now)
        self.start_waiting(node)
        if node.messages is not None:
            node.messages.offer()
