"""`problems`: what there is to solve."""

import argparse

from engine.cli import outputs
from engine.cli.text import Paint, clean, table, terminal_width, width, wrap


def arguments(parser: argparse.ArgumentParser) -> None:
    outputs.json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    from engine.design.files import load_problem, problems

    target = outputs.Target(args.json)
    found = [entry(load_problem(info.id)) for info in problems()]
    target.say(problem_lines(found, Paint(), terminal_width()))
    target.write({"format": 1, "problems": found})
    return 0


def entry(design) -> dict:
    """A problem as the JSON list has it: what a learner is told, without its solutions."""
    problem = design.problem
    return {
        "id": problem.id,
        "name": design.name,
        "category": problem.category,
        "level": problem.level,
        "brief": problem.brief,
        "teaches": list(problem.teaches),
        "objectives": [
            {
                "metric": o.metric,
                "of": o.of,
                "op": o.op,
                "target": o.target,
                "within_ms": o.within_ms,
                "from_s": o.from_s,
                "to_s": o.to_s,
            }
            for o in problem.objectives
        ],
    }


def problem_lines(problems: list[dict], paint: Paint, columns: int = 80) -> list[str]:
    """Each problem's id, level, topic and title."""
    longest = max((width(p["id"]) for p in problems), default=0)
    topics = max((width(p["category"]) for p in problems), default=0)
    rows = []
    for p in problems:
        first, *rest = wrap(clean(p["name"]), max(20, columns - longest - topics - 11))
        rows.append((p["id"], str(p["level"]), p["category"], first))
        rows += [("", "", "", line) for line in rest]
    first, *rest = table(("Problem", "level", "topic", "title"), rows, left=(0, 2, 3), columns=columns)
    return [paint("bold", first), *rest]
