"""What a design is made of: nodes, edges, faults, and what a problem adds.  Plain values, never changed in
place.

Each `make` checks one part on its own and raises DesignError with the path inside it; what parts say about
each other is checked by `Design`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.design.catalogue import Kind
from engine.design.errors import DesignError, check_encodable, join, show, to_key, unknown
from engine.design.settings import EDGE, EDGE_DEFAULTS, POSITION, Setting, check_together

MAX_LABEL = 200
MAX_ID = 64
MAX_TEXT = 20_000


def check_id(value: object, path: str, edge: bool = False) -> str:
    """A node's id, or an edge's, which may also be two ids joined by `->`."""
    most = 2 * MAX_ID + 2 if edge else MAX_ID
    allowed = r"[a-z0-9_-]+(->[a-z0-9_-]+)?" if edge else r"[a-z0-9_-]+"
    if not isinstance(value, str) or len(value) > most or not re.fullmatch(allowed, value):
        raise DesignError(f"is {show(value)}; allowed are 1 to {most} of a-z, 0-9, _ and -", path)
    if value.startswith("__"):
        raise DesignError(f"is {show(value)}; an id may not begin with two underscores", path)
    return value


def check_text(value: str, path: str, most: int = MAX_LABEL) -> str:
    if len(value) > most:
        raise DesignError(f"is {len(value):,} characters long; allowed are {most:,}", path)
    check_encodable(value, path)
    return value


def own_settings(
    raw: Mapping[str, object], table: Mapping[str, Setting], usual: Mapping[str, object], what: str, path: str
) -> dict[str, object]:
    """The settings of `raw` that differ from the usual ones, checked and in their own types."""
    own = {}
    for name, value in raw.items():
        setting = table.get(name)
        if setting is None:
            raise DesignError(unknown("setting", name, table, what), to_key(path, name))
        value = setting.check(value, join(path, name))
        # 1 == True and 0 == 0.0: the check above has made the types equal, so values decide alone.
        if value != usual[name]:
            own[name] = value
    return own


@dataclass(frozen=True)
class Node:
    """A component on the canvas.  `settings` holds only what differs from its kind's."""

    id: str
    kind: Kind
    label: str
    x: float = 0.0
    y: float = 0.0
    settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        id: str,
        kind: Kind,
        label: str = "",
        x: object = 0.0,
        y: object = 0.0,
        settings: Mapping[str, object] | None = None,
        path: str = "",
        settings_path: str | None = None,
    ) -> Node:
        """A checked node; an empty label becomes the kind's name."""
        node = cls(
            check_id(id, join(path, "id")),
            kind,
            check_text(label, join(path, "label")) or kind.name,
            POSITION.check(x, join(path, "x")),
            POSITION.check(y, join(path, "y")),
            {},
        )
        here = join(path, "settings") if settings_path is None else settings_path
        if not settings:
            return node
        own = own_settings(settings, kind.settings, kind.values, f"{kind.id!r}", here)
        if "p99_ms" in settings and "p50_ms" in settings:
            # Both given: p99_ms is not raised along, even where it is the catalogue's own.
            low, high, model = (
                own.get(name, kind.values[name]) for name in ("p50_ms", "p99_ms", "latency_model")
            )
            if high < low and model == "lognormal":
                raise DesignError(
                    f"is {show(high)}, below p50_ms ({show(low)}); allowed is p50_ms or more",
                    join(here, "p99_ms"),
                )
        node = node.having(own)
        check_together(node.effective(), here)
        return node

    def having(self, settings: Mapping[str, object]) -> Node:
        """The same node with these settings, which have been checked."""
        return Node(self.id, self.kind, self.label, self.x, self.y, settings)

    @property
    def plan(self) -> str:
        return self.kind.plan

    @property
    def is_source(self) -> bool:
        return self.kind.plan == "source"

    def effective(self) -> dict[str, object]:
        """Every setting of the node.  A p50_ms set above the kind's p99_ms, and alone, takes p99_ms along
        in the kind's own proportion; a p50_ms of 0, alone, makes p99_ms 0 too.
        """
        values = {**self.kind.values, **self.settings}
        if "p50_ms" in self.settings and "p99_ms" not in self.settings:
            p50, usual50, usual99 = values["p50_ms"], self.kind.values["p50_ms"], self.kind.values["p99_ms"]
            if p50 > usual99:
                values["p99_ms"] = p50 * (usual99 / usual50) if usual50 else p50
            elif p50 == 0:
                values["p99_ms"] = 0.0
        return values


@dataclass(frozen=True)
class Edge:
    """A connection from `source` to `target` (ids of nodes).  `settings` holds only what differs from the
    usual.
    """

    id: str
    source: str
    target: str
    settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        source: str,
        target: str,
        id: str | None = None,
        settings: Mapping[str, object] | None = None,
        path: str = "",
        settings_path: str | None = None,
    ) -> Edge:
        """A checked edge; without an id it is `source->target`."""
        here = join(path, "settings") if settings_path is None else settings_path
        return cls(
            f"{source}->{target}" if id is None else check_id(id, join(path, "id"), edge=True),
            source,
            target,
            own_settings(settings, EDGE, EDGE_DEFAULTS, "a connection", here) if settings else {},
        )

    def effective(self) -> dict[str, object]:
        """Every setting of the edge; timeout_ms and retries are None where the caller's own hold."""
        return {**EDGE_DEFAULTS, **self.settings}


@dataclass(frozen=True)
class FaultKind:
    """What a fault of one kind does, what it acts on (`node` or `edge`), and its amount."""

    doc: str
    on: str
    amount: Setting
    amount_needed: bool = False


def _amount(type_: str, unit: str, default: object, low: float, high: float, doc: str) -> Setting:
    return Setting("amount", type_, unit, default, low, high, (), doc, "failure")


_NO_AMOUNT = _amount("count", "", 1, 0, 1, "Not used.")

FAULTS: Mapping[str, FaultKind] = {
    "outage": FaultKind("Every instance is down until the fault ends.", "node", _NO_AMOUNT),
    "crash": FaultKind(
        "Some instances crash, the lowest first.",
        "node",
        _amount("count", "instances", 1, 1, 10_000, "Instances that crash."),
    ),
    "slow": FaultKind(
        "Calls that start during it take longer.",
        "node",
        _amount("number", "times", None, 0, 1e6, "Factor on a call's own time."),
        True,
    ),
    "errors": FaultKind(
        "More calls fail by themselves.", "node", _amount("share", "", 1.0, 0, 1, "Share of calls that fail.")
    ),
    "cut": FaultKind("Nothing gets over the connection.", "edge", _NO_AMOUNT),
    "latency": FaultKind(
        "The way takes longer.", "edge", _amount("ms", "ms", None, 0, 1e8, "Added to each way."), True
    ),
    "quota": FaultKind(
        "The quota refills at another rate.",
        "node",
        _amount("number", "times", None, 0, 1e6, "Factor on the refill; 0 refuses every call."),
        True,
    ),
    "cold_cache": FaultKind("The cache is empty and then warms up.", "node", _NO_AMOUNT),
    "traffic": FaultKind(
        "The source sends at another rate.",
        "node",
        _amount("number", "times", None, 0, 1000, "Factor on the rate."),
        True,
    ),
}

_AT = Setting("at_s", "s", "s", 0.0, 0, 1e6, (), "When it begins.", "failure")
_FOR = Setting("duration_s", "s", "s", 0.0, 0, 1e6, (), "How long it lasts.", "failure")


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at `at_s`, at one node or one edge.  A crash of duration 0 lasts the node's
    own `restart_s`; every other fault has a duration above 0.
    """

    at_s: float
    duration_s: float
    node: str | None
    edge: str | None
    kind: str
    amount: float

    @classmethod
    def make(
        cls,
        kind: str,
        node: str | None = None,
        edge: str | None = None,
        at_s: object = 0.0,
        duration_s: object = 0.0,
        amount: object = None,
        path: str = "",
    ) -> Fault:
        if kind not in FAULTS:
            raise DesignError(unknown("kind of fault", kind, FAULTS), join(path, "kind"))
        about = FAULTS[kind]
        if (node is None) == (edge is None):
            raise DesignError(
                f"names {'nothing' if node is None else 'a node and an edge'}; a fault is at one "
                "node or one edge",
                path,
            )
        on = "edge" if node is None else "node"
        if on != about.on:
            wanted = "an edge" if about.on == "edge" else "a node"
            raise DesignError(f"is given, but {kind!r} happens to {wanted}", join(path, on))
        if amount is None:
            if about.amount_needed:
                raise DesignError(
                    f"is missing; {kind!r} needs {about.amount.allowed()}", join(path, "amount")
                )
            amount = about.amount.default
        duration_s = _FOR.check(duration_s, join(path, "duration_s"))
        if not duration_s and kind != "crash":
            raise DesignError(
                f"is missing or 0; {kind!r} lasts for a time above 0 s", join(path, "duration_s")
            )
        amount = float(about.amount.check(amount, join(path, "amount")))
        return cls(_AT.check(at_s, join(path, "at_s")), duration_s, node, edge, kind, amount)

    @property
    def target(self) -> str:
        return self.node if self.edge is None else self.edge


OPS = (">=", "<=", ">", "<")
METRICS = (
    "success_rate", "goodput_rps", "p50_ms", "p95_ms", "p99_ms", "failed", "lost", "recovery_s", "queue_max",
    "utilisation", "cpu_utilisation", "crashes", "run_cost", "credits", "backlog_age_s", "retries",
)  # fmt: skip
SHARES = ("success_rate", "utilisation", "cpu_utilisation")
# Of one serving node, never of all sources together; and of the whole design only.
OF_A_NODE = ("queue_max", "utilisation", "cpu_utilisation", "backlog_age_s")
OF_ALL = ("run_cost", "credits")

_TARGET = Setting("target", "number", "", None, 0, 1e12, (), "", "plan")
_SHARE_TARGET = Setting("target", "share", "", None, 0, 1, (), "", "plan")
_WITHIN = Setting("within_ms", "ms", "ms", None, 0.001, 1e9, (), "", "plan")
_WINDOW = Setting("from_s", "s", "s", None, 0, 1e6, (), "", "plan")


@dataclass(frozen=True)
class Objective:
    """What a solved problem has to reach: `metric` of a node (None: all sources together) `op` `target`.

    `within_ms`, `from_s` and `to_s` are None where the file leaves them out.
    """

    metric: str
    of: str | None
    op: str
    target: float
    within_ms: float | None = None
    from_s: float | None = None
    to_s: float | None = None

    @classmethod
    def make(
        cls,
        metric: str,
        op: str,
        target: object,
        of: str | None = None,
        within_ms: object = None,
        from_s: object = None,
        to_s: object = None,
        path: str = "",
    ) -> Objective:
        if metric not in METRICS:
            raise DesignError(unknown("metric", metric, METRICS), join(path, "metric"))
        if op not in OPS:
            raise DesignError(f"is {show(op)}; allowed is one of {', '.join(OPS)}", join(path, "op"))
        if of is None and metric in OF_A_NODE:
            raise DesignError(f"is missing; {metric!r} is a number of one node", join(path, "of"))
        if of is not None and metric in OF_ALL:
            raise DesignError(f"is given, but {metric!r} is a number of the whole design", join(path, "of"))
        target = (_SHARE_TARGET if metric in SHARES else _TARGET).check(target, join(path, "target"))
        within_ms = None if within_ms is None else _WITHIN.check(within_ms, join(path, "within_ms"))
        from_s = None if from_s is None else _WINDOW.check(from_s, join(path, "from_s"))
        to_s = None if to_s is None else _WINDOW.check(to_s, join(path, "to_s"))
        if to_s is not None and to_s <= (from_s or 0.0):
            raise DesignError(f"is {show(to_s)}; allowed is a time after from_s", join(path, "to_s"))
        return cls(metric, of, op, target, within_ms, from_s, to_s)


@dataclass(frozen=True)
class Change:
    """A named change of a design: a solution, a trap, or a set of edits.

    `set` maps `node.setting` or `edge-id.setting` to a value (None: back to the catalogue's).  What is in
    `remove` goes first, then nodes and edges are added, then settings are set.
    """

    name: str
    set: Mapping[str, object] = field(default_factory=dict)
    add_nodes: Sequence[Node] = ()
    add_edges: Sequence[Edge] = ()
    remove: Sequence[str] = ()
    why: str = ""


@dataclass(frozen=True)
class Budget:
    """Caps a problem puts on a design; None is no cap."""

    run_cost: float | None = None
    credits: float | None = None


@dataclass(frozen=True)
class Problem:
    """What a problem adds to a design.

    `palette` None means that every kind may be placed.  `file` is where the problem was read from; two
    problems that differ in nothing else are equal.
    """

    id: str
    category: str
    level: int
    brief: str
    teaches: tuple[str, ...]
    hints: tuple[str, ...]
    debrief: str
    palette: tuple[str, ...] | None
    locked: tuple[str, ...]
    budget: Budget
    objectives: tuple[Objective, ...]
    solutions: tuple[Change, ...]
    traps: tuple[Change, ...]
    file: Path | None = field(default=None, compare=False)

    def change(self, name: str) -> Change:
        """A solution or trap by its name.  Raises DesignError with the nearest name."""
        known = {change.name: change for change in (*self.solutions, *self.traps)}
        if name not in known:
            raise DesignError(unknown("solution or trap", name, known))
        return known[name]
