"""Every setting there is: its name, unit, range, default and what its number does.

`COMMON` belongs to every serving component, `PLANS[plan]` to the components of one plan, `EDGE` to
connections, `HEADER` to the design as a whole.  The inspector, the files, the command line and the lowering
all read these tables; no default and no range stands anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.design.errors import DesignError, show
from engine.design.setting import MAX_PRIORITIES, Setting

GUARDS = ("rate_limiter", "shedder", "bulkhead")
PLAN_NAMES = ("source", "all", "one_of", "cache", "queue", "breaker", "loop", "hedge", *GUARDS)


def _row(type_: str, unit: str, low: float, high: float):
    def make(name: str, default: object, group: str, doc: str, zero: str = "", **over: object) -> Setting:
        field = {"unit": unit, "low": low, "high": high, **over}
        return Setting(name, type_, field["unit"], default, field["low"], field["high"], (), doc, group, zero)

    return make


_number = _row("number", "", 0, 1e9)
_count = _row("count", "", 0, 1e9)
_share = _row("share", "", 0, 1)
_ms = _row("ms", "ms", 0, 1e9)
_s = _row("s", "s", 0, 1e6)
_flag = _row("flag", "", 0, 1)
_rate = _row("number", "per s", 0, 1e7)


def _choice(name: str, choices: tuple[str, ...], group: str, doc: str) -> Setting:
    """A choice; its first is the default."""
    return Setting(name, "choice", "", choices[0], 0, 0, choices, doc, group)


def _table(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


_CALLING = (
    _ms("timeout_ms", 0, "calls", "How long it waits for each attempt of each call it makes.", "for ever"),
    _count("retries", 0, "calls", "Further attempts it makes after one has failed.", high=1000),
    _ms("backoff_ms", 100, "calls", "The wait before the first retry."),
    _number("backoff_factor", 2, "calls", "Each further wait is this many times the one before.", high=1000),
    _ms("backoff_max_ms", 0, "calls", "No wait between attempts grows beyond this.", "no limit"),
    _share("jitter", 0, "calls", "Spreads each wait at random by up to this share of it, up and down."),
)

COMMON: Mapping[str, Setting] = _table(
    _count(
        "instances", 1, "capacity", "Identical copies that share the calls and one queue.", low=1, high=10_000
    ),
    _count(
        "slots",
        0,
        "capacity",
        "Calls one instance works on at once; a slot is held until its call ends, "
        "the calls it makes included.",
        "no limit",
        unit="per instance",
    ),
    _count(
        "queue",
        0,
        "capacity",
        "Calls that may wait for a slot; one more is refused.",
        "nobody waits",
        unit="calls",
    ),
    _number(
        "vcpu",
        0,
        "capacity",
        "Cores of one instance, shared evenly by the calls that compute.",
        "no CPU is modelled",
        unit="cores per instance",
        high=1e6,
    ),
    _ms("cpu_ms", 0, "time", "CPU time each call burns; on busy cores it takes longer.", high=1e7),
    _ms("p50_ms", 0, "time", "Median of a call's own time, before any call it makes.", high=1e8),
    _ms("p99_ms", None, "time", "99 calls in 100 take no longer than this for their own part.", high=1e8),
    _choice(
        "latency_model",
        ("lognormal", "exponential", "constant"),
        "time",
        "How a call's own time scatters: a long tail fixed by p50 and p99, memoryless, or always p50.",
    ),
    *_CALLING,
    _number(
        "retry_budget",
        0,
        "calls",
        "Retries it may send for each first attempt, over the last 10 s; 0.1 is one in ten.",
        "no limit",
        high=1000,
    ),
    _share(
        "error_rate", 0, "failure", "Share of calls that fail by themselves at the end of their own work."
    ),
    _number(
        "quota_rpm",
        0,
        "capacity",
        "Calls a minute it admits; those above are refused at once.",
        "no limit",
        unit="calls per min",
    ),
    _number(
        "quota_burst",
        0,
        "capacity",
        "Calls the quota lets through at once after a quiet time.",
        "one second's worth",
        unit="calls",
    ),
    _flag(
        "cancel",
        False,
        "calls",
        "Whether it drops a call, and the calls made for it, once its caller has given up.",
    ),
    _choice(
        "scale_on",
        ("off", "utilisation", "cpu", "queue"),
        "capacity",
        "What the autoscaler watches: busy slots, busy cores, or calls waiting for each instance.",
    ),
    _number(
        "scale_target",
        0.7,
        "capacity",
        "The level the autoscaler steers to: a busy share, or calls waiting per instance.",
        low=0.001,
        high=1e6,
    ),
    _count(
        "scale_min", 1, "capacity", "The autoscaler keeps at least this many instances.", low=1, high=10_000
    ),
    _count(
        "scale_max", 10, "capacity", "The autoscaler starts at most this many instances.", low=1, high=10_000
    ),
    _s("scale_every_s", 15, "capacity", "Time between two decisions of the autoscaler.", low=0.1),
    _s("boot_s", 60, "capacity", "Time from the decision until a new instance serves."),
    _s(
        "scale_cooldown_s",
        60,
        "capacity",
        "After a change the autoscaler lets this time pass before the next.",
    ),
    _number(
        "crash_rate",
        0.2,
        "failure",
        "Crashes a second of an instance whose CPU is always busy; the risk starts at 90 % busy.",
        unit="per s",
        high=1000,
    ),
    _s("restart_s", 10, "failure", "Time until a crashed instance serves again."),
)

SHAPES = ("constant", "ramp", "step", "spike", "burst", "day", "schedule", "trace", "herd", "batch")

_SOURCE = _table(
    _rate("rate", 10, "traffic", "Requests that arrive each second on average."),
    _choice(
        "arrivals",
        ("poisson", "even"),
        "traffic",
        "Whether requests come independently of each other or evenly spaced.",
    ),
    _choice("shape", SHAPES, "traffic", "How the rate changes over time."),
    _rate("rate_to", 0, "traffic", "The rate at the end of a ramp or after a step."),
    _s(
        "start_s",
        0,
        "traffic",
        "When a ramp, step or spike begins; with the other shapes no request arrives before it.",
    ),
    _s(
        "stop_s",
        0,
        "traffic",
        "When a ramp or spike ends; with the other shapes no request arrives after it.",
        "never",
    ),
    _number("spike_factor", 5, "traffic", "How many times the usual rate arrives during a spike.", high=1e6),
    _s("on_s", 10, "traffic", "Length of each burst, or of a spike that begins at at_s.", low=0.001),
    _s("off_s", 10, "traffic", "Length of the pause between two bursts."),
    _rate("off_rate", 0, "traffic", "The rate in the pause between two bursts."),
    _s("period_s", 120, "traffic", "Length of one simulated day.", low=0.001),
    _share("amplitude", 0.5, "traffic", "How far the rate swings above and below its mean over a day."),
    Setting(
        "schedule",
        "points",
        "",
        None,
        0,
        0,
        (),
        "Pairs of time and rate; each rate holds until the next pair's time.",
        "traffic",
    ),
    Setting(
        "trace_csv",
        "text",
        "",
        "",
        0,
        0,
        (),
        "Lines of time in seconds and rate; each rate holds until the next line's time.",
        "traffic",
    ),
    _count("count", 100, "traffic", "Requests in the herd.", high=1e6),
    _s("at_s", 0, "traffic", "When the herd or the first batch arrives; a step or spike may begin here too."),
    _s("spread_s", 0, "traffic", "The herd arrives spread over this time."),
    _s("every_s", 60, "traffic", "Time from one batch to the next.", low=0.001),
    _count("batch", 100, "traffic", "Requests that arrive together in each batch.", high=1e6),
    _count(
        "users",
        0,
        "traffic",
        "People who each wait for their answer, think, and ask again.",
        "arrivals do not wait for answers",
        high=1e6,
    ),
    _s("think_s", 1, "traffic", "Mean pause of a user between an answer and the next request."),
    _share("write_share", 0, "traffic", "Share of requests that write; the others read."),
    _count("keys", 0, "traffic", "Distinct items the requests ask for.", "requests have no key"),
    _number(
        "zipf",
        0,
        "traffic",
        "How uneven the items are wanted: 1 makes a few very popular.",
        "all alike",
        high=10,
    ),
    _count(
        "priority",
        0,
        "traffic",
        "Importance of these requests; 0 is the most important.",
        high=MAX_PRIORITIES - 1,
    ),
    *_CALLING,
)

_ONE_OF = _table(
    _choice(
        "policy",
        ("round_robin", "random", "least_in_flight", "power_of_two", "weighted", "by_key"),
        "plan",
        "How it picks the target of a call.",
    ),
    _s("interval_s", 0, "plan", "Time between two health checks of every target.", "no health checks"),
    _count("unhealthy_after", 3, "plan", "Failed checks in a row that take a target out.", low=1, high=1000),
    _count("healthy_after", 2, "plan", "Passed checks in a row that bring a target back.", low=1, high=1000),
)
_CACHE = _table(
    _share("hit_rate", 0.9, "plan", "Share of reads answered from the warm cache without asking further."),
    _s("warm_s", 0, "plan", "Time in which the hit rate grows back after a restart or a flush."),
    _flag("coalesce", False, "plan", "Whether calls for one missing key wait for a single fill."),
)
_QUEUE = _table(
    _count(
        "capacity",
        0,
        "plan",
        "Messages that may wait in it; one more is refused.",
        "no limit",
        unit="messages",
    ),
    _count(
        "max_receives",
        0,
        "plan",
        "Deliveries of one message before it is set aside or lost.",
        "no limit",
        high=1_000_000,
    ),
    _ms("redeliver_ms", 0, "plan", "Wait before a failed message is offered again."),
    _count(
        "partitions",
        0,
        "plan",
        "Ordered lanes, chosen by key; in a lane one message is in work at a time.",
        "one unordered queue",
        high=10_000,
    ),
    _flag("copies", False, "plan", "Whether every consumer gets its own copy of each message."),
)
_BREAKER = _table(
    _share("failure_rate", 0.5, "plan", "Share of failures in the window at which it opens."),
    _s("window_s", 10, "plan", "Outcomes older than this are forgotten.", low=0.001),
    _count("min_calls", 10, "plan", "Outcomes the window needs before it may open.", low=1, high=1e6),
    _s("cooldown_s", 5, "plan", "Time it stays open before it lets a probe through."),
    _count(
        "probes",
        1,
        "plan",
        "Calls let through when half open; all must succeed to close it.",
        low=1,
        high=10_000,
    ),
)
_LOOP = _table(
    _number(
        "steps",
        10,
        "plan",
        "Steps of one task on average; each step makes its calls once.",
        low=1,
        high=100_000,
    ),
    _choice(
        "steps_model",
        ("fixed", "geometric"),
        "plan",
        "Whether every task takes the same number of steps or ends after each with equal chance.",
    ),
    _count("checkpoint_every", 1, "plan", "Steps from one save to the next.", "no saves", high=100_000),
    _count(
        "max_resumes",
        0,
        "plan",
        "Times a task may go on from its last save after a failed step.",
        high=1_000_000,
    ),
    _s("resume_wait_s", 1, "plan", "Pause before a task goes on from its last save."),
)
_HEDGE = _table(
    _ms(
        "hedge_ms",
        100,
        "plan",
        "Without an answer for this long, a second copy of the call is sent.",
        "both at once",
    ),
)
_RATE_LIMITER = _table(
    _rate("limit_rps", 100, "plan", "Calls a second it lets through in the long run.", "no limit"),
    _number(
        "limit_burst",
        0,
        "plan",
        "Calls it lets through at once after a quiet time.",
        "one second's worth",
        unit="calls",
    ),
)
_SHEDDER = _table(
    Setting(
        "max_in_flight",
        "limits",
        "calls",
        100,
        0,
        1e9,
        (),
        "Calls working and waiting above which it "
        "sheds; a list gives one limit for each priority, the most important first.",
        "plan",
        "no limit",
    ),
)
_BULKHEAD = _table(
    _count(
        "max_in_flight",
        10,
        "plan",
        "Calls it lets work at once; more wait in its queue or are refused.",
        "no limit",
        unit="calls",
    ),
)

PLANS: Mapping[str, Mapping[str, Setting]] = {
    "source": _SOURCE,
    "all": {},
    "one_of": _ONE_OF,
    "cache": _CACHE,
    "queue": _QUEUE,
    "breaker": _BREAKER,
    "loop": _LOOP,
    "hedge": _HEDGE,
    "rate_limiter": _RATE_LIMITER,
    "shedder": _SHEDDER,
    "bulkhead": _BULKHEAD,
}

EDGE: Mapping[str, Setting] = _table(
    _number(
        "calls",
        1,
        "calls",
        "Calls made each time the edge is reached, on average; 0.3 is three times in ten.",
        high=10_000,
    ),
    _count("order", 0, "plan", "Groups of edges run one after the other, lowest first.", high=1_000_000),
    _flag("parallel", False, "plan", "Whether its calls start together instead of one after the other."),
    _count(
        "need", 0, "plan", "Successes with which the parallel group is done.", "all of them", high=1_000_000
    ),
    _choice("only", ("any", "read", "write"), "plan", "Which requests take this edge."),
    _flag("optional", False, "failure", "Whether the caller goes on when this call has failed."),
    Setting(
        "fallback",
        "id",
        "",
        None,
        0,
        0,
        (),
        "The edge this one stands in for: one call for each that has failed there.",
        "failure",
    ),
    _flag("async", False, "plan", "Whether the call is sent and its answer is never waited for."),
    _ms("latency_ms", 0, "time", "Travel time of the call, and again of its answer.", high=1e8),
    _number("weight", 1, "plan", "Share of the calls this target gets when they are spread by weight."),
    _flag("checkpoint", False, "plan", "Whether an agent saves its progress over this edge."),
    _flag("dead_letter", False, "plan", "Whether messages that were delivered too often end up here."),
    _ms("timeout_ms", None, "calls", "Overrides how long the caller waits for each attempt.", "for ever"),
    _count("retries", None, "calls", "Overrides the caller's further attempts.", high=1000),
)

HEADER: Mapping[str, Setting] = _table(
    _count("seed", 1, "plan", "Start of the random numbers of a run.", high=2**63 - 1),
    _s("duration_s", 60, "time", "Simulated length of a run.", low=0.001),
    _s("warmup_s", 0, "time", "Arrivals before it are left out of the totals."),
    _s("drain_s", 0, "time", "Time a run may go on after its end to answer what is still open."),
)

POSITION = _number("position", 0.0, "plan", "", low=-1e6, high=1e6)


def settings_of(plan: str) -> Mapping[str, Setting]:
    """Every setting of a component with this plan, in the order the inspector shows them."""
    return _OF_PLAN[plan]


_OF_PLAN: dict[str, dict[str, Setting]] = {
    plan: dict(extra) if plan == "source" else {**COMMON, **extra} for plan, extra in PLANS.items()
}
EDGE_DEFAULTS: Mapping[str, object] = {setting.name: setting.default for setting in EDGE.values()}


def check_together(values: Mapping[str, object], path: str = "") -> None:
    """Refuses effective settings of one component that do not go together.  Raises DesignError."""

    def refuse(name: str, text: str) -> None:
        raise DesignError(text, f"{path}.{name}" if path else name)

    if "shape" in values:
        start, stop = values["start_s"], values["stop_s"]
        if stop and stop <= start:
            refuse(
                "stop_s", f"is {show(stop)}; allowed is a time after start_s ({show(start)}), or 0 for never"
            )
        if values["shape"] == "schedule" and not values["schedule"]:
            refuse("schedule", "is missing; shape = 'schedule' needs a list of [time in s, rate] pairs")
        if values["shape"] == "trace" and not values["trace_csv"]:
            refuse("trace_csv", "is missing; shape = 'trace' needs lines of time in s and rate")
        return
    p50, p99 = values["p50_ms"], values["p99_ms"]
    if values["latency_model"] == "lognormal" and p99 < p50:
        refuse("p99_ms", f"is {show(p99)}, below p50_ms ({show(p50)}); allowed is p50_ms or more")
    if values["latency_model"] == "lognormal" and p50 == 0 and p99 > 0:
        refuse("p50_ms", f"is 0 while p99_ms is {show(p99)}; a scattered time needs a median above 0")
    if values["cpu_ms"] > 0 and not values["vcpu"]:
        refuse("vcpu", f"is 0 while cpu_ms is {show(values['cpu_ms'])}; CPU time needs vcpu above 0")
    if values["scale_on"] != "off" and values["scale_max"] < values["scale_min"]:
        refuse("scale_max", f"is {values['scale_max']}, below scale_min ({values['scale_min']})")
