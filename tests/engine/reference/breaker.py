"""The state of a circuit breaker."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from .clock import Clock
from .parts import TINY

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"


class Ticket:
    """A call that was let through, in the state of that moment.  `answered`: it has had an outcome."""

    __slots__ = ("answered", "epoch", "gone")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.answered = False
        self.gone = False


class Breaker:
    """Outcomes count in the state that let their call through; each change of state begins a new epoch."""

    def __init__(self, settings: Mapping[str, object], clock: Clock) -> None:
        self.clock = clock
        self.failure_rate = settings["failure_rate"]
        self.window = settings["window_s"]
        self.min_calls = settings["min_calls"]
        self.cooldown = settings["cooldown_s"]
        self.probes = settings["probes"]
        self.state = CLOSED
        self._epoch = 0
        self._outcomes: deque[tuple[float, bool]] = deque()
        self._open_until = 0.0
        self._let_through = 0
        self._good_probes = 0

    def _become(self, state: str) -> None:
        self.state = state
        self._epoch += 1
        self._outcomes.clear()
        self._let_through = self._good_probes = 0
        if state == OPEN:
            self._open_until = self.clock.now + self.cooldown

    def ask(self) -> Ticket | None:
        """A ticket for a call that may pass; None refuses it."""
        if self.state == OPEN:
            if self.clock.now < self._open_until - TINY:
                return None
            self._become(HALF_OPEN)
        if self.state == CLOSED:
            return Ticket(self._epoch)
        if self._let_through >= self.probes:
            return None
        self._let_through += 1
        ticket = Ticket(self._epoch)
        self.clock.deadline(self.window, self._never_answered, ticket)
        return ticket

    def record(self, ticket: Ticket, success: bool) -> None:
        """The outcome of one call over a primary edge."""
        if ticket.epoch != self._epoch:
            return
        ticket.answered = True
        if self.state == HALF_OPEN:
            if not success:
                self._become(OPEN)
            return
        now = self.clock.now
        self._outcomes.append((now, success))
        while self._outcomes[0][0] <= now - self.window:
            self._outcomes.popleft()
        number = len(self._outcomes)
        failures = sum(1 for _, good in self._outcomes if not good)
        if number >= self.min_calls and failures and failures >= self.failure_rate * number - TINY:
            self._become(OPEN)

    def leave(self, ticket: Ticket, finished: bool) -> None:
        """The call of a ticket is over.  A cancelled probe, or one that asked nobody, makes room."""
        ticket.gone = True
        if ticket.epoch != self._epoch or self.state != HALF_OPEN:
            return
        if not finished or not ticket.answered:
            self._let_through -= 1
            return
        self._good_probes += 1
        if self._good_probes >= self.probes:
            self._become(CLOSED)

    def _never_answered(self, ticket: Ticket) -> None:
        if not ticket.gone and ticket.epoch == self._epoch:
            self._become(OPEN)
