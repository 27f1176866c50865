"""The engine against the slow simulator: over many seeds they must give the same means of every figure."""

import pytest

from engine.run.simulation import simulate
from tests.engine.reference import run
from tests.engine.reference.compare import differences, disagreements
from tests.engine.reference.designs import DESIGNS


@pytest.mark.parametrize("name", DESIGNS)
def test_both_simulators_agree(name):
    found = disagreements(run, simulate, DESIGNS[name]())
    assert not found, "\n".join(found)


def test_a_difference_is_seen():
    one, other = DESIGNS["queue with a limit"](), DESIGNS["queue with a limit"](queue=7)
    found = differences(lambda _, seed: run(one, seed), lambda _, seed: run(other, seed), None, (5, 5))
    assert {"nodes.store.queue_max", "nodes.store.queue_mean"} <= set(found)
    assert "totals.offered" not in found
