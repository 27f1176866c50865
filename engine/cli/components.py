"""`components`: the catalogue."""

import argparse

from engine.cli import outputs
from engine.cli.text import Paint, clean, digits, table, terminal_width


def arguments(parser: argparse.ArgumentParser) -> None:
    outputs.json_argument(parser)


def execute(args: argparse.Namespace) -> int:
    from engine.design.catalogue import catalogue

    target = outputs.Target(args.json)
    components = [
        {
            "id": kind.id,
            "name": kind.name,
            "category": kind.category,
            "zone": kind.zone,
            "plan": kind.plan,
            "credits": kind.credits,
            "summary": kind.summary,
            "settings": dict(kind.values),
        }
        for kind in catalogue().values()
    ]
    target.say(component_lines(components, Paint(), terminal_width()))
    target.write({"format": 1, "components": components})
    return 0


def component_lines(components: list[dict], paint: Paint, columns: int = 80) -> list[str]:
    """The components by category: id, credits to place one, the plan of its calls, zone and name."""
    header = ("Component", "credits", "plan", "zone", "name")
    rows = [
        (c["id"], digits(c["credits"]), c["plan"].replace("_", " "), clean(c["zone"]), clean(c["name"]))
        for c in components
    ]
    first, *rest = table(header, rows, left=(0, 2, 3, 4), columns=columns)
    lines, category = [paint("bold", first)], None
    for component, line in zip(components, rest, strict=True):
        if component["category"] != category:
            category = component["category"]
            lines += ["", paint("bold", clean(category).capitalize())]
        lines.append(line)
    return lines
