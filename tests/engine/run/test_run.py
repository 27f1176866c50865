"""A Run from outside: its life, its commands in their order, what it says, and what goes wrong."""

import math
import threading
import time

import pytest

import engine
from engine import Run, Simulation
from engine.design import DesignError
from engine.kernel import build
from engine.run import worker
from tests.engine.reference.build import design, edge, fault, node, source
from tests.engine.run.conftest import threads
from tests.engine.run.samples import small


def texts(state, kind=None):
    return [each.text for each in state.notices if kind in (None, each.kind)]


class TestLife:
    def test_the_engine_offers_it(self):
        from engine.run.run import Run as here

        assert engine.Run is here and {"Run", "Simulation", "simulate"} <= set(dir(engine))

    def test_before_it_is_started_nothing_happens(self):
        run = Run(small())
        run.play()
        assert run.state.status == "compiling" and not threads()
        assert run.summary() is run.digest() is run.frames() is run.latest is None
        assert run.journal == () and run.wait("finished").status == "compiling"
        run.stop()

    def test_it_waits_until_it_is_told_to_play(self, start):
        run = start(small())
        state = run.flush()
        assert (state.status, state.now, state.events, state.frames) == ("ready", 0, 0, 0)
        assert (state.end_s, state.seed, state.timeline, state.restarts) == (20, 1, 0, 0)
        assert len(run.frames()) == len(run.latest) == 0

    def test_from_start_to_end(self, start, finish):
        seen = []
        run = start(small(), on_change=lambda state: seen.append((state.status, threading.current_thread())))
        state = finish(run)
        assert (state.now, state.frames, state.failure, state.notices) == (20, 200, "", ())
        assert (state.achieved, state.behind, state.progress) == (None, False, None)
        assert [status for status, _ in seen] == ["ready", "playing", "finished"]
        assert all(thread.name == "redline-run" for _, thread in seen)
        assert run.latest.t.tolist() == [20] and len(run.frames()) == 200

    def test_stop_ends_the_thread_whatever_it_does(self, start):
        run = start(small())
        run.play()
        run.stop()
        run.stop()
        assert not threads() and run.summary()["events"] == run.state.events
        run.play()  # nobody hears it
        assert run.wait("finished").status != "finished"
        with pytest.raises(RuntimeError):
            run.start()

    def test_stop_is_heard_where_time_stands_still(self, start):
        """Two calls of itself, each of which makes two more, and so on, all at one instant."""
        nodes = [source(shape="herd", count=1, at_s=1), node("a")]
        run = start(design(nodes, ["users->a", edge("a->a", calls=2, optional=True)], duration=9))
        run.play()
        while run.state.now < 1 and run.state.status != "failed":
            time.sleep(0.001)
        run.set("a", "retries", 1)
        run.stop()
        assert not threads() and run.state.status != "finished"

    def test_a_with_block_starts_and_stops_it(self):
        with Run(small()) as run:
            assert len(threads()) == 1 and run.flush().status == "ready"
        assert not threads()

    def test_an_error_in_the_block_stops_it_too(self):
        with pytest.raises(KeyError), Run(small()) as run:
            run.play()
            raise KeyError
        assert not threads()

    def test_stopping_from_on_change_does_not_wait_for_itself(self):
        run = Run(small(), on_change=lambda state: state.status == "finished" and run.stop())
        run.speed = None
        run.start()
        run.play()
        run.wait("finished")
        run.stop()
        assert run.state.status == "finished"

    def test_an_error_in_on_change_is_told_and_does_no_harm(self, start, finish):
        run = start(small(), on_change=lambda state: 1 / 0)
        finish(run)
        assert any("ZeroDivisionError" in text for text in texts(run.flush()))

    def test_many_at_once(self, start):
        runs = [start(small(), seed=seed) for seed in (1, 2, 1, 3)]
        for run in runs:
            run.play()
        digests = [(run.wait("finished"), run.digest())[1] for run in runs]
        assert digests[0] == digests[2] and len(set(digests)) == 3


class TestCompiling:
    def test_it_shows_how_far_it_is(self, start, monkeypatch):
        seen, go_on = [], threading.Event()

        def ensure(progress=None):
            progress(0.25)
            go_on.wait()
            seen.append(run.state)
            progress(1.0)

        monkeypatch.setattr(build, "ensure", ensure)
        monkeypatch.setattr(worker, "kernel", lambda: None)
        run = Run(small())
        start(run)
        go_on.set()
        assert run.wait("ready").progress is None
        assert (seen[0].status, seen[0].progress) == ("compiling", 0.25)

    def test_a_failure_is_one_line(self, start, monkeypatch):
        def ensure(progress=None):
            raise RuntimeError("the engine could not be compiled: no\nroom")

        monkeypatch.setattr(build, "ensure", ensure)
        state = start(small()).wait("failed")
        assert state.failure == "the engine could not be compiled: no room" == texts(state)[0]

    def test_it_can_be_stopped(self, monkeypatch):
        begun = threading.Event()

        def ensure(progress=None):
            while True:
                begun.set()
                progress(0.5)

        monkeypatch.setattr(build, "ensure", ensure)
        run = Run(small()).start()
        begun.wait()
        run.stop()
        assert not threads() and run.state.status == "compiling"


class TestCommands:
    def test_they_act_in_their_order(self, start):
        run = start(small())
        run.step(1)
        run.set("store", "slots", 9)
        run.step(0.5)
        run.set("store", "slots", 11)
        run.set("api", "retries", 0)
        run.inject(fault("outage", 99, 1, "store"))
        run.step()
        assert run.flush().now == 1.6
        assert [(entry.t, type(entry.command).__name__) for entry in run.journal] == [
            (1.0, "Set"), (1.5, "Set"), (1.5, "Set"), (1.5, "Inject"),
        ]  # fmt: skip
        assert run.design.node("store").settings["slots"] == 11
        run.rewind(1.2)
        assert run.flush().now == 1.2 and run.design.node("store").settings["slots"] == 9

    def test_play_and_pause(self, start):
        run = start(small())
        run.speed = 0.25
        run.play()
        run.pause()
        state = run.flush()
        assert state.status == "paused" and state.now < 20
        run.pause()
        assert run.flush().now == state.now

    def test_steps_end_on_the_frames(self, start):
        run = start(small())
        for k in range(1, 40):
            run.step()
            state = run.flush()
            assert (state.status, state.frames) == ("paused", k)
            assert run.latest.t.tolist() == [state.now] == [k * 0.1]

    def test_a_step_stops_a_playing_run_and_never_passes_the_end(self, start):
        run = start(small())
        run.speed = 0.25
        run.play()
        run.step(1)
        assert run.flush().status == "paused"
        run.step(1000)
        assert run.flush().status == "finished" and run.state.now == 20
        run.step()
        run.play()
        run.pause()
        assert run.flush().status == "finished" and run.state.now == 20

    def test_speed(self, start):
        run = Run(small())
        assert run.speed == run.state.speed == 1
        for wrong in (0, -1, math.nan):
            with pytest.raises(ValueError):
                run.speed = wrong
        run.speed = None
        assert run.speed == math.inf
        start(run)
        run.speed = 16
        assert run.flush().speed == run.speed == 16

    def test_a_machine_that_cannot_keep_up_says_so(self, start):
        nodes = [source(rate=20_000), node("api", ms=5), node("store", exp=10)]
        run = start(design(nodes, ["users->api", "api->store"], duration=1000))
        run.speed = 1e6
        run.play()
        run.wait("playing")
        while not (run.state.behind and run.state.achieved):
            assert run.state.status == "playing"
        assert run.state.achieved < 1e6 and run.state.events_per_s > 0

    def test_the_seed(self, start, finish):
        run = start(small(), seed=5)
        assert run.seed == 5
        finish(run)
        first = run.digest()
        run.restart(seed=6)
        run.flush()
        assert (run.seed, run.state.status, run.state.now) == (6, "ready", 0)
        finish(run)
        assert run.digest() != first
        run.restart(seed=5)
        finish(run)
        assert run.digest() == first

    def test_times_must_be_times(self):
        run = Run(small())
        for wrong in (-1, math.inf, math.nan):
            for command in (run.step, run.rewind, run.fork):
                with pytest.raises(ValueError):
                    command(wrong)


class TestChanges:
    def test_a_bad_one_changes_nothing_and_is_told(self, start, finish):
        run = start(small())
        run.step(3)
        run.set("store", "slots", -4)
        run.set("stor", "slots", 4)
        run.set("store", "slot", 4)
        run.set("api->store", "calls", "many")
        run.inject(fault("outage", 0, 1, "nobody"))
        state = run.flush()
        assert (state.status, state.restarts, run.journal) == ("paused", 0, ())
        assert [each.number for each in state.notices] == [1, 2, 3, 4, 5]
        assert all(each.kind == "error" and each.t == 3 and "\n" not in each.text for each in state.notices)
        assert "did you mean 'slots'" in state.notices[2].text
        finish(run)
        assert run.digest() == ended(small())

    def test_a_value_that_is_there_already_is_no_change(self, start):
        run = start(small())
        run.step(1)
        run.set("store", "slots", 5)
        run.set("users", "users", 0)
        run.set("api->store", "parallel", False)
        assert run.flush().restarts == 0 and run.journal == () and run.state.notices == ()

    def test_a_structural_one_starts_anew_and_says_so(self, start, finish):
        run = start(small(), seed=3)
        run.set("store", "slots", 7)
        run.step(5)
        run.set("users", "users", 30)
        state = run.flush()
        assert (state.status, state.now, state.restarts, state.timeline, state.seed) == ("ready", 0, 1, 1, 3)
        (text,) = texts(state, "restart")
        assert "users" in text and "anew" in text and "seed 3" in text
        assert run.journal == () and len(run.frames()) == 0
        settings = run.design.node("store").settings
        assert settings["slots"] == 7 and run.design.node("users").settings["users"] == 30
        finish(run)
        assert run.digest() == ended(run.design, 3)

    def test_a_playing_run_plays_on_after_it(self, start):
        run = start(small())
        run.speed = 0.25
        run.play()
        run.set("api->store", "parallel", True)
        state = run.flush()
        assert (state.status, state.restarts) == ("playing", 1)

    def test_another_design(self, start, finish):
        run = start(small())
        run.step(2)
        other = small(rate=30)
        run.restart(other)
        state = run.flush()
        assert (state.now, state.design, len(texts(state, "restart"))) == (0, other, 1)
        finish(run)
        assert run.digest() == ended(other)

    def test_after_the_end_the_results_stay(self, start, finish):
        run = start(small())
        finish(run)
        digest, count = run.digest(), len(run.frames())
        run.set("store", "slots", 50)
        run.set("users", "users", 3)
        run.inject(fault("outage", 0, 1, "store"))
        state = run.flush()
        assert (state.status, run.digest(), len(run.frames())) == ("finished", digest, count)
        assert [each.kind for each in state.notices] == ["info", "info", "error"]
        run.restart()
        finish(run)
        assert run.digest() == ended(small().with_settings({"store.slots": 50, "users.users": 3}))

    def test_the_value_is_the_one_at_the_call(self, start):
        run = start(small())
        points = [[0, 10], [5, 20]]
        run.set("users", "schedule", points)
        points.append([6, 1e6])
        run.flush()
        assert run.design.node("users").settings["schedule"] == [[0, 10], [5, 20]]


class TestFailing:
    def test_a_design_that_cannot_run(self, start):
        run = start(design([], []))
        state = run.wait("failed")
        assert "no components" in state.failure and "\n" not in state.failure
        for act in (run.play, run.pause, run.step, run.restart):
            act()
        run.rewind(0)
        run.inject(fault("outage", 0, 1, "store"))
        run.set("store", "slots", 3)
        assert run.flush().status == "failed"
        assert run.summary() is run.digest() is run.frames() is None
        assert run.fork().state.status == "compiling"
        run.restart(small())
        assert run.flush().status == "ready" and run.state.failure == ""

    def test_a_run_that_fails_on_its_way_can_be_mended(self, start, finish, monkeypatch):
        from engine.program import state

        monkeypatch.setattr(state, "MAX_CALLS", 20_000)
        made = design([source(rate=50), node("api", ms=10)], ["users->api"], duration=20)
        run = start(made)
        run.step(5)
        run.set("users->api", "calls", 10_000)
        run.set("users->api", "parallel", False)
        run.set("api", "p50_ms", 1e6)
        run.set("users", "rate", 1e5)
        run.play()
        state = run.wait("failed", "finished")
        assert state.status == "failed" and "20,000" in state.failure
        assert 5 <= state.now < 20 and run.summary()["totals"]["offered"] > 0
        run.play()
        assert run.flush().status == "failed"
        run.rewind(4)
        assert run.flush().status == "paused" and run.state.failure == ""
        finish(run)
        assert run.digest() == ended(made)

    def test_a_failed_run_starts_anew_with_the_next_change(self, start, monkeypatch):
        from engine.program import state

        monkeypatch.setattr(state, "MAX_CALLS", 20_000)
        made = design([source(rate=1e5), node("api", p50_ms=1e6)], ["users->api"], duration=20)
        run = start(made)
        run.play()
        assert run.wait("failed", "finished").status == "failed"
        run.set("api", "p50_ms", -1)
        assert run.flush().status == "failed"
        run.set("api", "p50_ms", 1)
        state = run.flush()
        assert (state.status, state.failure, state.restarts) == ("ready", "", 1)

    def test_what_nobody_expects_is_a_failure_too(self, start, monkeypatch):
        run = start(small())
        run.step(1)
        run.flush()
        for error in (ValueError("broken"), MemoryError()):

            def advance(self, until_s, max_events=0, error=error):
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(Simulation, "advance", advance)
                run.step(1)
                state = run.flush()
            assert state.status == "failed" and state.failure and "\n" not in state.failure
            run.restart()
            assert run.flush().status == "ready"


class TestLooking:
    def test_the_summary_of_a_playing_run_is_of_one_instant(self, start):
        run = start(small())
        run.speed = 200
        run.play()
        run.wait("playing", "finished")
        while run.state.status == "playing":
            got = run.summary()
            for part in (got["totals"], *got["nodes"].values()):
                assert part["offered"] == part["succeeded"] + part["failed"] + part["in_flight"]
        assert run.summary() == simulated(small()).summary()

    def test_polling_it_does_not_wait(self, start, finish):
        run = start(small())
        assert run.poll_summary() is None
        finish(run)
        for _ in range(3):
            run.flush()
            last = run.poll_summary()
        assert last == run.summary()

    def test_polling_frames(self, start):
        run = start(small())
        run.speed = 100
        run.play()
        begin, seen = 0, []
        while True:
            last = run.state.status in ("finished", "failed")
            new = run.frames(begin)
            if new is not None and len(new):
                begin = int(new.index[-1]) + 1
                seen += new.index.tolist()
            if last:
                break
        assert seen == list(range(200))

    def test_one_nodes_series(self, start, finish):
        run = start(small())
        finish(run)
        frames, series = run.frames(), run.series("store", 50)
        assert series.calls.tolist() == frames.calls[50:, 2].tolist()
        with pytest.raises(KeyError):
            run.series("nobody")

    def test_questions_raise_where_they_are_asked(self, start):
        run = start(small())
        run.step(1)
        with pytest.raises(ValueError):
            run.fork(5)
        assert run.flush().status == "paused"


def simulated(made, seed=None):
    sim = Simulation(made, seed)
    sim.advance(sim.end_s)
    return sim


def ended(made, seed=None):
    return simulated(made, seed).digest()


def test_a_bad_design_error_is_the_engines():
    with pytest.raises(DesignError):
        Simulation(design([], []))
