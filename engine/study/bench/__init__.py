"""The benchmark: the engine's speed beside peers measured in the same run, its start-up and its memory.

Speeds are requests per second of CPU time, medians over rounds in which the engine and its peers take turns.
"""

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.study.bench import processes
from engine.study.bench.workloads import Peers, workload_row

# The project's own bounds, on two cores.
FIRST_COMPILE_S = 40.0
READY_S = 1.5
HOUR_MB = 350.0
CHECK_S = 2.0
CHECK_SEEDS = 5

Tell = Callable[[float | None, str], None]


def machine() -> dict:
    """What the numbers were measured on."""
    import numba
    import numpy

    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": numpy.__version__,
    }


def workload_rows(quick: bool, tell: Tell) -> Iterator[dict]:
    """The rows of W1, W2 and W3, one at a time; see `workload_row` for their keys."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-", ignore_cleanup_errors=True) as folder:
        peers = Peers.find(Path(folder))
        for name in ("W1", "W2", "W3"):
            yield workload_row(name, peers, quick, tell)


def machine_rows(quick: bool, tell: Tell) -> Iterator[dict]:
    """Rows `{"row", "measured": {name: value}, "bound": {name: most}, "met"}`; `met` is None without a bound.

    Names end in their unit. `quick` leaves out the first compile and shortens the simulated hour.
    """
    if not quick:
        tell(None, "compiling from nothing")
        with tempfile.TemporaryDirectory(prefix="redline-bench-", ignore_cleanup_errors=True) as folder:
            wall_s, _ = processes.measure("compile", cache=folder)
        yield _row("first compile, empty cache", {"wall_s": wall_s}, {"wall_s": FIRST_COMPILE_S})

    tell(None, "starting")
    starts = [processes.measure("ready")[0] for _ in range(2 if quick else 3)]
    yield _row("from the cache to the first event", {"wall_s": min(starts)}, {"wall_s": READY_S})

    short, long = (60, 360) if quick else (360, 3600)
    for seconds in (short, long):
        tell(None, f"{seconds} s of 20 components at 1,000 requests/s")
        _, run = processes.measure("hour", seconds)
        yield _row(f"20 components, 1,000/s for {seconds} s", _of(run), {"peak_mb": HOUR_MB})

    seconds = 1 if quick else 10
    tell(None, f"{seconds} s of 1,000,000 requests/s")
    _, run = processes.measure("flood", seconds)
    yield _row(f"1,000,000 requests/s for {seconds} s", _of(run), {})

    yield from _check_rows(tell)


def _check_rows(tell: Tell) -> Iterator[dict]:
    from engine.design.files import load_problem, problems
    from engine.study.check import check

    for problem in (info.id for info in problems()):
        tell(None, f"checking {problem}")
        design = load_problem(problem)
        began = time.perf_counter()
        check(design, CHECK_SEEDS)
        measured = {"wall_s": time.perf_counter() - began}
        yield _row(f"check {problem}, {CHECK_SEEDS} seeds", measured, {"wall_s": CHECK_S})


def _of(run: dict) -> dict:
    return {
        "wall_s": run["wall_s"],
        "events": run["events"],
        "events_per_s": run["events"] / run["cpu_s"],
        "peak_mb": run["peak_mb"],
    }


def _row(name: str, measured: dict, bound: dict) -> dict:
    known = {key: most for key, most in bound.items() if measured.get(key) is not None}
    met = all(measured[key] <= most for key, most in known.items()) if known else None
    return {"row": name, "measured": measured, "bound": bound, "met": met}
