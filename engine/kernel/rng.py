"""Random numbers: xoshiro256+ (Blackman and Vigna 2018), one stream a purpose, and what is drawn from it.

Exponential and normal variates use 256-layer ziggurats (Marsaglia and Tsang 2000, in Doornik's 2005 form); Zipf
keys use rejection-inversion (Hörmann and Derflinger 1996).
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from engine.kernel.memory import inlined, kernel, stream, zig
from engine.program import layout as L

U11, U17, U45, U19 = np.uint64(11), np.uint64(17), np.uint64(45), np.uint64(19)
MASK = np.uint64(255)
SCALE = 1.0 / 9007199254740992.0
E_R = 7.69711747013104972  # right edge of the exponential ziggurat's last layer
N_R = 3.6541528853610088
N_V = 0.00492867323399
E_X, N_X = 0, L.ZIG + 1  # the two tables of layer edges in the `zig` array


def tables() -> np.ndarray:
    """The layer edges of both ziggurats: 257 values each, largest first, shape (514,)."""
    out = np.zeros(2 * (L.ZIG + 1))
    area = (E_R + 1.0) * math.exp(-E_R)
    x = out[E_X : E_X + L.ZIG + 1]
    x[0], x[1] = area * math.exp(E_R), E_R
    for i in range(2, L.ZIG):
        x[i] = -math.log(area / x[i - 1] + math.exp(-x[i - 1]))
    x = out[N_X : N_X + L.ZIG + 1]
    x[0], x[1] = N_V / math.exp(-0.5 * N_R * N_R), N_R
    for i in range(2, L.ZIG):
        x[i] = math.sqrt(-2.0 * math.log(N_V / x[i - 1] + math.exp(-0.5 * x[i - 1] ** 2)))
    return out


def seed_streams(streams: np.ndarray, seed: int, ids: list[str]) -> None:
    """Seeds three STREAM records for each component from (seed, its id, which of the three) through splitmix64.

    By its id and not its place: adding or removing another component leaves its draws alone.
    """
    mask = (1 << 64) - 1
    for i in range(len(streams)):
        own = int.from_bytes(hashlib.blake2b(ids[i // 3].encode(), digest_size=8).digest(), "little")
        x = (seed * 0x9E3779B97F4A7C15 + own + (i % 3) * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D) & mask
        words = []
        for _ in range(4):
            x = (x + 0x9E3779B97F4A7C15) & mask
            z = x
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            words.append(z ^ (z >> 31))
        streams[i] = tuple(words)


@inlined
def bits64(w, s):
    r = stream(w, s)
    a, b, c, d = r.a, r.b, r.c, r.d
    out = a + d
    t = b << U17
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= t
    r.a = a
    r.b = b
    r.c = c
    r.d = (d << U45) | (d >> U19)
    return out


@kernel
def uniform(w, s):
    """Uniform on (0, 1), never an end."""
    return (np.float64(np.int64(bits64(w, s) >> U11)) + 0.5) * SCALE


@kernel
def exponential_edge(w, s, i, x):
    """What is left when a draw x in layer i is not under the whole layer."""
    shift = 0.0
    while True:
        if i == 0:
            shift += E_R
        else:
            hi = math.exp(-zig(w, i + 1))
            lo = math.exp(-zig(w, i))
            if lo + uniform(w, s) * (hi - lo) < math.exp(-x):
                return shift + x
        u = bits64(w, s)
        i = np.int64(u & MASK)
        x = np.float64(np.int64(u >> U11)) * SCALE * zig(w, i)
        if x < zig(w, i + 1):
            return shift + x


@inlined
def exponential(w, s):
    """Exponential with mean 1."""
    u = bits64(w, s)
    i = np.int64(u & MASK)
    x = np.float64(np.int64(u >> U11)) * SCALE * zig(w, i)
    if x < zig(w, i + 1):
        return x
    return exponential_edge(w, s, i, x)


@kernel
def normal(w, s):
    """Standard normal."""
    while True:
        u = bits64(w, s)
        i = np.int64(u & MASK)
        v = 2.0 * (np.float64(np.int64(u >> U11)) * SCALE) - 1.0
        x = v * zig(w, N_X + i)
        if abs(x) < zig(w, N_X + i + 1):
            return x
        if i == 0:
            while True:
                a = -math.log(uniform(w, s)) / N_R
                b = -math.log(uniform(w, s))
                if b + b > a * a:
                    return N_R + a if v > 0 else -(N_R + a)
        x0 = zig(w, N_X + i)
        x1 = zig(w, N_X + i + 1)
        f0 = math.exp(-0.5 * (x0 * x0 - x * x))
        f1 = math.exp(-0.5 * (x1 * x1 - x * x))
        if f1 + uniform(w, s) * (f0 - f1) < 1.0:
            return x


@kernel
def below(w, s, n):
    """Uniform integer in [0, n)."""
    k = np.int64(uniform(w, s) * n)
    return k if k < n else n - 1


@kernel
def count(w, s, mean):
    """Floor of the mean plus one with the fractional probability."""
    n = np.int64(mean)
    part = mean - n
    if part > 0.0 and uniform(w, s) < part:
        n += 1
    return n


@kernel
def mix(key, salt):
    """A 64-bit hash of a key and a salt (splitmix64 finaliser)."""
    z = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def zipf_h(x, e):
    """The antiderivative of x^-e used by rejection-inversion."""
    if abs(e - 1.0) < 1e-9:
        return math.log(x)
    return (x ** (1.0 - e) - 1.0) / (1.0 - e)


@kernel
def zipf_inverse(y, e):
    if abs(e - 1.0) < 1e-9:
        return math.exp(y)
    return (1.0 + y * (1.0 - e)) ** (1.0 / (1.0 - e))


@kernel
def zipf(w, s, n, e):
    """A key in [0, n), P(k) proportional to (k+1)^-e; e = 0 is uniform."""
    if e <= 0.0 or n <= 1:
        return below(w, s, n)
    h1 = zipf_h(1.5, e) - 1.0
    hn = zipf_h(n + 0.5, e)
    cut = 2.0 - zipf_inverse(zipf_h(2.5, e) - 2.0**-e, e)
    while True:
        u = hn + uniform(w, s) * (h1 - hn)
        x = zipf_inverse(u, e)
        k = np.int64(x + 0.5)
        if k < 1:
            k = 1
        elif k > n:
            k = n
        if k - x <= cut or u >= zipf_h(k + 0.5, e) - np.float64(k) ** -e:
            return k - 1
