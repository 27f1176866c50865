"""Queues, streams and topics: messages that consumers pull when they have a free slot."""

from __future__ import annotations

from collections import deque
from functools import partial

from .calls import Calls
from .parts import Call, Edge, Failure, Node, Request

# A message that fails at the very instant it was pulled is not offered again before this has passed, or it
# would be pulled for ever without time going on.
LEAST_REDELIVERY_S = 1e-3


class Message:
    __slots__ = ("counted", "depth", "lane", "receives", "request", "since", "sequence")

    def __init__(self, request: Request, depth: int, since: float, counted: bool, sequence: int) -> None:
        self.request = request
        self.depth = depth
        self.since = since
        self.counted = counted
        self.sequence = sequence
        self.receives = 0
        self.lane = 0


class Subscription:
    """What waits for some consumers, in lanes.

    An unordered queue has one lane, an ordered one has one for each partition, with one message at a time in work
    (`blocked` while it is, and while its head waits to be offered again).  Where a consumer takes only reads or
    writes, each has lanes of its own, so that one never waits behind the other.
    """

    def __init__(self, edges: list[Edge], partitions: int) -> None:
        self.edges = edges
        self.ordered = partitions > 0
        self.by_class = any(edge.only != "any" for edge in edges)
        self.partitions = max(1, partitions)
        number = self.partitions * (2 if self.by_class else 1)
        self.lanes: list[deque[Message]] = [deque() for _ in range(number)]
        self.blocked = [False] * number
        self.delayed: dict[Message, None] = {}
        self.turn = 0
        self.next_lane = 0

    def waiting(self) -> list[Message]:
        return [message for lane in self.lanes for message in lane] + list(self.delayed)

    def put(self, message: Message) -> None:
        key = 0
        if self.ordered:
            key = message.request.key
            if key is None:
                key = self.next_lane
                self.next_lane += 1
        message.lane = key % self.partitions
        if self.by_class and message.request.write:
            message.lane += self.partitions
        self.lanes[message.lane].append(message)

    def take(self, edge: Edge) -> Message | None:
        """The oldest message on offer that this consumer takes."""
        heads = [
            lane[0]
            for lane, blocked in zip(self.lanes, self.blocked, strict=True)
            if lane and not blocked and edge.serves(lane[0].request)
        ]
        if not heads:
            return None
        message = min(heads, key=lambda head: head.sequence)
        self.lanes[message.lane].popleft()
        self.blocked[message.lane] = self.ordered
        return message


class MessageQueue:
    """The messages of one queue component, which survive its crashes."""

    def __init__(self, node: Node, calls: Calls) -> None:
        self.node = node
        self.calls = calls
        self.clock = calls.clock
        settings = node.settings
        self.capacity = settings["capacity"]
        self.max_receives = settings["max_receives"]
        self.redeliver = settings["redeliver_ms"] / 1e3
        # Each copy of a message waits for one consumer; without copies all consumers share one.
        self.copies = settings["copies"]
        shares = [[edge] for edge in node.ordinary] if self.copies else [node.ordinary]
        self.subscriptions = [Subscription(edges, settings["partitions"]) for edges in shares]
        self.subscription_of = {edge: sub for sub in self.subscriptions for edge in sub.edges}
        self.backlog = 0
        self._sequence = 0

    def oldest(self) -> float | None:
        """When the oldest message that waits was acknowledged."""
        return min((m.since for sub in self.subscriptions for m in sub.waiting()), default=None)

    def publish(self, call: Call) -> Failure | None:
        """Takes a message in as its producer's call ends: None acknowledges it."""
        if self.capacity and self.backlog >= self.capacity:
            return Failure("full", self.node.id)
        for sub in self.subscriptions:
            if self.copies and not sub.edges[0].serves(call.request):
                continue
            self._sequence += 1
            sub.put(Message(call.request, call.depth, self.clock.now, call.counted, self._sequence))
            self.backlog += 1
        self.clock.after(0.0, self.offer)
        return None

    def offer(self, _: object = None) -> None:
        """Hands out what waits, to the consumers in turn."""
        for sub in self.subscriptions:
            number = len(sub.edges)
            tried = 0
            while tried < number and any(sub.lanes):
                edge = sub.edges[sub.turn % number]
                if self.deliver_one(edge):
                    tried = 0
                else:
                    sub.turn = (sub.turn + 1) % number
                    tried += 1

    def deliver_one(self, edge: Edge) -> bool:
        """Lets a consumer pull one message, if it can take one and there is one for it."""
        consumer = edge.target
        if (
            not self.node.live
            or edge.cuts
            or consumer.n_waiting
            or consumer.free_slots() - consumer.inbound <= 0
        ):
            return False
        sub = self.subscription_of[edge]
        message = sub.take(edge)
        if message is None:
            return False
        sub.turn = (sub.edges.index(edge) + 1) % len(sub.edges)
        self.backlog -= 1
        message.receives += 1
        attempt = self.calls.send(
            None,
            edge,
            partial(self._outcome, sub, message, self.clock.now),
            edge.timeout,
            request=message.request,
            depth=message.depth + 1,
        )
        attempt.call.delivery = True
        consumer.inbound += 1
        return True

    def _outcome(self, sub: Subscription, message: Message, pulled: float, failure: Failure | None) -> None:
        if failure is not None and (not self.max_receives or message.receives < self.max_receives):
            self._back(sub, message, pulled)
            return
        if failure is not None:
            self._set_aside(message)
        if sub.ordered:
            sub.blocked[message.lane] = False
            self.offer()

    def _back(self, sub: Subscription, message: Message, pulled: float) -> None:
        """A failed delivery: back at the tail, or at the head of its lane, once `redeliver_ms` has passed."""
        self.backlog += 1
        wait = self.redeliver
        if wait <= 0 and self.clock.now <= pulled:
            wait = LEAST_REDELIVERY_S
        if sub.ordered:
            sub.lanes[message.lane].appendleft(message)
        else:
            sub.delayed[message] = None

        def visible(_: object) -> None:
            if sub.ordered:
                sub.blocked[message.lane] = False
            else:
                del sub.delayed[message]
                self._sequence += 1
                message.sequence = self._sequence
                sub.lanes[message.lane].append(message)
            self.offer()

        if wait > 0:
            self.clock.after(wait, visible)
        else:
            visible(None)

    def _set_aside(self, message: Message) -> None:
        """Delivered often enough: over to the dead letters, or lost.  Nobody waits for the answer."""
        edge = next((edge for edge in self.node.dead_letters if edge.serves(message.request)), None)
        if edge is not None:
            self.calls.send(None, edge, lambda _: None, request=message.request, depth=message.depth + 1)
        elif message.counted:
            message.request.source.totals.lost += 1


def pull(node: Node) -> None:
    """A component may have a free slot: it pulls from the queues that feed it, in turn."""
    number = len(node.feeds)
    tried = 0
    while tried < number:
        edge = node.feeds[node.feed_turn % number]
        node.feed_turn = (node.feed_turn + 1) % number
        tried = 0 if edge.source.messages.deliver_one(edge) else tried + 1
