"""The command line: exit codes, what is printed, the JSON, and every kind of bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from engine.cli import main
from engine.cli.report import run_lines, value_text
from engine.cli.text import Paint, count, digits, duration, share, table, width, wrap

ROOT = Path(__file__).resolve().parents[2]
FIRST = "checkpointing-every-step"

DESIGN = """
format = 1
name = "Line\\u001b[31m of 二"
duration_s = 20
warmup_s = 2
[[nodes]]
id = "users"
kind = "api-clients"
settings = { rate = 50, retries = 0 }
[[nodes]]
id = "a-store-with-quite-a-long-name"
kind = "sql-primary"
settings = { slots = 1, queue = 5, cpu_ms = 0, p50_ms = 30, p99_ms = 90 }
[[edges]]
from = "users"
to = "a-store-with-quite-a-long-name"
"""

TOTALS = {
    "offered", "succeeded", "failed", "in_flight", "success_rate", "goodput_rps", "mean_ms", "p50_ms",
    "p95_ms", "p99_ms", "offered_p50_ms", "offered_p95_ms", "offered_p99_ms", "failures", "failures_by_node",
    "lost", "retries",
}  # fmt: skip
NODE = {
    "offered", "succeeded", "failed", "failures", "in_flight", "utilisation", "cpu_utilisation", "queue_mean",
    "queue_max", "wait_mean_ms", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "retries", "crashes", "backlog",
    "backlog_age_s",
}  # fmt: skip


@pytest.fixture
def design(tmp_path):
    path = tmp_path / "line.toml"
    path.write_text(DESIGN, encoding="utf-8")
    return str(path)


def refused(capsys, *argv):
    """The one line that a refused command prints."""
    assert main(list(argv)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("redline: ") and err.count("\n") == 1 and err.endswith("\n") and len(err) < 700
    assert "Traceback" not in err
    return err


def process(*argv, **options):
    """`python main.py …` from another folder."""
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 120} | options
    return subprocess.run([sys.executable, str(ROOT / "main.py"), *argv], **options)


# --- what comes out --------------------------------------------------------------------------------------


def test_run_prints_a_table_that_fits(design, capsys):
    assert main(["run", design]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert all(width(line) <= 80 for line in lines)
    assert "\x1b" not in out
    for word in ("Requests", "Success", "Latency", "Component", "p99", "rejected", "a-store-"):
        assert word in out


def test_run_says_what_is_odd_about_a_design(tmp_path, capsys):
    dead_end = tmp_path / "dead-end.toml"
    dead_end.write_text(DESIGN.partition("[[edges]]")[0], encoding="utf-8")
    assert main(["run", str(dead_end)]) == 0
    out = capsys.readouterr().out
    assert "error     users: " in out and all(width(line) <= 80 for line in out.splitlines())


def test_run_writes_the_json_of_the_format(design, capsys):
    assert main(["run", design, "--seed", "3", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert {
        "format", "name", "seed", "duration_s", "warmup_s", "wall_s", "events", "digest", "totals", "sources",
        "nodes", "cost", "objectives", "passed",
    } <= set(result)  # fmt: skip
    assert result["format"] == 1 and result["seed"] == 3 and result["duration_s"] == 20
    assert TOTALS <= set(result["totals"]) and TOTALS <= set(result["sources"]["users"])
    assert NODE <= set(result["nodes"]["a-store-with-quite-a-long-name"])
    assert {"credits", "run_cost"} <= set(result["cost"])
    totals = result["totals"]
    assert totals["offered"] == totals["succeeded"] + totals["failed"] + totals["in_flight"] > 0


def test_json_to_a_file_leaves_the_table(design, tmp_path, capsys):
    target = tmp_path / "out.json"
    target.write_text("old")
    assert main(["run", design, "--json", str(target)]) == 0
    assert "Component" in capsys.readouterr().out
    assert json.loads(target.read_text())["name"].startswith("Line")


def test_settings_seed_and_end_are_taken(design, capsys):
    def digest(*argv):
        assert main(["run", design, "--json", "-", *argv]) == 0
        return json.loads(capsys.readouterr().out)["digest"]

    plain = digest()
    assert plain == digest() == digest("--seed", "1")
    store = "a-store-with-quite-a-long-name"
    other = {digest("--seed", "2"), digest("--until", "10"), digest("--set", f"{store}.slots=2")}
    assert len(other | {plain}) == 4
    both = digest("--set", f"{store}.slots=2", "--set", f"users->{store}.latency_ms=1")
    assert both not in other
    assert digest("--set", f"{store}.cancel=yes") == digest("--set", f"{store}.cancel=true")


def test_problems_and_components_are_listed(capsys):
    for command, named in (("problems", FIRST), ("components", "app-service")):
        assert main([command]) == 0
        out = capsys.readouterr().out
        assert named in out and all(width(line) <= 80 for line in out.splitlines())
        assert main([command, "--json", "-"]) == 0
        listed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert listed["format"] == 1 and named in {entry["id"] for entry in listed[command]}
    assert "solutions" not in capsys.readouterr().out


def test_check_judges_start_solution_and_trap(capsys):
    from engine.design.files import load_problem

    problem = load_problem(FIRST).problem
    assert main(["check", FIRST, "--seeds", "2"]) == 1
    out = capsys.readouterr().out
    assert "not passed: 0 of 2 seeds" in out and all(width(line) <= 80 for line in out.splitlines())
    name = problem.solutions[0].name
    assert main(["check", FIRST, "--seeds", "2", "--solution", name.upper(), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert {"problem", "design", "seeds", "passed", "stars"} <= set(result)
    assert result["passed"] is True and result["stars"] >= 1
    assert [seed["seed"] for seed in result["seeds"]] == [1, 2]
    assert {"metric", "of", "op", "target", "value", "met"} <= set(result["seeds"][0]["objectives"][0])
    assert main(["check", FIRST, "--seeds", "2", "--trap", problem.traps[0].name]) == 1


def test_check_judges_an_attempt_from_a_file(tmp_path, capsys):
    from engine.design.files import load_problem, save

    start = load_problem(FIRST)
    solved = start.with_change(start.problem.solutions[0])
    attempt = tmp_path / "attempt.redline.json"
    save(solved.replace(attempt=True), attempt)
    assert main(["check", FIRST, "--seeds", "1", "--design", str(attempt)]) == 0
    capsys.readouterr()
    if start.problem.locked:
        locked = start.problem.locked[0]
        setting = next(n for n, s in start.node(locked).kind.settings.items() if s.type == "ms")
        save(solved.with_setting(f"{locked}.{setting}", 12345).replace(attempt=True), attempt)
        assert "locked" in refused(capsys, "check", FIRST, "--design", str(attempt))


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["fly"], "run"),
        (["run"], "FILE"),
        (["run", FIRST, "--sed", "1"], "--sed"),
        (["run", "checkpointing-every-stp"], FIRST),
        (["run", "no/such/file.toml"], "no such file"),
        (["run", "a\0b.toml"], "cannot be read"),
        (["run", "."], "folder"),
        (["run", ""], ""),
        (["run", FIRST, "--seed", "abc"], "whole number"),
        (["run", FIRST, "--seed", "-1"], "between 0"),
        (["run", FIRST, "--seed", "1.5"], "whole number"),
        (["run", FIRST, "--seed", str(2**63)], "between 0"),
        (["run", FIRST, "--seed", "9" * 6000], "whole number"),
        (["run", FIRST, "--until", "soon"], "number"),
        (["run", FIRST, "--until", "0"], "more than 0"),
        (["run", FIRST, "--until", "-3"], "more than 0"),
        (["run", FIRST, "--until", "nan"], "more than 0"),
        (["run", FIRST, "--until", "inf"], "at most"),
        (["run", FIRST, "--until", "1e9"], "at most"),
        (["run", FIRST, "--set", "slots"], "NODE.SETTING=VALUE"),
        (["run", FIRST, "--set", "slots=4"], "NODE.SETTING=VALUE"),
        (["run", FIRST, "--set", "stor.slots=4"], "store"),
        (["run", FIRST, "--set", "store.slotz=4"], "slots"),
        (["run", FIRST, "--set", "store.slots=many"], "whole number"),
        (["run", FIRST, "--set", "store.slots=-4"], "between"),
        (["run", FIRST, "--set", "store.slots=nan"], "whole number"),
        (["run", FIRST, "--set", "store.slots=" + "[" * 5000], "whole number"),
        (["run", FIRST, "--set", "store.slots=1\nother = 2"], "whole number"),
        (["run", FIRST, "--set", "store.slots="], "whole number"),
        (["run", FIRST, "--json", "no/such/folder/x.json"], "folder"),
        (["run", FIRST, "--json", "."], "folder"),
        (["run", FIRST, "--json", ""], "folder"),
        (["run", FIRST, "--json", "a\0b"], "--json"),
        (["run", FIRST, "--json", "x" * 5000], "--json"),
        (["check", "no-such-problem"], "no problem"),
        (["check", FIRST, "--solution", "Hope"], "unknown solution"),
        (["check", FIRST, "--trap", "Hope"], "unknown trap"),
        (["check", FIRST, "--solution", "a", "--trap", "b"], "not allowed"),
        (["check", FIRST, "--seeds", "0"], "seeds"),
        (["check", FIRST, "--seeds", "100000"], "seeds"),
        (["check", FIRST, "--seeds", "x"], "whole number"),
        (["check", FIRST, "--design", "harness-progress-notes"], "belongs to"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(argv, says, capsys):
    assert says in refused(capsys, *argv)


def test_a_design_that_is_no_problem_cannot_be_checked(design, capsys):
    assert "no problem" in refused(capsys, "check", design)


def test_a_broken_file_names_the_value(tmp_path, capsys):
    broken = tmp_path / "broken.toml"
    broken.write_text(DESIGN.replace("slots = 1", "slots = -1"), encoding="utf-8")
    line = refused(capsys, "run", str(broken))
    assert "broken.toml" in line and "nodes[1].settings.slots" in line


def test_an_interrupt_is_130(design, monkeypatch):
    import engine.run.simulation

    def interrupted(*_args, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.run.simulation, "simulate", interrupted)
    assert main(["run", design]) == 130


# --- the process -----------------------------------------------------------------------------------------


def test_the_door(tmp_path):
    shown = process("--help", cwd=tmp_path)
    assert shown.returncode == 0 and "components" in shown.stdout and shown.stderr == ""
    ran = process(cwd=tmp_path)
    assert ran.returncode == 0 and ran.stderr == "" and "objectives met" in ran.stdout


def test_the_wrong_python_is_told_what_to_do(tmp_path):
    # -S: a Python without the installed packages, as the system's is
    command = [sys.executable, "-S", str(ROOT / "main.py"), "problems"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "README.md" in done.stderr


def test_a_closed_pipe_is_no_error(tmp_path):
    command = [sys.executable, str(ROOT / "main.py"), "components", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")
def test_a_full_disk_is_one_line(design):
    with open("/dev/full", "w") as full:
        done = process("run", design, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.startswith("redline: ") and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to another process")
def test_ctrl_c_ends_a_long_run(tmp_path):
    long = tmp_path / "long.toml"
    text = DESIGN.replace("duration_s = 20", "duration_s = 100000").replace("rate = 50", "rate = 5000")
    long.write_text(text, encoding="utf-8")
    command = [sys.executable, str(ROOT / "main.py"), "run", str(long)]
    # A shell that starts something in the background has it ignore SIGINT; children would inherit that.
    hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear) as child:
        time.sleep(2.5)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, b"", b"")


# --- numbers and tables ----------------------------------------------------------------------------------


def test_numbers_have_three_digits_and_a_unit():
    assert [digits(v) for v in (0, 1, 40, 9.5, 0.1, 12345, 99.96, None)] == [
        "0", "1", "40", "9.50", "0.100", "12,300", "100", "-",
    ]  # fmt: skip
    assert [duration(v) for v in (0, 0.085, 12.34, 999.6, 1500, 7.2e6, None)] == [
        "0ms", "85us", "12.3ms", "1.00s", "1.50s", "2h", "-",
    ]  # fmt: skip
    assert [count(v) for v in (0, 1234, 999_999, 12_345_678, 4.56e9)] == [
        "0", "1,234", "999,999", "12.3M", "4.56G",
    ]  # fmt: skip


def test_a_share_below_one_is_never_a_hundred_percent():
    assert [share(v) for v in (0, 0.5, 0.999, 0.9996, 0.9999999, 1)] == [
        "0%", "50%", "99.9%", "99.96%", "99.99%", "100%",
    ]  # fmt: skip


def test_a_missed_value_never_looks_like_its_target():
    assert value_text("success_rate", 0.98999, 0.99) == "98.999%"
    assert value_text("p99_ms", 30_001, 30_000) != value_text("p99_ms", 30_000, 30_000)
    assert value_text("p99_ms", None, 30_000) == "none"


def test_tables_align_and_fit():
    lines = table(("name", "n", "none"), [("二つ", "1", "-"), ("b" * 100, "22", "-")], columns=30)
    assert {width(line) for line in lines} == {30}
    assert "none" not in lines[0]
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("one 1, two 2, three 3", 14, ", ") == ["one 1, two 2,", "three 3"]


def test_colour_only_on_a_terminal(monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Paint(Terminal())("red", "x") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint(Terminal())("red", "x") == "x"


def test_a_run_without_any_request_has_lines():
    nothing = dict.fromkeys(TOTALS) | dict.fromkeys(("offered", "succeeded", "failed", "in_flight"), 0)
    nothing |= {"failures": {}, "failures_by_node": {}, "lost": 0, "retries": 0}
    node = dict.fromkeys(NODE) | {"offered": 0, "succeeded": 0, "failed": 0, "failures": {}, "retries": 0}
    summary = {
        "name": "Nothing", "seed": 1, "duration_s": 1.0, "warmup_s": 0, "events": 0, "wall_s": None,
        "totals": nothing, "sources": {}, "nodes": {"a": node}, "cost": {}, "objectives": [],
    }  # fmt: skip
    assert "Requests  0 offered, 0 succeeded, 0 failed, 0 in flight" in run_lines(summary, Paint())
