"""Changing a setting of a run that is under way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.design.errors import DesignError
from engine.design.parts import Edge, Node
from engine.program import layout as L
from engine.program.fields import edge_fields, node_fields, shed_levels, write
from engine.program.lower import Program, flat_gap, is_simple, period_area, source_fields
from engine.program.state import State

if TYPE_CHECKING:
    from engine.run.simulation import Simulation

# What the shape of the arrays depends on: such a change starts the run anew, with the same seed.
EDGE_STRUCTURE = {"order", "parallel", "fallback", "checkpoint", "dead_letter"}
NODE_STRUCTURE = {"partitions", "copies"}
# What a source plans ahead. One that follows a rate plans only its next arrival, which can be planned anew.
RATE_PLAN = {"users", "shape"}
HERD_PLAN = RATE_PLAN | {"count", "spread_s", "at_s", "stop_s", "arrivals"}
BATCH_PLAN = RATE_PLAN | {"batch", "every_s", "at_s", "start_s", "stop_s"}
USERS_PLAN = {"users", "start_s", "stop_s"}

# What a component's clocks run by: the autoscaler's, the health checks', the crashes' by overload.
CLOCKS = {
    "scale_on": 2,
    "scale_every_s": 2,
    "crash_rate": 4,
    "cpu_ms": 4,
    "instances": 4,
    "scale_max": 4,
    "interval_s": 8,
}


class RestartNeeded(DesignError):
    """A setting that only a new run can take up."""


def set_value(sim: Simulation, target: str, setting: str, value: object) -> Program:
    """Changes a setting of node or edge `target` from now on; returns the program with the changed design.

    Raises DesignError for a bad value and RestartNeeded for one that only a new run can take up; then
    nothing has changed. A value that is there already changes nothing.
    """
    before = sim.program.design
    design = before.with_setting(f"{target}.{setting}", value)
    program = replace(sim.program, design=design)
    if target in program.edge_index:
        x = program.edge_index[target]
        edge = design.edges[x]
        if edge.effective() == before.edges[x].effective():
            return sim.program
        _refuse_edge(program, edge, setting)
        _set_edge(program, sim.state, x)
        _make_room(sim.state)
        return program
    i = program.node_index[target]
    node = design.nodes[i]
    s, old = node.effective(), before.nodes[i].effective()
    if s == old:
        return sim.program
    _refuse_node(sim.state.node[i], node, s, old, setting)
    sim._call(L.OP_TOUCH, i)
    resized = _set_node(program, sim.state, i, s, old, setting)
    sim._call(L.OP_APPLY, i, int(resized) + CLOCKS.get(setting, 0))
    return program


# --- what cannot be changed ---
def _refuse_edge(program: Program, edge: Edge, setting: str) -> None:
    # Messages that consumers choose by class lie in two lists.
    lists = setting == "only" and program.design.node(edge.source).plan == "queue"
    if lists or setting in EDGE_STRUCTURE:
        raise RestartNeeded(f"{setting} of {edge.id!r} changes the structure: the run starts anew")


def _refuse_node(
    r: np.void, node: Node, s: Mapping[str, object], old: Mapping[str, object], setting: str
) -> None:
    if node.is_source:
        if setting in _planned(old):
            raise RestartNeeded(f"{setting} of {node.id!r} changes what is under way: the run starts anew")
        return
    if setting in NODE_STRUCTURE:
        raise RestartNeeded(f"{setting} of {node.id!r} changes the structure: the run starts anew")
    most = max(s["instances"], s["scale_max"] if s["scale_on"] != "off" else 1)
    if most > r["inst_room"]:
        raise RestartNeeded(f"{setting} of {node.id!r} needs more room: the run starts anew")
    if (s["vcpu"] > 0) != (old["vcpu"] > 0):
        had = "had no CPU" if s["vcpu"] > 0 else "loses its CPU"
        raise RestartNeeded(f"{node.id!r} {had}: the run starts anew")


def _planned(s: Mapping[str, object]) -> set[str]:
    """The settings of a source with these values that have been planned ahead."""
    if s["users"]:
        return USERS_PLAN
    return {"herd": HERD_PLAN, "batch": BATCH_PLAN}.get(s["shape"], RATE_PLAN)


# --- nodes ---
def _set_node(
    program: Program,
    state: State,
    i: int,
    s: Mapping[str, object],
    old: Mapping[str, object],
    setting: str,
) -> bool:
    """Writes the settings into the node's records. Whether its number of instances is to be brought to
    `instances`.
    """
    r, node, now = state.node[i], program.design.nodes[i], float(state.sim[0]["now"])
    had_quota, had_limit = r["quota"] > 0, r["limit"] > 0
    write(r, node_fields(node.plan, s))
    # A bucket that was not there before starts full.
    if not had_quota:
        r["tokens"], r["tokens_t"] = r["quota_burst"], now
    if not had_limit:
        r["ltokens"], r["ltokens_t"] = r["limit_burst"], now
    r["tokens"] = min(r["tokens"], r["quota_burst"])
    r["ltokens"] = min(r["ltokens"], r["limit_burst"])
    if node.is_source:
        _set_source(program, state, i, s)
    else:
        if r["latency"] == L.L_CONSTANT:
            r["lane_work"] = program.lane("n", float(r["p50_s"])) if r["p50_s"] > 0 else -1
        scales = s["scale_on"] != "off"
        r["inst_cap"] = max(int(r["inst_cap"]), int(s["instances"]), int(s["scale_max"]) if scales else 1)
        if setting == "scale_on":
            # The autoscaler's first look is at what it watches from now on.
            r["sc_busy"], r["sc_cap"], r["sc_cpu"], r["sc_ccap"] = (
                r[name] for name in ("busy_int", "cap_int", "cpu_int", "cpu_cap_int")
            )
    if node.plan == "shedder":
        _set_levels(state, r, shed_levels(node.plan, s))
    elif node.plan == "breaker":
        _set_breaker(state, r, s, old, now)
    elif node.plan == "one_of" and not s["interval_s"]:
        # Nobody looks any longer, so nobody would bring a target back.
        plan = state.adj[int(r["plan_off"]) : int(r["plan_off"] + r["plan_n"])]
        for name in ("out", "bad", "good"):
            state.edge[name][plan] = 0
    for x, edge in enumerate(program.design.edges):
        if edge.source == node.id:
            _set_edge(program, state, x)
        if edge.target == node.id:
            state.edge[x]["load_cap"] = max(1, int(r["slots"]) * int(s["instances"]))
    if setting == "scale_on":
        return s["scale_on"] == "off"
    return setting == "instances" and s["scale_on"] == "off"  # else the autoscaler decides how many there are


def _set_levels(state: State, r: np.void, levels: list[int]) -> None:
    a, n = int(r["level_off"]), int(r["level_n"])
    if list(state.level[a : a + n]) == levels:
        return
    # Copies of the state share the array: it grows as a new one.
    r["level_off"], r["level_n"] = len(state.level), len(levels)
    state.arrays["level"] = np.concatenate([state.level, np.array(levels, np.int32)])


def _set_breaker(
    state: State, r: np.void, s: Mapping[str, object], old: Mapping[str, object], now: float
) -> None:
    if s["window_s"] != old["window_s"]:
        # The cells of the window are of another length: it starts empty.
        state.wheel[int(r["breaker_off"]) :][: 2 * L.CELLS] = 0
        r["br_fail"] = r["br_total"] = 0
        r["br_cell"] = int(now / float(r["window_s"]) * L.CELLS)
    if s["probes"] != old["probes"] and r["br_state"] == L.B_HALF:
        r["br_epoch"] += 1  # trial begins anew: those under way do not count
        r["br_let"] = r["br_ok"] = 0
    if r["br_state"] == L.B_OPEN:
        r["br_until"] += s["cooldown_s"] - old["cooldown_s"]


def _set_source(program: Program, state: State, i: int, s: Mapping[str, object]) -> None:
    r = state.node[i]
    row = state.src[int(r["src"])]
    r["lane_to"] = program.lane("t", float(r["timeout_s"])) if r["timeout_s"] > 0 else -1
    fields, pieces = source_fields(program, s, program.duration_s)
    del fields["mode"]
    write(row, fields)
    if row["mode"] != L.T_OPEN:
        return
    # What is left of the exposure runs on at the new rate, from the new start if that is still to come.
    row["from_t"] = max(float(state.sim[0]["now"]), float(row["start"]))
    if len(pieces) > row["seg_n"]:
        row["seg_off"] = len(state.seg)
        state.arrays["seg"] = np.concatenate([state.seg, np.zeros(len(pieces), L.SEG)])
    row["seg_n"], row["seg_i"], row["base"] = len(pieces), 0, 0.0
    state.seg[int(row["seg_off"]) :][: len(pieces)] = np.array(pieces, L.SEG)
    row["area"] = period_area(pieces) if row["period"] else 0.0
    row["gap"] = flat_gap(pieces)
    row["gap_now"] = row["gap"] / row["factor"] if row["factor"] > 0 else 0.0


# --- edges ---
def _set_edge(program: Program, state: State, x: int) -> None:
    edge = program.design.edges[x]
    caller = program.design.node(edge.source)
    r = state.edge[x]
    fields = edge_fields(edge.effective(), caller.effective(), caller.plan == "source")
    write(r, {name: value for name, value in fields.items() if name not in EDGE_STRUCTURE})
    r["lane_lat"] = program.lane("n", float(r["latency_s"])) if r["latency_s"] > 0 else -1
    r["lane_to"] = program.lane("t", float(r["timeout_s"])) if r["timeout_s"] > 0 else -1
    n = state.node[program.node_index[edge.source]]
    plan = state.adj[int(n["plan_off"]) : int(n["plan_off"] + n["plan_n"])]
    n["simple"] = is_simple(n, [state.edge[y] for y in plan])


def _make_room(state: State) -> None:
    """The most calls one step can send may have grown with `calls` of an edge."""
    w = state.sim[0]
    e = state.edge[: int(w["edges"])]
    sent = np.bincount(e["src"], np.ceil(e["calls"]), len(state.node)) + state.node["plan_n"]
    burst = 256 + math.ceil(sent.max())
    if burst > w["burst"]:
        w["burst"] = burst
        state.set_room()
