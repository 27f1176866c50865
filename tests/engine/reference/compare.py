"""Whether two simulators agree on a design: means over seeds of every figure, within what chance allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean, variance

# Two-sided 99.9 % points of Student's t by degrees of freedom.
STUDENT = {
    2: 31.60, 3: 12.92, 4: 8.610, 5: 6.869, 6: 5.959, 7: 5.408, 8: 5.041, 9: 4.781, 10: 4.587, 12: 4.318,
    15: 4.073, 20: 3.850, 30: 3.646, 60: 3.460, 120: 3.373,
}  # fmt: skip

Simulator = Callable[[object, int], Mapping[str, object]]


def figures(result: Mapping[str, object]) -> dict[str, float | None]:
    """Every figure of a run by its path: `nodes.store.failures.timeout`."""
    flat: dict[str, float | None] = {}

    def walk(path: str, value: object) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                walk(f"{path}.{key}", item)
        else:
            flat[path] = value

    walk("totals", result["totals"])
    for part in ("sources", "nodes"):
        for id, value in result[part].items():
            if part == "sources" or id not in result["sources"]:
                walk(f"{part}.{id}", value)
    return flat


def floor(path: str, value: float) -> float:
    """The difference that passes whatever the spread: rounding, and the width of a histogram's bucket."""
    name = path.rsplit(".", 1)[-1]
    if name.removeprefix("offered_") in ("p50_ms", "p95_ms", "p99_ms"):
        return 0.011 * abs(value) + 1e-3
    if name in ("utilisation", "cpu_utilisation", "success_rate"):
        return 0.002
    if name.endswith("_ms") or name.endswith("_s") or name.endswith("_mean") or name.endswith("_rps"):
        return 0.003 * abs(value) + 0.01
    return 0.003 * abs(value) + 0.35


def _quantile(freedom: float) -> float:
    return STUDENT[max((known for known in STUDENT if known <= freedom), default=2)]


def _difference(path: str, one: list[float], other: list[float]) -> str | None:
    """What is wrong with two samples of one figure; None when they agree."""
    means = fmean(one), fmean(other)
    parts = variance(one) / len(one), variance(other) / len(other)
    error = sum(parts)
    allowed = floor(path, means[0])
    if error > 0:
        freedom = error**2 / sum(
            part**2 / (len(sample) - 1) for part, sample in zip(parts, (one, other), strict=True)
        )
        allowed += _quantile(freedom) * math.sqrt(error)
    if abs(means[0] - means[1]) <= allowed:
        return None
    return f"{path}: {means[0]:.6g} against {means[1]:.6g}, allowed {allowed:.3g}"


def _samples(runs: Iterable[dict[str, float | None]], paths: Iterable[str]) -> dict[str, list[float | None]]:
    runs = list(runs)

    def value(run: dict[str, float | None], path: str) -> float | None:
        # A reason or a node that is not named has not occurred.
        return run.get(path, 0.0 if ".failures" in path else None)

    return {path: [value(run, path) for run in runs] for path in paths}


def differences(
    one: Simulator,
    other: Simulator,
    design: object,
    seeds: tuple[int, int],
    start: int = 1,
    only: Iterable[str] | None = None,
) -> dict[str, str]:
    """The figures on which two simulators differ, with what they are, from so many seeds of each."""
    runs = [
        [figures(simulator(design, seed)) for seed in range(start, start + number)]
        for simulator, number in zip((one, other), seeds, strict=True)
    ]
    paths = sorted({path for part in runs for run in part for path in run}) if only is None else list(only)
    found = {}
    for path, ours, theirs in zip(
        paths, _samples(runs[0], paths).values(), _samples(runs[1], paths).values(), strict=True
    ):
        missing = [sum(value is None for value in part) / len(part) for part in (ours, theirs)]
        if abs(missing[0] - missing[1]) > 0.6:
            found[path] = f"{path}: without a value in {missing[0]:.0%} against {missing[1]:.0%} of the runs"
            continue
        known = [[value for value in part if value is not None] for part in (ours, theirs)]
        if min(map(len, known)) >= 2:
            text = _difference(path, *known)
            if text:
                found[path] = text
    return found


def disagreements(
    one: Simulator, other: Simulator, design: object, seeds: tuple[int, int] = (5, 10)
) -> list[str]:
    """The figures on which two simulators differ beyond chance.

    Among hundreds of figures some differ by chance, so those that do are judged again on four times as many
    seeds that were not used before.
    """
    suspects = differences(one, other, design, seeds)
    if not suspects:
        return []
    again = (4 * seeds[0], 4 * seeds[1])
    return list(differences(one, other, design, again, start=1000, only=suspects).values())
