"""Runs for tests: whatever is started here is stopped, and no thread outlives its test."""

import threading

import pytest

from engine import Run
from engine.run.worker import RunState


def threads():
    return [each for each in threading.enumerate() if each.name == "redline-run"]


@pytest.fixture(autouse=True)
def no_leaked_thread():
    assert not threads()
    yield
    assert not threads()


@pytest.fixture
def start():
    """`start(design or Run, …)`: a started run, at full speed, stopped after the test."""
    begun = []

    def begin(made, **arguments) -> Run:
        run = made if isinstance(made, Run) else Run(made, **arguments)
        run.speed = None
        begun.append(run.start())
        return run

    yield begin
    for run in begun:
        run.stop()


@pytest.fixture
def finish():
    """`finish(run)`: plays it to its end."""

    def play(run: Run) -> RunState:
        run.play()
        state = run.wait("finished", "failed")
        assert state.status == "finished", state.failure
        return state

    return play
