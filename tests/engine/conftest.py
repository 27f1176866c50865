"""The two simulators every rule is tested on: the slow one of these tests and the engine."""

import pytest

from tests.engine.reference import run
from tests.engine.reference.numbers import Numbers


@pytest.fixture(params=["reference", "engine"])
def lab(request):
    """`lab(design)` runs a design and returns its figures as `Numbers`."""
    if request.param == "reference":
        return lambda design, seed=None: Numbers(run(design, seed))
    from engine.run.simulation import simulate

    return lambda design, seed=None: Numbers(simulate(design, seed))
