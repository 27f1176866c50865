"""The engine beside SimPy and C on the same three workloads."""

import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.study.bench import c_peer, designs

ROUNDS = 3
# Requests per round, so that each engine is measured for some tenths of a second or more.
REQUESTS = {"redline": 5_000_000, "c": 5_000_000, "c_lanes": 5_000_000, "simpy": 40_000}
W3_SHARE = 0.5  # W3 takes more events per request
QUICK_SHARE = 0.2
# By how much the mean wait of all rounds may differ from the closed form, and from another program's: each is
# three to four standard deviations of what these numbers of requests leave to chance (W3 sits at saturation).
THEORY_TOLERANCE = 0.02
PEER_TOLERANCE = 0.08
QUICK_TOLERANCE = 4

Measure = Callable[[str, int, int], dict]


@dataclass(frozen=True)
class Peers:
    """The peers that can be measured here, and for those that cannot, why."""

    measures: dict[str, Measure]
    missing: dict[str, str]

    @classmethod
    def find(cls, folder: Path) -> "Peers":
        """SimPy where it is installed, C where there is a compiler (its programs go into `folder`)."""
        measures: dict[str, Measure] = {}
        missing: dict[str, str] = {}
        if importlib.util.find_spec("simpy") is None:
            missing["simpy"] = "not installed (pip install simpy)"
        else:
            from engine.study.bench import simpy_peer

            measures["simpy"] = simpy_peer.measure
        try:
            programs = c_peer.build(folder)
        except (RuntimeError, OSError) as error:
            missing |= dict.fromkeys(c_peer.BUILDS, str(error))
        else:
            for name, program in programs.items():
                measures[name] = _c_measure(program)
        return cls(measures, missing)


def _c_measure(program: Path) -> Measure:
    return lambda workload, requests, seed: c_peer.measure(program, workload, requests, seed)


def measure_redline(workload: str, requests: int, seed: int) -> dict:
    """One run as `run` makes it, every rule and metric on; only the simulation itself is timed."""
    from engine.design.files import loads
    from engine.run.simulation import Simulation

    simulation = Simulation(
        loads(designs.workload(workload, requests), "toml", workload), seed, history=False
    )
    began = time.process_time()
    simulation.advance(simulation.end_s)
    cpu_s = time.process_time() - began
    summary = simulation.summary()
    gateway, totals = summary["nodes"]["gateway"], summary["totals"]
    return {
        "requests": totals["offered"],
        "cpu_s": cpu_s,
        "wait_ms": gateway["wait_mean_ms"],
        "success": totals["success_rate"],
        "mean_ms": gateway["mean_ms"],
    }


def workload_row(name: str, peers: Peers, quick: bool, tell: Callable[[float | None, str], None]) -> dict:
    """Measure one workload with every engine in turn.

    Keys: `workload`, `name`; `rps` {engine: requests per CPU second}; `times` {peer: how many times its
    speed Redline has}; `missing` {peer: why}; `wait_ms` and `success` {engine: mean over the rounds};
    `expected_ms`, the mean wait it should be, `expected_from` and `agrees`.
    """
    measures = {"redline": measure_redline, **peers.measures}
    measure_redline(name, 1000, 1)  # the kernel is loaded before anything is timed
    rounds = 1 if quick else ROUNDS
    found: dict[str, list[dict]] = {engine: [] for engine in measures}
    for seed in range(1, rounds + 1):
        for engine, measure in measures.items():
            tell(None, f"{name}: {engine}, round {seed} of {rounds}")
            requests = REQUESTS[engine] * (W3_SHARE if name == "W3" else 1) * (QUICK_SHARE if quick else 1)
            found[engine].append(measure(name, int(requests), seed))
    rps = {
        engine: statistics.median(run["requests"] / run["cpu_s"] for run in runs)
        for engine, runs in found.items()
    }
    wait = {engine: statistics.fmean(run["wait_ms"] for run in runs) for engine, runs in found.items()}
    expected, source, tolerance = _expected(name, wait)
    tolerance *= QUICK_TOLERANCE if quick else 1
    return {
        "workload": name,
        "name": designs.NAMES[name],
        "rps": rps,
        "times": {engine: rps["redline"] / value for engine, value in rps.items() if engine != "redline"},
        "missing": peers.missing,
        "wait_ms": wait,
        "success": {
            engine: statistics.fmean(run["success"] for run in runs) for engine, runs in found.items()
        },
        "expected_ms": expected,
        "expected_from": source,
        "agrees": None if expected is None else abs(wait["redline"] / expected - 1) <= tolerance,
    }


def _expected(name: str, wait: dict[str, float]) -> tuple[float | None, str | None, float]:
    """The mean wait that is right: Erlang's formula for W1 and W2; W3 has none, so what the C peer found."""
    if name in designs.SLOTS:
        from engine.study.theory import mmc

        station = mmc(designs.RATES[name], designs.SERVICE_RATE, designs.SLOTS[name])
        return 1e3 * station.wait_s, "theory", THEORY_TOLERANCE
    peer = next((engine for engine in ("c_lanes", "c", "simpy") if engine in wait), None)
    return (wait[peer] if peer else None), peer, PEER_TOLERANCE
