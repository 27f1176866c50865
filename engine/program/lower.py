"""Lowers a `Design` to flat arrays: the `Program` (what stays) and the `State` at time 0 (what the kernel moves)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from engine.design.errors import DesignError
from engine.design.model import Design
from engine.kernel import rng
from engine.program import layout as L
from engine.program.fields import edge_fields, node_fields, shed_levels, write
from engine.program.shapes import FAR, pieces
from engine.program.state import State

GOAL_METRICS = ("success_rate", "goodput_rps", "p50_ms", "p95_ms", "p99_ms", "failed", "recovery_s")
MAX_LANES = 256
LANE_ROOM = 256
FRAME_BYTES = 1 << 20  # small enough to stay in the cache
FAULT_ROOM = 256  # faults by hand on top of the file's
MAX_TICKS = 2_000_000
MAX_BURST = 1_000_000  # calls one component may send at one instant, lists of messages in all


@dataclass
class Program:
    """What of a lowered design does not change while it runs.

    node_ids and edge_ids name the rows of the node and edge arrays; sources lists the node indices of the SRC rows.
    goals[k] is the (objective index) of GOAL row k; marks are the times (s) at which node records are copied.
    lanes maps (kind, delay in s) to a lane.
    """

    design: Design
    seed: int
    duration_s: float
    node_ids: list[str]
    edge_ids: list[str]
    node_index: dict[str, int]
    edge_index: dict[str, int]
    sources: list[int]
    goals: list[int]
    marks: list[float]
    lanes: dict[tuple[str, float], int] = field(default_factory=dict)

    def lane(self, kind: str, delay_s: float) -> int:
        """The lane of a constant delay, -1 where there are no more; kind 't' for timeouts, 'n' for the rest."""
        key = (kind, delay_s)
        if key not in self.lanes:
            if len(self.lanes) >= MAX_LANES:
                return -1
            self.lanes[key] = len(self.lanes)
        return self.lanes[key]


def lower(
    design: Design, seed: int | None = None, until_s: float | None = None, history: bool = True
) -> tuple[Program, State]:
    """The program and the state at time 0. until_s cuts the run short (s); without history only the
    last frames are kept. Raises DesignError for what cannot run."""
    duration = design.duration_s if until_s is None else min(until_s, design.duration_s)
    nodes, edges = design.nodes, design.edges
    if not nodes:
        raise DesignError("has no components; place at least one", "nodes")
    node_index = {n.id: k for k, n in enumerate(nodes)}
    edge_index = {e.id: k for k, e in enumerate(edges)}
    p = Program(
        design,
        design.seed if seed is None else seed,
        duration,
        [n.id for n in nodes],
        [e.id for e in edges],
        node_index,
        edge_index,
        [k for k, n in enumerate(nodes) if n.plan == "source"],
        [],
        [],
    )
    settings = [n.effective() for n in nodes]
    edge_settings = [e.effective() for e in edges]
    node = np.zeros(len(nodes), L.NODE)
    edge = np.zeros(max(1, len(edges)), L.EDGE)
    adj: list[int] = []
    levels: list[int] = []
    inst: list[tuple] = []
    subs = 0

    for k, n in enumerate(nodes):
        r = node[k]
        s = settings[k]
        write(r, node_fields(n.plan, s))
        for name in (
            "q_head",
            "q_tail",
            "cpu_head",
            "cpu_tail",
            "age_head",
            "age_tail",
            "dead_letter",
            "fb_any",
        ):
            r[name] = -1
        r["src"] = -1
        r["slow"] = r["keep"] = r["quota_factor"] = 1.0
        r["cpu_t"] = math.inf
        r["warm_from"] = -1e18
        r["tokens"], r["ltokens"] = r["quota_burst"], r["limit_burst"]
        r["w50"] = r["w95"] = r["w99"] = np.nan
        r["lane_work"] = (
            p.lane("n", float(r["p50_s"])) if r["latency"] == L.L_CONSTANT and r["p50_s"] > 0 else -1
        )
        r["lane_to"] = p.lane("t", float(r["timeout_s"])) if n.plan == "source" and r["timeout_s"] > 0 else -1
        shed = shed_levels(n.plan, s)
        r["level_off"], r["level_n"] = len(levels), len(shed)
        levels += shed
        many = int(r["instances"])
        if r["scale_on"]:
            many = max(many, int(r["scale_max"]))
        r["inst_off"], r["inst_cap"], r["live"] = len(inst), many, int(r["instances"])
        r["inst_room"] = 1 if n.plan == "source" else max(64, 2 * many)
        inst += [
            (-1e18, L.I_LIVE if j < r["instances"] else L.I_OFF, 0, 0, k) for j in range(int(r["inst_room"]))
        ]
        r["budget_off"], r["breaker_off"], r["ugrid_off"] = -1, -1, -1

    for k, e in enumerate(edges):
        r = edge[k]
        src, dst = node_index[e.source], node_index[e.target]
        write(r, edge_fields(edge_settings[k], settings[src], nodes[src].plan == "source"))
        r["src"], r["dst"] = src, dst
        r["lane_lat"] = p.lane("n", float(r["latency_s"])) if r["latency_s"] > 0 else -1
        r["lane_to"] = p.lane("t", float(r["timeout_s"])) if r["timeout_s"] > 0 else -1
        r["fallback"] = r["on_fail"] = -1
        target = settings[dst]
        r["load_cap"] = max(1, int(node[dst]["slots"]) * int(target.get("instances", 1)))
        back = edge_settings[k]["fallback"]
        if back is not None:
            r["fallback"] = edge_index[back]
    out_of: list[list[int]] = [[] for _ in nodes]
    into: list[list[int]] = [[] for _ in nodes]
    for x, e in enumerate(edges):
        out_of[node_index[e.source]].append(x)
        into[node_index[e.target]].append(x)
    backed = edge["fallback"][: len(edges)].tolist()
    if max(backed, default=-1) >= 0:
        for k in range(len(edges)):
            edge[k]["on_fail"] = _on_fail(backed, k)

    for k in range(len(nodes)):
        r = node[k]
        own = out_of[k]
        for x in own:
            if edge[x]["fallback"] >= 0 and r["fb_any"] < 0:
                r["fb_any"] = x
            if edge[x]["dead_letter"] and r["dead_letter"] < 0:
                r["dead_letter"] = x
        plain = [
            x
            for x in own
            if edge[x]["fallback"] < 0 and not edge[x]["checkpoint"] and not edge[x]["dead_letter"]
        ]
        if r["plan"] != L.P_LOOP:  # a save is an ordinary call where there is no loop to save
            plain = [x for x in own if edge[x]["fallback"] < 0 and not edge[x]["dead_letter"]]
        saves = (
            [x for x in own if edge[x]["checkpoint"] and edge[x]["fallback"] < 0]
            if r["plan"] == L.P_LOOP
            else []
        )
        if r["plan"] in (L.P_ONE_OF, L.P_QUEUE, L.P_HEDGE):
            ordered = plain
        else:
            ordered = sorted(plain, key=lambda x: (edge[x]["order"], edge[x]["parallel"], x))
        r["plan_off"], r["plan_n"] = len(adj), len(ordered)
        for place, x in enumerate(ordered):
            edge[x]["place"] = place
        adj += ordered
        saves.sort(key=lambda x: (edge[x]["order"], edge[x]["parallel"], x))
        r["ck_off"], r["ck_n"] = len(adj), len(saves)
        r["simple"] = is_simple(r, [edge[x] for x in ordered])
        adj += saves
        if r["plan"] == L.P_QUEUE:
            copies = len(ordered) if r["copies"] else 1
            r["classes"] = 2 if any(edge[x]["only"] != L.ONLY_ANY for x in ordered) else 1
            r["sub_off"], r["sub_n"] = subs, copies * max(1, int(r["partitions"])) * int(r["classes"])
            subs += int(r["sub_n"])
    for k in range(len(nodes)):
        r = node[k]
        fed = [
            x
            for x in into[k]
            if nodes[edge[x]["src"]].plan == "queue"
            and edge[x]["fallback"] < 0
            and not edge[x]["dead_letter"]
        ]
        r["feed_off"], r["feed_n"] = len(adj), len(fed)
        adj += fed

    wheels = grids = 0
    for k, n in enumerate(nodes):
        r = node[k]
        if n.plan != "source":
            r["budget_off"], wheels = wheels, wheels + 2 * L.CELLS
            if n.plan == "breaker":
                r["breaker_off"], wheels = wheels, wheels + 2 * L.CELLS
            if r["vcpu"] > 0:
                r["ugrid_off"], grids = grids, grids + L.UGRID

    src, seg = _sources(p, design, node, settings)
    goal, ticks = _goals(p, design, src, adj, len(nodes))
    fault = np.zeros(len(design.faults) + FAULT_ROOM, L.FAULT)
    for k, f in enumerate(design.faults):
        fault[k] = fault_record(p, f, f.at_s)

    marks = {min(design.warmup_s, duration), duration}
    for o in design.problem.objectives if design.problem else ():
        marks |= {min(t, duration) for t in (o.from_s, o.to_s) if t is not None}
    p.marks = sorted(marks)

    frame_bytes = (
        L.FRAME.itemsize + len(nodes) * (L.FNODE.itemsize + 8 * L.TALLY) + len(edges) * L.FEDGE.itemsize
    )
    frames = min(4096, max(16, FRAME_BYTES // frame_bytes)) if history else 4
    lane = np.zeros(MAX_LANES, L.LANE)
    lane["off"] = np.arange(MAX_LANES) * LANE_ROOM
    lane["mask"] = LANE_ROOM - 1
    users = int(src["users"].sum())
    most = max(
        sum(math.ceil(float(edge[x]["calls"])) for x in out_of[k]) + int(node[k]["plan_n"])
        for k in range(len(nodes))
    )
    burst = 512 + 2 * most + int(node["inst_room"].max())
    if burst > MAX_BURST or subs > MAX_BURST:
        what = "calls at one instant" if burst > MAX_BURST else "lists of messages"
        raise DesignError(f"asks for more than {MAX_BURST:,} {what}; lower calls, partitions or instances")
    calls = 1024 + 2 * burst
    heap = 4 * calls + 2 * (users + 2 * burst + 8 * len(nodes) + 2 * len(fault))
    agenda = 1 << (4 * burst + 4 * calls - 1).bit_length()
    fills = np.zeros(64, L.FILL)
    fills["call"] = -1
    streams = np.zeros(3 * len(nodes), L.STREAM)
    rng.seed_streams(streams, p.seed, p.node_ids)
    arrays = {
        "node": node,
        "edge": edge,
        "call": np.zeros(calls, L.CALL),
        "heap": np.zeros(heap, L.EVENT),
        "agenda": np.zeros(agenda, L.EVENT),
        "lane": lane,
        "item": np.zeros(MAX_LANES * LANE_ROOM, L.EVENT),
        "inst": np.array(inst, L.INST),
        "adj": np.array(adj or [0], np.int32),
        "stream": streams,
        "cnt": np.zeros(len(nodes) * L.TALLY, np.int64),
        "hist": np.zeros((2 * len(nodes) + len(goal)) * L.H_SIZE, np.int64),
        "whist": np.zeros(len(nodes) * L.H_SIZE, np.int32),
        "woct": np.zeros(len(nodes) * (L.H_OCTAVES + 1), np.int64),
        "seg": seg,
        "src": src,
        "fault": fault,
        "goal": goal,
        "origin": np.zeros(max(1, len(src)) * len(nodes), np.int64),
        "frame": np.zeros(frames, L.FRAME),
        "fnode": np.zeros(frames * len(nodes), L.FNODE),
        "fedge": np.zeros(max(1, frames * len(edges)), L.FEDGE),
        "freason": np.zeros(frames * len(nodes) * L.TALLY, np.int64),
        "mark": np.zeros(len(p.marks) * len(nodes), L.NODE),
        "sub": np.full(max(1, subs), -1, np.int32).repeat(4).view(L.SUB) if subs else np.zeros(1, L.SUB),
        "fill": fills,
        "wheel": np.zeros(max(1, wheels), np.int32),
        "ugrid": np.zeros(max(1, grids)),
        "level": np.array(levels or [0], np.int32),
        "tick": np.zeros(max(1, 2 * ticks), np.int32),
        "zig": rng.tables(),
        # The warm-up's mark comes before what happens at its instant, since that counts already.
        "when": np.array(
            [np.nextafter(t, -1.0) if t == min(design.warmup_s, duration) else t for t in p.marks]
        ),
    }
    arrays["sub"]["n"] = 0
    arrays["sub"]["blocked"] = 0
    sim = np.zeros(1, L.SIM)
    w = sim[0]
    w["duration"], w["warmup"] = duration, min(design.warmup_s, duration) - L.SLACK
    w["end"] = duration + (design.drain_s if until_s is None or until_s >= design.duration_s else 0.0)
    w["next_frame"], w["next_mark"] = L.FRAME_S, arrays["when"][0]
    w["seq"] = 1
    w["arrival_t"] = math.inf
    w["free"] = -1
    w["heap_cap"], w["calls_cap"], w["agenda_mask"] = heap, calls, agenda - 1
    w["fill_mask"] = len(fills) - 1
    w["frame_cap"], w["mark_n"], w["burst"] = frames, len(p.marks), burst
    w["frame_keep"] = history
    w["nodes"], w["edges"], w["faults"] = len(nodes), len(edges), len(design.faults)
    w["sources"], w["lanes"], w["goals"] = len(p.sources), MAX_LANES, len(p.goals)
    state = State(sim, arrays)
    state.set_room()
    return p, state


def is_simple(node: np.void, plan: list[np.void]) -> bool:
    """Whether a node's plan is one plain edge called exactly once, the case the kernel has a short way for."""
    if node["plan"] not in (L.P_SOURCE, L.P_ALL) or len(plan) != 1 or node["budget"] > 0:
        return False
    e = plan[0]
    return bool(e["calls"] == 1.0 and not e["parallel"] and not e["async_"] and e["only"] == L.ONLY_ANY)


def _on_fail(backed: list[int], x: int) -> int:
    """The edge tried after edge x has failed: the first that backs x; else the next that backs what x stands in for.

    backed: for each edge the edge it stands in for, or -1.
    """

    def backer(of: int, after: int) -> int:
        try:
            return backed.index(of, after + 1)
        except ValueError:
            return -1

    y = backer(x, -1)
    while y < 0 and backed[x] >= 0:
        of = backed[x]
        y = backer(of, x)
        x = of
    return y


def fault_record(p: Program, f: object, at_s: float) -> tuple:
    """The FAULT record of a fault that begins at at_s."""
    amount = f.amount / 1e3 if f.kind == "latency" else f.amount
    node = p.node_index[f.node] if f.node is not None else -1
    edge = p.edge_index[f.edge] if f.edge is not None else -1
    return (at_s, at_s + f.duration_s, amount, L.FAULTS.index(f.kind), node, edge, 0, 0, 0)


def source_fields(p: Program, s: dict, duration: float) -> tuple[dict[str, object], list[tuple]]:
    """The static fields of a SRC record and its pieces of rate."""
    mode = L.T_OPEN
    segments, period, start, stop = [], 0.0, float(s["start_s"]), float(s["stop_s"]) or math.inf
    if s["users"]:
        mode = L.T_USERS
    elif s["shape"] == "herd":
        mode = L.T_HERD
    elif s["shape"] == "batch":
        mode = L.T_BATCH
        start = max(start, float(s["at_s"]))
    else:
        # A run cut short is the beginning of the whole one: its shapes know the design's own end.
        segments, period, start, stop = pieces(s, p.design.duration_s)
    fields = {
        "mode": mode,
        "even": s["arrivals"] == "even",
        "period": period,
        "start": start,
        "stop": min(stop, duration),
        "count": s["batch"] if mode == L.T_BATCH else s["count"],
        "at": s["at_s"],
        "spread": s["spread_s"],
        "every": s["every_s"],
        "users": s["users"],
        "think": s["think_s"],
        "write_share": s["write_share"],
        "keys": s["keys"],
        "zipf": s["zipf"],
        "prio": s["priority"],
    }
    return fields, segments


def period_area(segments: list[tuple]) -> float:
    """Expected requests in one pass through the pieces of a shape that repeats."""
    return sum((b - a) * (rate + 0.5 * slope * (b - a)) for a, b, rate, slope in segments)


def flat_gap(segments: list[tuple]) -> float:
    """Mean seconds between arrivals of a rate that never changes, else 0."""
    if len(segments) == 1 and segments[0][:2] == (0.0, FAR) and segments[0][2] > 0:
        return 1.0 / segments[0][2]
    return 0.0


def _sources(p: Program, design: Design, node: np.ndarray, settings: list) -> tuple[np.ndarray, np.ndarray]:
    src = np.zeros(max(1, len(p.sources)), L.SRC)
    segments: list[tuple] = []
    for k, i in enumerate(p.sources):
        fields, mine = source_fields(p, settings[i], p.duration_s)
        write(src[k], fields)
        src[k]["node"], src[k]["factor"] = i, 1.0
        src[k]["seg_off"], src[k]["seg_n"] = len(segments), len(mine)
        src[k]["area"] = period_area(mine) if src[k]["period"] else 0.0
        src[k]["gap"] = src[k]["gap_now"] = flat_gap(mine)
        src[k]["next_t"] = math.inf
        src[k]["extra"] = -1
        src[k]["people"] = src[k]["wanted"] = src[k]["users"]
        segments += mine
        node[i]["src"] = k
    return src, np.array(segments or [(0.0, 0.0, 0.0, 0.0)], L.SEG)


def _goals(p: Program, design: Design, src: np.ndarray, adj: list[int], nodes: int) -> tuple[np.ndarray, int]:
    """Rows for the objectives that are measured per request, and each source's list of them."""
    rows: list[tuple] = []
    lists: list[list[int]] = [[] for _ in p.sources]
    ticks = 0
    last = max((f.at_s + f.duration_s for f in design.faults), default=0.0)
    for index, o in enumerate(design.problem.objectives if design.problem else ()):
        node = p.node_index.get(o.of) if o.of is not None else None
        if o.metric not in GOAL_METRICS or (o.of is not None and node not in p.sources):
            continue
        row = len(rows)
        first = max(o.from_s or 0.0, min(design.warmup_s, p.duration_s))
        until = p.duration_s if o.to_s is None else min(o.to_s, p.duration_s)
        seconds = 0
        if o.metric == "recovery_s":
            seconds = min(MAX_TICKS, max(0, math.ceil(p.duration_s - last)))
        rows.append(
            (first, until, (o.within_ms or 0.0) / 1e3, 0, 0, 0, 2 * nodes + row, ticks, seconds, 0, last)
        )
        ticks += seconds
        p.goals.append(index)
        for k, i in enumerate(p.sources):
            if node is None or node == i:
                lists[k].append(row)
    for k, mine in enumerate(lists):
        src[k]["goal_off"], src[k]["goal_n"] = len(adj), len(mine)
        adj += mine
    return np.array(rows, L.GOAL) if rows else np.zeros(1, L.GOAL), ticks
