"""A run's numbers depend on design, seed and what was done when, never on how it was driven there."""

import random
import threading
import time

import pytest

from engine import Run, Simulation, load
from engine.run import journal, pace
from engine.run.checkpoints import Checkpoint
from engine.run.journal import Entry, Inject, Set
from tests.engine.reference.build import design, fault, node, source
from tests.engine.run.samples import every_plan, small


def ended(sim):
    sim.advance(sim.end_s)
    return sim.digest()


def again(made, entries, t=None, seed=None):
    """The digest of a simulation that goes through a journal, to t or the end."""
    sim = Simulation(made, seed)
    journal.replay(sim, entries, sim.end_s if t is None else t)
    return sim.digest()


@pytest.fixture(scope="module")
def wanted():
    """The digest of every_plan(), run at one stretch."""
    return ended(Simulation(every_plan()))


class TestPace:
    """known-faults: speed x16, a slow machine, a paused window: the same digest."""

    @pytest.mark.parametrize("speed", [None, 1e9, 400, 60])
    def test_any_speed(self, start, finish, wanted, speed):
        run = start(every_plan())
        run.speed = speed
        finish(run)
        assert run.digest() == wanted

    @pytest.mark.parametrize("chunk", [1, 7, 1000])
    def test_any_piece(self, start, finish, monkeypatch, wanted, chunk):
        monkeypatch.setattr(pace.Pace, "took", lambda self, seconds, full: None)
        run = Run(every_plan())
        run._worker._pace.chunk = chunk
        finish(start(run))
        assert run.digest() == wanted

    def test_a_slow_machine(self, start, finish, monkeypatch, wanted):
        advance = Simulation.advance

        def slow(self, until_s, max_events=0):
            time.sleep(0.002)
            return advance(self, until_s, max_events)

        monkeypatch.setattr(Simulation, "advance", slow)
        run = start(every_plan())
        run.speed = 100
        finish(run)
        assert run.digest() == wanted

    def test_paused_and_resumed_and_changing_speed(self, start, finish, wanted):
        run, pick = start(every_plan()), random.Random(1)
        for _ in range(60):
            run.speed = pick.choice([0.25, 1, 16, 300, None])
            pick.choice([run.play, run.play, run.pause, lambda: run.step(pick.random())])()
            if pick.random() < 0.3:
                time.sleep(0.005)
        run.speed = None
        finish(run)
        assert run.digest() == wanted

    def test_one_chunk_or_thousands_without_a_thread(self, wanted):
        for seed in range(4):
            sim, pick = Simulation(every_plan()), random.Random(seed)
            while not sim.finished:
                sim.advance(sim.now + pick.choice([1e-4, 0.03, 0.1, 2.5]), pick.choice([0, 1, 9, 500]))
            assert sim.digest() == wanted

    def test_two_threads_at_once(self, start, wanted):
        runs = [start(every_plan()) for _ in range(2)]
        for run in runs:
            run.play()
        assert [(run.wait("finished"), run.digest())[1] for run in runs] == [wanted, wanted]

    def test_a_busy_window(self, start, finish, wanted):
        """Another thread that reads all the time and holds the interpreter lock."""
        run, over = start(every_plan()), threading.Event()

        def read():
            while not over.is_set():
                state = run.state
                frames = run.frames(state.frames - 5)
                assert frames is None or len(frames) >= 0
                run.summary()
                sum(range(20_000))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            run.speed = 100
            finish(run)
        finally:
            over.set()
            reader.join()
        assert run.digest() == wanted

    @pytest.mark.slow
    def test_a_problem_from_the_command_line_or_in_the_window(self, start, finish):
        made = load("coding-agent-provider-outage")
        run = start(made, seed=4)
        finish(run)
        sim = Simulation(made, 4, history=False)
        assert run.digest() == ended(sim)
        assert run.summary() == sim.summary()


class TestFork:
    def test_changing_nothing_it_equals_the_original(self, start, finish, wanted):
        run = start(every_plan())
        run.step(11.3)
        fork = run.fork()
        assert fork.state.status == "compiling" and fork.state.now == pytest.approx(11.3)
        start(fork)
        state = fork.wait("paused")
        assert state.now == run.flush().now and len(fork.frames()) == len(run.frames()) == 113
        assert fork.digest() == run.digest()
        finish(fork)
        assert run.state.status == "paused"
        finish(run)
        assert fork.digest() == run.digest() == wanted
        assert fork.frames().calls.tobytes() == run.frames().calls.tobytes()

    @pytest.mark.parametrize("t", [0, 0.05, 5, 12.34, 29.99, 30])
    def test_from_the_past(self, start, finish, wanted, t):
        run = start(every_plan())
        finish(run)
        fork = start(run.fork(t))
        state = fork.flush()
        assert state.now == t and state.status == ("paused" if t else "ready")
        assert fork.digest() == again(every_plan(), [], t)
        assert len(fork.frames()) == frames_until(t)
        finish(fork)
        assert fork.digest() == wanted == run.digest()
        assert fork.summary() == run.summary()

    def test_of_a_playing_run(self, start, finish, wanted):
        run = start(every_plan())
        run.speed = 200
        run.play()
        forks = [start(run.fork()) for _ in range(4)]
        for each in (run, *forks):
            each.speed = None
            finish(each)
        assert {each.digest() for each in (run, *forks)} == {wanted}

    def test_it_takes_the_changes_made_before_along(self, start, finish):
        run = start(every_plan())
        run.step(4)
        run.set("store", "slots", 2)
        run.step(4)
        run.inject(fault("outage", 0, 3, "cache"))
        run.step(4)
        early, late = start(run.fork(6)), start(run.fork())
        assert [len(each.journal) for each in (early, late)] == [1, 2]
        assert early.design.node("store").settings["slots"] == 2
        for each in (run, early, late):
            finish(each)
        assert run.digest() == late.digest() == again(every_plan(), run.journal)
        assert early.digest() == again(every_plan(), run.journal[:1]) != run.digest()

    def test_what_happens_to_one_does_not_touch_the_other(self, start, finish, wanted):
        run = start(every_plan())
        run.step(7)
        fork = start(run.fork())
        for k in range(5):
            fork.set("api", "timeout_ms", 100 + k)  # lanes of their own
            fork.set("shed", "max_in_flight", [5, 4 + k])
            fork.set("users", "rate", 90 + k)
            fork.step(0.5)
        fork.rewind(3)
        fork.restart()
        fork.flush()
        finish(run)
        assert run.digest() == wanted

    def test_before_anything_has_happened(self, start, finish, wanted):
        fork = Run(every_plan()).fork()
        finish(start(fork))
        assert fork.digest() == wanted

    def test_after_the_parent_has_been_stopped(self, start, finish, wanted):
        run = start(every_plan())
        run.step(9)
        run.flush()
        run.stop()
        fork = start(run.fork())
        finish(fork)
        assert fork.digest() == wanted

    def test_of_a_fork(self, start, finish, wanted):
        run = start(every_plan())
        run.step(20)
        first = start(run.fork(13))
        second = start(first.fork(6))
        finish(second)
        assert second.digest() == wanted


class TestRewind:
    def test_to_any_time_and_on(self, start, finish, wanted):
        run = start(every_plan())
        finish(run)
        for t in (29.5, 20, 20, 19.99, 10.05, 10.0, 3.3, 0.01, 0):
            run.rewind(t)
            state = run.flush()
            assert (state.now, state.status) == (t, "paused" if t else "ready")
            assert run.digest() == again(every_plan(), [], t)
            assert len(run.frames()) == state.frames == frames_until(t)
        assert run.state.timeline == 8  # twice 20 is once
        finish(run)
        assert run.digest() == wanted and len(run.frames()) == run.state.frames

    def test_changes_and_faults_come_again_at_their_times(self, start):
        run = start(every_plan())
        run.step(2.5)
        run.set("store", "p50_ms", 60)
        run.inject(fault("crash", 0, 4, "api", 1))
        run.step(5.05)
        run.set("breaker->api", "latency_ms", 9)
        run.set("users", "rate", 70)
        run.step(6)
        run.inject(fault("latency", 0, 2, "cache->hedge", 30))
        run.step(1)
        digests = {run.flush().now: run.digest()}
        entries, end = run.journal, run.state.now
        assert len(entries) == 5
        for t in (14.0, 13.55, 13.5, 8, 7.55, 7.5, 2.5, 1):
            run.rewind(t)
            now = [entry for entry in entries if entry.t <= t]
            assert list(run.journal) == now
            assert run.digest() == again(every_plan(), now, t)
        run.rewind(0)
        for entry in entries:
            run.step(entry.t - run.flush().now)
            command = entry.command
            if isinstance(command, Set):
                run.set(command.target, command.setting, command.value)
            else:
                run.inject(command.fault)
        run.step(end - run.flush().now)
        assert {run.flush().now: run.digest()} == digests

    def test_history_after_it_is_cut(self, start, finish):
        run = start(small())
        run.step(8)
        run.set("store", "slots", 50)
        run.step(4)
        run.rewind(6)
        state = run.flush()
        assert state.design == small()
        assert run.journal == () and run.latest.t.tolist() == [6]
        run.step(2)
        assert run.digest() == again(small(), [], 8)
        run.rewind(10)
        state = run.flush()
        assert state.now == 8 and "ahead" in state.notices[-1].text

    def test_a_change_at_that_very_time_stays(self, start):
        run = start(small())
        run.step(4)
        run.set("store", "slots", 50)
        run.rewind(4)
        assert run.flush().timeline == 0 and len(run.journal) == 1
        run.step(3)
        run.rewind(4)
        assert run.flush().timeline == 1 and len(run.journal) == 1
        assert run.design.node("store").settings["slots"] == 50
        run.rewind(0)
        assert run.journal == ()

    def test_a_playing_run_plays_on(self, start, wanted):
        run = start(every_plan())
        run.play()
        for t in (3, 1, 2):
            while run.state.now < 3 and run.state.status not in ("finished", "failed"):
                time.sleep(0)
            run.rewind(t)
            run.play()
        run.wait("finished")
        assert run.digest() == wanted

    def test_over_a_restart_there_is_no_way_back(self, start):
        run = start(small())
        run.step(5)
        run.restart()
        run.rewind(3)
        assert run.flush().now == 0


def frames_until(t):
    sim = Simulation(every_plan())
    sim.advance(t)
    return len(sim.frames())


class TestJournal:
    @pytest.mark.parametrize("seed", range(8))
    def test_whatever_was_done_comes_out_the_same_again(self, start, finish, seed):
        """Random commands to a playing run, at whatever simulated time they meet it."""
        run, pick = start(every_plan()), random.Random(seed)
        run.speed = pick.choice([60, 300, None])
        run.play()
        for _ in range(25):
            act = pick.choice(["set", "set", "set", "fault", "pause", "rewind", "wait"])
            if act == "set":
                run.set(*pick.choice(CHANGES))
            elif act == "fault":
                run.inject(pick.choice(FAULTS))
            elif act == "pause":
                run.pause()
                run.step(pick.random())
                run.play()
            elif act == "rewind":
                run.rewind(run.state.now * pick.random())
            else:
                time.sleep(0.01 * pick.random())
        finish(run)
        assert run.state.restarts == 0
        assert run.digest() == again(every_plan(), run.journal)

    def test_a_command_in_the_middle_of_an_instant_waits_for_its_end(self):
        """Twenty arrive at once; a change after some of them have been handled acts after all of them."""
        made = design(
            [source(shape="herd", count=20, at_s=1), node("api", slots=3, queue=50, ms=10)], ["users->api"]
        )
        digests = set()
        for steps in range(1, 60, 3):
            sim = Simulation(made)
            sim.advance(2, steps)
            if sim.now > 1:
                break
            entry = Entry(sim.now, Set("api", "queue", 2))
            journal.replay(sim, [entry], sim.end_s)
            if entry.t == 1:
                digests.add(sim.digest())
                assert sim.summary()["totals"]["succeeded"] == 20
        assert len(digests) == 1

    def test_two_at_one_time_keep_their_order(self):
        """A store with calls waiting: given slots first, they start and crash; else they never start."""
        one, two = Entry(8.0, Set("store", "slots", 40)), Entry(8.0, Inject(fault("outage", 0, 1, "store")))
        digests = [again(small(), order) for order in ([one, two], [two, one], [one, two])]
        assert digests[0] == digests[2] != digests[1]

    def test_a_checkpoint_anywhere_in_between(self):
        entries = [
            Entry(2.0, Set("users", "rate", 90)),
            Entry(2.0, Inject(fault("slow", 0, 2, "store", 4))),
            Entry(9.77, Set("store", "p50_ms", 5)),
        ]
        whole = again(every_plan(), entries)
        for at in range(3):
            sim = Simulation(every_plan())
            journal.replay(sim, entries[:at], 2.0 if at < 3 else 9.77)
            for late in (0, 0.01, 3):
                sim.advance(2.0 + late if at == 2 else sim.now)
                twin = Checkpoint(sim, at).restore()
                journal.replay(twin, entries[at:], twin.end_s)
                assert twin.digest() == whole


CHANGES = [
    ("store", "p50_ms", 12),
    ("store", "slots", 3),
    ("store", "slots", 9),
    ("api", "retries", 3),
    ("api", "instances", 3),
    ("api", "cpu_ms", 14),
    ("api", "scale_on", "off"),
    ("api", "scale_target", 0.4),
    ("users", "rate", 75),
    ("users", "shape", "constant"),
    ("users", "timeout_ms", 300),
    ("lb", "policy", "random"),
    ("lb", "interval_s", 0),
    ("breaker", "window_s", 9),
    ("breaker", "probes", 4),
    ("breaker", "cooldown_s", 0.5),
    ("cache", "hit_rate", 0.1),
    ("hedge", "hedge_ms", 5),
    ("worker", "slots", 1),
    ("limit", "limit_rps", 15),
    ("shed", "max_in_flight", [9, 2]),
    ("agent", "steps", 9),
    ("api->cache", "calls", 3),
    ("agent->store", "timeout_ms", 35),
    ("guard->breaker", "latency_ms", 11),
]
FAULTS = [
    fault("outage", 0, 2, "store"),
    fault("crash", 0, 0, "api", 1),
    fault("slow", 0, 3, "worker", 5),
    fault("cut", 0, 1, "hedge->store"),
    fault("cold_cache", 0, 2, "cache"),
    fault("traffic", 0, 2, "users", 2),
    fault("quota", 0, 2, "guard", 0),
]


class TestKnownFaults:
    def test_edits_do_not_add_traffic(self, start):
        """50 a second, ten edits on the way: still 50 a second."""
        edits = [
            ("api", "p50_ms", 3), ("users", "timeout_ms", 800), ("api", "slots", 9), ("users", "rate", 50),
            ("users->api", "latency_ms", 2), ("users", "retries", 1), ("api", "instances", 4),
            ("users", "write_share", 0.5), ("users", "keys", 10), ("users", "backoff_ms", 5),
        ]  # fmt: skip
        made = design(
            [source(rate=50, arrivals="even"), node("api", slots=50, exp=5)], ["users->api"], duration=20
        )
        run = start(made)
        for k, edit in enumerate(edits):
            run.step(1.003)
            run.set(*edit)
            assert run.flush().notices == (), edit
            counted = run.summary()["totals"]["offered"]
            assert counted == int(50 * run.state.now + 1e-6), (k, edit)
        run.play()
        assert run.wait("finished").restarts == 0
        assert run.summary()["totals"]["offered"] == 1000

    def test_an_edit_of_another_part_leaves_every_arrival_alone(self, start, finish):
        plain = Simulation(small())
        plain.advance(20)
        run = start(small())
        for k in range(10):
            run.step(1.1)
            run.set("store", "p50_ms", 20 + k)
            run.set("api->store", "retries", k % 3)
        finish(run)
        assert run.frames().calls[:, 0, 0].tolist() == plain.frames().calls[:, 0, 0].tolist()

    def test_an_autoscaled_state_survives_an_edit(self, start):
        """Scaled from 3 to 5; an unrelated setting changes: 5. A restart goes back to 3."""
        nodes = [
            source(rate=60),
            node(
                "api",
                instances=3,
                slots=1,
                queue=1000,
                ms=100,
                scale_on="utilisation",
                scale_every_s=2,
                scale_max=5,
                boot_s=0,
                scale_cooldown_s=1,
            ),
        ]
        run = start(design(nodes, ["users->api"], duration=60))

        def live():
            run.flush()
            return int(run.latest.nodes["live"][0, 1])

        run.step(1)
        assert live() == 3
        run.step(9)
        assert live() == 5
        for setting, value in (("p99_ms", 150), ("retries", 2), ("queue", 900), ("scale_cooldown_s", 5)):
            run.set("api", setting, value)
            run.step(0.1)
            assert live() == 5, setting
        run.restart()
        run.step(0.1)
        assert live() == 3 and run.state.restarts == 1

    def test_graded_live_or_from_the_command_line(self, start, finish):
        made = load("checkpointing-every-step")
        run = start(made)
        run.speed = 3000
        run.play()
        live = None
        while run.state.status not in ("finished", "failed"):
            live = run.poll_summary()
        while live is None or live["digest"] != run.digest():
            run.flush()
            live = run.poll_summary()
        sim = Simulation(made)
        sim.advance(sim.end_s)
        assert live["objectives"] == sim.summary()["objectives"] and live["passed"] is False
