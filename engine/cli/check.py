"""`check`: judge a design by its problem's objectives, over several seeds."""

import argparse

from engine.cli import inputs, outputs
from engine.cli.progress import Progress, compiled
from engine.cli.report import goal_text, target_text, value_text
from engine.cli.text import Paint, clean, table, terminal_width

PASSED, NOT_PASSED = 0, 1
SEEDS = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="a problem's id, or its file")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--design", metavar="FILE", help="judge this design instead of the problem's own start"
    )
    which.add_argument(
        "--solution", metavar="NAME", help="judge the start with one of the problem's solutions"
    )
    which.add_argument("--trap", metavar="NAME", help="judge the start with one of the problem's traps")
    parser.add_argument(
        "--seeds", type=inputs.whole, default=SEEDS, metavar="N", help=f"how many seeds ({SEEDS})"
    )
    outputs.json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    target = outputs.Target(args.json)
    design = inputs.to_check(args.problem, args.design, args.solution, args.trap)
    compiled()
    from engine.study.check import check

    with Progress("checking") as progress:
        result = check(design, args.seeds, progress=lambda done, total: progress(done / total))
    target.say(check_lines(result, Paint(), terminal_width()))
    target.write(result)
    return PASSED if result["passed"] else NOT_PASSED


def check_lines(result: dict, paint: Paint, columns: int = 80) -> list[str]:
    """A row for each objective with its worst and best value over the seeds, the verdict and the stars."""
    seeds = result["seeds"]
    rows = []
    for i, objective in enumerate(seeds[0]["objectives"]):
        metric, target = objective["metric"], objective["target"]
        found = [seed["objectives"][i] for seed in seeds]
        met = sum(1 for o in found if o["met"])
        worst, best = _range([o["value"] for o in found], higher_is_better=objective["op"].startswith(">"))
        rows.append(
            (
                goal_text(objective),
                target_text(objective),
                value_text(metric, worst, target),
                value_text(metric, best, target),
                paint("green" if met == len(seeds) else "red", f"{met} of {len(seeds)}"),
            )
        )
    first, *rest = table(("Objective", "asked", "worst", "best", "met"), rows, left=(0, 1), columns=columns)
    title = clean(result["problem"] + (f": {result['design']}" if result["design"] else ""))
    passed = sum(1 for seed in seeds if seed["passed"])
    verdict = f"{'passed' if result['passed'] else 'not passed'}: {passed} of {len(seeds)} seeds"
    if result["passed"]:
        verdict += f", {result['stars']} of 3 stars"
    return [
        paint("bold", title),
        "",
        paint("bold", first),
        *rest,
        "",
        paint("green" if result["passed"] else "red", verdict),
    ]


def _range(values: list[float | None], higher_is_better: bool) -> tuple[float | None, float | None]:
    """(worst, best); None, a value that does not exist, is worse than any."""
    known = sorted((v for v in values if v is not None), reverse=not higher_is_better)
    if len(known) < len(values):
        return None, known[-1] if known else None
    return known[0], known[-1]
