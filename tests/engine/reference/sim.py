"""A run of the reference simulator, from a design to the object `run --json` writes."""

from __future__ import annotations

from .breaker import Breaker
from .calls import Calls
from .clock import Clock
from .faults import Faults
from .instances import Instances
from .metrics import SourceMetrics, totals
from .parts import Edge, Node, Source
from .picking import Balancer
from .plans import Plans
from .queues import MessageQueue, pull
from .traffic import Traffic


class Reference:
    """One run.  `result()` after `run()`."""

    def __init__(self, design, seed: int | None = None, until: float | None = None) -> None:
        self.design = design
        self.seed = design.seed if seed is None else seed
        self.end = design.duration_s if until is None else min(until, design.duration_s)
        self.drain = design.drain_s if self.end >= design.duration_s else 0.0
        self.clock = Clock()
        self.calls = Calls(self.clock, (design.warmup_s, self.end))
        self.callers = {node.id: self._make(node) for node in design.nodes}
        self.edges: dict[str, Edge] = {}
        for edge in design.edges:
            source = self.callers[edge.source]
            made = Edge(edge.id, edge.effective(), source, self.callers[edge.target])
            self.edges[edge.id] = made
            source.edges.append(made)
        self.nodes = [caller for caller in self.callers.values() if not caller.is_source]
        self.sources = [caller for caller in self.callers.values() if caller.is_source]
        for caller in self.callers.values():
            caller.arrange()
        self.plans = Plans(self.calls)
        self.calls.run_plan = self.plans.run
        self.calls.pull = pull
        self.faults = Faults(self)
        for fault in design.faults:
            self.faults.plan(fault)
        for node in self.nodes:
            if node.plan == "queue":
                node.messages = MessageQueue(node, self.calls)
                for edge in node.ordinary:
                    edge.target.feeds.append(edge)
            elif node.plan == "breaker":
                node.breaker = Breaker(node.settings, self.clock)
            elif node.plan == "one_of":
                node.begin_checks(self.clock)
        self.instances = {node: Instances(node, self.calls) for node in self.nodes}
        self.traffic = Traffic(self.calls, self.plans, self.sources, design.duration_s, self.seed)
        self._marks: dict[Node, list[float]] = {}
        self._at_end: dict[Node, dict[str, object]] = {}

    def _make(self, node) -> Node | Source:
        settings = node.effective()
        if node.plan == "source":
            source = Source(node.id, settings, self.seed)
            source.totals = SourceMetrics()
            return source
        kind = Balancer if node.plan == "one_of" else Node
        return kind(node.id, node.plan, settings, self.seed, self.clock)

    def run(self) -> Reference:
        self.clock.at(self.design.warmup_s, self._warmed_up, None, 0)
        self.clock.run(self.end)
        for node in self.nodes:
            self._at_end[node] = self._measure(node)
        if self.drain > 0:
            self.clock.run(self.end + self.drain, lambda: not self.traffic.unanswered)
        return self

    def _integrals(self, node: Node) -> list[float]:
        now = self.clock.now
        integrals = (node.busy, node.slot_capacity, node.cpu.busy, node.cpu.capacity, node.queue_length)
        return [integral.total(now) for integral in integrals]

    def _warmed_up(self, _: object) -> None:
        for node in self.nodes:
            self._marks[node] = self._integrals(node)
            node.metrics.queue_max = node.n_waiting

    def _measure(self, node: Node) -> dict[str, object]:
        """What stops at the end of the run, whatever the drain does."""
        now = self.clock.now
        before = self._marks.get(node) or self._integrals(node)
        busy, slots, computing, cores, waiting = (
            new - old for new, old in zip(self._integrals(node), before, strict=True)
        )
        window = now - self.design.warmup_s
        messages = node.messages
        oldest = messages.oldest() if messages else None
        return {
            "utilisation": busy / slots if slots > 0 else None,
            "cpu_utilisation": computing / cores if cores > 0 else None,
            "queue_mean": waiting / window if window > 0 else None,
            "backlog": messages.backlog if messages else None,
            "backlog_age_s": None if oldest is None else now - oldest,
        }

    def result(self) -> dict[str, object]:
        window = self.end - self.design.warmup_s
        for source in self.sources:
            source.totals.retries = source.metrics.retries
        everything = totals([source.totals for source in self.sources], window)
        everything["retries"] += sum(node.metrics.retries for node in self.nodes)
        return {
            "format": 1,
            "name": self.design.name,
            "seed": self.seed,
            "duration_s": self.design.duration_s,
            "warmup_s": self.design.warmup_s,
            "events": self.clock.events,
            "totals": everything,
            "sources": {source.id: totals([source.totals], window) for source in self.sources},
            "nodes": {node.id: {**node.metrics.summary(), **self._at_end[node]} for node in self.nodes},
        }


def run(design, seed: int | None = None, until: float | None = None) -> dict[str, object]:
    """Simulates a design with a seed (None: its own), up to `until` simulated seconds (None: to its end).

    The result has the shape of `run --json`, without wall_s, digest, cost and objectives.
    """
    return Reference(design, seed, until).run().result()
