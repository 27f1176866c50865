"""Faults: each begins at its time and is undone at its end."""

from __future__ import annotations

from .clock import FAULT
from .parts import Failure, Node, Source


class Faults:
    def __init__(self, sim) -> None:
        self.sim = sim
        self.clock = sim.clock

    def plan(self, fault) -> None:
        begin = getattr(self, f"_{fault.kind}")
        self.clock.at(fault.at_s, lambda _: self._begin(begin, fault), None, FAULT)

    def _begin(self, begin, fault) -> None:
        edge = self.sim.edges.get(fault.edge)
        target = edge if edge is not None else self.sim.callers[fault.node]
        undo = begin(target, fault)
        if undo is not None:
            self.clock.at(fault.at_s + fault.duration_s, lambda _: undo(), None, FAULT)

    def _outage(self, node: Node | Source, fault):
        if node.is_source:
            return self._silence(node)
        instances = self.sim.instances[node]
        node.outages += 1
        instances.crash([i for i in node.instances if i.up and not i.booting], None)

        def undo() -> None:
            node.outages -= 1
            if not node.outages:
                instances.restore([i for i in node.instances if not i.up])

        return undo

    def _crash(self, node: Node | Source, fault):
        if node.is_source:
            undo = self._silence(node)
            seconds = fault.duration_s or 10.0
            self.clock.at(fault.at_s + seconds, lambda _: undo(), None, FAULT)
            return None
        instances = self.sim.instances[node]
        hit = [i for i in node.instances if i.up and not i.booting][: int(fault.amount)]
        if hit:
            instances.crash(hit, fault.duration_s or node.restart)
        return None

    def _silence(self, source: Source):
        """A source that crashed starts no request, and those it waits for have failed."""
        source.down += 1
        for call in list(source.running):
            self.sim.traffic.abort(call, Failure("crashed", source.id))

        def undo() -> None:
            source.down -= 1

        return undo

    def _slow(self, node: Node, fault):
        return _listed(node.slow, fault.amount)

    def _errors(self, node: Node | Source, fault):
        return _listed(node.errors, fault.amount)

    def _cut(self, edge, fault):
        edge.cuts += 1

        def undo() -> None:
            edge.cuts -= 1
            if not edge.cuts and edge.source.plan == "queue":
                edge.source.messages.offer()

        return undo

    def _latency(self, edge, fault):
        return _listed(edge.added_latency, fault.amount / 1e3)

    def _quota(self, node: Node | Source, fault):
        def apply() -> None:
            if not node.is_source and node.quota is not None:
                factor = 1.0
                for each in node.quota_factors:
                    factor *= each
                node.quota.set_factor(self.clock.now, factor)

        return _listed(node.quota_factors, fault.amount, apply)

    def _cold_cache(self, node: Node, fault):
        node.cold_faults += 1

        def undo() -> None:
            node.cold_faults -= 1
            for instance in node.instances:
                instance.warm_from = self.clock.now

        return undo

    def _traffic(self, source: Source, fault):
        def apply() -> None:
            self.sim.traffic.factor_changed(source)

        return _listed(source.factors, fault.amount, apply)


def _listed(values: list[float], amount: float, apply=lambda: None):
    """Puts an amount into a list for the duration of a fault."""
    values.append(amount)
    apply()

    def undo() -> None:
        values.remove(amount)
        apply()

    return undo
