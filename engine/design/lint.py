"""What a designer would say on looking at a design: nothing here forbids a run."""

from __future__ import annotations

from dataclasses import dataclass

from engine.design.model import Design


@dataclass(frozen=True)
class Finding:
    """`level` is error or warning, `where` the id of a node or edge."""

    level: str
    where: str
    text: str


def lint(design: Design) -> list[Finding]:
    """Every finding, the errors first."""
    return [
        Finding("error", node.id, "sends its requests nowhere")
        for node in design.sources
        if not design.out_edges(node.id)
    ]
