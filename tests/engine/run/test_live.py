"""Every setting of every plan changed while running: it works, or is refused whole; nothing is ever corrupted."""

import math
from collections import Counter

import numpy as np
import pytest

from engine import Simulation
from engine.design import EDGE, DesignError, settings_of
from engine.program import layout as L
from engine.run import journal
from engine.run.checkpoints import Checkpoint
from engine.run.live import RestartNeeded
from tests.engine.reference.build import design, edge, fault, node, source
from tests.engine.run.samples import every_plan

MOST_STEPS = 3_000
AT = 8.35
# One component of each plan, one of each kind of traffic, a consumer of a queue; what else leads from one to the other.
TARGETS = {each.id: each.plan for each in every_plan().nodes if each.id not in ("store", "log")}
EDGES = [each.id for each in every_plan().edges if each.id not in ("lb->shed", "limit->guard", "shed->guard")]
# Values that keep one step within a test's memory
MOST = {"calls": 40, "steps": 200}


def values(row):
    """A few values of a setting: its bounds, its default and one in between."""
    if row.numeric:
        high = MOST.get(row.name, row.high)
        middle = max(row.low, min(high, 7)) if row.type == "count" else max(row.low, min(high, 0.37))
        return dict.fromkeys(value for value in (row.low, row.default, middle, high) if value is not None)
    return {
        "flag": [True, False],
        "choice": list(row.choices),
        "points": [[[0, 5], [9, 300], [12, 0]], [[0, 0]]],
        "text": ["0,10\n9,200\n"],
        "limits": [0, 3, [9, 1]],
        "id": ["users->lb"],
    }[row.type]


def begun():
    sim = Simulation(every_plan())
    sim.advance(AT)
    return sim


@pytest.fixture(scope="module")
def kept():
    """The running design of every plan, as often as it is wanted."""
    return Checkpoint(begun(), 0)


def check(sim):
    """What holds at every instant, counted from the single records."""
    w, n = sim.state.sim[0], sim.state.node
    calls = sim.state.call[: int(w["calls_high"])]
    calls = calls[calls["state"] != L.S_FREE]
    assert len(calls) == w["calls_live"]
    assert w["calls_high"] <= w["calls_cap"] == len(sim.state.call)
    assert w["heap_n"] <= w["heap_cap"] == len(sim.state.heap)
    assert w["agenda_n"] <= w["agenda_mask"] + 1 == len(sim.state.agenda)
    sides = sim.state.cnt.reshape(len(n), 3, L.CNT)
    counts = sides[:, 0] + sides[:, 1]
    assert np.array_equal(counts[:, 0], counts[:, 1] + counts[:, 2 : 2 + L.NR].sum(axis=1) + n["in_flight"])
    assert np.all(counts >= 0)
    working = Counter(calls["node"][(calls["state"] >= L.S_CPU) & (calls["state"] <= L.S_FILL)].tolist())
    waiting = Counter(calls["node"][calls["state"] == L.S_WAITING].tolist())
    for k, each in enumerate(sim.design.nodes):
        room = slice(int(n[k]["inst_off"]), int(n[k]["inst_off"] + n[k]["inst_cap"]))
        mine = sim.state.inst[room]
        assert n[k]["live"] == np.count_nonzero(mine["state"] == L.I_LIVE)
        if each.is_source:
            continue
        assert (n[k]["busy"], n[k]["qlen"]) == (working[k], waiting[k]), each.id
        assert n[k]["in_flight"] == n[k]["busy"] + n[k]["qlen"]
        assert n[k]["busy"] == mine["busy"].sum() and np.all(mine["busy"] >= 0)
        assert n[k]["cpu_n"] == np.count_nonzero((calls["node"] == k) & (calls["state"] == L.S_CPU))
        assert n[k]["reserved"] >= 0 and n[k]["backlog"] >= 0
    for name in ("busy_int", "cap_int", "queue_int", "cpu_int", "cpu_cap_int", "soj_sum", "wait_sum"):
        assert np.all(np.isfinite(n[name])) and np.all(n[name] >= 0), name
    assert np.all(n["tokens"] <= n["quota_burst"] + 1e-9) and np.all(n["ltokens"] <= n["limit_burst"] + 1e-9)


def go_on(sim):
    """A little further, whatever the new setting makes of it."""
    sim.advance(sim.now + 1.5, MOST_STEPS)
    journal.settle(sim)
    got = sim.summary()
    for part in (got["totals"], *got["nodes"].values()):
        assert part["offered"] == part["succeeded"] + part["failed"] + part["in_flight"]
        for name in ("success_rate", "utilisation", "cpu_utilisation"):
            assert part.get(name) is None or 0 <= part[name] <= 1


def try_out(kept, target, row):
    for value in values(row):
        sim = kept.restore()
        before, design_before = sim.digest(), sim.design
        try:
            sim.set(target, row.name, value)
        except DesignError as error:
            assert "\n" not in str(error) and len(str(error)) < 300
            assert sim.design is design_before and sim.digest() == before
            if isinstance(error, RestartNeeded):
                assert row.name in str(error) or repr(target) in str(error)
                Simulation(sim.design.with_setting(f"{target}.{row.name}", value))
            continue
        if sim.design is design_before:
            continue  # it was so already
        check(sim)
        twin = Checkpoint(sim, 0).restore()
        try:
            go_on(sim)
        except DesignError:  # more calls than there is room for: said, and still in order
            check(sim)
            continue
        check(sim)
        twin.advance(twin.now + 1.5, MOST_STEPS)
        journal.settle(twin)
        assert twin.digest() == sim.digest()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_setting_of_every_plan(kept, target):
    for row in settings_of(TARGETS[target]).values():
        try_out(kept, target, row)


@pytest.mark.slow
@pytest.mark.parametrize("target", EDGES)
def test_every_setting_of_every_connection(kept, target):
    for row in EDGE.values():
        try_out(kept, target, row)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [{"shape": "herd", "spread_s": 9}, {"shape": "batch", "every_s": 3}, {"shape": "day"}]
)
def test_every_setting_of_other_traffic(shape):
    sim = Simulation(design([source(rate=30, **shape), node("api", slots=3, queue=9, ms=20)], ["users->api"]))
    sim.advance(AT)
    for row in settings_of("source").values():
        try_out(Checkpoint(sim, 0), "users", row)


# --- what a change does ---


def one(duration=20.0, **settings):
    """Fifty evenly spaced requests a second for one component."""
    nodes = [source(rate=50, arrivals="even"), node("api", **{"ms": 10} | settings)]
    return Simulation(design(nodes, ["users->api"], duration=duration))


def changed(sim, t, *change):
    """Sets something at time t."""
    sim.advance(t)
    sim.set(*change)
    return sim


def offered(sim, a, b, node=1):
    """Calls that came between two times."""
    f = sim.frames()
    count = dict(zip(f.index.tolist(), f.calls[:, node, 0].tolist(), strict=True)) | {-1: 0}
    return count[round(10 * b) - 1] - count[round(10 * a) - 1]


class TestTraffic:
    def test_a_new_rate(self):
        sim = changed(one(), 10, "users", "rate", 200)
        sim.advance(20)
        assert offered(sim, 0, 10) == 500 and offered(sim, 10.1, 20) == pytest.approx(1980, abs=1)

    def test_a_start_moved_ahead_and_back(self):
        late = changed(one(), 5, "users", "start_s", 15)
        late.advance(20)
        assert offered(late, 0, 5) == 250 and offered(late, 5.1, 15) == 0
        assert offered(late, 15, 20) == pytest.approx(250, abs=1)
        nodes = [source(rate=50, arrivals="even", start_s=18), node("api", ms=10)]
        early = Simulation(design(nodes, ["users->api"], duration=20))
        changed(early, 5, "users", "start_s", 8).advance(20)
        assert offered(early, 0, 8) == 0 and offered(early, 8, 20) == pytest.approx(600, abs=1)

    def test_an_end_moved_ahead_and_back(self):
        sim = changed(one(), 5, "users", "stop_s", 8)
        changed(sim, 12, "users", "stop_s", 0).advance(20)
        assert offered(sim, 0, 8.1) == pytest.approx(400, abs=1) and offered(sim, 8.1, 12) == 0
        assert offered(sim, 12, 20) == pytest.approx(400, abs=1)

    def test_off_and_on_again(self):
        sim = changed(one(), 5, "users", "rate", 0)
        changed(sim, 10, "users", "rate", 50).advance(20)
        assert offered(sim, 5, 10) == 0 and offered(sim, 10, 20) == pytest.approx(500, abs=1)

    def test_a_fault_on_the_traffic_goes_on_over_a_change(self):
        sim = one()
        sim.advance(5)
        sim.inject(fault("traffic", 0, 10, "users", 3))
        changed(sim, 10, "users", "rate", 100).advance(20)
        assert offered(sim, 5, 10) == pytest.approx(750, abs=1)
        assert offered(sim, 10, 15) == pytest.approx(1500, abs=1)
        assert offered(sim, 15, 20) == pytest.approx(500, abs=2)

    def test_a_hundred_changes_take_no_memory(self):
        sim = Simulation(design([source(shape="day", rate=20), node("api", ms=1)], ["users->api"]))
        sim.advance(1)
        for k in range(100):
            sim.set("users", "amplitude", 0.1 + k / 1000)
        assert len(sim.state.seg) <= 2 * 360 + 1

    @pytest.mark.parametrize(
        ("made", "changes"),
        [
            ({"shape": "herd"}, {"count": 9, "spread_s": 3, "at_s": 9, "shape": "batch", "users": 3}),
            ({"shape": "batch"}, {"batch": 9, "every_s": 3, "start_s": 2, "stop_s": 9, "at_s": 4}),
            ({"users": 4}, {"users": 0, "start_s": 2, "stop_s": 15}),
            ({}, {"users": 4, "shape": "day"}),
        ],
    )
    def test_what_is_planned_ahead_starts_anew(self, made, changes):
        for setting, value in changes.items():
            sim = Simulation(design([source(**made), node("api")], ["users->api"], duration=20))
            sim.advance(1)
            with pytest.raises(RestartNeeded, match=f"{setting} of 'users'.*anew"):
                sim.set("users", setting, value)

    @pytest.mark.parametrize(
        ("made", "changes"),
        [
            ({}, {"count": 9, "batch": 9, "every_s": 3, "spread_s": 2, "arrivals": "even"}),
            ({"users": 4}, {"shape": "day", "rate": 5, "think_s": 3, "count": 3}),
            ({"shape": "herd"}, {"rate": 5, "batch": 3, "on_s": 2}),
        ],
    )
    def test_what_is_not_planned_does_not(self, made, changes):
        sim = Simulation(design([source(**made), node("api")], ["users->api"], duration=20))
        sim.advance(1)
        for setting, value in changes.items():
            sim.set("users", setting, value)
            assert sim.design.node("users").settings[setting] == value


class TestCapacity:
    def test_more_slots_take_those_that_wait(self):
        sim = changed(one(slots=1, queue=1000, ms=100), 5, "api", "slots", 40)
        got = sim.summary()["nodes"]["api"]
        assert sim.state.node[1]["busy"] == 40
        assert sim.state.node[1]["qlen"] == got["offered"] - got["succeeded"] - 40 > 100

    def test_fewer_slots_let_those_in_work_end(self):
        sim = changed(one(slots=40, queue=1000, ms=200), 5, "api", "slots", 2)
        busy = int(sim.state.node[1]["busy"])
        assert busy >= 9
        sim.advance(5.5)
        assert sim.state.node[1]["busy"] == 2 and sim.summary()["nodes"]["api"]["failed"] == 0

    def test_more_and_fewer_instances(self):
        sim = changed(one(instances=2, slots=3, queue=1000, ms=100), 5, "api", "instances", 5)
        assert sim.state.node[1]["live"] == 5
        changed(sim, 9, "api", "instances", 1)
        assert sim.state.node[1]["live"] == 1
        sim.advance(12)
        check(sim)

    def test_more_instances_than_there_is_room_for(self):
        sim = one(instances=2)
        sim.advance(1)
        with pytest.raises(RestartNeeded, match="room"):
            sim.set("api", "instances", 5000)
        assert sim.state.node[1]["live"] == 2

    def test_a_cpu_comes_or_goes_with_a_new_start(self):
        sim = one(vcpu=2, cpu_ms=10)
        changed(sim, 3, "api", "cpu_ms", 0)
        with pytest.raises(RestartNeeded, match="loses its CPU"):
            sim.set("api", "vcpu", 0)
        changed(sim, 4, "api", "vcpu", 4)
        changed(sim, 5, "api", "cpu_ms", 30).advance(9)
        check(sim)
        with pytest.raises(RestartNeeded, match="had no CPU"):
            changed(one(), 1, "api", "vcpu", 1)

    def test_a_quota_begins_full_and_a_burst_is_cut(self):
        sim = changed(one(), 5, "api", "quota_rpm", 600)
        assert sim.state.node[1]["tokens"] <= 10
        sim.advance(15)
        got = sim.summary()["nodes"]["api"]["failures"]["throttled"]
        assert got == pytest.approx(500 - 100, abs=12)
        sim.set("api", "quota_burst", 1)
        assert sim.state.node[1]["tokens"] <= 1

    def test_an_autoscaler_switched_on_looks_at_what_is_now(self):
        """Idle for long, then busy: the idle past does not count."""
        sim = one(
            duration=400, instances=4, slots=1, queue=1000, ms=200, scale_every_s=5, boot_s=0, scale_max=20
        )
        sim.set("users", "rate", 0)
        changed(sim, 300, "users", "rate", 50)
        changed(sim, 310, "api", "scale_on", "utilisation").advance(315.5)
        assert sim.state.node[1]["live"] == math.ceil(4 / 0.7)

    def test_an_autoscaler_switched_off_goes_back(self):
        sim = one(instances=2, slots=1, queue=1000, ms=100, scale_on="utilisation", scale_every_s=1, boot_s=0)
        sim.advance(5)
        assert sim.state.node[1]["live"] > 2
        sim.set("api", "scale_on", "off")
        assert sim.state.node[1]["live"] == 2
        sim.advance(9)
        check(sim)


class TestCalls:
    def test_many_more_calls_at_once_than_there_was_room_for(self):
        nodes = [source(rate=5, arrivals="even"), node("hub"), node("leaf", ms=500)]
        sim = Simulation(design(nodes, ["users->hub", edge("hub->leaf", parallel=True)], duration=20))
        changed(sim, 3.05, "hub->leaf", "calls", 9000).advance(5)
        check(sim)
        assert offered(sim, 3.1, 5, 2) == 9 * 9000

    def test_a_timeout_holds_for_calls_sent_from_then_on(self):
        sim = one(ms=400)
        sim.advance(5)
        sim.set("users->api", "timeout_ms", 100)
        sim.advance(5.39)
        assert sim.summary()["totals"]["failures"] == {"timeout": 14}
        sim.advance(9)
        check(sim)

    def test_a_callers_timeout_is_its_connections(self):
        nodes = [source(rate=5), node("api"), node("store", ms=200)]
        sim = Simulation(design(nodes, ["users->api", edge("api->store", retries=0)], duration=20))
        changed(sim, 3, "api", "timeout_ms", 50)
        assert sim.state.edge[1]["timeout_s"] == 0.05 and sim.state.edge[1]["retries"] == 0
        sim.set("api", "retries", 3)
        assert sim.state.edge[1]["retries"] == 0
        sim.set("api->store", "retries", None)
        assert sim.state.edge[1]["retries"] == 3

    def test_a_queues_consumers_cannot_choose_anew(self):
        nodes = [source(rate=5), node("q", "queue"), node("w", ms=10)]
        sim = Simulation(design(nodes, ["users->q", "q->w"], duration=20))
        sim.advance(3)
        with pytest.raises(RestartNeeded, match="only"):
            sim.set("q->w", "only", "write")
        sim.set("users->q", "only", "read")


class TestPlans:
    def breaker(self, **settings):
        nodes = [source(rate=50, arrivals="even"), node("guard", "breaker", min_calls=5, **settings)]
        nodes.append(node("store", ms=10, error_rate=1))
        return Simulation(design(nodes, ["users->guard", "guard->store"], duration=60))

    def test_a_breakers_new_cooldown_counts_for_the_open_one(self):
        sim = self.breaker(cooldown_s=50)
        sim.advance(5)
        assert sim.state.node[1]["br_state"] == L.B_OPEN
        sim.set("store", "error_rate", 0)
        sim.set("guard", "cooldown_s", 6)
        sim.advance(9)
        assert sim.state.node[1]["br_state"] == L.B_CLOSED

    @pytest.mark.parametrize("window", [0.5, 20])
    def test_a_breakers_new_window_forgets_what_is_older(self, window):
        sim = self.breaker(window_s=4, failure_rate=1, cooldown_s=1)
        sim.set("store", "error_rate", 0.5)
        changed(sim, 10, "guard", "window_s", window)
        assert sim.state.node[1]["br_total"] == 0
        sim.advance(30)
        total = sim.state.node[1]["br_total"]
        assert total == pytest.approx(50 * window, abs=2)
        changed(sim, 30, "guard", "failure_rate", 0.2).advance(31)
        assert sim.state.node[1]["br_state"] == L.B_OPEN

    def test_fewer_probes_do_not_leave_a_breaker_half_open(self):
        sim = self.breaker(probes=200, cooldown_s=1)
        sim.advance(2.5)
        sim.set("store", "error_rate", 0)
        while sim.state.node[1]["br_state"] != L.B_HALF or sim.state.node[1]["br_ok"] < 5:
            sim.advance(sim.now + 0.01)
        sim.set("guard", "probes", 3)
        sim.advance(sim.now + 1)
        assert sim.state.node[1]["br_state"] == L.B_CLOSED

    def test_without_health_checks_every_target_counts(self):
        nodes = [source(rate=50), node("lb", "one_of", interval_s=1), node("a", ms=1), node("b", ms=1)]
        sim = Simulation(design(nodes, ["users->lb", "lb->a", "lb->b"], duration=60))
        sim.inject(fault("outage", 0, 10, "a"))
        sim.advance(8)
        assert sim.state.edge["out"].tolist() == [0, 1, 0]
        sim.set("lb", "interval_s", 0)
        assert sim.state.edge["out"].tolist() == [0, 0, 0]
        sim.advance(30)
        assert offered(sim, 11, 30, 2) == pytest.approx(offered(sim, 11, 30, 3), abs=1)

    def test_shedding_limits_come_and_go(self):
        nodes = [source(rate=50, arrivals="even"), node("guard", "shedder", ms=90, max_in_flight=0)]
        sim = Simulation(design(nodes, ["users->guard"], duration=20))
        changed(sim, 5, "guard", "max_in_flight", [2, 1])
        first = len(sim.state.level)
        changed(sim, 10, "guard", "queue", 3)
        assert len(sim.state.level) == first
        changed(sim, 10, "guard", "max_in_flight", 0).advance(20)
        shed = sim.summary()["nodes"]["guard"]["failures"]["shed"]
        assert shed == pytest.approx(250 - 100, abs=6)


def test_a_value_that_is_there_already_touches_nothing(kept):
    sim = kept.restore()
    before = sim.program
    for each in sim.design.nodes:
        for name, value in each.effective().items():
            if value is not None:
                sim.set(each.id, name, value)
    for each in sim.design.edges:
        for name, value in each.effective().items():
            if value is not None:
                sim.set(each.id, name, value)
    assert sim.program is before and sim.digest() == kept.restore().digest()
