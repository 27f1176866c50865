"""The benchmark: its designs, its peers and its tables."""

import tomllib

import pytest

from engine.cli.bench import engine_lines, workload_lines
from engine.cli.text import Paint, width
from engine.design.files import loads
from engine.study.bench import designs, workloads
from engine.study.theory import mmc


@pytest.mark.parametrize("name", ["W1", "W2", "W3"])
def test_the_workloads_are_designs(name):
    design = loads(designs.workload(name, 1000), "toml", name)
    assert design.duration_s * designs.RATES[name] == pytest.approx(1000)
    assert design.node("users").effective()["retries"] == 0
    assert design.node("gateway").effective()["error_rate"] == 0


def test_the_long_runs_are_designs():
    assert len(loads(designs.twenty_nodes(3600)).nodes) == 20
    assert tomllib.loads(designs.flood(10))["nodes"][0]["settings"]["rate"] == 1_000_000


def test_every_peer_agrees_with_theory_or_says_why_it_is_missing(tmp_path):
    peers = workloads.Peers.find(tmp_path)
    assert set(peers.measures) | set(peers.missing) == {"simpy", "c", "c_lanes"}
    assert not set(peers.measures) & set(peers.missing)
    for name, slots in designs.SLOTS.items():
        expected = 1e3 * mmc(designs.RATES[name], designs.SERVICE_RATE, slots).wait_s
        for engine, measure in peers.measures.items():
            requests = 30_000 if engine == "simpy" else 1_000_000
            run = measure(name, requests, 1)
            assert run["wait_ms"] == pytest.approx(expected, rel=0.5 if engine == "simpy" else 0.1), engine
            assert run["success"] == 1 and run["cpu_s"] > 0
    assert all(peers.missing.values())


def test_the_peers_do_the_same_third_workload(tmp_path):
    peers = workloads.Peers.find(tmp_path)
    runs = {
        engine: measure("W3", 20_000 if engine == "simpy" else 500_000, 1)
        for engine, measure in peers.measures.items()
    }
    for run in runs.values():
        assert run["success"] == pytest.approx(0.99, abs=0.01)
        assert run["mean_ms"] == pytest.approx(109, rel=0.3)


def test_the_tables_fit_with_and_without_peers():
    full = {
        "name": "W3 3 tiers",
        "rps": {"redline": 1.69e6, "simpy": 25_300.0, "c": 2.16e6, "c_lanes": 3.75e6},
        "times": {"simpy": 66.8, "c": 0.782, "c_lanes": 0.451},
        "wait_ms": {"redline": 46.99},
        "expected_ms": 47.1,
        "agrees": True,
        "missing": {},
    }
    alone = full | {
        "rps": {"redline": 1.69e6},
        "times": {},
        "expected_ms": None,
        "agrees": None,
        "missing": {"simpy": "not installed (pip install simpy)", "c": "no C compiler (gcc or cc)"},
    }
    for row, words in ((full, ("66.8x", "0.45x", "agrees")), (alone, ("1.69M", "pip install simpy"))):
        lines = workload_lines([row], Paint(), 80)
        assert all(width(line) <= 80 for line in lines)
        assert all(word in "\n".join(lines) for word in words)
    rows = [
        {"row": "first compile", "measured": {"wall_s": 31.2}, "bound": {"wall_s": 40.0}, "met": True},
        {
            "row": "20 components, 1,000/s for 3600 s",
            "measured": {"wall_s": 12.3, "events_per_s": 9.1e6, "peak_mb": 412.0, "events": 100},
            "bound": {"peak_mb": 350.0},
            "met": False,
        },
        {"row": "flood", "measured": {"wall_s": 3.0, "peak_mb": None}, "bound": {}, "met": None},
    ]
    lines = engine_lines(rows, Paint(), 80)
    assert all(width(line) <= 80 for line in lines)
    assert "31.2s" in lines[1] and "met" in lines[1] and "missed" in lines[2] and "350MB" in lines[2]
