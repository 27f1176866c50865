"""Reading and writing: what is written reads back equal, and an attempt stays tied to its problem."""

import json
import os
import stat
import time
import tomllib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.design import (
    FAULTS,
    Change,
    Design,
    DesignError,
    Edge,
    Fault,
    Node,
    catalogue,
    dumps,
    files,
    load,
    load_problem,
    loads,
    new_node,
    problems,
    save,
    toml,
)
from engine.design.settings import EDGE
from engine.design.trace import read_trace

KINDS = catalogue()
IDS = [info.id for info in problems()]

# --- random designs over every kind, setting and fault


def value_of(setting) -> st.SearchStrategy:
    if setting.type == "count":
        return st.integers(int(setting.low), int(min(setting.high, 10_000)))
    if setting.numeric:
        return st.floats(setting.low, min(setting.high, 1e4), allow_nan=False)
    return {
        "flag": st.booleans(),
        "choice": st.sampled_from(setting.choices or ("",)),
        "limits": st.integers(0, 100) | st.lists(st.integers(0, 100), min_size=1, max_size=4),
        "points": st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=3).map(
            lambda points: [list(point) for point in sorted(points)]
        ),
        "text": st.sampled_from(["0,1\n2,3", "t,rate\n0,1.5\n"]),
    }[setting.type]


@st.composite
def some_settings(draw, table) -> dict:
    names = sorted(name for name, setting in table.items() if setting.type != "id")
    chosen = draw(st.lists(st.sampled_from(names), max_size=5, unique=True))
    return {name: draw(value_of(table[name])) for name in chosen}


@st.composite
def designs(draw) -> Design:
    nodes = []
    for index in range(draw(st.integers(0, 5))):
        kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        label = draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
        x, y = draw(st.floats(-1e4, 1e4)), draw(st.integers(-100, 100))
        try:
            nodes.append(Node.make(f"n{index}", kind, label, x, y, draw(some_settings(kind.settings))))
        except DesignError:
            assume(False)
    serving = [node.id for node in nodes if not node.is_source]
    edges = []
    if serving:
        for index in range(draw(st.integers(0, 6))):
            settings = draw(some_settings(EDGE)) | {"checkpoint": False, "dead_letter": False}
            source, target = draw(st.sampled_from([n.id for n in nodes])), draw(st.sampled_from(serving))
            edges.append(Edge.make(source, target, f"e{index}", settings))
    faults = [
        Fault.make(
            draw(st.sampled_from(["outage", "errors"])), node=id, at_s=draw(st.floats(0, 9)), duration_s=1
        )
        for id in serving[: draw(st.integers(0, 2))]
    ]
    name, seed = draw(st.text(max_size=5)), draw(st.integers(0, 2**63 - 1))
    try:
        return Design(name, seed, 50, nodes=nodes, edges=edges, faults=faults)
    except DesignError:
        assume(False)


@pytest.mark.parametrize("fmt", ["toml", "json"])
@given(design=designs())
def test_what_is_written_reads_back_equal(fmt, design):
    text = dumps(design, fmt)
    again = loads(text, fmt)
    assert again == design and dumps(again, fmt) == text
    assert [node.effective() for node in again.nodes] == [node.effective() for node in design.nodes]
    assert [edge.effective() for edge in again.edges] == [edge.effective() for edge in design.edges]


@pytest.mark.parametrize("fmt", ["toml", "json"])
@pytest.mark.parametrize("id", IDS)
def test_a_problem_reads_back_equal(id, fmt):
    start = load(id)
    assert loads(dumps(start, fmt), fmt) == start
    attempt = start.replace(attempt=True)
    assert loads(dumps(attempt, fmt), fmt) == attempt
    assert attempt != start


TEXTS = [
    "", "plain", 'say "yes"', '"', '""', '"""', '""""""', "'''", "\\", "\\n", "\\\\n", "a\nb", "\n", '\n\n"',
    'x\n"""y', '"\n"', "tab\there", "cr\rlf\r\n", "\x00\x7f\x1b", "é ключ 漢字 🙂", "\u2028 \x85",
    "# no comment", "a\\\nb", " \n ",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_text_of_any_kind_survives(text):
    table = {"format": 1, "nodes": [{"id": "a", "kind": "app-service", "label": text}]}
    problem = {"id": "p", "category": "c", "brief": text, "hints": [text, "x"],
               "objectives": [{"metric": "failed", "op": "<", "target": 3}]}  # fmt: skip
    design = loads(json.dumps({**table, "problem": problem}), "json")
    assert design.problem.brief == text and design.problem.hints == (text, "x")
    for fmt in ("toml", "json"):
        assert loads(dumps(design, fmt), fmt) == design


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_every_text_survives_toml(text):
    assert tomllib.loads(toml.dumps({"a": text, text or "k": [text], "settings": {"x": text}}))["a"] == text


# --- what is written


def table_of(design: Design) -> dict:
    return json.loads(dumps(design, "json"))


def test_only_what_differs_from_the_catalogue_is_written():
    store = KINDS["checkpoint-store"]
    design = loads("""
format = 1
[[nodes]]
id = "store"
kind = "checkpoint-store"
label = "Checkpoint store"
settings = { slots = 10, queue = 100.0, p50_ms = 51, retries = 0 }
[[nodes]]
id = "users"
kind = "api-clients"
[[edges]]
from = "users"
to = "store"
settings = { calls = 1.0, order = 0, weight = 2 }
""")
    assert store.values["slots"] == 10
    assert design.node("store").settings == {"p50_ms": 51.0}
    table = table_of(design)
    assert table["nodes"][0] == {
        "id": "store",
        "kind": "checkpoint-store",
        "x": 0,
        "y": 0,
        "settings": {"p50_ms": 51},
    }
    assert table["edges"] == [{"from": "users", "to": "store", "settings": {"weight": 2}}]
    assert "faults" not in table and "problem" not in table


def test_whole_numbers_may_be_written_with_a_point():
    design = loads(
        'format = 1\n[[nodes]]\nid = "a"\nkind = "app-service"\nsettings = { slots = 3.0, p50_ms = 7 }'
    )
    slots, p50 = design.node("a").settings["slots"], design.node("a").settings["p50_ms"]
    assert (slots, type(slots)) == (3, int) and (p50, type(p50)) == (7.0, float)


def test_the_two_encodings_say_the_same():
    text = """
format = 1
name = "Two tiers"
seed = 4
duration_s = 30.5
[[nodes]]
id = "users"
kind = "api-clients"
settings = { shape = "schedule", schedule = [[0, 5], [10, 50.5]] }
[[nodes]]
id = "shed"
kind = "load-shedder"
x = -1.5
settings = { max_in_flight = [80, 40] }
[[edges]]
id = "way"
from = "users"
to = "shed"
[[faults]]
at_s = 1
duration_s = 2
edge = "way"
kind = "latency"
amount = 20
"""
    design = loads(text)
    assert loads(json.dumps(tomllib.loads(text)), "json") == design
    assert design.node("shed").settings == {"max_in_flight": [80, 40]}
    assert design.edge("way").target == "shed"
    assert design.faults == [Fault(1.0, 2.0, None, "way", "latency", 20.0)]
    assert (design.name, design.seed, design.duration_s, design.warmup_s) == ("Two tiers", 4, 30.5, 0.0)


def test_a_design_without_a_name_is_called_after_its_file(tmp_path):
    path = tmp_path / "my lab.redline.json"
    path.write_text('{"format": 1}')
    assert load(path).name == "my lab"
    assert load(path).nodes == []


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_can_be_written(kind):
    about = FAULTS[kind]
    at = {"cold_cache": "cache", "traffic": "users"}.get(kind, "cache")
    target = {"edge": "users->cache"} if about.on == "edge" else {"node": at}
    nodes = [Node.make("users", KINDS["api-clients"]), Node.make("cache", KINDS["memory-cache"])]
    fault = Fault.make(kind, **target, at_s=3, duration_s=4, amount=1)
    design = Design("x", nodes=nodes, edges=[Edge.make("users", "cache")], faults=[fault])
    assert loads(dumps(design)) == design
    assert table_of(design)["faults"] == [{"at_s": 3, "duration_s": 4, **target, "kind": kind, "amount": 1}]


def test_a_crash_without_a_duration_lasts_the_restart():
    text = """
format = 1
nodes = [{ id = "a", kind = "app-service" }]
faults = [{ at_s = 1, node = "a", kind = "crash", amount = 2 }]
"""
    assert loads(text).faults == [Fault(1.0, 0.0, "a", None, "crash", 2.0)]


def test_older_formats_are_brought_up_to_date(monkeypatch):
    def renamed(raw: dict) -> dict:
        return {("name" if key == "title" else key): value for key, value in raw.items()}

    monkeypatch.setattr(files, "FORMAT", 2)
    monkeypatch.setattr(files, "MIGRATIONS", {1: renamed})
    assert loads('format = 1\ntitle = "old"').name == "old"
    assert loads('format = 2\nname = "new"').name == "new"
    with pytest.raises(DesignError, match="format: is 3, newer than this version of Redline can read"):
        loads("format = 3")


def test_a_trace_has_one_heading_and_any_separator():
    assert read_trace("t;rate\n# night\n\n0;1\n5\t2.5\n5,3\n") == ((0.0, 1.0), (5.0, 2.5), (5.0, 3.0))


# --- saving


def test_save_replaces_whole_files(tmp_path):
    path = tmp_path / "mine.redline.json"
    design = load(IDS[0])
    save(design, path)
    assert load(path) == design
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    path.chmod(0o640)
    save(design.replace(seed=9), path)
    assert load(path).seed == 9 and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == [path.name]
    link = tmp_path / "link.json"
    link.symlink_to(path)
    save(design.replace(seed=10), link)
    assert link.is_symlink() and load(path).seed == 10
    save(design, tmp_path / "mine.toml")
    assert load(tmp_path / "mine.toml") == design


def test_a_new_file_is_as_open_as_any(tmp_path):
    (tmp_path / "any").touch()
    save(load(IDS[0]), tmp_path / "mine.json")
    assert (tmp_path / "mine.json").stat().st_mode == (tmp_path / "any").stat().st_mode


# --- problems and attempts


def test_problems_are_listed_in_order():
    found = problems()
    assert found == sorted(found, key=lambda info: (info.category, info.level, info.id))
    first = next(info for info in found if info.id == "checkpointing-every-step")
    assert (first.title, first.category) == ("Checkpointing every step", "agents")
    assert first.path.stem == first.id and load(first.id) == load(first.path)


def test_a_broken_problem_does_not_hide_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PROBLEMS_FOLDER", tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "bad.toml").write_text("format = 1\nx = 1")
    (tmp_path / "agents" / "wrong-name.toml").write_text(PROBLEM)
    (tmp_path / "agents" / "mine.toml").write_text(PROBLEM)
    refused = []
    assert [info.id for info in problems(refused.append)] == ["mine"]
    assert ["bad.toml: x: unknown key" in str(e) for e in refused] == [True, False]
    assert "wrong-name.toml: problem.id: is not 'wrong-name'" in str(refused[1])
    with pytest.raises(DesignError, match="bad.toml"):
        problems()


PROBLEM = """
format = 1
name = "Mine"
duration_s = 40
warmup_s = 5
nodes = [
  { id = "users", kind = "api-clients" },
  { id = "a", kind = "app-service", settings = { slots = 4 } },
  { id = "b", kind = "memory-cache" },
]
edges = [{ from = "users", to = "a" }, { from = "a", to = "b" }]
faults = [{ at_s = 1, duration_s = 2, node = "b", kind = "cold_cache" }]

[problem]
id = "mine"
category = "agents"
palette = ["memory-cache"]
locked = ["users"]
objectives = [{ metric = "success_rate", op = ">=", target = 0.9, of = "users" }]
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(PROBLEM)
    return load(path)


def test_a_saved_attempt_keeps_its_problem(tmp_path):
    start = load_problem("checkpointing-every-step")
    attempt = start.replace(attempt=True, name="try", seed=5).with_setting("store.slots", 12)
    path = tmp_path / "try.redline.json"
    save(attempt, path)
    assert json.loads(path.read_text())["problem"] == "checkpointing-every-step"
    assert {"faults", "duration_s"}.isdisjoint(json.loads(path.read_text()))
    again = load(path)
    assert again == attempt and again.attempt and again.problem == start.problem
    assert (again.duration_s, again.drain_s, again.seed) == (start.duration_s, start.drain_s, 5)


def test_an_attempt_on_a_file_elsewhere_names_that_file(tmp_path, mine):
    attempt = mine.replace(attempt=True).with_setting("a.slots", 9)
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "try.redline.json"
    save(attempt, path)
    assert json.loads(path.read_text())["problem"] == "../mine.toml"
    assert load(path) == attempt
    assert loads(dumps(attempt)) == attempt
    (tmp_path / "mine.toml").write_text('format = 1\nproblem = "mine.toml"')
    with pytest.raises(DesignError, match="mine.toml: holds no problem"):
        load(path)
    with pytest.raises(DesignError, match="mine.toml: holds no problem"):
        load(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").unlink()
    with pytest.raises(DesignError, match="mine.toml: there is no such file"):
        load(path)


def test_the_rest_of_an_attempt_is_the_problem_s(mine):
    attempt = mine.replace(attempt=True)
    table = table_of(attempt)
    for said in ({"duration_s": 40, "warmup_s": 5.0}, {"drain_s": 0}, {"faults": table_of(mine)["faults"]}):
        assert loads(json.dumps({**table, **said}), "json") == attempt
    for said in ({"duration_s": 20}, {"warmup_s": 6}, {"faults": []}, {"duration_s": "x"}):
        with pytest.raises(DesignError) as caught:
            loads(json.dumps({**table, **said}), "json")
        assert caught.value.path in said


def test_faults_of_an_attempt_follow_what_is_there(mine):
    attempt = mine.replace(attempt=True)
    without = attempt.with_change(Change("", remove=["b"]))
    assert without.faults == [] and loads(dumps(without)) == without
    other = without.with_change(Change("", add_nodes=[new_node("app-service", "b")]))
    assert other.faults == []
    back = without.with_change(Change("", add_nodes=[new_node("memory-cache", "b")]))
    assert back.faults == mine.faults
    # In a plain design a removed node takes its faults along for good.
    assert mine.with_change(Change("", remove=["b"])).faults == []


# --- speed


@pytest.mark.parametrize("fmt", ["toml", "json"])
def test_a_thousand_nodes_load_at_once(fmt):
    nodes = [Node.make("users", KINDS["api-clients"])]
    nodes += [Node.make(f"n{i}", KINDS["app-service"], settings={"slots": i}) for i in range(1, 1000)]
    edges = [Edge.make(nodes[(i - 1) // 3].id, nodes[i].id, settings={"calls": 0.5}) for i in range(1, 1000)]
    text = dumps(Design("big", nodes=nodes, edges=edges), fmt)
    began = time.perf_counter()
    design = loads(text, fmt)
    assert time.perf_counter() - began < 0.6
    began = time.perf_counter()
    assert design.with_setting("n7.slots", 3).node("n7").settings == {"slots": 3}
    assert time.perf_counter() - began < 0.2
