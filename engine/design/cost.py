"""What a design costs: credits to place it, credits an hour to run it."""

from __future__ import annotations

from engine.design.model import Design
from engine.design.parts import Node

# A setting without a limit, or with a huge one, is charged as this many.
MOST_CHARGED = 1_000_000


def credits(design: Design) -> float:
    """Credits to place the design on a blank canvas: each kind's credits × instances."""
    return sum(node_credits(node) for node in design.nodes)


def node_credits(node: Node) -> float:
    return node.kind.credits * node.effective().get("instances", 1)


def run_cost(design: Design) -> float:
    """Credits an hour to run the design, from the settings and the price list of the catalogue."""
    return sum(node_run_cost(node) for node in design.nodes)


def node_run_cost(node: Node) -> float:
    """instances × (base + Σ price × the setting's value), in credits an hour."""
    values = node.effective()
    total = node.kind.prices["base"]
    for name, price in node.kind.prices.items():
        if name != "base":
            total += price * _charged(values[name], node.kind.settings[name].unbounded_at_zero)
    return values.get("instances", 1) * total


def _charged(value: float, unbounded_at_zero: bool) -> float:
    return MOST_CHARGED if unbounded_at_zero and not value else min(value, MOST_CHARGED)
