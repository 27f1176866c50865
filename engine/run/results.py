"""The numbers of a run, read off its arrays: the object of `run --json`, objectives, the digest."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from dataclasses import dataclass

import numpy as np

from engine.design.cost import credits, run_cost
from engine.design.parts import Objective
from engine.program import layout as L
from engine.program.lower import Program
from engine.program.state import State

OPS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_B = np.arange(1, L.H_SIZE)
BUCKET_S = np.concatenate(
    [[0.0], (1.0 + ((_B - 1) % 64 + 0.5) / 64.0) * 2.0 ** ((_B - 1) // 64 + L.H_MIN_EXP)]
)  # the middle of each histogram bucket, in seconds


def percentile(hist: np.ndarray, q: float, failed: int = 0) -> float | None:
    """The nearest-rank q-quantile (0 to 1) in seconds; `failed` further samples count as infinite. None: no value."""
    good = int(hist.sum())
    rank = math.ceil(q * (good + failed) - 1e-9)
    if rank < 1 or rank > good:
        return None
    return float(BUCKET_S[int(np.searchsorted(np.cumsum(hist), rank))])


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


class View:
    """A run's arrays with names: what has been counted, and node records at given times."""

    def __init__(self, program: Program, state: State) -> None:
        self.program, self.state = program, state
        n = len(program.node_ids)
        self.now = float(state.sim[0]["now"])
        self.counts = state.cnt.reshape(n, 3, L.CNT)[:, 1]
        self.hist = state.hist.reshape(-1, L.H_SIZE)
        self.marks = state.mark.reshape(len(program.marks), n)[: int(state.sim[0]["mark_i"])]
        self._current = None

    def current(self) -> np.ndarray:
        """Node records as they are now, with the time integrals brought up to now."""
        if self._current is None:
            r = self.state.node.copy()
            r["busy_int"] += (r["busy"] - r["drain_busy"]) * (self.now - r["busy_last"])
            r["queue_int"] += r["qlen"] * (self.now - r["queue_last"])
            r["cap_int"] += r["slots"].astype(float) * r["live"] * (self.now - r["cap_last"])
            cores = r["vcpu"] * (r["live"] + r["draining"])
            dt = np.where(r["vcpu"] > 0, self.now - r["cpu_last"], 0.0)
            r["cpu_int"] += np.minimum(r["cpu_n"], cores) * dt
            r["cpu_cap_int"] += cores * dt
            for i in np.flatnonzero(r["plan"] == L.P_QUEUE):
                r[i]["age_t"] = self._oldest(r[i])
            self._current = r
        return self._current

    def _oldest(self, queue: np.void) -> float:
        """When the oldest message that waits came, -1 where none does."""
        m = int(queue["age_head"]) if queue["backlog"] > 0 else -1
        while m >= 0 and self.state.call[m]["kid_head"] >= 0:
            m = int(self.state.call[m]["sib_next"])
        return float(self.state.call[m]["t_arr"]) if m >= 0 else -1.0

    def at(self, t: float) -> np.ndarray:
        """Node records at a marked time, or now where the run has not come so far."""
        k = self.program.marks.index(t)
        return self.marks[k] if k < len(self.marks) else self.current()

    def window(self, from_s: float | None, to_s: float | None) -> tuple[float, float]:
        p = self.program
        warm = min(p.design.warmup_s, p.duration_s)
        first = max(warm, min(from_s or 0.0, p.duration_s))
        return first, p.duration_s if to_s is None else min(to_s, p.duration_s)

    def queue_max(self, i: int, first: float, last: float) -> int:
        """The longest queue between two marked times."""
        spans = [k for k, t in enumerate(self.program.marks) if first < t <= last and k < len(self.marks)]
        most = max((int(self.marks[k][i]["queue_max"]) for k in spans), default=0)
        if self.now < last and self.now > first:
            most = max(most, int(self.current()[i]["queue_max"]))
        return most

    def utilisation(self, i: int, first: float, last: float, cpu: bool = False) -> float | None:
        used, had = ("cpu_int", "cpu_cap_int") if cpu else ("busy_int", "cap_int")
        a, b = self.at(first)[i], self.at(last)[i]
        capacity = float(b[had] - a[had])
        return min(1.0, max(0.0, float(b[used] - a[used]) / capacity)) if capacity > 0 else None

    def waiting_roots(self) -> np.ndarray:
        """Requests that have no outcome yet: CALL records."""
        high = int(self.state.sim[0]["calls_high"])
        c = self.state.call[:high]
        return c[(c["parent"] == -2) & (c["state"] != L.S_FREE)]


def _failures(counts: np.ndarray) -> dict[str, int]:
    return {reason: int(v) for reason, v in zip(L.REASONS, counts[2 : 2 + L.NR], strict=True) if v}


def _requests(v: View, rows: list[int], lost: int, retries: int) -> dict:
    """End-to-end numbers of some sources together; rows are SRC indices."""
    nodes = [v.program.sources[k] for k in rows]
    counts = v.counts[nodes].sum(axis=0) if nodes else np.zeros(L.CNT, np.int64)
    offered, good = int(counts[0]), int(counts[1])
    bad = int(counts[2 : 2 + L.NR].sum())
    hist = v.hist[[2 * i for i in nodes]].sum(axis=0) if nodes else np.zeros(L.H_SIZE, np.int64)
    total = float(sum(v.state.node[i]["soj_sum"] for i in nodes))
    first, last = v.window(None, None)
    length = min(last, v.now) - first
    began = v.state.origin.reshape(-1, len(v.program.node_ids))[rows].sum(axis=0) if rows else []
    out = {
        "offered": offered,
        "succeeded": good,
        "failed": bad,
        "in_flight": offered - good - bad,
        "success_rate": _share(good, good + bad),
        "goodput_rps": good / length if length > 0 else None,
        "mean_ms": _ms(_share(total, good)),
    }
    for q in (50, 95, 99):
        out[f"p{q}_ms"] = _ms(percentile(hist, q / 100))
    for q in (50, 95, 99):
        out[f"offered_p{q}_ms"] = _ms(percentile(hist, q / 100, bad))
    out["failures"] = _failures(counts)
    out["failures_by_node"] = {v.program.node_ids[i]: int(k) for i, k in enumerate(began) if k}
    out["lost"], out["retries"] = lost, retries
    return out


def _node(v: View, i: int) -> dict:
    counts = v.counts[i]
    first, last = v.window(None, None)
    a, b = v.at(first)[i], v.at(last)[i]
    r = v.state.node[i]
    good, bad = int(counts[1]), int(counts[2 : 2 + L.NR].sum())
    length = min(last, v.now) - first
    hist = v.hist[2 * i]
    source = r["plan"] == L.P_SOURCE
    waited = int(v.hist[2 * i + 1].sum())
    since = float(b["age_t"])
    return {
        "offered": int(counts[0]),
        "succeeded": good,
        "failed": bad,
        "failures": _failures(counts),
        "in_flight": int(counts[0]) - good - bad,
        "utilisation": v.utilisation(i, first, last),
        "cpu_utilisation": v.utilisation(i, first, last, cpu=True),
        "queue_mean": None if source or length <= 0 else float(b["queue_int"] - a["queue_int"]) / length,
        "queue_max": None if source else v.queue_max(i, first, last),
        "wait_mean_ms": _ms(_share(float(r["wait_sum"]), waited)),
        "mean_ms": _ms(_share(float(r["soj_sum"]), int(hist.sum()))),
        "p50_ms": _ms(percentile(hist, 0.50)),
        "p95_ms": _ms(percentile(hist, 0.95)),
        "p99_ms": _ms(percentile(hist, 0.99)),
        "retries": int(b["retries_sent"] - a["retries_sent"]),
        "crashes": int(b["crashes"] - a["crashes"]),
        "backlog": int(b["backlog"]) if r["plan"] == L.P_QUEUE else None,
        "backlog_age_s": min(last, v.now) - since if r["plan"] == L.P_QUEUE and since >= 0 else None,
    }


def summary(program: Program, state: State, wall_s: float | None = None) -> dict:
    """The object that `run --json` writes, of a run that has finished or stands where it stands."""
    v = View(program, state)
    nodes = {id: _node(v, i) for i, id in enumerate(program.node_ids)}
    lost = int(state.node["lost"].sum())
    rows = list(range(len(program.sources)))
    design = program.design
    out = {
        "format": 1,
        "name": design.name,
        "seed": program.seed,
        "duration_s": program.duration_s,
        "warmup_s": min(design.warmup_s, program.duration_s),
        "wall_s": wall_s,
        "events": int(state.sim[0]["events"]),
        "digest": digest(program, state),
        "totals": _requests(v, rows, lost, sum(n["retries"] for n in nodes.values())),
        "sources": {
            program.node_ids[i]: _requests(
                v, [k], int(state.src[k]["lost"]), nodes[program.node_ids[i]]["retries"]
            )
            for k, i in enumerate(program.sources)
        },
        "nodes": nodes,
        "cost": {"credits": credits(design), "run_cost": run_cost(design)},
    }
    if design.problem is not None:
        out["objectives"] = objectives(v, out)
        out["passed"] = bool(out["objectives"]) and all(o["met"] for o in out["objectives"])
    else:
        out["objectives"], out["passed"] = [], None
    return out


def digest(program: Program, state: State) -> str:
    """SHA-256 of every counter, histogram and time integral: equal for equal runs, whatever their pace."""
    h = hashlib.sha256()
    v = View(program, state)
    r = v.current()
    for name in (
        "busy_int cap_int queue_int cpu_int cpu_cap_int soj_sum wait_sum retries_sent crashes abandoned "
        "lost backlog enqueued busy qlen in_flight live"
    ).split():
        h.update(np.ascontiguousarray(r[name]).tobytes())
    for array in (state.cnt, state.hist, state.origin, state.stream, state.tick):
        h.update(array.tobytes())
    h.update(np.array([v.now, float(state.sim[0]["events"])]).tobytes())
    return h.hexdigest()[:32]


# --- objectives ---
@dataclass(frozen=True)
class _Goal:
    """What a GOAL row has counted, the requests still unanswered and too old added to the failures."""

    ok: int
    bad: int
    hist: np.ndarray
    unanswered: np.ndarray  # arrival times of those that count as failed


def _goal(v: View, row: int) -> _Goal:
    g = v.state.goal[row]
    hist = v.hist[int(g["hist"])]
    roots = v.waiting_roots()
    source = v.state.node["src"][roots["node"]]
    lists = v.state.src
    mine = np.zeros(len(lists), bool)
    for k in range(len(v.program.sources)):
        off, n = int(lists[k]["goal_off"]), int(lists[k]["goal_n"])
        mine[k] = row in v.state.adj[off : off + n]
    since = roots["t_arr"][mine[source] if len(roots) else np.zeros(0, bool)]
    since = since[(since >= g["from_t"]) & (since <= g["to_t"])]
    limit = float(g["within"])
    if limit <= 0:
        p99 = percentile(hist, 0.99)
        limit = 10.0 * p99 if p99 is not None else -1.0
    old = since[v.now - since > limit]
    return _Goal(int(g["ok"]), int(g["bad"]), hist, old)


def objectives(v: View, out: dict) -> list[dict]:
    """Each objective with its value and whether it is met. A value that cannot be had is None and not met."""
    problem = v.program.design.problem
    found = []
    for index, o in enumerate(problem.objectives):
        value = _value(v, out, index, o)
        met = value is not None and bool(OPS[o.op](value, o.target))
        found.append(
            {"metric": o.metric, "of": o.of, "op": o.op, "target": o.target, "value": value, "met": met}
            | {
                k: x
                for k, x in (("within_ms", o.within_ms), ("from_s", o.from_s), ("to_s", o.to_s))
                if x is not None
            }
        )
    caps = (("run_cost", problem.budget.run_cost), ("credits", problem.budget.credits))
    for metric, cap in caps:
        if cap is not None:
            value = out["cost"][metric]
            found.append(
                {"metric": metric, "of": None, "op": "<=", "target": cap, "value": value, "met": value <= cap}
            )
    return found


def _value(v: View, out: dict, index: int, o: Objective) -> float | None:
    first, last = v.window(o.from_s, o.to_s)
    if index in v.program.goals:
        return _request_value(v, o, v.program.goals.index(index), first, last)
    if o.metric in ("run_cost", "credits"):
        return out["cost"][o.metric]
    if o.of is not None and o.of not in v.program.node_index:
        return None
    if o.metric in ("lost", "retries", "crashes") and o.of is None:
        if o.metric == "crashes":
            return sum(n["crashes"] for n in out["nodes"].values())
        return out["totals"][o.metric]
    i = v.program.node_index[o.of]
    if o.metric == "utilisation":
        return v.utilisation(i, first, last)
    if o.metric == "cpu_utilisation":
        return v.utilisation(i, first, last, cpu=True)
    if o.metric == "queue_max":
        return v.queue_max(i, first, last)
    if o.metric == "lost":
        return int(v.state.node[i]["lost"])
    n = out["nodes"][o.of]
    if o.metric == "success_rate":
        return _share(n["succeeded"], n["succeeded"] + n["failed"])
    if o.metric == "goodput_rps":
        whole, end = v.window(None, None)
        return n["succeeded"] / (end - whole) if end > whole else None
    return n.get(o.metric)


def _request_value(v: View, o: Objective, row: int, first: float, last: float) -> float | None:
    g = _goal(v, row)
    bad = g.bad + len(g.unanswered)
    if o.metric == "success_rate":
        return _share(g.ok, g.ok + bad)
    if o.metric == "failed":
        return bad
    if o.metric == "goodput_rps":
        return g.ok / (last - first) if last > first else None
    if o.metric == "recovery_s":
        return _recovery(v, o, row, g)
    return _ms(percentile(g.hist, float(o.metric[1:3]) / 100, bad))


def _recovery(v: View, o: Objective, row: int, g: _Goal) -> float | None:
    """Seconds from the end of the last fault to the first five whole good seconds in a row."""
    goal = v.state.goal[row]
    off, n, t0 = int(goal["tick_off"]), int(goal["tick_n"]), float(goal["tick_t"])
    counts = v.state.tick[2 * off : 2 * (off + n)].reshape(n, 2).copy()
    late = np.floor(g.unanswered - t0).astype(int)
    np.add.at(counts[:, 1], late[(late >= 0) & (late < n)], 1)
    target = 0.99
    for other in v.program.design.problem.objectives:
        if other.metric == "success_rate" and other.of == o.of:
            target = other.target
            break
    whole = int(min(n, v.now - t0))
    ended = counts[:whole].sum(axis=1)
    good = counts[:whole, 0] >= target * ended - 1e-9
    run = 0
    for k in range(whole):
        run = run + 1 if good[k] else 0
        if run == 5:
            return float(k - 4)
    return None


def to_json(value: dict) -> str:
    """Strict JSON, NaN and infinity refused."""
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
