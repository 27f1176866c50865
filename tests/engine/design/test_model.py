"""A design as a value: what its settings come to, and what a change of it makes."""

import subprocess
import sys

import pytest

from engine.design import (
    COMMON,
    EDGE,
    PLANS,
    Change,
    Design,
    DesignError,
    Edge,
    Fault,
    Node,
    attempt_on,
    breaches,
    catalogue,
    load,
    loads,
    new_node,
    settings_of,
)
from engine.design.settings import GUARDS, PLAN_NAMES

KINDS = catalogue()
TIERS = """
format = 1
name = "Tiers"
nodes = [
  { id = "users", kind = "api-clients", settings = { rate = 5 } },
  { id = "app", kind = "app-service" },
  { id = "db", kind = "sql-primary" },
  { id = "spare", kind = "sql-primary" },
]
edges = [
  { from = "users", to = "app" },
  { from = "app", to = "db", settings = { retries = 2 } },
  { from = "app", to = "spare", id = "second", settings = { fallback = "app->db" } },
]
faults = [
  { at_s = 1, duration_s = 2, node = "db", kind = "outage" },
  { at_s = 1, duration_s = 2, edge = "app->db", kind = "cut" },
  { at_s = 1, duration_s = 2, node = "app", kind = "slow", amount = 3 },
]
"""


@pytest.fixture
def tiers() -> Design:
    return loads(TIERS)


# --- settings


def test_every_serving_component_has_the_common_settings():
    for plan in PLAN_NAMES:
        if plan != "source":
            assert list(settings_of(plan)) == [*COMMON, *PLANS[plan]]
    assert not {"slots", "p50_ms"} & set(settings_of("source"))
    assert {"timeout_ms", "retries", "backoff_ms", "jitter"} <= set(settings_of("source"))


def test_defaults_where_neither_catalogue_nor_file_says():
    plain = {
        "instances": 1, "slots": 0, "queue": 0, "vcpu": 0, "cpu_ms": 0, "p50_ms": 0, "timeout_ms": 0,
        "latency_model": "lognormal", "retries": 0, "backoff_ms": 100, "backoff_factor": 2,
        "backoff_max_ms": 0, "jitter": 0, "retry_budget": 0, "error_rate": 0, "quota_rpm": 0,
        "quota_burst": 0, "cancel": False,
        "scale_on": "off", "crash_rate": 0.2, "restart_s": 10,
    }  # fmt: skip
    assert {name: COMMON[name].default for name in plain} == plain
    edge = {
        "calls": 1, "order": 0, "parallel": False, "need": 0, "only": "any", "optional": False,
        "fallback": None, "async": False, "latency_ms": 0, "weight": 1, "checkpoint": False,
        "dead_letter": False, "timeout_ms": None, "retries": None,
    }  # fmt: skip
    assert Edge.make("a", "b").effective() == edge and list(EDGE) == list(edge)


def test_every_setting_says_what_it_does():
    for plan in PLAN_NAMES:
        for setting in [*settings_of(plan).values(), *EDGE.values()]:
            assert setting.doc.endswith(".") and 20 < len(setting.doc) < 140, setting.name
            assert setting.group in ("capacity", "time", "failure", "calls", "traffic", "plan"), setting.name
            unit = {"ms": "_ms", "s": "_s"}.get(setting.type)
            assert unit is None or setting.name.endswith(unit), setting.name
            if setting.default is not None and setting.name != "trace_csv":
                assert setting.check(setting.default) == setting.default, setting.name


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.id)
def test_a_bare_node_has_every_setting_of_its_plan(kind):
    values = Node.make("a", kind).effective()
    assert list(values) == list(settings_of(kind.plan)) and values == dict(kind.values)
    assert {name: values[name] for name in kind.defaults} == dict(kind.defaults)
    assert None not in {name: value for name, value in values.items() if name != "schedule"}.values()


@pytest.mark.parametrize(
    ("settings", "p50", "p99"),
    [
        ({}, 50, 250),
        ({"p50_ms": 100}, 100, 250),
        ({"p50_ms": 500}, 500, 2500),
        ({"p50_ms": 0}, 0, 0),
        ({"p99_ms": 90}, 50, 90),
        ({"p99_ms": 50}, 50, 50),
        ({"p50_ms": 300, "p99_ms": 300}, 300, 300),
        ({"p50_ms": 300, "latency_model": "constant"}, 300, 1500),
    ],
)
def test_p99_goes_along_with_p50(settings, p50, p99):
    values = Node.make("a", KINDS["app-service"], settings=settings).effective()
    assert values["p50_ms"] == p50 and values["p99_ms"] == pytest.approx(p99)


def test_p99_is_not_looked_at_where_it_means_nothing():
    for model in ("exponential", "constant"):
        Node.make("a", KINDS["app-service"], settings={"latency_model": model, "p50_ms": 300, "p99_ms": 1})
    with pytest.raises(DesignError, match="p99_ms"):
        Node.make("a", KINDS["app-service"], settings={"p50_ms": 300, "p99_ms": 250})


def test_copies_counts_as_yes():
    def copies(value):
        return Node.make("a", KINDS["message-queue"], settings={"copies": value}).effective()["copies"]

    assert [copies(value) for value in (0, 1, 3, False, True)] == [False, True, True, False, True]


def test_limits_by_priority_belong_to_the_shedder():
    shed = Node.make("a", KINDS["load-shedder"], settings={"max_in_flight": [9, 5, 2]})
    assert shed.effective()["max_in_flight"] == [9, 5, 2]
    assert Node.make("a", KINDS["bulkhead"], settings={"max_in_flight": 4}).effective()["max_in_flight"] == 4
    for kind, limits in (
        ("bulkhead", [4]),
        ("load-shedder", []),
        ("load-shedder", [1.5]),
        ("load-shedder", [1] * 17),
    ):
        with pytest.raises(DesignError, match="max_in_flight"):
            Node.make("a", KINDS[kind], settings={"max_in_flight": limits})
    assert set(GUARDS) <= {kind.plan for kind in KINDS.values()}


# --- what there is


def test_nodes_and_edges_stand_in_the_order_of_the_file(tiers):
    assert [node.id for node in tiers.nodes] == ["users", "app", "db", "spare"]
    assert [edge.id for edge in tiers.edges] == ["users->app", "app->db", "second"]
    assert [node.id for node in tiers.sources] == ["users"]
    assert [edge.id for edge in tiers.out_edges("app")] == ["app->db", "second"] and tiers.out_edges(
        "db"
    ) == []
    assert "app" in tiers and "second" in tiers and "nobody" not in tiers
    assert tiers.node("db").label == "SQL primary" or tiers.node("db").label == KINDS["sql-primary"].name
    with pytest.raises(DesignError, match="unknown node 'ap'; did you mean 'app'?"):
        tiers.node("ap")
    with pytest.raises(DesignError, match="unknown edge"):
        tiers.edge("app->dc")


def test_the_graph_is_the_design(tiers):
    import networkx

    graph = tiers.graph
    assert isinstance(graph, networkx.MultiDiGraph)
    assert [data["node"] for _, data in graph.nodes(data=True)] == tiers.nodes
    assert {key: data["edge"] for _, _, key, data in graph.edges(keys=True, data=True)} == {
        edge.id: edge for edge in tiers.edges
    }
    with pytest.raises(networkx.NetworkXError):
        graph.add_node("x")


def test_several_edges_may_join_two_nodes(tiers):
    more = tiers.with_change(Change("", add_edges=[Edge.make("app", "db", "again")]))
    assert more.graph.number_of_edges("app", "db") == 2
    with pytest.raises(
        DesignError, match=r"add_edges\[0\].id: is 'app->db', .* give one of them an id of its own"
    ):
        tiers.with_change(Change("", add_edges=[Edge.make("app", "db")]))


def test_calls_may_go_round(tiers):
    assert tiers.with_change(Change("", add_edges=[Edge.make("db", "app"), Edge.make("db", "db")]))


def test_fallbacks_may_stand_behind_each_other_but_not_in_a_ring():
    def ring(*backs):
        nodes = [new_node("app-service", "a"), new_node("sql-primary", "b")]
        edges = [
            Edge.make("a", "b", f"e{i}", {} if back is None else {"fallback": f"e{back}"})
            for i, back in enumerate(backs)
        ]
        return Design(nodes=nodes, edges=edges)

    ring(None, 0, 0)
    ring(1, 2, None)
    ring(None, 0, 1, 2)
    for backs in ((1, 2, 0), (None, 2, 1), (1, 1, None), (3, 3, 0, 2)):
        with pytest.raises(DesignError, match="stands in for itself"):
            ring(*backs)


# --- changes


def test_a_change_leaves_the_design_before_as_it_was(tiers):
    before = loads(TIERS)
    changed = tiers.with_setting("db.slots", 7)
    assert changed.node("db").effective()["slots"] == 7 and tiers == before and changed != tiers
    assert changed.with_setting("db.slots", None) == tiers
    assert tiers.copy() == tiers and tiers.copy() is not tiers
    assert tiers.replace(seed=3).seed == 3


def test_settings_of_edges_too(tiers):
    for target in ("app->db.calls", "edge:app->db.calls"):
        assert tiers.with_setting(target, 3).edge("app->db").settings == {"retries": 2, "calls": 3.0}
    assert tiers.with_setting("second.latency_ms", 5).edge("second").effective()["latency_ms"] == 5.0
    plain = tiers.with_setting("app->db.retries", None)
    assert plain.edge("app->db").effective()["retries"] is None
    assert tiers.with_setting("app->db.timeout_ms", 0).edge("app->db").effective()["timeout_ms"] == 0.0


@pytest.mark.parametrize(
    ("target", "value", "line"),
    [
        ("db.slots", 1.5, "db.slots: is 1.5; allowed is a whole number"),
        ("db.slot", 1, "db.slot: unknown setting 'slot' of 'sql-primary'; did you mean 'slots'?"),
        ("dbb.slots", 1, "'dbb.slots' names no node or edge; did you mean 'db'?"),
        ("slots", 1, "'slots' names no setting; allowed is node.setting or edge-id.setting"),
        ("edge:db.slots", 1, "'edge:db.slots' names no node or edge"),
        ("app->db.call", 1, "app->db.call: unknown setting 'call' of a connection; did you mean 'calls'?"),
        ("app.p99_ms", 1, "app.p99_ms: is 1, below p50_ms"),
        ("app.vcpu", 0, "app.vcpu: is 0 while cpu_ms is 10"),
        ("app->db.checkpoint", True, "app->db.checkpoint: is set, but 'app' is no agent"),
        ("users.rate", 1e7, "users: makes about"),
    ],
)
def test_a_bad_setting_is_one_clear_line(tiers, target, value, line):
    with pytest.raises(DesignError) as caught:
        tiers.replace(duration_s=10_000).with_setting(target, value)
    assert str(caught.value).startswith(line)


def test_settings_that_go_together_may_be_changed_together(tiers):
    changed = tiers.with_settings({"app.p99_ms": 20, "app.p50_ms": 10})
    assert changed.node("app").settings == {"p50_ms": 10.0, "p99_ms": 20.0}
    changed = tiers.with_settings({"app.cpu_ms": 0, "app.vcpu": 0, "app->db.calls": 2})
    assert changed.node("app").settings == {"cpu_ms": 0.0, "vcpu": 0.0}


def test_what_is_removed_takes_along_what_names_it(tiers):
    changed = tiers.with_change(Change("", remove=["db"]))
    assert [node.id for node in changed.nodes] == ["users", "app", "spare"]
    assert [edge.id for edge in changed.edges] == ["users->app", "second"]
    assert changed.edge("second").settings == {}
    assert changed.faults == [Fault(1.0, 2.0, "app", None, "slow", 3.0)]
    assert tiers.with_change(Change("", remove=["app->db"])).edge("second").effective()["fallback"] is None
    assert tiers.with_change(Change("", remove=[node.id for node in tiers.nodes])).edges == []


def test_a_change_removes_adds_and_sets_in_this_order(tiers):
    change = Change(
        "a router",
        set={"router.interval_s": 5, "router->db.weight": 2},
        add_nodes=[new_node("lb-l7", "router", x=5)],
        add_edges=[Edge.make("app", "router"), Edge.make("router", "db"), Edge.make("router", "spare")],
        remove=["app->db", "second"],
    )
    changed = tiers.with_change(change)
    assert changed.node("router").effective()["interval_s"] == 5.0
    assert changed.edge("router->db").effective()["weight"] == 2.0
    assert [edge.id for edge in changed.edges][:2] == ["users->app", "app->router"]
    swapped = tiers.with_change(Change("", remove=["db"], add_nodes=[new_node("kv-store", "db")]))
    assert swapped.node("db").kind.id == "kv-store" and swapped.nodes[-1].id == "db"


def test_a_refused_change_says_where(tiers):
    for change, path in (
        (Change("", remove=["nobody"]), "here.remove[0]"),
        (Change("", add_nodes=[new_node("kv-store", "db")]), "here.add_nodes[0].id"),
        (Change("", add_nodes=[new_node("kv-store", "second")]), "here.add_nodes[0].id"),
        (Change("", add_edges=[Edge.make("db", "users")]), "here.add_edges[0].to"),
        (Change("", set={"db.slots": -1}), "here.set.db.slots"),
        (Change("", remove=["db"], set={"db.slots": 1}), "here.set"),
    ):
        with pytest.raises(DesignError) as caught:
            tiers.with_change(change, "here")
        assert caught.value.path == path


def test_faults_by_hand_are_checked(tiers):
    tiers.check_fault(Fault.make("outage", node="db", duration_s=5))
    tiers.check_fault(Fault.make("crash", node="users"))
    for fault in (
        Fault.make("outage", node="dc", duration_s=5),
        Fault.make("cold_cache", node="db", duration_s=5),
    ):
        with pytest.raises(DesignError):
            tiers.check_fault(fault)


# --- problems


def test_breaches_name_what_a_problem_forbids():
    start = load("checkpointing-every-step")
    users, palette = start.problem.locked[0], start.problem.palette
    assert breaches(start, start) == []
    moved = start.replace(nodes=[n.having(n.settings) for n in start.nodes])
    assert breaches(start, moved) == []
    assert (
        breaches(start, start.with_change(Change("", remove=[users])))[0]
        == f"'{users}' is locked and may not be removed"
    )
    slower = start.with_setting(f"{users}.rate", 1)
    assert breaches(start, slower) == [f"'{users}' is locked and may not be changed"]
    foreign = next(id for id in KINDS if id not in palette and KINDS[id].plan == "all")
    placed = start.with_change(Change("", add_nodes=[new_node(foreign, "mine")]))
    assert breaches(start, placed)[0].startswith(f"'{foreign}' may not be placed here; allowed is ")
    more = start.with_change(Change("", add_nodes=[new_node(palette[0], "mine")]))
    assert breaches(start, more) == []


def test_a_change_of_kind_counts_as_placing():
    start = load("checkpointing-every-step")
    store = next(node for node in start.nodes if node.id not in start.problem.locked)
    foreign = next(id for id in KINDS if id not in start.problem.palette and KINDS[id].plan == "all")
    nodes = [new_node(foreign, node.id) if node is store else node for node in start.nodes]
    edges = [edge for edge in start.edges if not edge.settings]
    assert breaches(start, attempt_on(start, nodes, edges))[-1].startswith(f"'{foreign}' may not be placed")


def test_an_attempt_takes_all_but_the_canvas_from_its_problem():
    start = load("coding-agent-provider-outage")
    attempt = attempt_on(start, [], [], "empty")
    assert attempt.attempt and attempt.nodes == [] and attempt.faults == []
    assert (attempt.duration_s, attempt.drain_s, attempt.problem) == (
        start.duration_s,
        start.drain_s,
        start.problem,
    )
    assert attempt_on(start, start.nodes, start.edges).faults == start.faults


def test_a_change_by_its_name():
    problem = load("checkpointing-every-step").problem
    assert problem.change(problem.traps[0].name) is problem.traps[0]
    with pytest.raises(DesignError, match="unknown solution or trap"):
        problem.change("nothing")


# --- manners


def test_the_design_room_opens_fast_and_alone():
    code = (
        "import sys, engine\n"
        "from engine import Design, DesignError, load, save\n"
        "import engine.design\n"
        "print(sorted(set(sys.modules) & {'networkx', 'numpy', 'numba', 'PySide6'}), engine.load is load)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
