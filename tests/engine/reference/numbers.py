"""The figures of a run under short names."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace


class Numbers:
    """`numbers.totals.failed`, `numbers.sources["users"].p50_ms`, `numbers["store"].queue_max`."""

    def __init__(self, result: Mapping[str, object]) -> None:
        self.result = result
        self.totals = SimpleNamespace(**result["totals"])
        self.sources = {id: SimpleNamespace(**figures) for id, figures in result["sources"].items()}
        self.nodes = {id: SimpleNamespace(**figures) for id, figures in result["nodes"].items()}

    def __getitem__(self, id: str) -> SimpleNamespace:
        return self.nodes[id]
