"""Components, instances, connections and calls, as the reference keeps them.  Times are seconds."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from .clock import Clock, Process
from .cpu import Cpu
from .metrics import Integral, NodeMetrics

SIGMA_AT_P99 = 2.3263478740408408
BUDGET_WINDOW_S = 10.0
TINY = 1e-9


class Failure(NamedTuple):
    """Why a call failed and the node where that began."""

    reason: str
    node: str


class Request:
    """What all calls of one request have in common."""

    __slots__ = ("counted", "key", "priority", "source", "start", "write")

    def __init__(self, source: Source, start: float, counted: bool, write: bool, key: int | None) -> None:
        self.source = source
        self.start = start
        self.counted = counted
        self.write = write
        self.key = key
        self.priority = source.priority


# The life of a call.  LOST: it was to arrive over a cut edge.  NEVER: given up on its way and dropped.
TRAVELLING, LOST, NEVER, WAITING, WORKING, ENDED = range(6)


class Call:
    """One visit of a component.  `open` holds the attempts it waits for, in the order sent."""

    __slots__ = (
        "arrived", "attempt", "counted", "delivery", "depth", "edge", "failure", "instance", "job", "node",
        "open", "process", "request", "sent", "started", "state", "timer",
    )  # fmt: skip

    def __init__(self, node: Node, request: Request, depth: int, edge: Edge | None = None) -> None:
        self.node = node
        self.request = request
        self.depth = depth
        self.edge = edge
        self.attempt: Attempt | None = None
        self.state = TRAVELLING
        self.arrived = self.started = 0.0
        self.counted = self.delivery = False
        self.instance: Instance | None = None
        self.failure: Failure | None = None
        self.process: Process | None = None
        self.open: dict[Attempt, None] = {}
        self.sent = 0
        self.job: list | None = None
        self.timer: list | None = None


class Attempt:
    """A call as its caller sees it: open until answered, timed out or given up; `notify` hears of it."""

    __slots__ = ("call", "caller", "edge", "notify", "open", "owner", "timer")

    def __init__(self, caller: Call | None, edge: Edge, call: Call, notify, owner: Process | None) -> None:
        self.caller = caller
        self.edge = edge
        self.call = call
        self.notify = notify
        self.owner = owner
        self.open = True
        self.timer: list | None = None


class TokenBucket:
    """`rate` tokens a second, at most `burst`, full at the start."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = max(1.0, burst if burst > 0 else rate)
        self.factor = 1.0
        self._tokens = self.burst
        self._since = 0.0

    def _refill(self, now: float) -> None:
        self._tokens = min(self.burst, self._tokens + (now - self._since) * self.rate * self.factor)
        self._since = now

    def set_factor(self, now: float, factor: float) -> None:
        self._refill(now)
        self.factor = factor

    def take(self, now: float) -> bool:
        self._refill(now)
        if self._tokens < 1.0 - TINY:
            return False
        self._tokens -= 1.0
        return True


class Edge:
    """A connection.  `fallbacks` are the edges that stand in for it, in file order."""

    def __init__(self, id: str, settings: Mapping[str, object], source: Node, target: Node) -> None:
        self.id = id
        self.source = source
        self.target = target
        self.calls = float(settings["calls"])
        self.order = settings["order"]
        self.parallel = bool(settings["parallel"])
        self.need = int(settings["need"])
        self.only = settings["only"]
        self.optional = bool(settings["optional"])
        self.fallback = settings["fallback"] or None
        self.is_async = bool(settings["async"])
        self.latency = settings["latency_ms"] / 1e3
        self.weight = settings["weight"]
        self.checkpoint = bool(settings["checkpoint"])
        self.dead_letter = bool(settings["dead_letter"])
        # A source's patience covers the whole attempt, so only an edge's own override applies to its calls.
        own_timeout, own_retries = settings["timeout_ms"], settings["retries"]
        from_node = (0.0, 0) if source.is_source else (source.timeout, source.retries)
        self.timeout = from_node[0] if own_timeout is None else own_timeout / 1e3
        self.retries = from_node[1] if own_retries is None else int(own_retries)
        self.fallbacks: list[Edge] = []
        self.cuts = 0
        self.added_latency: list[float] = []
        self.in_flight = 0
        # What the health checks of a balancer have found.
        self.out = False
        self.looks_in_a_row = 0

    def serves(self, request: Request) -> bool:
        return self.only == "any" or (self.only == "write") == request.write

    def delay(self) -> float:
        return self.latency + sum(self.added_latency)


class Instance:
    __slots__ = ("booting", "busy", "calls", "draining", "epoch", "index", "since", "up", "warm_from")

    def __init__(self, index: int) -> None:
        self.index = index
        self.up = True
        self.booting = False
        self.draining = False
        self.busy = 0
        self.calls: dict[Call, None] = {}
        self.since = 0.0
        self.epoch = 0
        # None: warm from the first moment of the run.
        self.warm_from: float | None = None

    @property
    def serving(self) -> bool:
        return self.up and not self.booting and not self.draining


class Caller:
    """What components and sources share: making calls."""

    is_source = False

    def __init__(self, id: str, settings: Mapping[str, object], seed: int) -> None:
        self.id = id
        self.settings = settings
        self.random = random.Random(f"{seed}/{id}/own")
        self.timeout = settings["timeout_ms"] / 1e3
        self.retries = int(settings["retries"])
        self.backoff = settings["backoff_ms"] / 1e3
        self.backoff_factor = settings["backoff_factor"]
        self.backoff_max = settings["backoff_max_ms"] / 1e3
        self.jitter = settings["jitter"]
        self.retry_budget = settings.get("retry_budget", 0.0)
        self._firsts: deque[float] = deque()
        self._retried: deque[float] = deque()
        self.plan = ""
        self.edges: list[Edge] = []
        self.groups: list[tuple[list[Edge], list[Edge]]] = []
        self.checkpoint_groups: list[tuple[list[Edge], list[Edge]]] = []
        self.metrics = NodeMetrics()

    def arrange(self) -> None:
        """Sorts the edges into what the plan uses, once all are known."""
        by_id = {edge.id: edge for edge in self.edges}
        for edge in self.edges:
            if edge.fallback is not None:
                by_id[edge.fallback].fallbacks.append(edge)
        primary = [edge for edge in self.edges if edge.fallback is None and not edge.dead_letter]
        saves = [edge for edge in primary if edge.checkpoint and self.plan == "loop"]
        self.ordinary = [edge for edge in primary if edge not in saves]
        self.dead_letters = [edge for edge in self.edges if edge.dead_letter and edge.fallback is None]
        self.groups, self.checkpoint_groups = _groups(self.ordinary), _groups(saves)

    def first_attempt(self, now: float) -> None:
        if self.retry_budget > 0:
            self._firsts.append(now)

    def may_retry(self, now: float) -> bool:
        """Whether the budget has room for one more retry; if so it is counted."""
        if self.retry_budget <= 0:
            return True
        for times in (self._firsts, self._retried):
            while times and times[0] <= now - BUDGET_WINDOW_S:
                times.popleft()
        if len(self._retried) + 1 > self.retry_budget * len(self._firsts) + TINY:
            return False
        self._retried.append(now)
        return True

    def wait_before_retry(self, attempts: int) -> float:
        """The wait after `attempts` attempts have failed."""
        wait = self.backoff * self.backoff_factor ** (attempts - 1)
        if self.backoff_max > 0:
            wait = min(wait, self.backoff_max)
        return wait * self.random.uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else wait


def _groups(edges: list[Edge]) -> list[tuple[list[Edge], list[Edge]]]:
    """(sequential edges, parallel edges) of each order, ascending."""
    return [
        (
            [edge for edge in edges if edge.order == order and not edge.parallel],
            [edge for edge in edges if edge.order == order and edge.parallel],
        )
        for order in sorted({edge.order for edge in edges})
    ]


class Source(Caller):
    """A traffic source.  `down` counts the faults that keep it from acting."""

    is_source = True

    def __init__(self, id: str, settings: Mapping[str, object], seed: int) -> None:
        super().__init__(id, settings, seed)
        self.plan = "source"
        self.priority = int(settings["priority"])
        self.down = 0
        self.errors: list[float] = []
        self.quota_factors: list[float] = []
        self.running: dict[Call, None] = {}
        self.factors: list[float] = []


class Node(Caller):
    """A serving component."""

    def __init__(self, id: str, plan: str, settings: Mapping[str, object], seed: int, clock: Clock) -> None:
        super().__init__(id, settings, seed)
        self.plan = plan
        self.cancel = bool(settings["cancel"])
        self.error_rate = settings["error_rate"]
        self.cpu_work = settings["cpu_ms"] / 1e3
        self.vcpu = settings["vcpu"]
        self.restart = settings["restart_s"]
        self.crash_rate = settings["crash_rate"]
        self.slots = int(settings["slots"])
        self.room = int(settings["queue"])
        self.full_reason = "rejected"
        if plan == "bulkhead":
            self.slots = int(settings["max_in_flight"]) or self.slots
            self.full_reason = "full"
        self.configured = int(settings["instances"])
        self.instances = [Instance(index) for index in range(self.configured)]
        self.next_index = self.configured
        self.live: list[Instance] = list(self.instances)
        self.waiting: deque[Call] = deque()
        self.n_waiting = 0
        self.n_working = 0
        self.inbound = 0
        self.feeds: list[Edge] = []
        self.feed_turn = 0
        self.outages = 0
        self.slow: list[float] = []
        self.errors: list[float] = []
        self.quota_factors: list[float] = []
        self.cold_faults = 0
        self.turn = 0
        self.fills: dict[int, list[Process]] = {}
        quota = settings["quota_rpm"] / 60.0
        self.quota = TokenBucket(quota, settings["quota_burst"]) if quota > 0 else None
        self.limit = None
        if plan == "rate_limiter" and settings["limit_rps"] > 0:
            self.limit = TokenBucket(settings["limit_rps"], settings["limit_burst"])
        self.shed_above = settings["max_in_flight"] if plan == "shedder" else 0
        self.breaker = None
        self.messages = None
        self.busy = Integral()
        self.slot_capacity = Integral()
        self.queue_length = Integral()
        self.cpu = Cpu(clock, remember=self.cpu_work > 0 and self.crash_rate > 0)

    # --- capacity

    @property
    def capacity_as_configured(self) -> float:
        """What "per capacity" divides by: slots in all, 1 where there are none."""
        return self.configured * self.slots if self.slots else 1

    def refresh_capacity(self, now: float) -> None:
        """Follows a change of the instances.  A draining one still has its cores; its slots count no more."""
        self.live = [instance for instance in self.instances if instance.serving]
        up = sum(1 for instance in self.instances if instance.up and not instance.booting)
        self.slot_capacity.set(now, self.slots * len(self.live))
        self.cpu.set_cores(self.vcpu * up)
        self.refresh_busy(now)

    def refresh_busy(self, now: float) -> None:
        self.busy.set(now, sum(instance.busy for instance in self.live))

    def free_instance(self) -> Instance | None:
        """The live instance with the fewest busy slots, if one is free there."""
        best = None
        for instance in self.live:
            if best is None or instance.busy < best.busy:
                best = instance
        return best if best is not None and (not self.slots or best.busy < self.slots) else None

    def free_slots(self) -> float:
        if not self.slots:
            return math.inf if self.live else 0
        return sum(self.slots - instance.busy for instance in self.live)

    def shed_limit(self, priority: int) -> float:
        """Calls in flight at which a call of this priority is shed."""
        limit = self.shed_above
        if isinstance(limit, list):
            return limit[min(priority, len(limit) - 1)]
        return limit or math.inf

    # --- draws

    def draw_time(self) -> float:
        """The call's own time, before CPU and faults."""
        settings = self.settings
        p50, model = settings["p50_ms"] / 1e3, settings["latency_model"]
        if p50 <= 0 or model == "constant":
            return p50
        if model == "exponential":
            return self.random.expovariate(math.log(2) / p50)
        p99 = settings["p99_ms"]
        sigma = 0.0 if p99 is None else math.log(p99 / 1e3 / p50) / SIGMA_AT_P99
        return p50 * math.exp(self.random.gauss(0.0, sigma)) if sigma > 0 else p50

    def error_share(self) -> float:
        return 1.0 - (1.0 - self.error_rate) * math.prod(1.0 - amount for amount in self.errors)

    def hit_share(self, instance: Instance, now: float) -> float:
        """The hit rate of a cache's instance, warming up after a restart or a flush."""
        if self.cold_faults:
            return 0.0
        rate, warm = self.settings["hit_rate"], self.settings["warm_s"]
        if instance.warm_from is None or warm <= 0:
            return rate
        return rate * min(1.0, (now - instance.warm_from) / warm)

    def quota_allows(self, now: float) -> bool:
        if self.quota_factors and 0.0 in self.quota_factors:
            return False
        return self.quota is None or self.quota.take(now)
