"""What a problem asks of a design, and what a learner may do to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.design.catalogue import Kind
from engine.design.errors import DesignError, show, unknown
from engine.design.model import Design
from engine.design.parts import MAX_TEXT, Budget, Change, Edge, Fault, Node, Objective, Problem, check_text
from engine.design.schema import ProblemRecord
from engine.design.settings import Setting

_LEVEL = Setting("level", "count", "", 1, 1, 5, (), "How hard it is.", "plan")
_BUDGET = Setting("budget", "number", "credits", None, 0, 1e9, (), "The most it may cost.", "plan")
MAX_CHANGES = 20


def problem_from(
    record: ProblemRecord,
    kinds: Mapping[str, Kind],
    solutions: Sequence[Change],
    traps: Sequence[Change],
    file: Path | None = None,
) -> Problem:
    """A problem's own part of its file, checked on its own.  Raises DesignError."""
    for field in ("id", "category"):
        value = getattr(record, field)
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", value) or len(value) > 100:
            raise DesignError(
                f"is {show(value)}; allowed are lower-case letters, digits and single hyphens",
                f"problem.{field}",
            )
    for field in ("brief", "debrief"):
        check_text(getattr(record, field), f"problem.{field}", MAX_TEXT)
    for index, hint in enumerate(record.hints):
        check_text(hint, f"problem.hints[{index}]", MAX_TEXT)
    for field in ("teaches", "palette"):
        for index, id in enumerate(getattr(record, field) or ()):
            if id not in kinds:
                raise DesignError(unknown("kind", id, kinds), f"problem.{field}[{index}]")
    names: set[str] = set()
    for part, changes in (("solutions", solutions), ("traps", traps)):
        if len(changes) > MAX_CHANGES:
            raise DesignError(f"has {len(changes):,} entries; allowed are {MAX_CHANGES}", f"problem.{part}")
        for index, change in enumerate(changes):
            path = f"problem.{part}[{index}].name"
            if not check_text(change.name, path).strip() or change.name in names:
                raise DesignError(
                    f"is {show(change.name)}; every solution and trap has a name of its own", path
                )
            names.add(change.name)
    if not record.objectives:
        raise DesignError("is empty; a problem has at least one objective", "problem.objectives")
    caps = {
        name: None if value is None else _BUDGET.check(value, f"problem.budget.{name}")
        for name, value in (("run_cost", record.budget.run_cost), ("credits", record.budget.credits))
    }
    return Problem(
        id=record.id,
        category=record.category,
        level=_LEVEL.check(record.level, "problem.level"),
        brief=record.brief,
        teaches=tuple(record.teaches),
        hints=tuple(record.hints),
        debrief=record.debrief,
        palette=None if record.palette is None else tuple(record.palette),
        locked=tuple(record.locked),
        budget=Budget(**caps),
        objectives=tuple(
            Objective.make(
                o.metric, o.op, o.target, o.of, o.within_ms, o.from_s, o.to_s, f"problem.objectives[{i}]"
            )
            for i, o in enumerate(record.objectives)
        ),
        solutions=tuple(solutions),
        traps=tuple(traps),
        file=file,
    )


def check_problem(start: Design) -> None:
    """Refuses a problem that names what its design lacks, or whose solutions or traps do not apply."""
    problem = start.problem
    for index, id in enumerate(problem.locked):
        if id not in start:
            known = [part.id for part in (*start.nodes, *start.edges)]
            raise DesignError(unknown("node or edge", id, known), f"problem.locked[{index}]")
    ids = [node.id for node in start.nodes]
    for index, objective in enumerate(problem.objectives):
        path = f"problem.objectives[{index}].of"
        if objective.of is None:
            continue
        if objective.of not in ids:
            raise DesignError(unknown("node", objective.of, ids), path)
        if objective.metric in ("queue_max", "utilisation", "cpu_utilisation", "crashes", "backlog_age_s"):
            if start.node(objective.of).is_source:
                raise DesignError(
                    f"is {show(objective.of)}, a traffic source; {objective.metric!r} is a number of a "
                    "component that serves",
                    path,
                )
        if objective.metric == "recovery_s" and not start.node(objective.of).is_source:
            raise DesignError(
                f"is {show(objective.of)}, which serves; 'recovery_s' is a number of a traffic source", path
            )
    for part, changes in (("solutions", problem.solutions), ("traps", problem.traps)):
        for index, change in enumerate(changes):
            path = f"problem.{part}[{index}]"
            for broken in breaches(start, start.with_change(change, path)):
                raise DesignError(broken, path)


def breaches(start: Design, attempt: Design) -> list[str]:
    """What a learner's design does that its problem forbids, a line each; empty when all is allowed.

    What is locked stays as it is, and what is placed is of the palette.
    """
    problem, broken = start.problem, []
    for id in problem.locked:
        if id not in attempt:
            broken.append(f"{show(id)} is locked and may not be removed")
        elif _essence(start, id) != _essence(attempt, id):
            broken.append(f"{show(id)} is locked and may not be changed")
    if problem.palette is not None:
        given = {node.id: node.kind.id for node in start.nodes}
        for node in attempt.nodes:
            if given.get(node.id) != node.kind.id and node.kind.id not in problem.palette:
                allowed = ", ".join(problem.palette) or "nothing"
                broken.append(f"{show(node.kind.id)} may not be placed here; allowed is {allowed}")
    return broken


def _essence(design: Design, id: str) -> tuple[object, ...] | None:
    """What a lock keeps: neither the label nor the place on the canvas."""
    for node in design.nodes:
        if node.id == id:
            return node.kind.id, dict(node.settings)
    edge = design.edge(id)
    return edge.source, edge.target, dict(edge.settings)


def attempt_on(
    start: Design,
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    name: str = "",
    header: Mapping[str, object] | None = None,
    faults: Sequence[Fault] | None = None,
) -> Design:
    """A learner's nodes and edges under a problem's traffic window, faults and objectives.

    `header` and `faults` are what the learner's file says of them: the seed is free, the rest may only
    repeat the problem's.  Faults of the problem at something that is no longer there do not happen.
    """
    given = {key: value for key, value in (header or {}).items() if value is not None}
    seed = given.pop("seed", None)
    for key, value in given.items():
        if value != getattr(start, key):
            raise DesignError(
                f"is {show(value)}, but an attempt has its problem's: {show(getattr(start, key))}", key
            )
    if faults is not None and list(faults) != start.faults:
        raise DesignError("differ from those of the problem; an attempt leaves them out", "faults")
    return Design(
        name or start.name,
        start.seed if seed is None else seed,
        start.duration_s,
        start.warmup_s,
        start.drain_s,
        nodes,
        edges,
        start.faults,
        start.problem,
        attempt=True,
    )
