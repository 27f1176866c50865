"""How far a run may go next: plain arithmetic on given wall times."""

import math

import pytest

from engine.run.pace import CHUNK_S, SLACK_S, Meter, Pace


class TestPace:
    def test_simulated_time_follows_the_wall(self):
        pace = Pace(16)
        assert pace.due(3.0, 100.0) == 3.0
        assert pace.due(3.0, 100.05) == pytest.approx(3.8)
        assert pace.due(3.8, 101.0 - 0.95 + 0.01) == pytest.approx(3.96)
        assert pace.late_at == -math.inf

    def test_as_fast_as_it_goes(self):
        assert Pace(math.inf).due(3.0, 100.0) == math.inf

    def test_what_cannot_be_caught_up_is_let_go_of(self):
        pace = Pace(10)
        pace.due(0.0, 50.0)
        assert pace.due(0.0, 60.0) == pytest.approx(SLACK_S * 10)
        assert pace.late_at == 60.0
        assert pace.due(1.0, 60.05) == pytest.approx(1.5)

    def test_a_rest_is_no_delay(self):
        pace = Pace(1)
        pace.due(0.0, 10.0)
        pace.rest()
        assert pace.due(5.0, 99.0) == 5.0 and pace.late_at == -math.inf

    def test_pieces_grow_and_shrink_towards_their_time(self):
        pace = Pace()
        for _ in range(40):
            pace.took(pace.chunk * 1e-6, full=True)
        assert pace.chunk * 1e-6 == pytest.approx(CHUNK_S, rel=0.01)
        for _ in range(40):
            pace.took(pace.chunk * 1e-4, full=True)
        assert pace.chunk == 64
        pace.took(0.0, full=False)
        assert pace.chunk == 64
        for _ in range(40):
            pace.took(0.0, full=True)
        assert 64 < pace.chunk <= 20_000_000


class TestMeter:
    def test_nothing_can_be_said_at_first(self):
        meter = Meter()
        assert meter.rates() == (None, None)
        meter.mark(1.0, 0.0, 0)
        assert meter.rates() == (None, None)

    def test_over_the_last_second(self):
        meter = Meter()
        for k in range(1, 401):
            wall = 0.01 * k
            meter.mark(wall, 3 * wall if wall <= 2 else 6 + 8 * (wall - 2), 100 * k)
        simulated, events = meter.rates()
        assert simulated == pytest.approx(8) and events == pytest.approx(10_000)
        assert len(meter._marks) < 100
        meter.clear()
        assert meter.rates() == (None, None)
