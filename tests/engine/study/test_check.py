"""How a check runs its seeds, on a stand-in for the simulation: seeds, stars, progress, cancel, threads."""

import threading
import time
from types import SimpleNamespace

import pytest

from engine.design.errors import DesignError
from engine.study import check as module
from engine.study.check import Cancelled, check, stars


class Stand:
    """A run of `chunks` kernel calls of `pause` seconds that passes unless its seed is in `failing`."""

    chunks, pause, failing, broken = 4, 0.0, frozenset(), frozenset()
    started: list[int] = []
    finished: list[int] = []

    def __init__(self, design, seed, history=True):
        assert not history
        self.design, self.seed, self.now, self.end_s = design, seed, 0.0, 100.0
        self.started.append(seed)

    def advance(self, until_s, max_events=0):
        assert until_s == self.end_s and max_events > 0
        if self.seed in self.broken:
            raise MemoryError("no room")
        time.sleep(self.pause)
        self.now += self.end_s / self.chunks
        return self.now >= self.end_s

    def summary(self):
        self.finished.append(self.seed)
        passed = self.seed not in self.failing
        return {"passed": passed, "objectives": [{"met": passed}], "cost": {"run_cost": 40.0}}


@pytest.fixture
def stand(monkeypatch):
    made = type("Made", (Stand,), {"started": [], "finished": []})
    monkeypatch.setattr(module, "Simulation", made)
    return made


def problem(**more):
    return SimpleNamespace(name="A design", problem=SimpleNamespace(id="p", objectives=[1], **more))


def test_a_number_of_seeds_means_one_to_that(stand):
    result = check(problem(), 3, workers=2)
    assert [run["seed"] for run in result["seeds"]] == [1, 2, 3]
    assert result == {
        "problem": "p",
        "design": "A design",
        "seeds": [{"seed": s, "passed": True, "objectives": [{"met": True}]} for s in (1, 2, 3)],
        "passed": True,
        "stars": 2,
    }
    assert sorted(stand.started) == list(range(1, 12))


def test_seeds_may_be_named_and_keep_their_order(stand):
    result = check(problem(), [7, 2, 0])
    assert [run["seed"] for run in result["seeds"]] == [7, 2, 0]
    assert sorted(stand.started) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_one_failed_seed_fails_the_design_and_needs_no_more_runs(stand):
    stand.failing = {2}
    result = check(problem(), 3)
    assert not result["passed"] and result["stars"] == 0
    assert [run["passed"] for run in result["seeds"]] == [True, False, True]
    assert sorted(stand.started) == [1, 2, 3]


def test_luck_earns_one_star(stand):
    stand.failing = {9}
    result = check(problem(), 5)
    assert result["passed"] and result["stars"] == 1


def test_the_third_star_is_for_the_cost(stand):
    assert check(problem(par=40.0), 2)["stars"] == 3
    assert check(problem(par=39.9), 2)["stars"] == 2


@pytest.mark.parametrize(
    ("passed", "steady", "cost", "par", "earned"),
    [
        (False, True, 1, 10, 0),
        (True, False, 1, 10, 1),
        (True, True, 11, 10, 2),
        (True, True, 10, 10, 3),
        (True, True, None, 10, 2),
        (True, True, 1, None, 2),
    ],
)
def test_stars(passed, steady, cost, par, earned):
    assert stars(passed, steady, cost, par) == earned


@pytest.mark.parametrize("workers", [1, 3, 64, None])
def test_the_result_does_not_depend_on_the_threads(stand, workers):
    stand.failing = {4}
    assert check(problem(), 6, workers) == check(problem(), 6, 1)


def test_progress_rises_to_the_total_in_the_calling_thread(stand):
    stand.pause = 0.02
    calls = []
    check(problem(), 2, 2, lambda done, total: calls.append((done, total, threading.get_ident())))
    done = [call[0] for call in calls]
    assert done[0] == 0 and done[-1] == 10 and done == sorted(done)
    assert {call[1:] for call in calls} == {(10, threading.get_ident())}


def test_cancel_is_quick_and_leaves_no_thread(stand):
    stand.chunks, stand.pause = 10_000, 0.01
    cancel, before = threading.Event(), threading.active_count()
    threading.Timer(0.1, cancel.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        check(problem(), 50, 2, cancel=cancel)
    assert time.monotonic() - begun < 1
    assert threading.active_count() <= before + 1
    assert len(stand.started) == 2 and not stand.finished


def test_an_error_in_one_run_ends_the_others(stand):
    stand.chunks, stand.pause, stand.broken = 10_000, 0.005, {2}
    with pytest.raises(MemoryError, match="no room"):
        check(problem(), 3, 3)
    assert not stand.finished


def test_an_interrupt_in_progress_leaves_no_thread(stand):
    stand.chunks, stand.pause = 10_000, 0.005

    def progress(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(problem(), 3, 3, progress)
    assert not stand.finished


@pytest.mark.parametrize(
    ("design", "seeds", "words"),
    [
        (SimpleNamespace(name="Plain", problem=None), 5, "'Plain' has nothing to check"),
        (SimpleNamespace(name="Bare", problem=SimpleNamespace(objectives=[])), 5, "nothing to check"),
        (problem(), 0, "the number of seeds must be from 1 to 1000, not 0"),
        (problem(), 10**9, "the number of seeds must be from 1 to 1000"),
        (problem(), [], "the number of seeds must be from 1 to 1000, not 0"),
        (problem(), [1, -1], "a seed must be a whole number of at least 0, not -1"),
        (problem(), [1, 1.5], "a seed must be a whole number of at least 0, not 1.5"),
        (problem(), [1, 1], "a seed is given twice"),
    ],
)
def test_bad_input_is_one_clear_line(stand, design, seeds, words):
    with pytest.raises(DesignError, match="^[^\n]+$") as caught:
        check(design, seeds)
    assert words in str(caught.value)
    assert not stand.started
