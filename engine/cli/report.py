"""A run's summary (the object that `run --json` writes) as text for people."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.cli.text import NONE, Paint, clean, count, digits, duration, share, table, width, wrap

_SHARES = {"success_rate", "utilisation", "cpu_utilisation"}
_UNITS = {"goodput_rps": "/s", "run_cost": " cr/h", "credits": " cr"}
_NAMES = {
    "goodput_rps": "goodput",
    "p50_ms": "p50",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "failed": "failed requests",
    "lost": "lost messages",
    "recovery_s": "recovery time",
    "queue_max": "longest queue",
    "utilisation": "slots busy",
    "cpu_utilisation": "CPU busy",
    "backlog_age_s": "oldest message",
}


# --- objectives ------------------------------------------------------------------------------------------


def metric_text(metric: str, value: float | None, significant: int = 3) -> str:
    """`value` of an objective's metric with the metric's unit."""
    if value is None:
        return "none"
    if metric in _SHARES:
        return share(value, significant)
    if metric.endswith("_ms"):
        return duration(value, significant)
    if metric.endswith("_s"):
        return duration(1e3 * value, significant)
    unit = _UNITS.get(metric, "")
    return (digits(value, significant) if unit or value != round(value) else count(value)) + unit


def value_text(metric: str, value: float | None, target: float) -> str:
    """`value` with as many digits as it takes to tell it from `target`."""
    significant = 3
    if value is not None and value != target:
        while significant < 9 and f"{value:.{significant - 1}e}" == f"{target:.{significant - 1}e}":
            significant += 1
    return metric_text(metric, value, significant)


def goal_text(objective: Mapping) -> str:
    """What an objective asks for: `p99 of users`, `success rate of users within 30.0s`."""
    metric = objective["metric"]
    text = _NAMES.get(metric, metric.replace("_", " "))
    if objective.get("of"):
        text += f" of {objective['of']}"
    if objective.get("within_ms"):
        text += f" within {duration(objective['within_ms'])}"
    if objective.get("from_s") is not None or objective.get("to_s") is not None:
        begin, end = objective.get("from_s") or 0, objective.get("to_s")
        text += f" from {digits(begin)}s" + (f" to {digits(end)}s" if end is not None else "")
    return clean(text)


def target_text(objective: Mapping) -> str:
    """The bound of an objective: `>= 99%`."""
    return f"{objective['op']} {metric_text(objective['metric'], objective['target'])}"


def verdict(met: bool, paint: Paint) -> str:
    return paint("green", "met") if met else paint("red", "missed")


def objective_lines(objectives: Sequence[Mapping], paint: Paint, columns: int) -> list[str]:
    """A table of objectives with their bound, the value measured and whether it is met."""
    rows = [
        (
            goal_text(o),
            target_text(o),
            value_text(o["metric"], o["value"], o["target"]),
            verdict(o["met"], paint),
        )
        for o in objectives
    ]
    return table(("Objective", "asked", "measured", " "), rows, left=(0, 1, 3), columns=columns)


# --- the whole summary -----------------------------------------------------------------------------------


def run_lines(summary: Mapping, paint: Paint, columns: int = 80) -> list[str]:
    """The text of `run`: totals, sources, components, failures and objectives."""
    heading = _heading(paint)
    blocks = [_head(summary, heading, columns), _totals(summary, columns)]
    sources = summary.get("sources") or {}
    if len(sources) > 1:
        blocks.append(_source_table(sources, columns, heading))
    blocks.append(_node_table(summary["nodes"], columns, heading))
    blocks.append(_trouble_table(summary["nodes"], columns, heading))
    objectives = summary.get("objectives") or []
    if objectives:
        met = sum(1 for o in objectives if o["met"])
        lines = objective_lines(objectives, paint, columns)
        passed = f"{met} of {len(objectives)} objectives met"
        blocks.append(
            [heading(lines[0]), *lines[1:], "", paint("green" if met == len(objectives) else "red", passed)]
        )
    out: list[str] = []
    for block in blocks:
        if block:
            out += [*([""] if out else []), *block]
    return out


def finding_lines(findings: Iterable, paint: Paint, columns: int = 80) -> list[str]:
    """What `lint` says of the design, one paragraph each; nothing where it has nothing to say."""
    out = []
    for finding in findings:
        text = clean(f"{finding.where}: {finding.text}" if finding.where else finding.text)
        label = paint("red" if finding.level == "error" else "yellow", f"{finding.level:<10}")
        first, *rest = wrap(text, columns - 10)
        out += [label + first, *(" " * 10 + line for line in rest)]
    return ["", *out] if out else []


def _heading(paint: Paint) -> Callable[[str], str]:
    return lambda line: paint("bold", line)


def _head(summary: Mapping, heading: Callable[[str], str], columns: int) -> list[str]:
    facts = [f"seed {summary['seed']}", f"{digits(summary['duration_s'])}s simulated"]
    if summary.get("warmup_s"):
        facts.append(f"warm-up {digits(summary['warmup_s'])}s")
    facts.append(f"{count(summary['events'])} events")
    if summary.get("wall_s") is not None:
        facts.append(f"took {duration(1e3 * summary['wall_s'])}")
    return [heading(line) for line in wrap(clean(summary["name"]), columns)] + wrap(", ".join(facts), columns)


def _totals(summary: Mapping, columns: int) -> list[str]:
    t = summary["totals"]
    rows = [
        ("Requests", f"{count(t['offered'])} offered, {count(t['succeeded'])} succeeded, "
         f"{count(t['failed'])} failed, {count(t['in_flight'])} in flight"),
        ("Success", f"{share(t['success_rate'])}, goodput {digits(t['goodput_rps'])}/s"),
        ("Latency", "of successes " + _latency(t, "")),
        ("", "of all that ended " + _latency(t, "offered_")),
        ("Failures", _tally(t["failures"])),
        ("Began at", _tally(t["failures_by_node"])),
    ]  # fmt: skip
    more = [
        f"{count(t[key])} {text}" for key, text in (("retries", "retries"), ("lost", "lost")) if t.get(key)
    ]
    rows.append(("Also", ", ".join(more)))
    cost = summary.get("cost") or {}
    spent = [
        f"{digits(cost[key])}{unit}"
        for key, unit in (("credits", " credits to place"), ("run_cost", " credits an hour to run"))
        if cost.get(key) is not None
    ]
    rows.append(("Cost", ", ".join(spent)))
    out = []
    for title, text in rows:
        if text:
            first, *rest = wrap(text, columns - 10)
            out += [f"{title:<10}{first}".rstrip(), *(" " * 10 + line for line in rest)]
    return out


def _latency(block: Mapping, prefix: str) -> str:
    values = [(p, block.get(f"{prefix}{p}_ms")) for p in ("p50", "p95", "p99")]
    if not prefix and block.get("mean_ms") is None:
        return NONE
    # A failure counts as infinitely slow, so a percentile can be out of reach.
    never = "never" if prefix and block["succeeded"] + block["failed"] else NONE
    text = ", ".join(f"{p} {duration(v) if v is not None else never}" for p, v in values)
    return text if prefix else f"mean {duration(block['mean_ms'])}, {text}"


def _tally(counts: Mapping[str, float]) -> str:
    """`timeout 12, rejected 3`, the largest first."""
    ranked = sorted(((n, name) for name, n in counts.items() if n), key=lambda pair: (-pair[0], pair[1]))
    return ", ".join(f"{clean(name)} {count(n)}" for n, name in ranked)


def _source_table(sources: Mapping[str, Mapping], columns: int, heading) -> list[str]:
    rows = [
        (
            name,
            count(s["offered"]),
            share(s["success_rate"]),
            digits(s["goodput_rps"]),
            duration(s["p50_ms"]),
            duration(s["p95_ms"]),
            duration(s["p99_ms"]),
            count(s["retries"]),
        )
        for name, s in sources.items()
    ]
    header = ("Source", "offered", "ok", "good/s", "p50", "p95", "p99", "retries")
    first, *rest = table(header, rows, columns=columns)
    return [heading(first), *rest]


def _node_table(nodes: Mapping[str, Mapping], columns: int, heading) -> list[str]:
    rows = [
        (
            name,
            count(n["offered"]),
            share(n["succeeded"] / (n["succeeded"] + n["failed"]) if n["succeeded"] + n["failed"] else None),
            share(n["utilisation"]),
            share(n["cpu_utilisation"]),
            digits(n["queue_mean"]),
            count(n["queue_max"]),
            duration(n["wait_mean_ms"]),
            duration(n["p50_ms"]),
            duration(n["p95_ms"]),
            duration(n["p99_ms"]),
        )
        for name, n in nodes.items()
    ]
    header = ("Component", "offered", "ok", "slots", "cpu", "queue", "max", "wait", "p50", "p95", "p99")
    first, *rest = table(header, rows, columns=columns)
    return [heading(first), *rest]


def _trouble_table(nodes: Mapping[str, Mapping], columns: int, heading) -> list[str]:
    """What went wrong where: only components with failures, retries, crashes or a backlog."""
    rows, reasons = [], []
    for name, n in nodes.items():
        events = [count(n[key] or None) for key in ("failed", "retries", "crashes", "backlog")]
        if all(text == NONE for text in events):
            continue
        age = duration(1e3 * n["backlog_age_s"]) if n.get("backlog_age_s") else NONE
        rows.append((name, *events, age))
        reasons.append(_tally(n["failures"]) or NONE)
    if not rows:
        return []
    header = ("Component", "failed", "retries", "crashes", "backlog", "oldest")
    left = columns - 2 - max(width(line) for line in table(header, rows, columns=columns))
    filled = []
    for row, reason in zip(rows, reasons, strict=True):
        first, *rest = wrap(reason, max(26, left), ", ")
        filled += [(*row, first), *(("",) * len(row) + (more,) for more in rest)]
    first, *rest = table((*header, "why calls failed"), filled, left=(0, 6), columns=columns)
    return [heading(first), *rest]
