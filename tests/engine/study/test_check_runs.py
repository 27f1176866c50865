"""The check on the engine itself."""

import threading
import time

import pytest

from engine.design import Budget, Objective, Problem, load_problem, problems
from engine.run.simulation import simulate
from engine.study.check import Cancelled, check
from tests.engine.reference.build import design, node, source


def judged(made, *objectives):
    """The design as a problem with these objectives."""
    nothing = {"brief": "", "teaches": (), "hints": (), "debrief": "", "palette": None, "locked": ()}
    rest = {"budget": Budget(), "solutions": (), "traps": ()}
    goals = tuple(Objective.make(metric, op, target, of) for metric, op, target, of in objectives)
    return made.replace(problem=Problem("p", "agents", 1, **nothing, **rest, objectives=goals))


def store(rate, slots=4):
    nodes = [source(rate=rate), node("store", slots=slots, queue=20, exp=100)]
    return judged(
        design(nodes, ["users->store"], duration=60),
        ("success_rate", ">=", 0.99, "users"),
        ("p95_ms", "<=", 600, None),
        ("utilisation", "<", 0.95, "store"),
    )


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_check_is_the_runs_of_its_seeds(workers):
    made = store(30)
    got = check(made, 3, workers)
    for entry in got["seeds"]:
        run = simulate(made, entry["seed"])
        assert (entry["passed"], entry["objectives"]) == (run["passed"], run["objectives"])
    assert [entry["seed"] for entry in got["seeds"]] == [1, 2, 3]
    assert (got["passed"], got["stars"]) == (True, 2)


def test_too_much_traffic_does_not_pass():
    got = check(store(60), [4, 2])
    assert (got["passed"], got["stars"]) == (False, 0)
    values = {o["metric"]: o for o in got["seeds"][0]["objectives"]}
    assert values["success_rate"]["value"] == pytest.approx(40 / 60, rel=0.05)
    assert not any(o["met"] for o in values.values())


def test_a_design_that_passes_by_luck_earns_one_star():
    # A dozen requests in all: how many of them find the slot taken is chance
    made = judged(
        design([source(rate=0.2), node("store", slots=1, ms=5000)], ["users->store"], duration=60),
        ("failed", "<=", 5, "users"),
    )
    outcomes = {seed: simulate(made, seed)["passed"] for seed in range(1, 30)}
    lucky = [seed for seed, passed in outcomes.items() if passed][:2]
    assert len(lucky) == 2 and not all(outcomes[seed] for seed in range(1, 9))
    got = check(made, lucky)
    assert (got["passed"], got["stars"]) == (True, 1)


@pytest.mark.parametrize("problem", [info.id for info in problems()])
def test_threads_and_order_of_seeds_do_not_matter(problem):
    made = load_problem(problem)
    one, other = check(made, [3, 1], workers=1), check(made, [1, 3], workers=2)
    assert one["seeds"] == other["seeds"][::-1]
    assert not one["passed"]


def test_progress_and_cancel_in_the_midst_of_a_long_run():
    nodes = [source(rate=200_000), node("store", ms=1)]
    made = judged(design(nodes, ["users->store"], duration=10_000), ("failed", "<=", 0, None))
    cancel, before, seen = threading.Event(), threading.active_count(), []

    def progress(done, total):
        seen.append(done / total)
        if len(seen) > 4:
            cancel.set()

    begun = time.monotonic()
    with pytest.raises(Cancelled):
        check(made, 4, progress=progress, cancel=cancel)
    assert time.monotonic() - begun < 5
    assert 0 < seen[-1] < 0.1 and seen == sorted(seen)
    assert threading.active_count() == before
