"""Every problem file: its story is true, its traps fail, its solutions hold on seeds it was not made for."""

import re
import time

import pytest

from engine.design.catalogue import ROOT, catalogue
from engine.design.errors import DesignError
from engine.design.files import load
from engine.design.model import Design
from engine.design.parts import Change
from engine.run.simulation import simulate
from engine.study.check import check

FILES = sorted((ROOT / "problems").glob("*/*.toml"))
PROBLEMS = {path.stem: load(path) for path in FILES}
CHECK_SEEDS = range(1, 6)
OTHER_SEEDS = (11, 23, 47, 101, 202, 303, 404, 505)


def changes(part: str) -> list:
    return [
        pytest.param(design, change, id=f"{name}: {change.name}")
        for name, design in PROBLEMS.items()
        for change in getattr(design.problem, part)
    ]


every_problem = pytest.mark.parametrize("design", [pytest.param(d, id=name) for name, d in PROBLEMS.items()])


def verdicts(design: Design, seeds) -> list[bool]:
    return [simulate(design, seed=seed)["passed"] for seed in seeds]


@every_problem
def test_untouched_it_fails_on_every_seed(design):
    assert not any(verdicts(design, CHECK_SEEDS))
    assert check(design, 5)["passed"] is False


@pytest.mark.parametrize(("design", "trap"), changes("traps"))
def test_a_trap_fails_on_every_seed(design, trap):
    assert not any(verdicts(design.with_change(trap), CHECK_SEEDS))


@pytest.mark.parametrize(("design", "solution"), changes("solutions"))
def test_a_solution_passes_with_margin_on_other_seeds_too(design, solution):
    solved = design.with_change(solution)
    verdict = check(solved, 5)
    assert verdict["passed"] and verdict["stars"] >= 2, verdict["seeds"]
    for seed in OTHER_SEEDS:
        summary = simulate(solved, seed=seed)
        assert summary["passed"], (seed, summary["objectives"])
        for goal in summary["objectives"]:
            assert roomy(goal), (seed, goal)


def roomy(goal: dict) -> bool:
    """Whether a goal is met with a tenth to spare; of the failures allowed, where a share must be high."""
    value, target = goal["value"], goal["target"]
    if goal["metric"] in ("run_cost", "credits"):
        return value <= target
    if goal["metric"] == "success_rate":
        return 1 - value <= 0.9 * (1 - target)
    return value <= 0.9 * target if goal["op"].startswith("<") else value >= 1.1 * target


@every_problem
def test_an_emptied_canvas_fails(design):
    loose = tuple(node.id for node in design.nodes if node.id not in design.problem.locked)
    try:
        emptied = design.with_change(Change("emptied", remove=loose))
    except DesignError:
        return
    assert not any(verdicts(emptied, CHECK_SEEDS[:2]))


@every_problem
def test_no_single_connection_can_be_dropped_to_pass(design):
    """Except where a solution says so: leaving work undone is not a way to be fast."""
    allowed = {id for solution in design.problem.solutions for id in solution.remove} | set(
        design.problem.locked
    )
    for edge in design.edges:
        if edge.id not in allowed:
            dropped = design.with_change(Change("dropped", remove=(edge.id,)))
            assert not all(verdicts(dropped, CHECK_SEEDS[:2])), edge.id


@every_problem
def test_its_solutions_stay_within_palette_locks_and_budget(design):
    problem = design.problem
    assert len(problem.solutions) >= 2 and len(problem.traps) >= 1
    for solution in problem.solutions:
        touched = {target.rpartition(".")[0] for target in solution.set} | set(solution.remove)
        assert not touched & set(problem.locked), solution.name
        placed = {node.kind.id for node in solution.add_nodes}
        assert problem.palette is None or placed <= set(problem.palette), solution.name
    # Two solutions that turn the same knobs are one solution.
    ways = [(*sorted(s.set), *sorted(s.remove), *(n.kind.id for n in s.add_nodes)) for s in problem.solutions]
    assert len(set(ways)) == len(ways)


@every_problem
def test_its_texts_are_complete_and_readable(design):
    problem = design.problem
    assert f"{problem.category}/{problem.id}" in {f"{path.parent.name}/{path.stem}" for path in FILES}
    assert 1 <= problem.level <= 5 and problem.objectives
    assert set(problem.teaches) | set(problem.palette or ()) <= set(catalogue())
    assert problem.teaches and all(id in design for id in problem.locked)
    assert len(problem.hints) == 3 and len(set(problem.hints)) == 3
    assert re.search(r"\]\(https://[^)\s]+\)", problem.debrief), "the debrief links no source"
    assert re.search(r"\*\*[^*]*\d[^*]*\*\*", problem.debrief), "the debrief shows no number"
    assert "trade-off" in problem.debrief
    for text in (problem.brief, problem.debrief, *problem.hints):
        assert len(text) > 60 and "!" not in text
        for sentence in re.split(r"(?<=[.?:;])\s+|\n\n", re.sub(r"\]\([^)]*\)", "]", text)):
            assert len(sentence.split()) <= 34, sentence
    for change in (*problem.solutions, *problem.traps):
        assert change.why, f"{change.name} does not say why"


@every_problem
def test_a_check_is_quick(design):
    check(design, 1)
    spent = []
    for _ in range(2):
        began = time.perf_counter()
        check(design, 5)
        spent.append(time.perf_counter() - began)
    assert min(spent) < 2


# --- the stories of the first four


def finished(summary: dict) -> int:
    return summary["totals"]["succeeded"] + summary["totals"]["failed"]


@pytest.mark.parametrize("seed", CHECK_SEEDS)
def test_checkpointing_every_step_waits_at_the_store(seed):
    summary = simulate(PROBLEMS["checkpointing-every-step"], seed=seed)
    store, model = summary["nodes"]["store"], summary["nodes"]["model"]
    assert store["utilisation"] > 0.97 and store["wait_mean_ms"] > 300
    assert model["utilisation"] < 0.7 and model["queue_max"] == 0
    assert summary["totals"]["p50_ms"] > 25_000


@pytest.mark.parametrize("seed", CHECK_SEEDS)
def test_harness_progress_notes_fail_where_the_notes_are_written(seed):
    summary = simulate(PROBLEMS["harness-progress-notes"], seed=seed)
    blamed = summary["totals"]["failures_by_node"]
    assert summary["totals"]["success_rate"] < 0.97
    assert max(blamed, key=blamed.get) == "store"


@pytest.mark.parametrize("seed", CHECK_SEEDS)
def test_deep_research_takes_minutes_and_fails_one_in_ten(seed):
    design = PROBLEMS["deep-research-launch"]
    during = simulate(design.replace(drain_s=0), seed=seed)
    assert during["totals"]["p50_ms"] > 100_000
    assert during["totals"]["in_flight"] > 0.7 * during["totals"]["offered"]
    for pool in ("sub", "browser"):
        assert during["nodes"][pool]["utilisation"] > 0.85


def test_deep_research_fails_one_in_ten_of_what_it_finishes():
    design = PROBLEMS["deep-research-launch"].replace(drain_s=0)
    runs = [simulate(design, seed=seed) for seed in range(1, 31)]
    failed = sum(run["totals"]["failed"] for run in runs) / sum(map(finished, runs))
    assert 0.06 < failed < 0.16
    assert all(set(run["totals"]["failures_by_node"]) <= {"browser"} for run in runs)


@pytest.mark.parametrize("seed", CHECK_SEEDS)
def test_the_outage_loses_two_tasks_in_three(seed):
    summary = simulate(PROBLEMS["coding-agent-provider-outage"], seed=seed)
    assert 0.55 < 1 - summary["totals"]["success_rate"] < 0.78
    assert set(summary["totals"]["failures_by_node"]) == {"model"}
    assert set(summary["totals"]["failures"]) <= {"crashed", "unavailable"}
