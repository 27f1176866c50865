"""Confidence intervals: Student's t against tables and integration, and their coverage of known means."""

import math

import numpy as np
import pytest

from engine.study.intervals import (
    batch_means,
    mean_interval,
    ratio_interval,
    student_t,
    student_t_cdf,
)

near = pytest.approx


@pytest.mark.parametrize(
    ("q", "degrees", "value"),
    [
        (0.995, 1, 63.6567),
        (0.995, 2, 9.92484),
        (0.995, 4, 4.60409),
        (0.995, 9, 3.24984),
        (0.975, 4, 2.77645),
        (0.975, 30, 2.04227),
        (0.95, 7, 1.89458),
        (0.995, 100_000, 2.57586),
        (0.005, 4, -4.60409),
        (0.5, 3, 0.0),
    ],
)
def test_student_t_table(q, degrees, value):
    assert student_t(q, degrees) == near(value, abs=6e-5)


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 25])
def test_student_t_distribution_is_the_integral_of_its_density(degrees):
    x = np.linspace(0, 2.5, 20_001)
    density = (1 + x * x / degrees) ** (-(degrees + 1) / 2)
    density *= math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    assert student_t_cdf(2.5, degrees) == near(0.5 + np.trapezoid(density, x), abs=1e-8)
    assert student_t_cdf(-2.5, degrees) == near(1 - student_t_cdf(2.5, degrees))
    assert student_t_cdf(student_t(0.995, degrees), degrees) == near(0.995, abs=1e-12)


def test_mean_interval():
    ci = mean_interval([10.0, 12.0, 11.0, 13.0, 9.0])
    assert ci.mean == near(11)
    assert ci.half == near(4.60409 * math.sqrt(2.5) / math.sqrt(5), rel=1e-5)
    assert (ci.low, ci.high) == near((11 - ci.half, 11 + ci.half))
    assert ci.agrees(11 + ci.half * 0.99)
    assert not ci.agrees(11 + ci.half * 1.01)
    assert str(ci) == "11 ± 3.3 (99%, 5 values)"


def test_agreement_is_the_wider_of_interval_and_two_percent():
    ci = mean_interval([100.0, 100.0, 100.0])
    assert ci.half == 0
    assert ci.agrees(101.9) and ci.agrees(98.1)
    assert not ci.agrees(103) and not ci.agrees(97)
    assert not ci.agrees(101.9, relative=0.01)


def test_mean_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    samples = rng.exponential(1.0, (3000, 8, 200)).mean(axis=2)
    covered = sum(
        mean_interval(list(row), 0.9).low <= 1 <= mean_interval(list(row), 0.9).high for row in samples
    )
    assert covered / 3000 == near(0.9, abs=0.02)


def test_ratio_interval_covers_a_share_of_unequal_wholes():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(2000):
        wholes = rng.integers(300, 3000, 8)
        ci = ratio_interval(list(rng.binomial(wholes, 0.2)), list(wholes), 0.9)
        covered += ci.low <= 0.2 <= ci.high
    assert covered / 2000 == near(0.9, abs=0.03)
    assert ratio_interval([1, 3], [10, 30]).mean == near(0.1)


def test_batch_means_allow_for_memory():
    # A series in which each value keeps 95 % of the one before: its mean is known to vary far more than s/√n
    rng = np.random.default_rng(3)
    covered = naive = 0
    for _ in range(300):
        noise = rng.standard_normal(20_000)
        series = np.empty_like(noise)
        level = rng.standard_normal() / math.sqrt(1 - 0.95**2)
        for i, x in enumerate(noise):
            level = 0.95 * level + x
            series[i] = level
        ci = batch_means(series.tolist(), 20, 0.9)
        covered += ci.low <= 0 <= ci.high
        naive += abs(series.mean()) <= 1.645 * series.std() / math.sqrt(len(series))
    assert covered / 300 == near(0.9, abs=0.06)
    assert naive / 300 < 0.4


def test_batch_means_drop_the_start():
    assert batch_means([1000.0, 1, 1, 2, 2], 2).mean == near(1.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_interval([1.0]), "an interval needs at least two values, not 1"),
        (lambda: mean_interval([1.0, float("nan")]), "finite"),
        (lambda: mean_interval([1.0, 2.0], 1.0), "the confidence must lie between 0 and 1"),
        (lambda: ratio_interval([1], [1, 2]), "each of the 1 parts needs its whole"),
        (lambda: ratio_interval([0, 0], [0, 0]), "something to be a share of"),
        (lambda: batch_means([1.0] * 10, 1), "at least two batches"),
        (lambda: batch_means([1.0] * 10, 6), "6 batches need at least 12 values, not 10"),
        (lambda: student_t(0.0, 3), "the quantile"),
        (lambda: student_t(0.9, 0), "degrees of freedom"),
    ],
)
def test_bad_input_is_one_clear_line(call, words):
    with pytest.raises(ValueError, match="^[^\n]+$") as caught:
        call()
    assert words in str(caught.value)
