"""Judging a design by its problem's objectives, on several seeds and all cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from engine.design.errors import DesignError
from engine.run.simulation import Simulation

if TYPE_CHECKING:
    from engine.design.model import Design

EXTRA_SEEDS = 8
MOST_SEEDS = 1000
# One call into the kernel: some hundredths of a second, so that a cancel is honoured at once
_CHUNK_EVENTS = 200_000
_TICK_S = 0.05


class Cancelled(Exception):
    """The check was given up through its `cancel` event; there is no result."""


def check(
    design: Design,
    seeds: int | Iterable[int] = 5,
    workers: int | None = None,
    progress: Callable[[float, int], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict:
    """Run `design` once per seed and judge it: the object of `check --json` (format.md).

    `seeds`: how many (the seeds 1 … N, whatever the file's own seed) or the seeds themselves. `workers`:
    threads, as many as there are cores unless given; the kernel runs outside the interpreter lock.
    `progress(done, total)` is called in the calling thread with the runs done, fractions included, out of
    all that may be needed. Setting `cancel` ends the check within about a tenth of a second with
    `Cancelled`.

    The design passes if every seed does. Stars: 0 not passed; 1 passed; 2 if it also passes on eight
    further seeds (the smallest not used yet), so that luck does not earn them; 3 if it then costs no more
    an hour than the problem's par, where it has one. The result does not depend on `workers`.

    DesignError if the design is not a problem or the seeds are not sound.
    """
    problem = design.problem
    if problem is None or not problem.objectives:
        raise DesignError(f"{design.name!r} has nothing to check: it is not a problem with objectives")
    chosen = _seeds(seeds)
    further = _further(chosen)
    total = len(chosen) + len(further)
    workers = max(1, min(workers or os.cpu_count() or 1, total))

    def tell(done: float) -> None:
        if progress is not None:
            progress(done, total)

    tell(0)
    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        results = _run_all(pool, design, chosen, tell, cancel)
        passed = all(result["passed"] for result in results)
        steady = False
        if passed:
            rest = _run_all(
                pool, design, further, lambda done: tell(len(chosen) + done), cancel, until_failed=True
            )
            steady = all(result["passed"] for result in rest)
    tell(total)
    return {
        "problem": problem.id,
        "design": design.name,
        "seeds": [
            {"seed": seed, "passed": result["passed"], "objectives": result["objectives"]}
            for seed, result in zip(chosen, results, strict=True)
        ],
        "passed": passed,
        # No problem names a par yet: the files' schema has no key for it
        "stars": stars(passed, steady, results[0]["cost"]["run_cost"], getattr(problem, "par", None)),
    }


def stars(passed: bool, steady: bool, run_cost: float | None, par: float | None) -> int:
    """The one rule for stars: each needs those before it. See `check`; no cost or no par: two at most."""
    if not passed:
        return 0
    if not steady:
        return 1
    return 3 if par is not None and run_cost is not None and run_cost <= par else 2


def _seeds(seeds: int | Iterable[int]) -> list[int]:
    if isinstance(seeds, int):
        if not 1 <= seeds <= MOST_SEEDS:
            raise DesignError(f"the number of seeds must be from 1 to {MOST_SEEDS}, not {seeds}")
        return list(range(1, seeds + 1))
    chosen = list(seeds)
    if not 1 <= len(chosen) <= MOST_SEEDS:
        raise DesignError(f"the number of seeds must be from 1 to {MOST_SEEDS}, not {len(chosen)}")
    for seed in chosen:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise DesignError(f"a seed must be a whole number of at least 0, not {seed!r}")
    if len(set(chosen)) < len(chosen):
        raise DesignError("a seed is given twice; each run needs its own")
    return chosen


def _further(chosen: Sequence[int]) -> list[int]:
    """The smallest seeds from 1 on that are not among `chosen`."""
    used = set(chosen)
    return [seed for seed in range(1, len(chosen) + EXTRA_SEEDS + 1) if seed not in used][:EXTRA_SEEDS]


def _run_all(
    pool: ThreadPoolExecutor,
    design: Design,
    seeds: Sequence[int],
    tell: Callable[[float], None],
    cancel: threading.Event | None,
    until_failed: bool = False,
) -> list[dict]:
    """The summaries of all seeds in their order; with `until_failed`, the first failed one alone ends it."""
    stop = threading.Event()
    done = [0.0] * len(seeds)

    def run(index: int) -> dict:
        simulation = Simulation(design, seeds[index], history=False)
        while not stop.is_set():
            if simulation.advance(simulation.end_s, max_events=_CHUNK_EVENTS):
                done[index] = 1.0
                return simulation.summary()
            done[index] = min(1.0, simulation.now / simulation.end_s)
        raise Cancelled

    futures: list[Future[dict]] = [pool.submit(run, index) for index in range(len(seeds))]
    pending = set(futures)
    try:
        while pending:
            finished, pending = wait(pending, _TICK_S, FIRST_COMPLETED)
            if cancel is not None and cancel.is_set():
                raise Cancelled
            for future in finished:
                if not future.result()["passed"] and until_failed:
                    return [future.result()]
            tell(sum(done))
    finally:
        # Reached early by a cancel, an error or an interrupt as well: no thread is left running
        stop.set()
        for future in futures:
            future.cancel()
    return [future.result() for future in futures]
