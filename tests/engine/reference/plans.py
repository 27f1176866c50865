"""What a call does after its own work: the downstream calls of each plan, as processes.

Every function here is a generator: it sleeps with a bare `yield` and returns None for success or a `Failure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from functools import partial

from .breaker import Ticket
from .calls import Calls
from .clock import Process
from .parts import Attempt, Call, Caller, Edge, Failure

Outcome = Failure | None
Steps = Generator[None, object, Outcome]
Via = Callable[[Call, Process, Edge], Steps]


# The outcome of a call whose last fallback was optional: neither success nor failure.
FORGIVEN = Failure("", "")


class Plans:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.clock = calls.clock
        self._by_plan = {
            "one_of": self._one_of,
            "cache": self._cache,
            "breaker": self._breaker,
            "hedge": self._hedge,
            "loop": self._loop,
        }

    def run(self, call: Call) -> None:
        """Begins the plan of a call that has done its own work."""
        node = call.node
        if node.plan == "queue":
            return self.calls.finish(call, node.messages.publish(call))
        if not node.edges and node.plan in ("all", "hedge", "rate_limiter", "shedder", "bulkhead"):
            return self.calls.finish(call, None)
        process = Process(partial(self.calls.finish, call))
        call.process = process
        plan = self._by_plan.get(node.plan)
        process.start(self.all(call, process, node.groups) if plan is None else plan(call, process))

    def number(self, caller: Caller, mean: float) -> int:
        """Its floor, and one more with the probability of the fraction."""
        whole = math.floor(mean)
        part = mean - whole
        return whole + (1 if part > 0 and caller.random.random() < part else 0)

    # --- one call over one edge, with retries and fallbacks

    def edge_call(self, call: Call, process: Process, edge: Edge, ticket: Ticket | None = None) -> Steps:
        """One call over an edge.  A breaker's `ticket` hears how it went after its retries, before any fallback."""
        caller = call.node
        caller.first_attempt(self.clock.now)
        attempts = 1
        while True:
            self.calls.send(call, edge, process.step, edge.timeout, process)
            failure = yield
            if not self._again(caller, failure, attempts, edge.retries):
                break
            yield from self._pause(call, process, attempts)
            attempts += 1
        if ticket is not None:
            caller.breaker.record(ticket, failure is None)
        if failure is not None and edge.fallbacks:
            failure = yield from self._fall_back(call, process, edge.fallbacks, failure)
        return failure

    def _again(self, caller: Caller, failure: Outcome, attempts: int, retries: int) -> bool:
        if failure is None or failure.reason == "too_deep" or attempts > retries:
            return False
        return caller.may_retry(self.clock.now)

    def _pause(self, call: Call, process: Process, attempts: int) -> Steps:
        """The wait before a retry; the retry is counted as it is sent."""
        self.clock.after(call.node.wait_before_retry(attempts), process.step)
        yield
        if self.calls.in_window(self.clock.now):
            call.node.metrics.retries += 1

    def _fall_back(self, call: Call, process: Process, edges: list[Edge], failure: Failure) -> Steps:
        edges = [edge for edge in edges if edge.serves(call.request)]
        for edge in edges:
            if edge.is_async:
                self.calls.send_async(call, edge)
                return None
            failure = yield from self.edge_call(call, process, edge)
            if failure is None or failure is FORGIVEN:
                return failure
            if edge is edges[-1] and edge.optional:
                return FORGIVEN
        return failure

    # --- all: groups of edges

    def all(
        self,
        call: Call,
        process: Process,
        groups: list[tuple[list[Edge], list[Edge]]],
        via: Via | None = None,
        tolerant: bool = False,
    ) -> Steps:
        """The plan *all*, each call made by `via`.  `tolerant`: every failure is optional."""
        via = via or self.edge_call
        for sequential, parallel in groups:
            for edge in sequential:
                if not edge.serves(call.request):
                    continue
                for _ in range(self.number(call.node, edge.calls)):
                    if edge.is_async:
                        self.calls.send_async(call, edge)
                        continue
                    failure = yield from via(call, process, edge)
                    if failure is not None and not (tolerant or edge.optional or failure is FORGIVEN):
                        return failure
            if parallel:
                failure = yield from self._parallel(call, process, parallel, via, tolerant)
                if failure is not None:
                    return failure
        return None

    def _parallel(self, call: Call, process: Process, edges: list[Edge], via: Via, tolerant: bool) -> Steps:
        jobs: list[Edge] = []
        for edge in edges:
            if edge.serves(call.request):
                jobs += [edge] * self.number(call.node, edge.calls)
        waited_for = [edge for edge in jobs if not edge.is_async]
        group = _Group(len(waited_for), max((edge.need for edge in edges), default=0), process)
        branches: list[Process] = []
        try:
            for edge in jobs:
                if edge.is_async:
                    self.calls.send_async(call, edge)
                    continue
                if group.decided:
                    break
                tolerated = edge.optional or tolerant
                branch = Process(partial(group.answered, tolerated))
                branches.append(branch)
                branch.start(via(call, branch, edge))
            if not group.decided:
                group.waited_for = True
                yield
            return group.failure
        finally:
            for branch in branches:
                branch.kill()
                self.calls.give_up_all(call, branch)

    # --- one of

    def _one_of(self, call: Call, process: Process) -> Steps:
        node = call.node
        node.first_attempt(self.clock.now)
        attempts = 1
        while True:
            edge = node.pick(call.request)
            if edge is None:
                failure: Outcome = Failure("unavailable", node.id)
            elif edge.is_async:
                self.calls.send_async(call, edge)
                return None
            else:
                self.calls.send(call, edge, process.step, edge.timeout, process)
                failure = yield
            if not self._again(node, failure, attempts, node.retries if edge is None else edge.retries):
                break
            yield from self._pause(call, process, attempts)
            attempts += 1
        if failure is None:
            return None
        standing_in = [e for e in node.edges if e.fallback] if edge is None else edge.fallbacks
        failure = yield from self._fall_back(call, process, standing_in, failure)
        return None if failure is FORGIVEN or (edge is not None and edge.optional) else failure

    # --- cache

    def _cache(self, call: Call, process: Process) -> Steps:
        node, request = call.node, call.request
        if not request.write and node.random.random() < node.hit_share(call.instance, self.clock.now):
            return None
        if request.write or request.key is None or not node.settings["coalesce"]:
            return (yield from self.all(call, process, node.groups))
        if request.key in node.fills:
            node.fills[request.key].append(process)
            return (yield)
        node.fills[request.key] = []
        finished, failure = False, None
        try:
            failure = yield from self.all(call, process, node.groups)
            finished = True
            return failure
        finally:
            # A fill that was ended from outside (a crash, a cancelled call) has failed too.
            outcome = failure if finished else call.failure
            for waiting in node.fills.pop(request.key):
                self.clock.after(0.0, waiting.step, outcome)

    # --- breaker

    def _breaker(self, call: Call, process: Process) -> Steps:
        """The plan *all* through a switch that is asked once, before the first call."""
        breaker = call.node.breaker
        ticket = breaker.ask()
        if ticket is None:
            return (yield from self.all(call, process, call.node.groups, self._refused))
        finished = False
        try:
            via = partial(self.edge_call, ticket=ticket)
            failure = yield from self.all(call, process, call.node.groups, via)
            finished = True
            return failure
        finally:
            breaker.leave(ticket, finished)

    def _refused(self, call: Call, process: Process, edge: Edge) -> Steps:
        failure = Failure("breaker_open", call.node.id)
        return (yield from self._fall_back(call, process, edge.fallbacks, failure))

    # --- hedge

    def _hedge(self, call: Call, process: Process) -> Steps:
        """One call over the first edge; the second copy of an attempt goes over the next, if there is one."""
        node = call.node
        edges = [edge for edge in node.ordinary if edge.serves(call.request)]
        if not edges:
            return None
        if edges[0].is_async:
            self.calls.send_async(call, edges[0])
            return None
        edges = [edge for edge in edges if not edge.is_async][:2]
        node.first_attempt(self.clock.now)
        attempts = 1
        while True:
            failure, edge = yield from self._copies(call, process, edges[0], edges[-1])
            if not self._again(node, failure, attempts, edges[0].retries):
                break
            yield from self._pause(call, process, attempts)
            attempts += 1
        if failure is None:
            return None
        failure = yield from self._fall_back(call, process, edge.fallbacks, failure)
        return None if failure is FORGIVEN or edge.optional else failure

    def _copies(
        self, call: Call, process: Process, first: Edge, second: Edge
    ) -> Generator[None, object, tuple[Outcome, Edge]]:
        """An attempt of a hedge: the second copy follows after `hedge_ms` unless the first one is back.

        Returns the outcome and the edge it came over, that of the copy that failed last.
        """
        sent: list[Attempt] = []

        def send(edge: Edge) -> None:
            def answered(failure: Outcome) -> None:
                process.step((failure, edge))

            sent.append(self.calls.send(call, edge, answered, owner=process))

        def expire(_: object) -> None:
            oldest = next(copy for copy in sent if copy.open)
            failure = Failure("timeout", self.calls.deepest(oldest.call).id)
            for copy in sent:
                self.calls.give_up(copy)
            process.step((failure, first))

        send(first)
        wait = call.node.settings["hedge_ms"] / 1e3
        timers = []
        if wait > 0:
            timers.append(self.clock.deadline(wait, send, second))
        else:
            send(second)
        if first.timeout > 0:
            timers.append(self.clock.deadline(first.timeout, expire))
        try:
            while True:
                failure, edge = yield
                if failure is None or not any(copy.open for copy in sent):
                    return failure, edge
        finally:
            for timer in timers:
                self.clock.cancel(timer)
            for copy in sent:
                self.calls.give_up(copy)

    # --- loop

    def _loop(self, call: Call, process: Process) -> Steps:
        node = call.node
        settings = node.settings
        last = self._steps_of_task(node)
        step, saved, may_resume, resumes = 1, 0, False, 0
        while step <= last:
            failure = yield from self.all(call, process, node.groups)
            if failure is not None:
                if not may_resume or resumes >= settings["max_resumes"]:
                    return failure
                resumes += 1
                self.clock.after(settings["resume_wait_s"], process.step)
                yield
                step = saved + 1
                continue
            every = settings["checkpoint_every"]
            if every and step % every == 0 and node.checkpoint_groups:
                written, failed = yield from self._save(call, process)
                if written:
                    may_resume = not failed
                    if may_resume:
                        saved = step
            step += 1
        return None

    def _save(self, call: Call, process: Process) -> Generator[None, object, tuple[bool, bool]]:
        """Writes a checkpoint over every edge for it: whether anything was sent, and whether one failed."""
        failures: list[Failure] = []

        def write(call: Call, process: Process, edge: Edge) -> Steps:
            failure = yield from self.edge_call(call, process, edge)
            if failure is not None:
                failures.append(failure)
            return failure

        sent = call.sent
        yield from self.all(call, process, call.node.checkpoint_groups, write, tolerant=True)
        return call.sent > sent, bool(failures)

    def _steps_of_task(self, node: Caller) -> int:
        mean = node.settings["steps"]
        if node.settings["steps_model"] == "fixed":
            return self.number(node, mean)
        if mean <= 1:
            return 1
        return 1 + math.floor(math.log(1.0 - node.random.random()) / math.log(1.0 - 1.0 / mean))

    # --- the attempts of a request

    def request(self, call: Call, process: Process) -> Steps:
        """A request at its source: attempts of the plan *all* over its edges, each under its patience."""
        source = call.node
        source.first_attempt(self.clock.now)
        attempts = 1
        while True:
            failure = yield from self._patient(call, process)
            if not self._again(source, failure, attempts, source.retries):
                return failure
            yield from self._pause(call, process, attempts)
            attempts += 1

    def _patient(self, call: Call, process: Process) -> Steps:
        source = call.node
        if not any(edge.serves(call.request) for edge in source.ordinary):
            return Failure("unavailable", source.id)
        if source.timeout <= 0:
            return (yield from self.all(call, process, source.groups))
        answer: list[Outcome] = []

        def done(failure: Outcome) -> None:
            answer.append(failure)
            if waiting:
                process.step(failure)

        def expire(_: object) -> None:
            process.step(Failure("timeout", self.calls.deepest(call).id))

        waiting = False
        attempt = Process(done)
        timer = self.clock.deadline(source.timeout, expire)
        try:
            attempt.start(self.all(call, attempt, source.groups))
            if answer:
                return answer[0]
            waiting = True
            return (yield)
        finally:
            self.clock.cancel(timer)
            attempt.kill()
            self.calls.give_up_all(call)


class _Group:
    """The calls of a parallel group: when it is decided, and how."""

    def __init__(self, number: int, need: int, process: Process) -> None:
        self.open = number
        self.need = min(need, number) if need else number
        self.successes = 0
        self.process = process
        self.failure: Outcome = None
        self.decided = number == 0
        self.waited_for = False

    def answered(self, tolerated: bool, failure: Outcome) -> None:
        self.open -= 1
        if failure is None:
            self.successes += 1
            self.decided = self.successes >= self.need
        elif not tolerated and failure is not FORGIVEN and self.successes + self.open < self.need:
            self.failure = failure
            self.decided = True
        # Only tolerated failures are missing: nothing has failed the caller.
        self.decided = self.decided or self.open == 0
        if self.decided and self.waited_for:
            self.waited_for = False
            self.process.step(None)
