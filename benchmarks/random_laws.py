"""Random pairs of output distributions with an exact log-likelihood ratio, to which no search was tuned.

`random_law(seed)` draws the kind of a law and all of its parameters. Seeds below TUNING_SEEDS may be used to tune the
search; power is reported for seeds from REPORTED_SEED on, which nobody looks at before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from laws import Law, gaussians
from scipy.special import gammaln, logsumexp, ndtr, ndtri

TUNING_SEEDS, REPORTED_SEED = 10_000, 10_000
BOUNDS = 0.3, 6.0  # the expected bound of the best event that a law has to have
TRIES = 100  # parameters that are drawn until the best event has such a bound

Rng = np.random.Generator


def random_law(seed: int, best_bound: Callable[[Law], float]) -> Law:
    """Return the law of a seed; `best_bound` returns about the bound of the best event of a law."""
    rng = np.random.default_rng([seed, 7])
    kind = KINDS[seed % len(KINDS)]
    for _ in range(TRIES):
        law = kind(rng)
        if BOUNDS[0] < best_bound(law) < BOUNDS[1]:
            return law._replace(name=f"{seed} {kind.__name__.replace('_', ' ')}")
    raise ValueError(f"no law of kind {kind.__name__} for seed {seed}")


def gaussian_mixtures(rng: Rng) -> Law:
    """Return two mixtures of Gaussians whose centres and weights differ a little."""
    number, d = int(rng.integers(2, 6)), int(rng.integers(1, 7))
    centres = 3 * rng.standard_normal((number, d))
    moved = [
        centres,
        centres + rng.uniform(0.1, 0.8) * rng.standard_normal((number, d)) * (rng.random((number, 1)) < 0.5),
    ]
    base = rng.dirichlet(np.full(number, 2.0))
    weights = [base, 0.7 * base + 0.3 * rng.dirichlet(np.full(number, 2.0))]
    factors = np.linalg.qr(rng.standard_normal((number, d, d)))[0] * rng.uniform(0.3, 1.2, (number, 1, d))

    def draw(side, runs, rng):
        which = rng.choice(number, runs, p=weights[side])
        return moved[side][which] + np.einsum("nij,nj->ni", factors[which], rng.standard_normal((runs, d)))

    def log_density(x, side):
        z = np.einsum("kij,nkj->nki", np.linalg.inv(factors), x[:, None] - moved[side])
        return logsumexp(-(z**2).sum(2) / 2 - np.linalg.slogdet(factors)[1], axis=1, b=weights[side])

    return Law("", draw, lambda x: log_density(x, 0) - log_density(x, 1))


def copula(rng: Rng) -> Law:
    """Return a Gaussian dependence between coordinates with heavy or skew marginals, equal for both datasets."""
    d = int(rng.integers(3, 13))
    chosen = rng.choice(d, size=(int(rng.integers(1, 4)), 2))
    matrices = [np.eye(d), np.eye(d)]
    for i, j in chosen[chosen[:, 0] != chosen[:, 1]]:
        for matrix in matrices:
            matrix[i, j] = matrix[j, i] = rng.uniform(-0.45, 0.45)
    law = gaussians("", matrices)
    power = rng.choice([1.0, 3.0], d)
    is_skew = rng.random(d) < 0.3

    def draw(side, runs, rng):
        z = law.draw(side, runs, rng)
        return np.where(is_skew, np.exp(z), np.sign(z) * np.abs(z) ** power)

    def log_ratio(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return law.log_ratio(np.where(is_skew, np.log(x), np.sign(x) * np.abs(x) ** (1 / power)))

    return Law("", draw, log_ratio)


def rankings(rng: Rng) -> Law:
    """Return the order in which items are drawn without replacement (Plackett and Luce), as the items or as ranks."""
    d, as_ranks = int(rng.integers(4, 9)), rng.random() < 0.5
    first = 0.5 * rng.standard_normal(d)
    scores = [first, first + rng.uniform(0.2, 1.0) * rng.standard_normal(d) * (rng.random(d) < 0.5)]

    def draw(side, runs, rng):
        order = np.argsort(-scores[side] - rng.gumbel(size=(runs, d)), axis=1)
        return (np.argsort(order, axis=1) if as_ranks else order).astype(float)

    def log_probability(order, side):
        own = scores[side][order]
        rest = np.logaddexp.accumulate(own[:, ::-1], axis=1)[:, ::-1]
        return (own - rest).sum(1)

    def log_ratio(x):
        order = np.argsort(x, axis=1) if as_ranks else x.astype(int)
        return log_probability(order, 0) - log_probability(order, 1)

    return Law("", draw, log_ratio)


def permuted_rows(rng: Rng) -> Law:
    """Return exchangeable records, one of which follows another distribution with the first dataset."""
    number, columns = int(rng.integers(5, 25)), int(rng.integers(1, 4))
    shift, log_scale = rng.uniform(0.3, 3.0) * rng.standard_normal(columns), rng.uniform(-0.5, 0.7, columns)

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, number, columns))
        if side == 0:
            rows = np.arange(runs), rng.integers(number, size=runs)
            x[rows] = shift + np.exp(log_scale) * x[rows]
        return x.reshape(runs, -1)

    def log_ratio(x):
        x = x.reshape(len(x), number, columns)
        own = (x**2 / 2 - (x - shift) ** 2 / (2 * np.exp(2 * log_scale)) - log_scale).sum(2)
        return logsumexp(own, axis=1) - np.log(number)

    return Law("", draw, log_ratio)


def discrete_network(rng: Rng) -> Law:
    """Return a random directed graph of binary or ternary variables, with other tables for the second dataset."""
    d, values = int(rng.integers(4, 11)), int(rng.integers(2, 4))
    order = rng.permutation(d)
    parents = [rng.choice(order[:i], size=min(i, int(rng.integers(0, 3))), replace=False) for i in range(d)]
    mix, tables = rng.uniform(0.1, 0.5), []
    for i in range(d):
        first = rng.dirichlet(np.full(values, 2.0), size=values ** len(parents[i]))
        other = rng.dirichlet(np.full(values, 2.0), size=values ** len(parents[i]))
        changed = rng.random() < 0.3
        tables.append((first, (1 - mix) * first + mix * other if changed else first))

    def contexts(x, i):
        return sum((x[:, j] * values**k for k, j in enumerate(parents[i])), np.zeros(len(x), int))

    def draw(side, runs, rng):
        x = np.zeros((runs, d), int)
        for i in range(d):
            below = np.cumsum(tables[i][side], axis=1)[contexts(x, i)]
            x[:, order[i]] = np.minimum((rng.random((runs, 1)) > below).sum(1), values - 1)
        return x.astype(float)

    def log_ratio(x):
        x = x.astype(int)
        logs = [np.log(first / second) for first, second in tables]
        return sum(logs[i][contexts(x, i), x[:, order[i]]] for i in range(d))

    return Law("", draw, log_ratio)


def binary_field(rng: Rng) -> Law:
    """Return binary variables on a random graph with couplings of pairs and triples (an Ising model)."""
    d = int(rng.integers(5, 11))
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
    energies = [np.zeros(len(states)), np.zeros(len(states))]
    for _ in range(2 * d):
        subset = rng.choice(d, size=int(rng.integers(1, 4)), replace=False)
        strength, changed = 0.3 * rng.standard_normal(), rng.random() < 0.25
        for side in (0, 1):
            energies[side] += (strength + side * changed * 0.5 * rng.standard_normal()) * states[:, subset].prod(1)
    logs = [energy - logsumexp(energy) for energy in energies]

    def draw(side, runs, rng):
        return states[rng.choice(len(states), runs, p=np.exp(logs[side]))]

    def log_ratio(x):
        return (logs[0] - logs[1])[((x > 0) @ (1 << np.arange(d)[::-1])).astype(int)]

    return Law("", draw, log_ratio)


def dependence_graph(rng: Rng) -> Law:
    """Return Gaussians on a random graph; some edges between distant coordinates belong to one dataset only."""
    d = int(rng.integers(10, 41))
    precision = np.eye(d) * 2.0 + 0.6 * (np.eye(d, k=1) + np.eye(d, k=-1))
    other = precision.copy()
    for _ in range(int(rng.integers(1, 6))):
        i, j = rng.choice(d, size=2, replace=False)
        other[i, j] = other[j, i] = other[i, j] + rng.choice([-1, 1]) * rng.uniform(0.1, 0.5)
    if np.linalg.eigvalsh(other).min() < 0.1:
        return dependence_graph(rng)
    return gaussians("", [np.linalg.inv(precision), np.linalg.inv(other)])


def pushed_forward(rng: Rng) -> Law:
    """Return a shifted, rescaled or mixed Gaussian that a random invertible network maps to the output."""
    d = int(rng.integers(2, 9))
    masks = [rng.permutation(d) < max(d // 2, 1) for _ in range(3)]
    weights = [(rng.standard_normal((d, 16)), rng.standard_normal((16, 2 * d)) / 4) for _ in masks]
    shift, scale = rng.uniform(0.1, 0.6) * rng.standard_normal(d), np.exp(rng.uniform(0, 0.15) * rng.standard_normal(d))

    def coupling(x, layer):
        inner, outer = weights[layer]
        log_scale, offset = np.split(np.tanh((x * masks[layer]) @ inner) @ outer, 2, axis=1)
        return np.where(masks[layer], 0.0, np.tanh(log_scale)), np.where(masks[layer], 0.0, offset)

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, d))
        x = x if side else shift + scale * x
        for layer in range(3):
            log_scale, offset = coupling(x, layer)
            x = x * np.exp(log_scale) + offset
        return x

    def log_ratio(x):
        for layer in (2, 1, 0):
            log_scale, offset = coupling(x, layer)
            x = (x - offset) * np.exp(-log_scale)
        return (x**2 / 2 - (x - shift) ** 2 / (2 * scale**2) - np.log(scale)).sum(1)

    return Law("", draw, log_ratio)


def ties(rng: Rng) -> Law:
    """Return numbers of which some repeat earlier ones (a Chinese restaurant), more often with one dataset."""
    d, strengths = int(rng.integers(5, 21)), np.exp(rng.uniform(-0.5, 2.5, 2))

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, d))
        for i in range(1, d):
            repeats = np.flatnonzero(rng.random(runs) < i / (i + strengths[side]))
            x[repeats, i] = x[repeats, rng.integers(i, size=repeats.size)]
        return x

    def log_ratio(x):
        distinct = 1 + (np.diff(np.sort(x, axis=1), axis=1) != 0).sum(1)
        rising = [gammaln(strength) - gammaln(strength + d) for strength in strengths]
        return distinct * np.log(strengths[0] / strengths[1]) + rising[0] - rising[1]

    return Law("", draw, log_ratio)


def lengths(rng: Rng) -> Law:
    """Return lists of random length, padded with zeros; length and values differ a little."""
    most, stops = int(rng.integers(4, 13)), rng.uniform(0.15, 0.4) + np.array([0.0, rng.uniform(0.0, 0.15)])
    shift = rng.uniform(0.0, 0.5)
    sizes = np.arange(1, most + 1)
    logs = [np.log(np.append(p * (1 - p) ** np.arange(most - 1), (1 - p) ** (most - 1))) for p in stops]

    def draw(side, runs, rng):
        length = rng.choice(sizes, runs, p=np.exp(logs[side]))
        x = 1.0 + rng.exponential(size=(runs, most)) * np.exp(shift * side)
        return np.where(np.arange(most) < length[:, None], x, 0.0)

    def log_ratio(x):
        used = x > 0
        values = np.where(used, shift - (x - 1.0) * (1 - np.exp(-shift)), 0.0).sum(1)
        return (logs[0] - logs[1])[used.sum(1) - 1] + values

    return Law("", draw, log_ratio)


def non_linear_stream(rng: Rng) -> Law:
    """Return a stream whose conditional mean is a non-linear function of the last values."""
    steps, width = int(rng.integers(4, 16)), int(rng.integers(1, 3))
    gain, bend, other = rng.uniform(0.5, 1.5), rng.uniform(0.5, 3.0), rng.uniform(-1.0, 1.0)
    change = rng.uniform(0.05, 0.6)

    def mean(past, side):
        last = past[:, -width:].sum(1)
        return gain * np.sin(bend * last) + side * change * np.cos(bend * last + other)

    def draw(side, runs, rng):
        x = np.zeros((runs, steps + width))
        for t in range(width, steps + width):
            x[:, t] = mean(x[:, :t], side) + rng.standard_normal(runs)
        return x[:, width:]

    def log_ratio(x):
        padded, total = np.pad(x, ((0, 0), (width, 0))), 0.0
        for t in range(width, steps + width):
            means = [mean(padded[:, :t], side) for side in (0, 1)]
            total = total + ((padded[:, t] - means[1]) ** 2 - (padded[:, t] - means[0]) ** 2) / 2
        return total

    return Law("", draw, log_ratio)


def mixed_atoms(rng: Rng) -> Law:
    """Return noisy answers that are clipped or suppressed, so that atoms and continuous values occur together."""
    d, low, high = int(rng.integers(1, 5)), -rng.uniform(0.2, 1.5), rng.uniform(0.2, 1.5)
    shift = rng.uniform(0.2, 1.0) * rng.standard_normal(d) * (rng.random(d) < 0.7)

    def draw(side, runs, rng):
        return np.clip(rng.laplace(size=(runs, d)) + (shift if side == 0 else 0.0), low, high)

    def log_cdf(x):
        return np.where(x < 0, np.minimum(x, 0) - np.log(2), np.log1p(-np.exp(-np.maximum(x, 0)) / 2))

    def log_ratio(x):
        at_low, at_high = log_cdf(low - shift) - log_cdf(low), log_cdf(shift - high) - log_cdf(-high)
        inside = np.abs(x) - np.abs(x - shift)
        return np.where(x <= low, at_low, np.where(x >= high, at_high, inside)).sum(1)

    return Law("", draw, log_ratio)


def unknown_place(rng: Rng) -> Law:
    """Return noise in which a pattern of random shape occurs at a random place with the first dataset."""
    d, length = int(rng.integers(15, 61)), int(rng.integers(1, 6))
    pattern = rng.uniform(1.0, 3.5) * rng.standard_normal(length)
    patterns = np.stack([np.pad(pattern, (k, d - length - k)) for k in range(d - length + 1)])
    tail = rng.choice([1.0, 1.5])

    def draw(side, runs, rng):
        x = rng.standard_normal((runs, d))
        x = x if side else x + patterns[rng.integers(len(patterns), size=runs)]
        return np.sign(x) * np.abs(x) ** tail

    def log_ratio(x):
        x = np.sign(x) * np.abs(x) ** (1 / tail)
        return logsumexp(x @ patterns.T - (patterns**2).sum(1) / 2, axis=1) - np.log(len(patterns))

    return Law("", draw, log_ratio)


def rare_leak(rng: Rng) -> Law:
    """Return noise that shows the dataset in one run of thousands, at some distance in a random direction."""
    d, p = int(rng.integers(1, 13)), 10 ** rng.uniform(-4, -2.5)
    directions = rng.standard_normal((2, d))
    places = rng.uniform(6, 15) * directions / np.linalg.norm(directions, axis=1)[:, None]
    places[1] *= rng.random() < 0.5

    def draw(side, runs, rng):
        return rng.standard_normal((runs, d)) + places[side] * (rng.random((runs, 1)) < p)

    def log_ratio(x):
        far = [np.log(p) + x @ place - place @ place / 2 for place in places]
        first, second = (np.logaddexp(np.log1p(-p), one) for one in far)
        return first - second

    return Law("", draw, log_ratio)


def angles(rng: Rng) -> Law:
    """Return angles in turns, some of which depend on each other."""
    d, concentration = int(rng.integers(1, 4)), rng.uniform(0.3, 1.5)
    centres = rng.uniform(0, 1, (2, d))
    centres[1] = centres[0] + rng.uniform(0.03, 0.3, d) * (rng.random(d) < 0.7)
    is_linked = d > 1 and rng.random() < 0.5

    def relative(x):
        return np.concatenate([x[:, :1], x[:, 1:] - x[:, :-1]], axis=1) if is_linked else x

    def draw(side, runs, rng):
        turns = centres[side] + rng.vonmises(0.0, concentration, (runs, d)) / (2 * np.pi)
        return np.mod(np.cumsum(turns, axis=1) if is_linked else turns, 1.0)

    def log_ratio(x):
        first, second = (np.cos(2 * np.pi * (relative(x) - centre)) for centre in centres)
        return concentration * (first - second).sum(1)

    return Law("", draw, log_ratio)


def one_number(rng: Rng) -> Law:
    """Return one number with a mixture of Laplace noises."""
    places, base = 2 * rng.standard_normal(4), rng.dirichlet(np.ones(4))
    scales = rng.uniform(0.3, 1.5, 4)
    weights = [base, 0.6 * base + 0.4 * rng.dirichlet(np.ones(4))]

    def draw(side, runs, rng):
        which = rng.choice(4, runs, p=weights[side])
        return (places[which] + scales[which] * rng.laplace(size=runs))[:, None]

    def log_density(x, side):
        return logsumexp(-np.abs(x - places) / scales - np.log(scales), axis=1, b=weights[side])

    return Law("", draw, lambda x: log_density(x, 0) - log_density(x, 1))


def tail_dependence(rng: Rng) -> Law:
    """Return two coordinates that are large together more often with one dataset (a Clayton copula), and noise."""
    d = int(rng.integers(2, 9))
    i, j = rng.choice(d, size=2, replace=False)
    theta = np.exp(rng.uniform(-2.5, 1.0, 2))

    def draw(side, runs, rng):
        u = rng.random((runs, d))
        v, t = u[:, j], theta[side]
        u[:, j] = ((v ** (-t / (1 + t)) - 1) * u[:, i] ** -t + 1) ** (-1 / t)
        return ndtri(np.clip(u, 1e-12, 1 - 1e-12))

    def log_density(u, v, t):
        return np.log1p(t) - (1 + t) * (np.log(u) + np.log(v)) - (2 + 1 / t) * np.log(u**-t + v**-t - 1)

    def log_ratio(x):
        u, v = ndtr(x[:, i]), ndtr(x[:, j])
        return log_density(u, v, theta[0]) - log_density(u, v, theta[1])

    return Law("", draw, log_ratio)


KINDS = (
    gaussian_mixtures,
    copula,
    rankings,
    permuted_rows,
    discrete_network,
    binary_field,
    dependence_graph,
    pushed_forward,
    ties,
    lengths,
    non_linear_stream,
    mixed_atoms,
    unknown_place,
    rare_leak,
    angles,
    one_number,
    tail_dependence,
)
