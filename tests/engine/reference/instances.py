"""What comes and goes by itself: crashes by overload, restarts, and the autoscaler."""

from __future__ import annotations

import math

from .calls import Calls
from .parts import TINY, Instance, Node

SAFE_SHARE = 0.9


class Instances:
    """The instances of one component."""

    def __init__(self, node: Node, calls: Calls) -> None:
        self.node = node
        self.calls = calls
        self.clock = calls.clock
        self.hazardous = node.cpu_work > 0 and node.vcpu > 0 and node.crash_rate > 0
        node.refresh_capacity(self.clock.now)
        for instance in node.instances:
            self._watch(instance)
        if node.settings["scale_on"] != "off":
            self._every = node.settings["scale_every_s"]
            self._last_change = -math.inf
            self._marks = self._areas()
            self.clock.at(self._every, self._tick, 1)

    # --- crashes

    def _watch(self, instance: Instance) -> None:
        """Draws the next candidate for a crash; thinning makes the hazard exact."""
        if self.hazardous:
            wait = self.node.random.expovariate(self.node.crash_rate)
            self.clock.after(wait, self._candidate, (instance, instance.epoch))

    def _candidate(self, argument: tuple[Instance, int]) -> None:
        instance, epoch = argument
        if epoch != instance.epoch or not instance.up or instance.booting:
            return
        share = self.node.cpu.busy_share(instance.since)
        if self.node.random.random() < (share - SAFE_SHARE) / (1.0 - SAFE_SHARE):
            self.crash([instance], self.node.restart)
        else:
            self._watch(instance)

    def crash(self, instances: list[Instance], seconds: float | None) -> None:
        """Takes instances down for a time; None until somebody brings them back."""
        self.calls.take_down(self.node, instances)
        if seconds is not None:
            for instance in instances:
                self.clock.after(seconds, self._restart, (instance, instance.epoch))

    def _restart(self, argument: tuple[Instance, int]) -> None:
        instance, epoch = argument
        # An outage keeps it down until its own end.
        if epoch == instance.epoch and instance in self.node.instances and not self.node.outages:
            self.restore([instance])

    def restore(self, instances: list[Instance]) -> None:
        self.calls.bring_up(self.node, instances)
        for instance in instances:
            self._watch(instance)

    # --- autoscaling

    def _areas(self) -> tuple[float, float, float, float]:
        node, now = self.node, self.clock.now
        integrals = (node.busy, node.slot_capacity, node.cpu.busy, node.cpu.capacity)
        return tuple(integral.total(now) for integral in integrals)

    def _tick(self, count: int) -> None:
        self.clock.at((count + 1) * self._every, self._tick, count + 1)
        before, self._marks = self._marks, self._areas()
        spent = [new - old for new, old in zip(self._marks, before, strict=True)]
        node = self.node
        if not node.live:
            return
        settings = node.settings
        wanted = self._wanted(spent, settings["scale_target"])
        if wanted is None:
            return
        wanted = min(max(wanted, settings["scale_min"]), settings["scale_max"])
        staying = [instance for instance in node.instances if not instance.draining]
        if wanted == len(staying) or self.clock.now < self._last_change + settings["scale_cooldown_s"] - TINY:
            return
        self._last_change = self.clock.now
        for _ in range(wanted - len(staying)):
            self._boot(settings["boot_s"])
        # Those that are down go first, then those that boot, then the highest.
        staying.sort(key=lambda instance: (not instance.up, instance.booting, instance.index))
        for instance in staying[wanted:]:
            self._drain(instance)

    def _wanted(self, spent: list[float], target: float) -> int | None:
        node = self.node
        if node.settings["scale_on"] == "queue":
            backlog = sum(queue.messages.backlog for queue in {edge.source for edge in node.feeds})
            return math.ceil((node.n_waiting + backlog) / target - TINY)
        busy, capacity = spent[:2] if node.settings["scale_on"] == "utilisation" else spent[2:]
        if capacity <= 0:
            return None
        return math.ceil(len(node.live) * busy / capacity / target - TINY)

    def _boot(self, seconds: float) -> None:
        instance = Instance(self.node.next_index)
        self.node.next_index += 1
        instance.booting = True
        self.node.instances.append(instance)

        def serve(_: object) -> None:
            if instance not in self.node.instances:
                return
            instance.booting = False
            if self.node.outages:
                instance.up = False
                self.node.refresh_capacity(self.clock.now)
            else:
                self.restore([instance])

        self.clock.after(seconds, serve)

    def _drain(self, instance: Instance) -> None:
        node = self.node
        instance.draining = True
        if instance.booting or not instance.up or not instance.busy:
            node.instances.remove(instance)
        node.refresh_capacity(self.clock.now)
