"""The numbers that engine/README.md quotes are the engine's."""

import re
from pathlib import Path

import numpy as np
import pytest

from engine.program import layout as L
from engine.run.simulation import Simulation
from tests.engine.reference.build import design, edge, fault, node, source

TEXT = (Path(__file__).parents[2] / "engine" / "README.md").read_text("utf-8")
FOLLOWED = 2  # the third request


@pytest.fixture
def run():
    nodes = [
        source(shape="herd", count=4, at_s=0, spread_s=0),
        node("api", slots=2, queue=10, vcpu=1, cpu_ms=20, ms=50, retries=1, backoff_ms=100),
        node("db", ms=10),
    ]
    edges = [edge("users->api", latency_ms=5), edge("api->db", latency_ms=2)]
    return Simulation(design(nodes, edges, [fault("outage", 0.15, 0.05, "db")], duration=1))


def life(run: Simulation) -> list[tuple[int, int]]:
    """The states that the followed call goes through, with the times (ms) at which it enters them; a state
    of an attempt it has made at the database as 100 more.
    """
    found: list[tuple[int, int]] = []
    before = None
    for half_ms in range(600):
        run.advance(half_ms / 2e3)
        calls = run.state.call[: int(run.state.sim[0]["calls_high"])]
        roots = np.flatnonzero((calls["parent"] == -2) & (calls["state"] != L.S_FREE))
        if before is None:
            request = int(roots[FOLLOWED])
        mine = int(calls[request]["kid_head"]) if request in roots else -1
        kid = int(calls[mine]["kid_head"]) if mine >= 0 else -1
        state = 0 if mine < 0 else int(calls[mine]["state"] if kid < 0 else 100 + calls[kid]["state"])
        if state != before:
            found.append((round(half_ms / 2), state))
        before = state
    return found


def test_the_life_of_one_call(run):
    steps = [
        (0, L.S_TRAVEL),
        (5, L.S_WAITING),
        (89, L.S_CPU),
        (129, L.S_WORK),
        (159, 100 + L.S_TRAVEL),
        (161, 100 + L.S_ANSWER),
        (163, 100 + L.S_BACKOFF),
        (263, 100 + L.S_TRAVEL),
        (265, 100 + L.S_WORK),
        (275, 100 + L.S_ANSWER),
        (277, L.S_ANSWER),
        (282, 0),
    ]
    assert life(run) == steps
    table = TEXT[TEXT.index("| at | what happens") :]
    table = table[: table.index("\n\n")]
    quoted = [int(t) for t in re.findall(r"^\| (\d+) ms", table, re.M)]
    assert set(quoted) == {t for t, _ in steps} - {265, 275}
    assert "arrives at 265" in table and "back at 277" in table
    total, parts = re.search(r"So (\d+) = ([\d +()]+?)\.", TEXT).groups()
    assert int(total) == sum(map(int, re.findall(r"\d+", parts))) == 282


def test_what_is_measured(run):
    run.advance(run.end_s)
    result = run.summary()
    totals, api, db = result["totals"], result["nodes"]["api"], result["nodes"]["db"]
    table = TEXT[TEXT.index("What is measured in this run") :]
    table = table[: table.index("**Giving up.**")]
    for words in (
        f"{totals['offered']} offered, {totals['succeeded']} succeeded, mean {totals['mean_ms']:.0f} ms",
        f"p50 {totals['p50_ms']:.1f} and p99 {totals['p99_ms']:.1f} ms",
        f"mean wait {api['wait_mean_ms']:.0f} ms, mean sojourn {api['mean_ms']:.0f} ms",
        f"longest queue {api['queue_max']}, mean queue {api['queue_mean']:.3f}",
        f"utilisation {api['utilisation']:.3f}, CPU {api['cpu_utilisation']:.2f}, {api['retries']} retries",
        f"{db['offered']} offered, {db['failures']['unavailable']} failed (`unavailable`)",
        f"{db['succeeded']} succeeded, {db['crashes']} crash",
    ):
        assert words in table
    assert totals["mean_ms"] == pytest.approx((94 + 94 + 282 + 282) / 4)
    assert api["utilisation"] == pytest.approx((84 + 84 + 188 + 188) / 2000)
    assert "(84 + 84 + 188 + 188) ms" in table and "(94, 94, 282, 282)" in table


def test_the_limits_that_are_quoted():
    from engine.program.lower import MAX_BURST, MAX_LANES
    from engine.program.state import MAX_CALLS, MAX_EVENTS

    for number in (MAX_CALLS, MAX_EVENTS, MAX_BURST, L.STUCK):
        assert f"{number:,}" in TEXT
    assert f"At most {MAX_LANES} delays" in TEXT
    assert len(TEXT.splitlines()) < 450
