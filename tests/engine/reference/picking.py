"""How a balancer picks the target of a call, and its health checks."""

from __future__ import annotations

from .clock import Clock
from .parts import Edge, Node, Request


def _load(edge: Edge) -> float:
    return edge.in_flight / edge.target.capacity_as_configured


class Balancer(Node):
    """A component with the plan *one of*."""

    def pick(self, request: Request) -> Edge | None:
        """The edge for one attempt; None where no target is left."""
        served = [edge for edge in self.ordinary if edge.serves(request)]
        choice = [edge for edge in served if not edge.out]
        if not choice:
            return None
        policy = self.settings["policy"]
        if policy == "by_key" and request.key is not None:
            # The keys of a target that is out are spread over the others, the rest stay where they are.
            turn, home = divmod(request.key, len(served))
            return choice[turn % len(choice)] if served[home].out else served[home]
        if policy == "round_robin":
            after = [edge for edge in choice if self.ordinary.index(edge) >= self.turn]
            edge = (after or choice)[0]
            self.turn = self.ordinary.index(edge) + 1
            return edge
        if policy == "least_in_flight":
            return min(choice, key=_load)
        if policy == "power_of_two" and len(choice) > 1:
            two = self.random.sample(choice, 2)
            return min(sorted(two, key=choice.index), key=_load)
        if policy == "weighted":
            weights = [edge.weight for edge in choice]
            return self.random.choices(choice, weights if sum(weights) > 0 else None)[0]
        return self.random.choice(choice)

    def begin_checks(self, clock: Clock) -> None:
        every = self.settings["interval_s"]
        if every <= 0:
            return

        def look(count: int) -> None:
            if self.live:
                for edge in self.ordinary:
                    self._look(edge)
            clock.at((count + 1) * every, look, count + 1)

        clock.at(every, look, 1)

    def _look(self, edge: Edge) -> None:
        bad = not edge.target.live or edge.cuts > 0
        if bad == edge.out:
            edge.looks_in_a_row = 0
            return
        edge.looks_in_a_row += 1
        if edge.looks_in_a_row >= self.settings["unhealthy_after" if bad else "healthy_after"]:
            edge.out = bad
            edge.looks_in_a_row = 0
