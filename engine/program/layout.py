"""The memory of a simulation: every constant and every record type the kernel works on.

A run is a fixed set of numpy arrays (see :class:`engine.program.state.State`). Each array holds one of the
record types below. The first record, ``SIM``, carries the addresses of the others, so that the kernel reaches
everything from one pointer; the addresses are written anew before each kernel call and are not part of the
state. Times are simulated seconds, rates are per second.
"""

from __future__ import annotations

import numpy as np

# --- plans: how a component uses its edges ---
PLANS = ("source", "all", "one_of", "cache", "queue", "breaker", "loop", "hedge")
P_SOURCE, P_ALL, P_ONE_OF, P_CACHE, P_QUEUE, P_BREAKER, P_LOOP, P_HEDGE = range(8)

# --- why a call failed: a closed list ---
REASONS = (
    "timeout",
    "rejected",
    "throttled",
    "rate_limited",
    "shed",
    "full",
    "unavailable",
    "crashed",
    "error",
    "cancelled",
    "too_deep",
    "breaker_open",
)
(
    R_TIMEOUT,
    R_REJECTED,
    R_THROTTLED,
    R_RATE_LIMITED,
    R_SHED,
    R_FULL,
    R_UNAVAILABLE,
    R_CRASHED,
    R_ERROR,
    R_CANCELLED,
    R_TOO_DEEP,
    R_BREAKER_OPEN,
) = range(12)
NR = len(REASONS)
MAX_DEPTH = 32

# --- states of a call record ---
(
    S_FREE,
    S_TRAVEL,  # sent, not yet at its component
    S_WAITING,  # in the component's queue
    S_CPU,  # sharing the cores
    S_WORK,  # own time without CPU
    S_CALLING,  # carrying out its plan
    S_RESUME,  # an agent waiting to resume
    S_FILL,  # waiting for another call's cache fill
    S_ANSWER,  # ended, its answer travels
    S_LOST,  # the call or its answer was lost in a cut
    S_BACKOFF,  # stands for the retry its caller waits to send
    S_REFUSED,  # stands for a call its own breaker did not let through
    S_MESSAGE,  # a message kept by a queue (waiting, out for delivery, or waiting for redelivery)
) = range(13)

# --- events ---
(
    E_LANE,
    E_DELIVER,
    E_ANSWER,
    E_WORKED,
    E_CPU,
    E_TIMEOUT,
    E_RETRY,
    E_HEDGE,
    E_ARRIVE,
    E_USER,
    E_RESUME,
    E_FAULT_ON,
    E_FAULT_OFF,
    E_RESTART,
    E_SCALE,
    E_HEALTH,
    E_HAZARD,
    E_REDELIVER,
    E_PROBE,
    E_GIVE_UP,
    E_FILLED,
    E_PULL,
    E_SPAWN,
    E_CARRY_ON,
) = range(24)
C_FAULT, C_NORMAL, C_TIMEOUT = 0, 1, 2  # order of events at one instant

# --- policies, latency models, shapes, breaker states, instance states ---
POLICIES = ("round_robin", "random", "least_in_flight", "power_of_two", "weighted", "by_key")
PO_ROUND, PO_RANDOM, PO_LEAST, PO_TWO, PO_WEIGHT, PO_KEY = range(6)
LATENCY_MODELS = ("lognormal", "exponential", "constant")
L_LOGNORMAL, L_EXPONENTIAL, L_CONSTANT = range(3)
T_OPEN, T_HERD, T_BATCH, T_USERS = range(4)
B_CLOSED, B_OPEN, B_HALF = range(3)
I_OFF, I_LIVE, I_DOWN, I_BOOTING, I_DRAINING = range(5)
SCALES = ("off", "utilisation", "cpu", "queue")
SC_OFF, SC_UTIL, SC_CPU, SC_QUEUE = range(4)
FAULTS = ("outage", "crash", "slow", "errors", "cut", "latency", "quota", "cold_cache", "traffic")
(
    F_OUTAGE,
    F_CRASH,
    F_SLOW,
    F_ERRORS,
    F_CUT,
    F_LATENCY,
    F_QUOTA,
    F_COLD,
    F_TRAFFIC,
) = range(9)
ONLY_ANY, ONLY_READ, ONLY_WRITE = range(3)

# --- what a kernel call is asked for, and what it answers ---
OP_RUN, OP_TOUCH, OP_APPLY, OP_FAULT, OP_START = range(5)
ST_UNTIL, ST_DONE, ST_GROW, ST_FRAMES, ST_EVENTS, ST_STUCK = range(6)
STUCK = 50_000_000  # steps at one instant after which the clock counts as stuck
SLACK = 1e-9  # s: a rounding error of the clock is not a difference in time
LEAST_PAUSE = 1e-3  # s: what would repeat for ever at one instant waits this long instead
(G_CALLS, G_HEAP, G_AGENDA, G_LANE, G_FILLS) = range(5)

# --- histograms: log-linear, 64 steps an octave, mid-point error under 0.8 % ---
H_SUB = 64
H_MIN_EXP = -24  # 2^-24 s = 0.06 microseconds; smaller counts as zero
H_OCTAVES = 46  # up to 2^22 s
H_SIZE = 1 + H_OCTAVES * H_SUB
CELLS = 1000  # buckets of a sliding window (breaker, retry budget)
UGRID = 1024  # grid of the CPU history, a power of two
CPU_WINDOW = 5.0
UCELL = CPU_WINDOW / 1000
BUDGET_WINDOW = 10.0
CNT = 16  # counters per node and side (before and after the warm-up): offered, succeeded, failed by reason
BEGAN = 2 * CNT  # after both sides: requests that failed, by reason, where the failure began here
TALLY = 3 * CNT
FRAME_S = 0.1
ZIG = 256


def _rec(text: str, size: int = 0) -> np.dtype:
    """A record type from lines ``type name name …``; anything after # is a comment. size: its bytes, if padded."""
    fields = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            fields += [(name, words[0]) for name in words[1:]]
    plain = np.dtype(fields, align=True)
    if not size:
        return plain
    names = list(plain.names)
    parts = [plain.fields[n] for n in names]
    return np.dtype(
        {
            "names": names,
            "formats": [f for f, _ in parts],
            "offsets": [o for _, o in parts],
            "itemsize": size,
        },
        align=True,
    )


POINTERS = (
    "node edge call heap agenda lane item inst adj stream cnt hist whist woct seg src fault goal origin "
    "frame fnode fedge freason mark sub fill wheel ugrid level tick zig when"
).split()

SIM = _rec(
    "".join(f"u8 {p}\n" for p in POINTERS)
    + """
f8 now until end duration warmup      # clock; where this call stops; where the run ends at the latest
f8 next_frame next_mark stop
f8 arrival_t                          # the first of the sources' next arrivals: they stand beside the heap
i8 arrival_key arrival_src
i8 seq events max_events steps        # steps: at this instant
i8 heap_n heap_cap
i8 agenda_head agenda_n agenda_mask
i8 free calls_high calls_cap calls_live   # free list, records ever used, records in use
i8 fill_n fill_mask
i8 open_requests
i8 frame_i frame_n frame_cap frame_keep  # frames ever recorded, in the buffer, room in it; 0: overwrite old ones
i8 mark_i mark_n
i8 nodes edges faults sources lanes goals
i8 burst spent                        # most calls one step can send; messages this step has handed over
i8 live_soft heap_soft agenda_soft     # below these a step cannot run out of room
i8 need need_id                       # what a growing answer asks for
i8 finished
"""
)

NODE = _rec(
    """
# what the settings say
i4 plan slots queue retries cancel latency
f8 vcpu cpu_s p50_s mu sigma
f8 timeout_s backoff_s factor backoff_max_s jitter budget
f8 error quota quota_burst
f8 crash_rate restart_s
i4 scale_on scale_min scale_max bulkhead
f8 scale_target scale_every boot_s cooldown
f8 hit_rate warm_s
i4 coalesce max_receives partitions copies
i8 capacity
f8 redeliver_s
f8 failure_rate window_s cooldown_s
i4 min_calls probes
f8 limit limit_burst
i4 level_off level_n                  # shedding limits by priority
f8 hedge_s
f8 steps resume_wait_s
i4 steps_model checkpoint_every max_resumes policy
f8 interval_s
i4 unhealthy_after healthy_after
# where its lists are
i4 plan_off plan_n ck_off ck_n        # ordinary edges in plan order, checkpoint edges
i4 feed_off feed_n                    # edges of queues that feed it
i4 in_off in_n
i4 inst_off inst_cap instances dead_letter fb_any
i4 sub_off sub_n src lane_work lane_to
i4 budget_off breaker_off ugrid_off
i4 simple                             # one plain edge, called once: the shortest way through the plan
i4 hazard_runs scale_runs health_runs inst_room
i4 hazard_gen scale_gen health_gen    # which chain of events is the valid one
# faults acting on it
i4 outages cold quota_zero
f8 slow keep quota_factor warm_from
# state
i4 live busy qlen q_head q_tail reserved booting draining drain_busy  # drain_busy: of busy, on draining instances
i8 in_flight
f8 tokens tokens_t ltokens ltokens_t
f8 busy_last busy_int queue_last queue_int cap_last cap_int
i8 queue_max
f8 cpu_v cpu_last cpu_int cpu_cap_int cpu_t u_total u_next
i4 cpu_n cpu_head cpu_tail cpu_gen
i8 retries_sent crashes abandoned lost
i8 br_cell br_fail br_total
f8 br_until
i4 br_state br_epoch br_let br_ok
i8 bu_cell bu_first bu_retry
i4 rr rr_feed rr_sub classes          # classes: 2 where consumers choose by read and write
i8 backlog enqueued
i4 age_head age_tail
f8 age_t                              # when its oldest waiting message came, as last looked at; -1: none
f8 sc_busy sc_cap sc_cpu sc_ccap sc_after
f8 soj_sum wait_sum
f4 w50 w95 w99
i4 w_n
""",
    1024,
)  # a power of two: its address is a shift

EDGE = _rec("""
i4 src dst order parallel need only optional fallback async_ checkpoint dead_letter
i4 on_fail                            # the edge tried when a call of this one has failed for good, -1 = none
i4 retries lane_lat lane_to
f8 calls weight latency_s timeout_s
i4 cut out bad good                   # faults and health
f8 extra_s
f8 load_cap
i4 place open                      # calls sent and not yet answered; capacity its balancer assumes
i8 sent failed
""")

# One record is the call at its component and, for its caller, the open attempt; the two halves do not overlap.
CALL = _rec("""
i4 node gen parent edge base          # base: the edge the plan meant (edge: it, or a fallback of it)
i4 sib_prev sib_next kid_head kid_tail q_prev q_next
i4 inst origin epoch
i4 pos left open good need            # place in the plan; parallel group: open, succeeded, needed
i4 steps step saved
i4 resumes receives ticket            # receives: deliveries of a message; ticket: what its own breaker said
i2 attempt tries
i1 state reason ok cls counted admitted depth mode phase written write_failed write_any fill pulled
i2 prio src                            # src: the source its request came from
f8 t_arr t_start rest vt
i8 key
""")
M_SEQ, M_PAR, M_ONE, M_HEDGE = range(4)

EVENT = _rec("f8 t\ni8 key\ni4 id gen")  # key: class, sequence number, kind
LANE = _rec("i8 off mask head n")
INST = _rec("f8 started\ni4 state busy gen node")
STREAM = _rec("u8 a b c d")
SEG = _rec("f8 t0 t1 rate slope")
SRC = _rec("""
i4 node mode even gen
i4 seg_off seg_n seg_i goal_off goal_n
f8 base period                        # periodic shapes: shift of the segment table
f8 start stop factor
f8 left from_t                        # exposure still to run, and from when
i8 count done extra                   # herd, batch; extra: further requests of this arrival, -1: not drawn
f8 at spread every
i8 users people wanted                # people who take part; how many should under the traffic factor
f8 think
f8 write_share
i8 keys
f8 zipf z_x1 z_n z_s
i4 prio down
i8 ids
i8 lost                               # messages of its requests that were given up
f8 asked_at
f8 area                               # of one period of its shape, in requests
f8 anchor                             # even arrivals of a rate that never changes: the k-th is at anchor + k gaps
i8 ticks
f8 gap gap_now                        # mean gap of a rate that never changes, else 0; under the factor
f8 next_t                             # its next arrival, inf: none
i8 next_key
""")
FAULT = _rec("f8 at end amount\ni4 kind node edge active manual pad")
GOAL = _rec("f8 from_t to_t within\ni8 ok bad late\ni4 hist tick_off tick_n pad\nf8 tick_t")
SUB = _rec("i4 head tail n blocked")
FILL = _rec("i8 key\ni4 node call")
TALLIES = np.dtype([("n", np.int64, (TALLY,))], align=True)  # only ever copied whole
FRAME = _rec("f8 t\ni8 events in_flight")
FNODE = _rec("""
i8 retries crashes backlog abandoned
f8 busy_int cap_int cpu_int cpu_cap_int queue_int
f4 p50 p95 p99 age
i4 in_flight busy queue live breaker samples
""")
FEDGE = _rec("i8 sent failed")
