"""`run`: simulate one design and print what happened."""

import argparse

from engine.cli import inputs, outputs
from engine.cli.progress import Progress, compiled
from engine.cli.report import finding_lines, run_lines
from engine.cli.text import Paint, terminal_width


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a design file, or a problem's id")
    parser.add_argument("--seed", type=inputs.seed, metavar="N", help="instead of the file's own")
    parser.add_argument("--until", type=inputs.until, metavar="S", help="stop at this simulated second")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NODE.SETTING=VALUE",
        help="change a setting of a component or connection first; may be repeated",
    )
    outputs.json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    from engine.design.files import load
    from engine.design.lint import lint

    target = outputs.Target(args.json)
    design = inputs.with_settings(load(args.file), args.set)
    until_s = inputs.within(args.until, design)
    compiled()
    from engine.run.simulation import simulate

    with Progress("simulating") as progress:
        summary = simulate(design, args.seed, until_s, progress)
    paint, columns = Paint(), terminal_width()
    target.say(run_lines(summary, paint, columns) + finding_lines(lint(design), paint, columns))
    target.write(summary)
    return 0
