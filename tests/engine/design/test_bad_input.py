"""Every bad value gives one clear line: the file, the path to the value, what is wrong, what is allowed."""

import json

import pytest

from engine.design import DesignError, load, loads
from engine.design.settings import PLANS, settings_of

NODE = {"id": "a", "kind": "app-service"}
USERS = {"id": "users", "kind": "api-clients"}
EDGE = {"from": "users", "to": "a"}
OBJECTIVE = {"metric": "success_rate", "op": ">=", "target": 0.9}
PROBLEM = {"id": "p", "category": "agents", "objectives": [OBJECTIVE]}


def design(**table) -> dict:
    return {"format": 1, "nodes": [USERS, NODE], "edges": [EDGE], **table}


def node(**fields) -> dict:
    return design(nodes=[USERS, {**NODE, **fields}])


def setting(**settings) -> dict:
    return node(settings=settings)


def edge(**settings) -> dict:
    return design(edges=[{**EDGE, "settings": settings}])


def fault(**fields) -> dict:
    return design(faults=[{"at_s": 1, "duration_s": 2, **fields}])


def problem(**fields) -> dict:
    return design(problem={**PROBLEM, **fields})


def solution(**fields) -> dict:
    return problem(solutions=[{"name": "s", **fields}])


def refused(table: object, fmt: str = "json") -> DesignError:
    text = table if isinstance(table, (str, bytes)) else json.dumps(table)
    with pytest.raises(DesignError) as caught:
        loads(text, fmt, "my.json")
    line = str(caught.value)
    assert line.startswith("my.json: ") and "\n" not in line and len(line) < 400
    return caught.value


# The file as a whole, the path, and words that have to be in the line.
CASES = [
    (design(colour=1), "colour", "unknown key"),
    (design(node=[]), "node", "did you mean 'nodes'?"),
    (node(lable="x"), "nodes[1].lable", "did you mean 'label'?"),
    (setting(slot=1), "nodes[1].settings.slot", "'slot' of 'app-service'; did you mean 'slots'?"),
    (setting(hit_rate=0.5), "nodes[1].settings.hit_rate", "unknown setting"),
    (setting(__proto__=1), "nodes[1].settings.__proto__", "unknown setting"),
    (edge(call=1), "edges[0].settings.call", "did you mean 'calls'?"),
    ({"format": 1, "__proto__": {}}, "__proto__", "unknown key"),
    # kinds, ids, ends
    (node(kind="app-servise"), "nodes[1].kind", "did you mean 'app-service'?"),
    (node(kind=""), "nodes[1].kind", "unknown kind ''"),
    (node(id="users"), "nodes[1].id", "is taken"),
    (node(id="__proto__"), "nodes[1].id", "two underscores"),
    (node(id="A b"), "nodes[1].id", "allowed are 1 to 64 of a-z"),
    (node(id=""), "nodes[1].id", "allowed are 1 to 64 of a-z"),
    (node(id="x" * 65), "nodes[1].id", "allowed are 1 to 64 of a-z"),
    (design(edges=[{"from": "users", "to": "b"}]), "edges[0].to", "which is no node"),
    (design(edges=[{"from": "user", "to": "a"}]), "edges[0].from", "did you mean 'users'?"),
    (design(edges=[EDGE, EDGE]), "edges[1].id", "give one of them an id of its own"),
    (design(edges=[{**EDGE, "id": "a"}]), "edges[0].id", "a node's id too"),
    (design(edges=[{**EDGE, "id": "x.y"}]), "edges[0].id", "allowed are 1 to"),
    (design(edges=[{"from": "a", "to": "users"}]), "edges[0].to", "nothing calls a source"),
    # types
    (design(nodes={}), "nodes", "is a table; allowed is a list"),
    (design(nodes=[1]), "nodes[0]", "is a whole number; allowed is a table"),
    (node(label=3), "nodes[1].label", "allowed is text"),
    (node(x="left"), "nodes[1].x", "allowed is a number between -1,000,000 and 1,000,000"),
    (node(settings=[]), "nodes[1].settings", "is a list; allowed is a table"),
    ({"format": 1, "nodes": [{"kind": "app-service"}]}, "nodes[0].id", "is missing"),
    (setting(slots="ten"), "nodes[1].settings.slots", "is 'ten'; allowed is a whole number between 0 and"),
    (setting(slots=True), "nodes[1].settings.slots", "is true; allowed is a whole number"),
    (setting(slots=3.5), "nodes[1].settings.slots", "is 3.5; allowed is a whole number"),
    (setting(slots=None), "nodes[1].settings.slots", "is nothing"),
    (setting(cancel=1), "nodes[1].settings.cancel", "is 1; allowed is true or false"),
    (setting(cancel="yes"), "nodes[1].settings.cancel", "allowed is true or false"),
    (setting(latency_model="exponentail"), "nodes[1].settings.latency_model", "did you mean 'exponential'?"),
    (edge(only="reads"), "edges[0].settings.only", "allowed is one of any, read, write"),
    # ranges
    (setting(instances=10**9), "nodes[1].settings.instances", "a whole number between 1 and 10,000"),
    (setting(slots=10**12), "nodes[1].settings.slots", "between 0 and 1,000,000,000"),
    (setting(queue=-1), "nodes[1].settings.queue", "is -1; allowed is a whole number between 0 and"),
    (setting(p50_ms=-1), "nodes[1].settings.p50_ms", "is -1; allowed is a number between 0 and"),
    (setting(error_rate=1.5), "nodes[1].settings.error_rate", "between 0 and 1"),
    (setting(vcpu=10**400), "nodes[1].settings.vcpu", "is a whole number of 1329 bits"),
    (setting(p50_ms=50, p99_ms=40), "nodes[1].settings.p99_ms", "below p50_ms (50)"),
    (setting(p99_ms=20), "nodes[1].settings.p99_ms", "below p50_ms (50)"),
    (setting(p50_ms=0, p99_ms=20), "nodes[1].settings.p50_ms", "a median above 0"),
    (setting(vcpu=0), "nodes[1].settings.vcpu", "CPU time needs vcpu above 0"),
    (setting(scale_on="cpu", scale_min=5, scale_max=2), "nodes[1].settings.scale_max", "below scale_min (5)"),
    (node(label="x" * 201), "nodes[1].label", "201 characters long; allowed are 200"),
    (design(seed=-1), "seed", "is -1; allowed is a whole number"),
    (design(seed=1.5), "seed", "is 1.5; allowed is a whole number"),
    (design(duration_s=0), "duration_s", "between 0.001 and 1,000,000 (s)"),
    (design(duration_s="1 h"), "duration_s", "is '1 h'; allowed is a number"),
    (design(duration_s=10, warmup_s=10), "warmup_s", "allowed is less than duration_s (10)"),
    (design(nodes=[{**USERS, "settings": {"stop_s": 5, "start_s": 6}}], edges=[]), "nodes[0].settings.stop_s",
     "allowed is a time after start_s"),
    # edges among each other
    (edge(fallback="users->b"), "edges[0].settings.fallback", "which is no edge out of 'users'"),
    (edge(fallback="users->a"), "edges[0].settings.fallback", "stands in for itself"),
    (edge(checkpoint=True), "edges[0].settings.checkpoint", "'users' is no agent"),
    (edge(dead_letter=True), "edges[0].settings.dead_letter", "'users' is no queue"),
    (edge(calls=-0.5), "edges[0].settings.calls", "between 0 and 10,000"),
    # faults
    (fault(kind="outrage", node="a"), "faults[0].kind", "did you mean 'outage'?"),
    (fault(kind="outage", node="b"), "faults[0].node", "which is no node"),
    (fault(kind="outage"), "faults[0]", "names nothing"),
    (fault(kind="cut", edge="users->a", node="a"), "faults[0]", "names a node and an edge"),
    (fault(kind="cut", edge="a->users"), "faults[0].edge", "which is no edge"),
    (fault(kind="cut", node="a"), "faults[0].node", "'cut' happens to an edge"),
    (fault(kind="latency", node="a", amount=5), "faults[0].node", "'latency' happens to an edge"),
    (fault(kind="slow", edge="users->a", amount=5), "faults[0].edge", "'slow' happens to a node"),
    (fault(kind="slow", node="a"), "faults[0].amount", "is missing; 'slow' needs a number between 0 and"),
    (fault(kind="slow", node="users", amount=2), "faults[0].node", "a traffic source"),
    (fault(kind="errors", node="a", amount=2), "faults[0].amount", "between 0 and 1"),
    (fault(kind="crash", node="a", amount=0.5), "faults[0].amount", "a whole number between 1 and 10,000"),
    (fault(kind="traffic", node="a", amount=2), "faults[0].node", "happens to a traffic source"),
    (fault(kind="cold_cache", node="a"), "faults[0].node", "happens to a cache"),
    (fault(kind="outage", node="a", duration_s=0), "faults[0].duration_s", "a time above 0 s"),
    (fault(kind="outage", node="a", at_s=-1), "faults[0].at_s", "is -1"),
    (design(faults=[{"kind": "outage", "node": "a", "duration_s": 1}]), "faults[0].at_s", "is missing"),
    # problems
    (problem(objectives=[]), "problem.objectives", "at least one objective"),
    (problem(level=6), "problem.level", "between 1 and 5"),
    (problem(budget={"run_cost": -5}), "problem.budget.run_cost", "is -5; allowed is a number between 0 and"),
    (problem(budget={"money": 5}), "problem.budget.money", "unknown key"),
    (problem(id="My Problem"), "problem.id", "lower-case letters"),
    (problem(palette=["app-servce"]), "problem.palette[0]", "did you mean 'app-service'?"),
    (problem(teaches=["nothing"]), "problem.teaches[0]", "unknown kind"),
    (problem(locked=["user"]), "problem.locked[0]", "did you mean 'users'?"),
    (problem(objectives=[{**OBJECTIVE, "metric": "succes_rate"}]), "problem.objectives[0].metric",
     "did you mean 'success_rate'?"),
    (problem(objectives=[{**OBJECTIVE, "op": "=="}]), "problem.objectives[0].op", "one of >=, <=, >, <"),
    (problem(objectives=[{**OBJECTIVE, "target": 99}]), "problem.objectives[0].target", "between 0 and 1"),
    (problem(objectives=[{**OBJECTIVE, "of": "b"}]), "problem.objectives[0].of", "unknown node"),
    (problem(objectives=[{**OBJECTIVE, "from_s": 9, "to_s": 3}]), "problem.objectives[0].to_s", "after"),
    (problem(objectives=[{**OBJECTIVE, "metric": "utilisation"}]), "problem.objectives[0].of", "of one node"),
    (problem(objectives=[{**OBJECTIVE, "metric": "queue_max", "of": "users"}]), "problem.objectives[0].of",
     "a traffic source"),
    (problem(objectives=[{**OBJECTIVE, "metric": "credits", "of": "a"}]), "problem.objectives[0].of",
     "of the whole design"),
    (solution(set={"a.slot": 1}), "problem.solutions[0].set.a.slot", "did you mean 'slots'?"),
    (solution(set={"b.slots": 1}), "problem.solutions[0].set", "'b.slots' names no node or edge"),
    (solution(set={"slots": 1}), "problem.solutions[0].set", "names no setting"),
    (solution(set={"a.slots": 0.5}), "problem.solutions[0].set.a.slots", "is 0.5"),
    (solution(set={"users->a.calls": -1}), "problem.solutions[0].set.users->a.calls", "is -1"),
    (solution(remove=["b"]), "problem.solutions[0].remove[0]", "unknown node or edge 'b'"),
    (solution(add_nodes=[NODE]), "problem.solutions[0].add_nodes[0].id", "is taken"),
    (solution(add_nodes=[{"id": "b", "kind": "x"}]), "problem.solutions[0].add_nodes[0].kind", "unknown"),
    (solution(add_edges=[{"from": "a", "to": "b"}]), "problem.solutions[0].add_edges[0].to", "no node"),
    (solution(add_edges=[EDGE]), "problem.solutions[0].add_edges[0].id", "an id of its own"),
    (problem(traps=[{"name": "t", "set": {"a.queue": -1}}]), "problem.traps[0].set.a.queue", "is -1"),
    (problem(solutions=[{"name": "s"}], traps=[{"name": "s"}]), "problem.traps[0].name", "a name of its own"),
    (problem(locked=["a"], solutions=[{"name": "s", "set": {"a.slots": 9}}]), "problem.solutions[0]",
     "'a' is locked and may not be changed"),
    (problem(locked=["a"], solutions=[{"name": "s", "remove": ["a"]}]), "problem.solutions[0]",
     "may not be removed"),
    (problem(palette=["lb-l7"], solutions=[{"name": "s", "add_nodes": [{"id": "b", "kind": "sql-primary"}]}]),
     "problem.solutions[0]", "'sql-primary' may not be placed here; allowed is lb-l7"),
    (design(problem="no-such-problem"), "problem", "unknown problem"),
    (design(problem=7), "problem", "is a whole number; allowed is text or a table"),
    # the version of the format
    ({"nodes": []}, "format", "is missing"),
    ({"format": 99}, "format", "is 99, newer than this version"),
    ({"format": 0}, "format", "is 0"),
    ({"format": "1"}, "format", "is '1'"),
    ({"format": True}, "format", "is true"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "path", "words"), CASES, ids=[f"{path}-{i}" for i, (_, path, _) in enumerate(CASES)]
)
def test_one_clear_line(table, path, words):
    error = refused(table)
    assert error.path == path
    assert words in error.text


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "table",
    [
        setting(vcpu="HERE"),
        node(x="HERE"),
        design(seed="HERE"),
        edge(calls="HERE"),
        fault(kind="slow", node="a", amount="HERE"),
        problem(budget={"run_cost": "HERE"}),
        problem(objectives=[{**OBJECTIVE, "target": "HERE"}]),
        solution(set={"a.queue": "HERE"}),
    ],
)
def test_no_number_is_not_finite_in_json(value, table):
    error = refused(json.dumps(table).replace('"HERE"', value))
    assert error.path and error.text.startswith(("is NaN; ", "is infinity; ", "is -infinity; "))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize("where", ["x", "settings.rate"])
def test_no_number_is_not_finite_in_toml(value, where):
    text = f'format = 1\n[[nodes]]\nid = "users"\nkind = "api-clients"\n{where} = {value}\n'
    error = refused(text, "toml")
    assert error.path == f"nodes[0].{where}" and error.text.startswith(
        ("is NaN; ", "is infinity; ", "is -infinity; ")
    )


@pytest.mark.parametrize("plan", PLANS)
def test_every_numeric_setting_has_a_range_that_holds(plan):
    for one in settings_of(plan).values():
        if one.numeric:
            for bad in (one.low - 1, one.high * 2 + 1, float("nan"), float("inf"), "1", None, True, [1], {}):
                with pytest.raises(DesignError, match="allowed is"):
                    one.check(bad, "here")
            assert one.check(one.low) == one.low and one.check(one.high) == one.high


def test_names_of_any_length_and_kind_make_one_short_line():
    for name in ("x" * 1_000_000, "a\nb", "\x1b[31m", "ключ", "a.b", ""):
        refused({"format": 1, name: 1})
        refused(setting(**{name: 1}))
        refused(node(kind=name))
        refused(solution(set={name: 1}))
        refused(problem(locked=[name]))
        refused(design(problem=name))


def test_a_design_asks_for_no_more_than_machines_have():
    crowd = [{"id": f"n{i}", "kind": "app-service", "settings": {"instances": 10_000}} for i in range(11)]
    assert "about 110,000 instances" in refused({"format": 1, "nodes": crowd}).text
    scaled = [{"id": f"n{i}", "kind": "app-service", "settings": {"scale_on": "cpu", "scale_max": 10_000}}
              for i in range(11)]  # fmt: skip
    assert refused({"format": 1, "nodes": scaled}).path == "nodes[10].settings"
    lanes = [{"id": f"n{i}", "kind": "message-queue", "settings": {"partitions": 10_000}} for i in range(11)]
    assert "partitions" in refused({"format": 1, "nodes": lanes}).text
    many = [{"id": f"n{i}", "kind": "app-service"} for i in range(1001)]
    assert refused({"format": 1, "nodes": many}).text == "has 1,001 entries; allowed are 1,000"
    ends = [{"id": f"e{i}", "from": "users", "to": "a"} for i in range(10_001)]
    assert refused(design(edges=ends)).path == "edges"
    cuts = [{"kind": "cut", "edge": "users->a", "at_s": i, "duration_s": 1} for i in range(1001)]
    assert refused(design(faults=cuts)).path == "faults"


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": 1e7},
        {"rate": 1, "rate_to": 1e7, "shape": "ramp"},
        {"rate": 1e4, "shape": "spike", "spike_factor": 1e6},
        {"shape": "schedule", "schedule": [[0, 1], [5, 1e7]]},
        {"shape": "trace", "trace_csv": "0,1\n5,1e7"},
        {"shape": "batch", "batch": 1_000_000, "every_s": 0.001},
        {"users": 1_000_000, "think_s": 0},
    ],
)
def test_no_more_requests_than_a_machine_can_make(settings):
    error = refused({"format": 1, "duration_s": 1e4, "nodes": [{**USERS, "settings": settings}]})
    assert error.path == "nodes[0].settings" and "allowed are 10,000,000,000" in error.text


def test_traffic_faults_count_towards_the_requests():
    table = {"format": 1, "duration_s": 1000, "nodes": [{**USERS, "settings": {"rate": 1e5}}]}
    loads(json.dumps(table), "json")
    grown = {"kind": "traffic", "node": "users", "at_s": 0, "duration_s": 1000, "amount": 20}
    loads(json.dumps({**table, "faults": [grown]}), "json")
    assert "requests" in refused({**table, "faults": [grown, grown]}).text


# --- schedules and traces


@pytest.mark.parametrize(
    ("schedule", "path", "words"),
    [
        ([], "", "1 to 100,000 pairs"),
        ("0,1", "", "is '0,1'"),
        ([[0, 1], [5]], "[1]", "allowed is a pair"),
        ([[0, 1], 5], "[1]", "allowed is a pair"),
        ([[5, 1], [4, 1]], "[1][0]", "times ascend"),
        ([[0, -1]], "[0][1]", "between 0 and 10,000,000 (per s)"),
        ([["0", 1]], "[0][0]", "is '0'"),
        ([[0, 1]] * 100_001, "", "is a list of 100,001"),
    ],
)
def test_bad_schedule(schedule, path, words):
    error = refused({"format": 1, "nodes": [{**USERS, "settings": {"schedule": schedule}}]})
    assert error.path == "nodes[0].settings.schedule" + path and words in error.text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("0,1\n1", "line 2 is '1'; allowed is: time in s, rate per s"),
        ("t,rate\n0,1\nx,y", "line 3"),
        ("0,1\n5,1\n4,1", "line 3 is earlier"),
        ("0,-1\n", "line 1 is out of range"),
        ("0,nan\n", "line 1"),
        ("0,1\n" * 100_001, "more than 100,000 lines"),
    ],
)
def test_bad_trace(lines, words):
    error = refused({"format": 1, "nodes": [{**USERS, "settings": {"trace_csv": lines}}]})
    assert error.path == "nodes[0].settings.trace_csv" and words in error.text


@pytest.mark.parametrize("shape", ["schedule", "trace"])
def test_a_shape_needs_its_points(shape):
    assert "is missing" in refused({"format": 1, "nodes": [{**USERS, "settings": {"shape": shape}}]}).text


def test_a_trace_file_lies_beside_the_design(tmp_path):
    file = tmp_path / "design.json"

    def text(name: str) -> str:
        return json.dumps(
            {"format": 1, "nodes": [{**USERS, "settings": {"shape": "trace", "trace_csv": name}}]}
        )

    def line(name: str) -> str:
        file.write_text(text(name))
        with pytest.raises(DesignError) as caught:
            load(file)
        return str(caught.value)

    (tmp_path / "t.csv").write_text("time,rate\n0,5\n10,50\n")
    file.write_text(text("t.csv"))
    assert load(file).node("users").settings["trace_csv"] == "time,rate\n0,5\n10,50\n"
    assert "no such file beside the design" in line("u.csv")
    assert "the name of a .csv file beside the design" in line("../t.csv")
    assert "the name of a .csv file beside the design" in line("/etc/t.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xff")
    assert "no UTF-8 text" in line("b.csv")
    (tmp_path / "secret.csv").write_text("password = 1\nmore\n")
    assert "line 2" in line("secret.csv")
    (tmp_path / "big.csv").write_bytes(b"0,1\n" * 1_300_000)
    assert "allowed are 5,000,000" in line("big.csv")
    with pytest.raises(DesignError, match="no file that another lies beside"):
        loads(text("t.csv"), "json")
