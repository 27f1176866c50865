"""A second simulator, slow and plain, written from the rules alone and without knowledge of the engine's kernel.

`run(design, seed)` returns what `run --json` writes, without wall_s, digest, cost and objectives; its percentiles
are exact.
Where the two simulators differ on a design, one of them has misread a rule.

One list of events in the order (time, faults before all else and timeouts after, order of scheduling); a call that
has no way to travel, and an answer, are events like any other.  A call's downstream work is a generator that sleeps
until an answer or a clock wakes it.  Rooms: `clock`, `parts` (components, connections, calls), `calls` (the life of
a call), `plans`, `queues`, `breaker`, `picking` (balancers), `cpu`, `instances` (crashes, scaling), `traffic` and
`shapes`, `faults`, `metrics`, `sim`; and for tests `build`, `numbers`, `designs`, `compare`.

Chosen where the rules leave it open, as in engine/README.md:

- Deadlines (timeouts, patience, visibility, hedge_ms, a probe's window) lie 1 ns late, and buckets, shares and
  cool-downs are compared with a slack of 1e-9, so that rounding decides nothing.
- Even arrivals come one gap after the start; the first batch at the later of `at_s` and `start_s`; a step or spike
  without `at_s` begins at `start_s`, and nothing bounds it.  Before its first pair a schedule has rate 0.
- A traffic fault repeats each request of a herd or batch (a fraction by chance) and changes the number of users.
- A source that is down starts nothing; its open requests have crashed.  A request that no edge of its source takes is
  `unavailable` there.
- The own error is drawn, and `errors` looked up, when the own work is done; `slow` when it begins.
- A first attempt over a fallback edge, and each attempt of a one-of or hedge that is its first, counts for the retry
  budget; async calls do not.  A retry counts as it is sent; a source's figures have its own, the totals all.
- A caller no longer waits for what it has given up, so that is not "sent and not yet answered".
- One-of: the better of two takes ties in file order; a key whose target is out moves, the others stay; no weight
  above 0 is even weights; `calls`, `order`, `parallel` and `need` are not looked at.
- Hedge: one call; the second copy goes over the next edge, or the same; one timeout from the first sending.
- A cache's warmth is its instance's; followers of a fill end as it does, whatever ended it.
- A breaker is asked once a visit; outcomes count for each call over a primary edge and are looked at after each.
- Every checkpoint edge is written; the save is good when none of them failed.
- A message waits from its acknowledgement; backlog, capacity and age count what waits or is between two deliveries,
  each copy by itself.  A message that failed at the very instant it was pulled waits 1 ms.  Depth goes on through a
  queue.
  `lost` counts by the arrival of the producer's call.
- Autoscaling multiplies by the live instances and compares with all that are not draining; those that are down go
  first, then those that boot, then the highest.  A draining one keeps its cores, its slots no longer count.
- A crash, restart or boot during an outage ends with the outage.
"""

from .sim import Reference, run

__all__ = ["Reference", "run"]
