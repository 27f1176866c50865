"""Frames: all recent ones, older ones evenly thinned, within their memory, readable at any time by anyone."""

import threading

import numpy as np
import pytest

from engine import Simulation
from engine.program import layout as L
from engine.run import history as module
from engine.run.history import History
from tests.engine.reference.build import design, node, source
from tests.engine.run.samples import every_plan, small


def whole(made=None, until=None):
    """A finished simulation with all its frames."""
    sim = Simulation(made or every_plan())
    sim.advance(until or sim.end_s)
    return sim


def bounded(made, limit):
    sim = Simulation(made)
    sim.history = History(sim.program, limit)
    return sim


def long(duration):
    return design([source(rate=2), node("api", exp=20, error_rate=0.1)], ["users->api"], duration=duration)


def same(frames, others):
    return all(
        a.tobytes() == b.tobytes() for a, b in zip(*(vars(f).values() for f in (frames, others)), strict=True)
    )


def test_a_frame_every_tenth_of_a_second_from_the_start():
    f = whole().frames()
    assert f.index.tolist() == list(range(len(f)))
    assert f.t.tolist() == [(k + 1) * 0.1 for k in range(len(f))]
    n, e = len(every_plan().nodes), len(every_plan().edges)
    assert f.nodes.shape == (len(f), n) and f.edges.shape == (len(f), e)
    assert f.calls.shape == (len(f), n, 3) and f.failed.shape == f.began.shape == (len(f), n, L.NR)
    assert np.array_equal(f.calls[:, :, 2], f.failed.sum(axis=2))
    assert np.array_equal(f.calls[:, :, 0], f.calls[:, :, 1:].sum(axis=2) + f.nodes["in_flight"])


def test_the_counts_are_those_of_the_summary():
    sim = whole(small().replace(warmup_s=0))
    f, got = sim.frames(), sim.summary()["nodes"]
    for k, each in enumerate(sim.design.nodes):
        assert f.calls[-1, k].tolist() == [got[each.id][name] for name in ("offered", "succeeded", "failed")]
        named = {
            name: count for name, count in zip(L.REASONS, f.failed[-1, k].tolist(), strict=True) if count
        }
        assert named == got[each.id]["failures"]
    origins = sim.summary()["totals"]["failures_by_node"]
    assert {
        id: n for id, n in zip(sim.program.node_ids, f.began[-1].sum(axis=1).tolist(), strict=True) if n
    } == origins


@pytest.mark.parametrize("step", [0.05, 0.1, 0.7, 6.4, 11])
def test_it_does_not_matter_in_what_pieces_they_come(step):
    sim = Simulation(every_plan())
    while not sim.advance(sim.now + step):
        pass
    assert same(sim.frames(), whole().frames())


def test_from_a_number_on():
    sim = whole()
    f = sim.frames()
    for start in (0, 1, 63, 64, 65, 200, len(f) - 1, len(f), len(f) + 50, -1):
        part = sim.frames(start)
        assert part.index.tolist() == [k for k in range(len(f)) if k >= start]
        assert part.calls.tobytes() == f.calls[max(start, 0) :].tobytes()


def test_a_nodes_series_is_its_column():
    sim = whole()
    f = sim.frames()
    for k in range(len(sim.program.node_ids)):
        s = sim.history.series(k, 17)
        assert len(s) == len(f) - 17 and s.index[0] == 17
        assert s.t.tobytes() == f.t[17:].tobytes() and s.node.tobytes() == f.nodes[17:, k].tobytes()
        for mine, all_ in ((s.calls, f.calls), (s.failed, f.failed), (s.began, f.began)):
            assert mine.tolist() == all_[17:, k].tolist()


def test_before_the_first_and_without_edges():
    sim = Simulation(design([source(rate=5)], [], duration=1))
    f = sim.frames()
    assert len(f) == 0 and f.calls.shape == (0, 1, 3) and f.edges.shape == (0, 0)
    assert len(sim.history.series(0)) == sim.history.count == sim.history.nbytes == 0
    sim.advance(1)
    assert len(sim.frames()) == 10 and sim.frames().edges.shape == (10, 0)


class TestThinning:
    @pytest.mark.parametrize("step", [0.1, 3, 100])
    def test_the_recent_ones_all_the_older_ones_evenly(self, step):
        limit = 150_000
        sim, full = bounded(long(600), limit), whole(long(600)).frames()
        while not sim.advance(sim.now + step):
            assert sim.history.nbytes <= limit * 1.2 or len(sim.history._new) == 1
        f = sim.frames()
        assert sim.history.count == len(full) == 6000 and f.index[-1] == 5999
        gaps = np.diff(f.index)
        recent = len(gaps) - np.flatnonzero(gaps[::-1] > 1)[0]
        assert np.all(gaps[recent:] == 1) and len(gaps) - recent >= 100
        stride = gaps[0]
        assert stride > 1 and stride & (stride - 1) == 0
        assert np.all(gaps[: recent - 1] == stride) and gaps[recent - 1] <= stride
        assert f.index[0] == stride - 1
        assert same(f, type(full)(*(a[f.index] for a in vars(full).values())))

    def test_the_memory_of_a_long_run_stays(self):
        limit, most, sizes = 400_000, 0, []
        sim = bounded(long(20_000), limit)
        while not sim.advance(sim.now + 50):
            most = max(most, sim.history.nbytes)
            sizes.append(len(sim.frames()))
        assert most <= 1.2 * limit
        assert min(sizes[len(sizes) // 2 :]) >= max(sizes) / 3
        assert sim.history.count == 200_000

    def test_what_is_counted_is_what_is_held(self):
        sim = bounded(every_plan(), 1 << 30)
        sim.advance(30)
        held = {id(a): a.nbytes for b in sim.history._shown for a in block_arrays(b)}
        for b in sim.history._shown:
            assert all(a.base is None or a.base.nbytes == a.nbytes for a in block_arrays(b))
        assert sim.history.nbytes == sum(held.values())

    def test_a_large_design_is_bounded_too(self):
        ids = [f"n{k}" for k in range(300)]
        nodes = [source(rate=50), *(node(id, ms=1) for id in ids)]
        edges = [f"{'users' if k % 30 == 0 else ids[k - 1]}->{ids[k]}" for k in range(300)]
        sim = bounded(design(nodes, edges, duration=30), 4 << 20)
        while not sim.advance(sim.now + 0.5):
            assert sim.history.nbytes <= 5 << 20
        assert len(sim.frames()) >= 40

    def test_the_usual_limit_holds_a_lab_of_an_hour(self):
        sim = whole(every_plan())
        each = sim.history.nbytes / sim.history.count
        assert module.HISTORY_BYTES <= 48 << 20
        assert module.HISTORY_BYTES / 2 / each > 3000  # five minutes of fifteen busy components, every frame


def block_arrays(block):
    return [block.index, block.system, block.nodes, block.edges, block.columns, block.counts]


class TestCut:
    @pytest.mark.parametrize("count", [0, 1, 64, 65, 100, 349, 350, 1000])
    def test_only_the_first_stay(self, count):
        sim = whole()
        before = sim.frames()
        n = min(count, len(before))
        sim.history.cut(count)
        assert sim.history.count == n
        assert same(sim.frames(), type(before)(*(a[:n] for a in vars(before).values())))

    def test_recording_goes_on_after_it(self):
        full = whole()
        sim = Simulation(every_plan())
        sim.advance(10)
        twin = sim.copy()
        sim.advance(25)
        twin.history = sim.history
        twin.history.cut(100)
        twin.advance(twin.end_s)
        assert same(twin.frames(), full.frames())

    def test_there_is_room_again_for_finer_ones(self):
        sim = bounded(long(2000), 250_000)
        sim.advance(10)
        twin = sim.copy()
        sim.advance(2000)
        assert np.diff(sim.frames().index)[0] >= 16
        twin.history = sim.history
        twin.history.cut(100)
        twin.advance(60)
        assert np.all(np.diff(twin.frames(120).index) <= 2)


def test_a_copy_goes_its_own_way():
    sim = Simulation(every_plan())
    sim.advance(12)
    twin = sim.copy()
    before = sim.frames()
    twin.advance(20)
    twin.history.cut(5)
    assert same(sim.frames(), before)
    sim.advance(20)
    assert len(twin.frames()) == 5 and len(sim.frames()) == 200


def test_anyone_may_read_while_it_records():
    sim = bounded(long(3000), 80_000)
    over, found = threading.Event(), []

    def read():
        while not over.is_set():
            f, s = sim.frames(), sim.history.series(1)
            gaps = np.diff(f.index)
            right = np.all(gaps > 0) and np.all(np.diff(f.calls[:, 0, 0]) >= 0) and np.all(np.diff(s.t) > 0)
            if not right or not np.array_equal(f.t, (f.index + 1) * L.FRAME_S):
                found.append(f)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        while not sim.advance(sim.now + 1):
            pass
    finally:
        over.set()
        reader.join()
    assert not found
