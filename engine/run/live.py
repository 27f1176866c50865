"""Changing a setting of a run that is under way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.design.errors import DesignError
from engine.program import layout as L
from engine.program.fields import edge_fields, node_fields, shed_levels, write
from engine.program.lower import Program, source_fields

if TYPE_CHECKING:
    from engine.run.simulation import Simulation

# What the shape of the arrays depends on: such a change starts the run anew, with the same seed.
STRUCTURAL = {
    "order", "parallel", "fallback", "checkpoint", "dead_letter",
    "partitions", "copies", "users", "shape", "count", "spread_s", "batch",
}  # fmt: skip


class RestartNeeded(DesignError):
    """A setting that only a new run can take up."""


def set_value(sim: Simulation, target: str, setting: str, value: object) -> Program:
    """Changes a setting of node or edge `target` from now on; returns the program with the changed design."""
    program, state = sim.program, sim.state
    design = program.design.with_setting(f"{target}.{setting}", value)
    if setting in STRUCTURAL:
        raise RestartNeeded(f"{setting} of {target!r} changes the structure: the run starts anew")
    program = replace(program, design=design)
    if target in program.edge_index:
        _set_edge(program, state, program.edge_index[target])
        return program
    i = program.node_index[target]
    node = design.nodes[i]
    r = state.node[i]
    s = node.effective()
    fields = node_fields(node.plan, s)
    many = int(fields["instances"])
    if many > r["inst_room"] or (fields.get("scale_on") and fields["scale_max"] > r["inst_room"]):
        raise RestartNeeded(f"{setting} of {target!r} needs more room: the run starts anew")
    if fields.get("vcpu", 0) > 0 and r["ugrid_off"] < 0:
        raise RestartNeeded(f"{target!r} had no CPU: the run starts anew")
    sim._call(L.OP_TOUCH, i)
    resized = setting == "instances" or (setting == "scale_on" and s["scale_on"] == "off")
    quiet = int(r["scale_on"]) == 0
    write(r, fields)
    if setting == "instances" and not quiet:
        resized = False  # the autoscaler decides how many there are
    r["inst_cap"] = max(
        int(r["inst_cap"]), many, int(fields.get("scale_max", 1)) if fields.get("scale_on") else 1
    )
    if r["latency"] == L.L_CONSTANT:
        r["lane_work"] = program.lane("n", float(r["p50_s"])) if r["p50_s"] > 0 else -1
    r["tokens"] = min(r["tokens"], r["quota_burst"])
    r["ltokens"] = min(r["ltokens"], r["limit_burst"])
    levels = shed_levels(node.plan, s)
    if levels:
        r["level_off"], r["level_n"] = len(state.level), len(levels)
        state.arrays["level"] = np.concatenate([state.level, np.array(levels, np.int32)])
    elif node.plan == "shedder":
        r["level_n"] = 0
    if node.plan == "source":
        r["lane_to"] = program.lane("t", float(r["timeout_s"])) if r["timeout_s"] > 0 else -1
        mine, pieces = source_fields(program, s, program.duration_s)
        row = state.src[int(r["src"])]
        mine.pop("mode")
        write(row, mine)
        if pieces:
            row["seg_off"], row["seg_n"], row["seg_i"], row["base"] = len(state.seg), len(pieces), 0, 0.0
            state.arrays["seg"] = np.concatenate([state.seg, np.array(pieces, L.SEG)])
    for x, edge in enumerate(design.edges):
        if edge.source == target:
            _set_edge(program, state, x)
        if edge.target == target:
            state.edge[x]["load_cap"] = max(1, int(r["slots"]) * many)
    sim._call(L.OP_APPLY, i, int(resized))
    return program


def _set_edge(program: Program, state: object, x: int) -> None:
    edge = program.design.edges[x]
    caller = program.design.node(edge.source)
    r = state.edge[x]
    fields = edge_fields(edge.effective(), caller.effective(), caller.plan == "source")
    for name in ("order", "parallel", "checkpoint", "dead_letter"):
        fields.pop(name)
    write(r, fields)
    r["lane_lat"] = program.lane("n", float(r["latency_s"])) if r["latency_s"] > 0 else -1
    r["lane_to"] = program.lane("t", float(r["timeout_s"])) if r["timeout_s"] > 0 else -1
