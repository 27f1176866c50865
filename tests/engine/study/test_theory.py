"""Each closed form against the published number and against a second way of computing it."""

import itertools
import math

import numpy as np
import pytest

from engine.study import theory as th

near = pytest.approx


def steady(rates: np.ndarray) -> np.ndarray:
    """The steady state of a Markov chain in continuous time; rates[i, j] is the rate from state i to j."""
    q = rates - np.diag(rates.sum(axis=1))
    system = np.vstack((q.T, np.ones(len(q))))
    return np.linalg.lstsq(system, np.concatenate((np.zeros(len(q)), [1.0])), rcond=None)[0]


def birth_death(births, deaths) -> np.ndarray:
    return steady(np.diag(np.asarray(births, float), 1) + np.diag(np.asarray(deaths, float), -1))


def station(rate, mu, slots, size) -> np.ndarray:
    """P(n inside) of M/M/slots with at most `size` inside."""
    return birth_death([rate] * size, [mu * min(n, slots) for n in range(1, size + 1)])


def mean_of(p) -> float:
    return float(np.dot(np.arange(len(p)), p))


def erlang_tail(stages, rate, t) -> float:
    return sum(math.exp(-rate * t) * (rate * t) ** k / math.factorial(k) for k in range(stages))


def departures(law_tail, rate, size, end) -> np.ndarray:
    """P(n inside) of M/G/1 from its chain at departures, the service law given by its tail, cut at `end`."""
    s = np.linspace(0, end, 40_001)
    mass = -np.diff([law_tail(x) for x in s])
    middle = 0.5 * (s[1:] + s[:-1])
    arrive = [float(np.dot(mass, np.exp(-rate * middle)))]
    weight = np.exp(-rate * middle)
    for k in range(1, size):
        weight = weight * rate * middle / k
        arrive.append(float(np.dot(mass, weight)))
    chain = np.zeros((size, size))
    for i in range(size):
        for j in range(max(i - 1, 0), size):
            chain[i, j] = arrive[j - max(i - 1, 0)]
    chain /= chain.sum(axis=1, keepdims=True)
    return steady(chain - np.diag(np.diag(chain)))


def test_mm1():
    q = th.mm1(8, 10)
    assert (q.utilisation, q.sojourn_s, q.wait_s, q.in_system, q.waiting) == near((0.8, 0.5, 0.4, 4.0, 3.2))
    assert q.sojourn_quantile_s(0.95) == near(1.49787, rel=1e-5)
    assert q.sojourn_quantile_s(0.99) == near(2.30259, rel=1e-5)
    p = station(8, 10, 1, 250)
    assert q.in_system == near(mean_of(p), rel=1e-9)
    assert q.sojourn_s == near(mean_of(p) / 8, rel=1e-9)
    assert q.sojourn_tail(0.3) == near(sum(p[n] * erlang_tail(n + 1, 10, 0.3) for n in range(150)), rel=1e-9)
    assert q.wait_tail(0.3) == near(sum(p[n] * erlang_tail(n, 10, 0.3) for n in range(150)), rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "mu", "slots"), [(180, 20, 10), (1.2, 1, 3), (0.5, 1, 1), (22, 1, 23), (1, 1, 2)]
)
def test_mmc(rate, mu, slots):
    q = th.mmc(rate, mu, slots)
    p = station(rate, mu, slots, 700)
    assert q.in_system == near(mean_of(p), rel=1e-6)
    assert q.wait_share == near(p[slots:].sum(), rel=1e-8)
    assert q.wait_s == near(sum((n - slots) * p[n] for n in range(slots, 701)) / rate, rel=1e-6)
    assert q.utilisation == near(sum(min(n, slots) * p[n] for n in range(701)) / slots, rel=1e-8)
    t = 1.3 / (slots * mu)
    waits = [p[n] * erlang_tail(n - slots + 1, slots * mu, t) for n in range(slots, slots + 150)]
    assert q.wait_tail(t) == near(sum(waits) + p[slots + 150 :].sum(), rel=1e-6)
    # The sojourn is the wait (an atom at 0, then exponential) convolved with the service, integrated
    # numerically
    t = 2 / mu
    x = np.linspace(0, t, 20_001)
    spare = slots * mu - rate
    f = q.wait_share * spare * np.exp(-spare * x) * np.exp(-mu * (t - x))
    both = (1 - q.wait_share) * math.exp(-mu * t) + np.trapezoid(f, x) + q.wait_share * math.exp(-spare * t)
    assert q.sojourn_tail(t) == near(both, rel=1e-6)
    assert q.sojourn_tail(q.sojourn_quantile_s(0.99)) == near(0.01, rel=1e-9)


def test_mmc_published():
    q = th.mmc(180, 20, 10)
    assert th.erlang_c(10, 9) == q.wait_share == near(0.668732, rel=1e-5)
    assert (q.wait_s, q.sojourn_s) == near((0.0334366, 0.0834366), rel=1e-5)
    assert q.wait_tail(0.1) == near(0.090503, rel=1e-5)
    assert q.wait_quantile_s(0.2) == 0 < q.wait_quantile_s(0.5)


def test_mmc_of_one_slot_is_mm1():
    one, many = th.mm1(8, 10), th.mmc(8, 10, 1)
    assert many.sojourn_s == near(one.sojourn_s)
    assert many.sojourn_quantile_s(0.95) == near(one.sojourn_quantile_s(0.95), rel=1e-9)


def test_mmck():
    q = th.mmck(45, 10, 4, 6)
    assert (q.loss, q.throughput) == near((0.168254, 37.4286), rel=1e-5)
    assert (q.in_system, q.sojourn_s) == near((6.6899, 0.178738), rel=1e-5)
    p = station(45, 10, 4, 10)
    assert q.probabilities == near(p, abs=1e-12)
    assert q.in_system == near(mean_of(p))
    assert q.wait_s == near(q.sojourn_s - 0.1)
    assert th.mmck(9, 1, 10, 0).wait_s == 0
    assert th.mmck(1e4, 1, 3000, 2000).loss == near(0.7, abs=1e-3)


def test_erlang_b():
    assert th.erlang_b(10, 9) == near(0.167963, rel=1e-5)
    assert th.erlang_b(10, 9) == near(th.mmck(9, 1, 10, 0).loss)
    terms = [9.0**k / math.factorial(k) for k in range(11)]
    assert th.erlang_b(10, 9) == near(terms[-1] / sum(terms))
    assert th.erlang_b(0, 3) == 1
    # Insensitive: services of two exponential stages, state (in stage 1, in stage 2)
    slots, rate, mu = 4, 3.0, 2.0
    states = [(i, j) for i in range(slots + 1) for j in range(slots + 1 - i)]
    at = {s: k for k, s in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for (i, j), k in at.items():
        if i + j < slots:
            rates[k, at[i + 1, j]] += rate
        if i:
            rates[k, at[i - 1, j + 1]] += mu * i
        if j:
            rates[k, at[i, j - 1]] += mu * j
    p = steady(rates)
    full = sum(p[k] for s, k in at.items() if sum(s) == slots)
    assert th.erlang_b(slots, rate * 2 / mu) == near(full)


def test_pollaczek_khinchine():
    law = th.Lognormal(0.08, 0.4)
    q = th.mg1(6, law.mean_s, law.cv2)
    assert (law.mean_s, law.cv2, q.utilisation) == near((0.10163, 0.613861, 0.609781), rel=1e-5)
    assert (q.wait_s, q.sojourn_s) == near((0.128152, 0.229782), rel=1e-5)
    p = departures(law.tail, 6, 120, 6.0)
    assert q.in_system == near(mean_of(p), rel=1e-3)
    assert th.mg1(8, 0.1, 1).sojourn_s == near(th.mm1(8, 10).sojourn_s)
    assert th.mg1(8, 0.1, 0).wait_s == near(th.mm1(8, 10).wait_s / 2)


@pytest.mark.parametrize(("rate", "slots"), [(0.8, 1), (1.5, 2), (9, 10), (5.5, 7)])
def test_constant_service(rate, slots):
    # Seen every service time: those in service have left, Poisson many have come
    size = 160
    a = np.array([math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(size)])
    chain = np.zeros((size, size))
    for i in range(size):
        left = max(i - slots, 0)
        chain[i, left:] = a[: size - left]
    p = steady(chain - np.diag(np.diag(chain)))
    assert th.mdc_wait_s(rate, 1.0, slots) == near(mean_of(p) / rate - 1, rel=1e-4)
    if slots == 1:
        assert th.mdc_wait_s(rate, 1.0, 1) == near(th.mg1(rate, 1.0, 0).wait_s)


@pytest.mark.parametrize("cores", [1, 2, 1.5, 0.5])
def test_processor_sharing_is_insensitive(cores):
    # Work of two kinds (exponential, 70 % short and 30 % long): state (short ones, long ones)
    chance, mu = (0.7, 0.3), (4.0, 0.8)
    work = sum(c / m for c, m in zip(chance, mu, strict=True))
    rate, size = 0.6 * cores / work, 48
    states = [(i, j) for i in range(size) for j in range(size - i)]
    at = {s: k for k, s in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for (i, j), k in at.items():
        speed = min(1, cores / (i + j)) if i + j else 0
        if i + j < size - 1:
            rates[k, at[i + 1, j]] += rate * chance[0]
            rates[k, at[i, j + 1]] += rate * chance[1]
        if i:
            rates[k, at[i - 1, j]] += mu[0] * i * speed
        if j:
            rates[k, at[i, j - 1]] += mu[1] * j * speed
    q = rates - np.diag(rates.sum(axis=1))
    q[:, 0] = 1.0  # in place of one redundant balance equation
    p = np.linalg.solve(q.T, np.eye(len(q))[0])
    inside = sum(p[k] * sum(s) for s, k in at.items())
    shared = th.processor_sharing(rate, work, cores)
    assert shared.in_system == near(inside, rel=1e-6)
    assert shared.sojourn_s == near(inside / rate, rel=1e-6)


def test_processor_sharing_has_the_law_of_mmc():
    assert th.processor_sharing(8, 0.1).sojourn_s == near(0.1 / (1 - 0.8))
    assert th.processor_sharing(180, 0.05, 10).sojourn_s == near(th.mmc(180, 20, 10).sojourn_s)
    assert th.processor_sharing(2900, 1, 3000).in_system == near(th.mmc(2900, 1, 3000).in_system)


def test_little():
    assert th.little(10.5, 23.4) == near(245.7)
    assert th.little(180, th.mmc(180, 20, 10).sojourn_s) == near(mean_of(station(180, 20, 10, 700)), rel=1e-6)


def test_retry_amplification():
    assert th.attempts(0.5, 3) == near(1.875)
    assert th.final_failure(0.5, 3) == near(0.0625)
    assert th.attempts(0.5, None) == near(2)
    assert th.attempts(1, 3) == near(4)
    assert th.layered_attempts(3, 5) == 243
    # Every outcome of four attempts one by one
    p, used, failed = 0.3, 0.0, 0.0
    for outcome in itertools.product((True, False), repeat=4):
        chance = math.prod(p if bad else 1 - p for bad in outcome)
        used += chance * next((k + 1 for k, bad in enumerate(outcome) if not bad), 4)
        failed += chance * all(outcome)
    assert (th.attempts(p, 3), th.final_failure(p, 3)) == near((used, failed))


def test_series_availability():
    a = th.series([0.9995, 0.999, 0.9999, 0.995])
    assert a == near(0.993409, rel=1e-6)
    assert 1 - a == near(0.00659135, rel=1e-5)
    assert th.downtime_min(a) == near(284.746, rel=1e-5)
    assert th.series([0.99] * 40) == near(0.668972, rel=1e-5)
    # Failure by the part that fails first
    parts, alive, failed = (0.9, 0.8, 0.7), 1.0, 0.0
    for part in parts:
        failed += alive * (1 - part)
        alive *= part
    assert th.series(parts) == near(1 - failed)


def test_k_of_n():
    assert th.k_of_n(4, 5, 0.95) == near(0.977407, rel=1e-5)
    assert th.k_of_n(5, 5, 0.95) == near(0.773781, rel=1e-5)
    up = [math.prod(0.8 if x else 0.2 for x in o) for o in itertools.product((0, 1), repeat=6) if sum(o) >= 4]
    assert th.k_of_n(4, 6, 0.8) == near(sum(up))
    assert th.k_of_n(0, 3, 0.1) == near(1)


def test_hedged_request():
    law = th.Exponential(0.1)
    d = law.quantile_s(0.95)
    assert d == near(0.299573227)
    assert th.hedged_load(law, d) == near(0.05)
    assert th.hedged_mean_s(law, d) == near(0.0975, rel=1e-8)
    assert th.hedged_quantile_s(law, d, 0.99) == near(0.380045, rel=1e-5)
    assert th.hedged_quantile_s(law, d, 0.999) == near(0.495174, rel=1e-5)
    assert law.quantile_s(0.999) == near(0.690776, rel=1e-5)
    assert th.hedged_mean_s(law, 0) == near(0.05, rel=1e-8)
    assert th.hedged_mean_s(th.Constant(0.1), 0.05) == near(0.1)


def test_hedged_lognormal_against_draws():
    law, d, n = th.Lognormal(0.08, 0.4), 0.2, 1_000_000
    first, second = 0.08 * np.exp(law.sigma * np.random.default_rng(1).standard_normal((2, n)))
    won = np.minimum(first, d + second)
    assert th.hedged_mean_s(law, d) == near(won.mean(), rel=3e-3)
    assert th.hedged_quantile_s(law, d, 0.999) == near(np.quantile(won, 0.999), rel=1e-2)
    assert th.hedged_load(law, d) == near((first > d).mean(), rel=1e-2)


def test_breaker_duty():
    duty = th.breaker_duty(20, 5, 0.1)
    assert duty.cycle_s == near(5.15)
    assert duty.share_through == near(0.00970874, rel=1e-5)
    assert (duty.relief, duty.recovery_delay_s) == near((103, 2.5))
    rng = np.random.default_rng(2)
    now = opens = through = offered = 0
    for now in np.cumsum(rng.exponential(1 / 20, 400_000)):
        offered += 1
        if now >= opens:
            through += 1
            opens = now + 0.1 + 5
    assert duty.share_through == near(through / offered, rel=0.02)


def test_fan_out_tail():
    assert th.fan_out_slow_share(0.01, 100) == near(0.633968, rel=1e-5)
    law = th.Lognormal(0.01, 0.1)
    t = th.fan_out_quantile_s(law, 100, 0.5)
    assert t == near(0.114374, rel=1e-5)
    assert th.fan_out_slow_share(law.tail(t), 100) == near(0.5)
    slowest = 0.01 * np.exp(law.sigma * np.random.default_rng(3).standard_normal((40_000, 100)).max(axis=1))
    assert t == near(np.median(slowest), rel=0.02)


def test_lognormal_fit():
    law = th.Lognormal(0.05, 0.12)
    assert law.sigma == near(0.376328, rel=1e-5)
    assert law.mean_s == near(0.0536689, rel=1e-5)
    assert law.cv2 == near(0.152142, rel=1e-5)
    assert law.quantile_s(0.95) == near(0.0928539, rel=1e-5)
    assert 10 / law.mean_s == near(186.328, rel=1e-5)
    assert (law.quantile_s(0.5), law.quantile_s(0.99)) == near((0.05, 0.12))
    x = np.linspace(0, 2, 200_001)
    tail = np.array([law.tail(v) for v in x])
    mean, second = np.trapezoid(tail, x), np.trapezoid(2 * x * tail, x)
    assert law.mean_s == near(mean, rel=1e-6)
    assert law.cv2 == near(second / mean**2 - 1, rel=1e-5)
    flat = th.Lognormal(0.05, 0.05)
    assert (flat.mean_s, flat.cv2, flat.tail(0.049), flat.tail(0.05)) == (0.05, 0, 1, 0)


def test_ttl_cache():
    assert th.ttl_hit_ratio(0.2, 20) == near(0.8)
    assert th.ttl_origin_rate(0.2, 20) == near(0.04)
    hits, expires = 0, 0.0
    times = np.cumsum(np.random.default_rng(4).exponential(5, 200_000))
    for now in times:
        if now < expires:
            hits += 1
        else:
            expires = now + 20
    assert th.ttl_hit_ratio(0.2, 20) == near(hits / len(times), rel=0.01)
    assert th.ttl_origin_rate(0.2, 20) == near((len(times) - hits) / times[-1], rel=0.02)


def test_backlog_drain():
    assert th.backlog(100, 60) == near(6000)
    assert th.drain_s(100, 150, 60) == near(120)
    depth, t = 100 * 60.0, 0.0
    while depth > 0:
        depth += (100 - 150) * 0.01
        t += 0.01
    assert th.drain_s(100, 150, 60) == near(t, abs=0.02)


def test_young_interval():
    best = th.young_interval_s(0.05, 120)
    assert best == near(3.4641, rel=1e-5)
    assert th.young_overhead(best, 0.05, 120) == near(0.0288675, rel=1e-5)
    grid = np.linspace(0.5, 20, 20_000)
    curve = [th.young_overhead(x, 0.05, 120) for x in grid]
    assert best == near(grid[int(np.argmin(curve))], abs=2e-3)


def test_token_bucket():
    bucket = th.TokenBucket(20, 40)
    assert bucket.admitted(10) == near(240)
    assert bucket.refused_share(200) == near(0.9)
    assert bucket.refused_share(10) == 0
    tokens, admitted = 40.0, 0
    for _ in range(10 * 200):
        tokens = min(40.0, tokens + 20 / 200)
        if tokens >= 1:
            tokens -= 1
            admitted += 1
    assert admitted == near(240, abs=1)


@pytest.mark.parametrize(("rate", "refill", "burst"), [(10, 10, 5), (30, 20, 8), (8, 10, 3), (5, 10, 1)])
def test_token_bucket_with_poisson_demand(rate, refill, burst):
    exact = th.TokenBucket(refill, burst).refused_share_poisson(rate)
    tokens, refused, n = float(burst), 0, 400_000
    for gap in np.random.default_rng(5).exponential(1 / rate, n):
        tokens = min(burst, tokens + gap * refill)
        if tokens >= 1:
            tokens -= 1
        else:
            refused += 1
    assert exact == near(refused / n, rel=0.02)


def test_md1k_loss():
    assert th.md1k_loss(9, 1, 1) == near(th.erlang_b(1, 9))
    assert th.md1k_loss(1e4, 1, 5) == near(1 - 1e-4)
    # The chain at departures of a queue that holds 4, then how often it is full to arrivals
    rate, places = 0.9, 4
    a = [math.exp(-rate) * rate**k / math.factorial(k) for k in range(40)]
    chain = np.zeros((places, places))
    for i in range(places):
        for k, chance in enumerate(a):
            chain[i, min(max(i, 1) + k, places) - 1] += chance
    p = steady(chain - np.diag(np.diag(chain)))
    assert th.md1k_loss(rate, 1, places) == near(1 - 1 / (p[0] + rate), rel=1e-9)


def test_retry_tipping_point():
    assert th.safe_rate(100, 3) == near(25)
    assert th.safe_rate(100, 3, budget=0.1) == near(90.9091, rel=1e-5)
    assert th.safe_rate(100, 1, budget=5) == near(50)
    # Load on the next round if this round's load is cut to what fits: it dies out below, and stays above
    for rate, dies in ((24.9, True), (25.1, False)):
        load = rate * 4
        for _ in range(500):
            fails = max(0.0, 1 - 100 / load)
            load = rate * (4 if fails else 1)
        assert (load < 100) == dies


@pytest.mark.parametrize(("users", "slots", "queue"), [(20, 1, None), (20, 3, None), (12, 4, 0), (15, 2, 5)])
def test_finite_source(users, slots, queue):
    think, service = 1.0, 0.12
    q = th.finite_source(users, think, service, slots, queue)
    places = users if queue is None else slots + queue
    p = birth_death(
        [(users - n) / think for n in range(places)], [min(n, slots) / service for n in range(1, places + 1)]
    )
    through = sum(min(n, slots) * p[n] for n in range(places + 1)) / service
    offered = sum((users - n) / think * p[n] for n in range(places + 1))
    assert q.in_system == near(mean_of(p))
    assert (q.throughput, q.offered_rate) == near((through, offered))
    assert q.loss == near(1 - through / offered, abs=1e-12)
    assert q.sojourn_s == near(mean_of(p) / through)
    if queue is None:
        assert q.sojourn_s == near(users / q.throughput - think)
        assert q.sojourn_s == near(th.closed_network(users, think, [th.Station(service, slots)]).response_s)


def test_closed_network():
    # Two stations (2 slots, 1 slot) and thinking: state (at the first, at the second)
    users, think, s1, s2 = 8, 0.5, 0.1, 0.08
    states = [(i, j) for i in range(users + 1) for j in range(users + 1 - i)]
    at = {s: k for k, s in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for (i, j), k in at.items():
        if i + j < users:
            rates[k, at[i + 1, j]] += (users - i - j) / think
        if i:
            rates[k, at[i - 1, j + 1]] += min(i, 2) / s1
        if j:
            rates[k, at[i, j - 1]] += 1 / s2
    p = steady(rates)
    through = sum(p[k] for (_, j), k in at.items() if j) / s2
    net = th.closed_network(users, think, [th.Station(s1, 2), th.Station(s2)])
    assert net.throughput == near(through)
    assert net.in_station[0] == near(sum(p[k] * i for (i, _), k in at.items()))
    assert net.in_station[1] == near(sum(p[k] * j for (_, j), k in at.items()))
    assert net.response_s == near(sum(net.station_s)) == near(users / through - think)
    assert net.utilisation[1] == near(through * s2)


def test_closed_network_without_queueing_and_with_many_users():
    net = th.closed_network(50, 2.0, [th.Station(0.5, None)])
    assert (net.response_s, net.throughput, net.utilisation) == (near(0.5), near(20), (None,))
    # Far past saturation the slowest station sets the pace
    net = th.closed_network(3000, 10, [th.Station(0.01, 2), th.Station(0.003)])
    assert net.throughput == near(200, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: th.mm1(10, 10), "no steady state: 10 arrivals/s for a capacity of 10/s"),
        (lambda: th.mmc(50, 10, 5), "no steady state"),
        (lambda: th.mg1(20, 0.1, 1), "no steady state"),
        (lambda: th.mdc_wait_s(20, 0.1, 2), "no steady state"),
        (lambda: th.processor_sharing(20, 0.1, 1.5), "no steady state"),
        (lambda: th.drain_s(10, 10, 1), "no steady state"),
        (lambda: th.erlang_c(3, 3), "no steady state"),
        (lambda: th.mm1(-1, 10), "the arrival rate must be a number above 0, not -1"),
        (lambda: th.mm1(float("nan"), 10), "not nan"),
        (lambda: th.mmc(1, 1, 1.5), "slots must be a whole number of at least 1, not 1.5"),
        (lambda: th.mmck(1, 1, 1, -1), "the queue must be a whole number of at least 0"),
        (lambda: th.mg1(1, 0.1, -1), "cv2 must be a number of at least 0"),
        (lambda: th.Lognormal(0.1, 0.05), "p99 must be at least p50"),
        (lambda: th.attempts(1.5, 1), "the failure share must be between 0 and 1, not 1.5"),
        (lambda: th.attempts(1, None), "endless retries"),
        (lambda: th.k_of_n(6, 5, 0.9), "needed must be at most the members"),
        (lambda: th.TokenBucket(1, 0.5), "the burst must be a number of at least 1"),
        (lambda: th.TokenBucket(1, 1.5).refused_share_poisson(1), "the burst must be a whole number"),
        (lambda: th.closed_network(5, 1, []), "at least one station"),
        (lambda: th.mm1(8, 10).sojourn_quantile_s(1), "the quantile must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_clear_line(call, words):
    with pytest.raises(ValueError, match="^[^\n]+$") as caught:
        call()
    assert words in str(caught.value)
