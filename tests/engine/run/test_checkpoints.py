"""Checkpoints: exact, every five seconds, within their memory, the first one for ever."""

import numpy as np
import pytest

from engine import Simulation
from engine.run import checkpoints as module
from engine.run.checkpoints import Checkpoint, Checkpoints, interval
from tests.engine.reference.build import design, node, source
from tests.engine.run.samples import every_plan, small


class Stub:
    """Stands for a checkpoint of a given size."""

    def __init__(self, t, nbytes=100):
        self.t, self.nbytes = t, nbytes


def filled(limit, times):
    kept = Checkpoints(limit)
    for t in times:
        kept.add(Stub(t))
        assert kept.nbytes <= limit or len(kept.times) <= 2
    return kept


class TestOne:
    @pytest.mark.parametrize("t", [0, 0.004, 3, 6.6, 12.5, 30, 33])
    def test_it_goes_on_as_if_nothing_had_been(self, t):
        sim = Simulation(every_plan())
        sim.advance(t)
        kept = Checkpoint(sim, 3)
        at, digest = sim.now, sim.digest()
        sim.advance(sim.end_s)
        twins = [kept.restore(), kept.restore()]
        assert (kept.t, kept.applied) == (at, 3) and kept.t == twins[0].now
        for twin in twins:
            assert twin.digest() == digest and twin.history is None
            twin.advance(twin.end_s)
            assert twin.digest() == sim.digest() and twin.summary() == sim.summary()

    def test_in_the_middle_of_an_instant(self):
        whole = Simulation(every_plan())
        whole.advance(whole.end_s)
        sim = Simulation(every_plan())
        for steps in (1, 1000, 1, 1, 7777, 3, 3):
            sim.advance(sim.end_s, steps)
            twin = Checkpoint(sim, 0).restore()
            twin.advance(twin.end_s)
            assert twin.digest() == whole.digest()

    def test_it_is_small(self):
        sim = Simulation(every_plan())
        sim.advance(20)
        assert Checkpoint(sim, 0).nbytes < sim.state.nbytes() / 4

    def test_it_shares_nothing_that_changes(self):
        sim = Simulation(every_plan())
        sim.advance(8)
        kept, digest = Checkpoint(sim, 0), sim.digest()
        twin = kept.restore()
        twin.set("api", "timeout_ms", 123)
        twin.set("shed", "max_in_flight", [4, 2])
        twin.advance(20)
        again = kept.restore()
        assert again.digest() == digest and again.design == every_plan()
        assert ("t", 0.123) in twin.program.lanes
        assert ("t", 0.123) not in again.program.lanes and ("t", 0.123) not in sim.program.lanes


class TestThinning:
    def test_all_are_kept_while_there_is_room(self):
        kept = filled(10_000, range(0, 500, 5))
        assert kept.times == list(range(0, 500, 5)) and kept.nbytes == 10_000

    @pytest.mark.parametrize("many", [101, 150, 300, 2000])
    def test_the_recent_ones_stay_the_older_ones_thin_out_evenly(self, many):
        times = filled(10_000, range(0, 5 * many, 5)).times
        assert times[0] == 0 and times[-1] == 5 * (many - 1)
        gaps = np.diff(times)
        assert np.all(gaps[-48:] == 5)
        older = gaps[:-50]
        assert older.max() <= 4 * max(5, older.min()) and len(times) >= 95

    def test_the_first_and_the_last_stay_whatever_they_weigh(self):
        kept = Checkpoints(250)
        for t in range(0, 100, 5):
            kept.add(Stub(t, 200))
            assert kept.times == ([0, t] if t else [0])

    def test_which_one_is_before(self):
        kept = filled(10_000, [0, 5, 10, 15])
        assert [kept.before(t).t for t in (0, 4.9, 5, 14, 15, 99)] == [0, 0, 5, 10, 15, 15]

    def test_until_a_time(self):
        kept = filled(10_000, [0, 5, 10, 15])
        part = kept.until(10)
        part.add(Stub(12))
        assert part.times == [0, 5, 10, 12] and kept.times == [0, 5, 10, 15]
        assert kept.until(0).times == [0]

    def test_a_state_too_large_is_left_out(self):
        sim = Simulation(small())
        sim.advance(3)
        kept = Checkpoints(1000)
        assert kept.fits(sim)  # the first, at the start, is always taken
        kept.add(Stub(0))
        assert not kept.fits(sim) and Checkpoints().fits(sim)


class TestOfARun:
    def test_every_five_seconds(self, start, finish):
        run = start(every_plan())
        finish(run)
        kept = run._worker._checkpoints
        assert kept.times == [0, 5, 10, 15, 20, 25, 30] and kept.nbytes < module.CHECKPOINT_BYTES
        run.rewind(12)
        run.flush()
        assert run._worker._checkpoints.times == [0, 5, 10]
        finish(run)
        assert run._worker._checkpoints.times == [0, 5, 10, 15, 20, 25, 30]
        run.restart()
        run.flush()
        assert run._worker._checkpoints.times == [0]

    def test_a_very_long_run_takes_fewer(self):
        assert (interval(60), interval(3600), interval(1e6)) == (5, 5, 1e6 / module.MOST)

    def test_bounded_by_memory(self, start, finish, monkeypatch):
        made = design([source(rate=30), node("api", exp=200)], ["users->api"], duration=600)
        plain = start(made)
        finish(plain)
        each = plain._worker._checkpoints.nbytes / len(plain._worker._checkpoints.times)
        monkeypatch.setattr(Checkpoints.__init__, "__defaults__", (int(20 * each),))
        run = start(made)
        finish(run)
        kept = run._worker._checkpoints
        assert 10 <= len(kept.times) < len(plain._worker._checkpoints.times) == 120
        assert kept.nbytes <= 20 * each and kept.times[0] == 0
        assert kept.times[-5:] == [575, 580, 585, 590, 595]
        for t in (599, 301, 77):
            run.rewind(t)
            plain.rewind(t)
            assert run.digest() == plain.digest() and run.state.now == t
