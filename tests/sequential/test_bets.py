"""Bets name the events that violate the claim most clearly, and portfolios settle them as `log_wealth` does."""

import numpy as np
import pytest

from dpverify.early import (
    RESERVE,
    Portfolio,
    Schedule,
    block_size,
    choose_bets,
    quantile_edges,
)
from dpverify.events.event import SelectedEvents
from dpverify.sampling.count import count_cells
from dpverify.stats.anytime import log_wealth
from dpverify.stats.boundaries import line_boundary


def test_a_two_sided_event_is_found():
    first, second = np.array([30, 5, 5, 5, 30]), np.array([10, 20, 20, 20, 10])
    best = choose_bets(first, second, line_boundary(0.1))[0]
    outer = np.array([True, False, False, False, True])
    assert np.array_equal(best.cells, outer) or np.array_equal(best.cells, ~outer)
    assert best.growth > 0
    assert best.a > best.b


def test_no_violation_gives_one_bet_without_growth():
    (bet,) = choose_bets(np.array([50, 50]), np.array([52, 48]), line_boundary(1.0))
    assert bet.growth == 0
    assert bet.weight == 1


def test_a_one_sided_family_uses_thresholds_only():
    first, second = np.array([30, 5, 5, 5, 30]), np.array([10, 20, 20, 20, 10])
    for bet in choose_bets(first, second, line_boundary(0.0), one_sided=True):
        assert np.count_nonzero(np.diff(bet.cells)) == 1


def test_the_weights_of_a_batch_sum_to_one():
    bets = choose_bets(np.array([30, 25, 20, 10]), np.array([10, 15, 25, 40]), line_boundary(0.2))
    assert len(bets) > 1
    assert sum(bet.weight for bet in bets) == pytest.approx(1)


@pytest.mark.parametrize("values", [np.zeros(50), np.array([0.0, 1.0] * 20), np.arange(2000.0), np.full(3, np.nan)])
def test_edges_never_divide_equal_values(values):
    edges = quantile_edges(values)
    assert edges.size >= 1
    assert np.all(np.diff(edges) > 0)
    assert not np.isin(values[np.isfinite(values)], edges).any() or np.unique(values).size == 1


def test_the_wealth_of_a_portfolio_can_be_computed_from_its_bets():
    rng, boundary = np.random.default_rng(0), line_boundary(0.3)
    samples = [rng.laplace(side, size=(40, 1, 1)) for side in (0, 1)]
    portfolio = Portfolio(boundary, (1, 1))
    for _ in range(10):
        portfolio.fit_simple(samples)
        portfolio.place()
        batch = [rng.laplace(side, size=(8, 1, 1)) for side in (0, 1)]
        portfolio.settle([tuple(count_cells(f.partition, x) for x in batch) for f in portfolio.families], 8)
        samples = [np.concatenate(pair) for pair in zip(samples, batch, strict=True)]
    assert log_wealth(portfolio.all_bets(), boundary) == pytest.approx([w for _, w in portfolio.history[1:]])
    assert portfolio.log_wealth >= np.log(RESERVE)  # nothing of the reserve was bet
    event, counts, runs = portfolio.leader()
    assert runs == 120
    assert counts == tuple(int(event.contains(side).sum()) for side in samples)


def test_the_reserve_is_kept_until_the_last_selection():
    rng, boundary = np.random.default_rng(0), line_boundary(1.0)
    samples = [rng.laplace(size=(200, 1, 1)) for _ in range(2)]  # equal distributions: every bet loses
    portfolio = Portfolio(boundary, (1, 1))
    portfolio.fit_simple(samples)
    event = portfolio.families[0].event(portfolio.place()[0][0])
    for is_last in (False, False, True):
        portfolio.hold(SelectedEvents((event,), (1.0,), event.partition), samples, is_last)
        for _ in range(20):
            for bets in portfolio.place():  # predictions that are wrong
                bets[:] = [bets[0]._replace(a=0.9, b=0.01, weight=1.0)]
            batch = [rng.laplace(size=(8, 1, 1)) for _ in range(2)]
            portfolio.settle([tuple(count_cells(f.partition, x) for x in batch) for f in portfolio.families], 8)
        if not is_last:
            assert portfolio.log_wealth == pytest.approx(np.log(RESERVE))
    assert portfolio.log_wealth < -50
    assert log_wealth(portfolio.all_bets(), boundary) == pytest.approx([w for _, w in portfolio.history[1:]])


def test_the_schedule_does_not_depend_on_the_budget_before_it_ends():
    small, large = (Schedule.make(16, 1000, (budget,)) for budget in (500, 10**6))
    assert small.selections == large.selections
    stops = []
    runs = 16
    while runs < 1500:
        runs = small.next_stop(runs)
        stops.append(runs)
    assert stops[-1] == 1500
    assert [large.next_stop(runs) for runs in (16, *stops[:-2])] == stops[:-1]


def test_looks_double():
    schedule = Schedule.make(16, 4096, (10**6,))
    assert schedule.fixed == 1024
    assert [schedule.look_number(runs) for runs in (1024, 2048, 4096, 8192, 5000)] == [None, 0, 1, 2, None]


def test_blocks_are_powers_of_two_that_several_workers_can_share():
    assert [block_size(batch) for batch in (4, 63, 64, 10**4)] == [4, 4, 8, 1024]
