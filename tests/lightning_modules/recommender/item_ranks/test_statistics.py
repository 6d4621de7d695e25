"""Tests metrics, intervals and significance tests on ranks against loops and closed forms."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.statistics import bootstrap
from engine.statistics import paired_test as test_module
from engine.statistics.paired_test import Difference, compare_classes, holm, mcnemar
from lightning_modules.recommender.item_ranks.rank_metrics import gains, metric_intervals, rank_classes
from lightning_modules.recommender.ranking_metrics import RankingMetrics

TABLE = gains((1, 5, 10))
MANY = 10_000


def paired_test(a, b, table, resamples) -> list[Difference]:
    """Compare two models by the ranks of the same users."""
    return compare_classes(rank_classes(a, table), rank_classes(b, table), table, resamples=resamples)


def random_ranks(seed, users, best=1, worst=40):
    return np.random.default_rng(seed).integers(best, worst, users)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=50))
def test_metrics_are_those_of_the_evaluation(ranks):
    metrics = RankingMetrics(cutoffs=(1, 5, 10))
    metrics.update(torch.tensor(ranks))
    expected = {name: value.item() for name, value in metrics.compute().items()}
    actual = metric_intervals(np.array(ranks), TABLE, resamples=10)
    assert {name: interval.value for name, interval in actual.items()} == pytest.approx(expected, rel=1e-12)


def plain_bootstrap(rank, resamples, seed):
    """Draw users, as a reader would write it."""
    values, generator = TABLE.values[rank_classes(rank, TABLE)], np.random.default_rng(seed)
    means = [values[generator.integers(0, len(rank), len(rank))].mean(0) for _ in range(resamples)]
    return np.quantile(means, [0.025, 0.975], axis=0)


def tolerance(interval, users):
    """Return the error of a quantile of resamples: a share of the width, and the step 1 / users of hit rates."""
    return 0.05 * (interval.high - interval.low) + 1.01 / users


def test_intervals_are_those_of_drawn_users():
    rank = random_ranks(0, 150)
    low, high = plain_bootstrap(rank, MANY, seed=5)
    for interval, other in zip(metric_intervals(rank, TABLE, MANY).values(), zip(low, high, strict=True), strict=True):
        assert interval[1:] == pytest.approx(other, abs=tolerance(interval, len(rank)))
        assert interval.low <= interval.value <= interval.high


def binomial_quantile(n, p, level):
    total = 0.0
    for k in range(n + 1):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        if total >= level:
            return k
    return n


@pytest.mark.parametrize("values", [[3.0], [2.0] * 7, [1.0, 2.0, 4.0] * 20])
def test_few_distinct_values_are_their_own_classes(values):
    found = bootstrap.bootstrap_mean(np.array(values), resamples=200)
    assert found.value == pytest.approx(np.mean(values))
    assert min(values) - 1e-9 <= found.low <= found.value <= found.high <= max(values) + 1e-9


def test_the_interval_of_a_mean_is_that_of_drawn_values_also_in_classes():
    values, generator = np.random.default_rng(0).lognormal(size=1000), np.random.default_rng(5)
    means = [values[generator.integers(0, 1000, 1000)].mean() for _ in range(MANY)]
    found = bootstrap.bootstrap_mean(values, MANY)
    assert found.value == pytest.approx(values.mean(), rel=1e-12), "classes do not change the mean"
    assert len(np.unique(values)) > bootstrap.CLASSES
    assert found[1:] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.05 * (found.high - found.low))


def test_the_interval_of_a_hit_rate_has_the_quantiles_of_a_binomial_distribution():
    rank = np.repeat([1, 99], [30, 70])
    actual = metric_intervals(rank, TABLE, MANY)["hr@10"]
    assert actual.value == 0.3
    expected = [binomial_quantile(100, 0.3, level) / 100 for level in (0.025, 0.975)]
    assert actual[1:] == pytest.approx(expected, abs=0.0101)


def test_a_seed_decides_and_parts_do_not(monkeypatch):
    a, b = random_ranks(1, 80), random_ranks(2, 80)
    before = metric_intervals(a, TABLE, 500), paired_test(a, b, TABLE, 500)
    monkeypatch.setattr(bootstrap, "CHUNK", 100)
    monkeypatch.setattr(test_module, "CHUNK", 100)
    # BLAS sums matrices of another height in another order.
    after = metric_intervals(a, TABLE, 500), paired_test(a, b, TABLE, 500)
    assert list(after[0].values()) == [pytest.approx(interval, rel=1e-12, abs=1e-12) for interval in before[0].values()]
    for actual, expected in zip(after[1], before[1], strict=True):
        assert actual.p == expected.p
        assert actual.interval == pytest.approx(expected.interval, rel=1e-12, abs=1e-12)
    assert metric_intervals(a, TABLE, 500, seed=1) != before[0]


def enumerated(a, b):
    """The exact p-value: all sign vectors."""
    difference = TABLE.values[rank_classes(b, TABLE)] - TABLE.values[rank_classes(a, TABLE)]
    found = np.abs(difference.sum(0))
    signs = np.array(list(itertools.product((-1, 1), repeat=len(a))))
    return (np.abs(signs @ difference) >= found - 1e-12).mean(0)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 13), st.integers(1, 13)), min_size=1, max_size=10))
def test_p_values_are_those_of_all_sign_vectors(pairs):
    a, b = np.array(pairs).T
    found = [difference.p for difference in paired_test(a, b, TABLE, MANY)]
    assert found == pytest.approx(enumerated(a, b).tolist(), abs=0.02)


def test_holm_adjusts_the_smallest_most():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_p_values_of_hit_rates_are_those_of_mcnemars_exact_test():
    """9 users that only b hits, 2 that only a hits: 2 P(X <= 2), X binomial with n 11 and p 1/2."""
    a = np.array([99] * 9 + [1] * 2 + [1] * 30 + [99] * 40)
    b = np.array([1] * 9 + [99] * 2 + [1] * 30 + [99] * 40)
    exact = 2 * sum(math.comb(11, k) for k in range(3)) / 2**11
    found = {difference.metric: difference for difference in paired_test(a, b, TABLE, MANY)}
    assert mcnemar(9, 2) == mcnemar(2, 9) == pytest.approx(exact, rel=1e-12)
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0
    assert found["hr@10"].p == pytest.approx(exact, abs=0.01)
    assert (found["hr@10"].a, found["hr@10"].b) == pytest.approx((32 / 81, 39 / 81))


def plain_paired_bootstrap(a, b, resamples, seed):
    difference = TABLE.values[rank_classes(b, TABLE)] - TABLE.values[rank_classes(a, TABLE)]
    generator = np.random.default_rng(seed)
    means = [difference[generator.integers(0, len(a), len(a))].mean(0) for _ in range(resamples)]
    return difference.mean(0), *np.quantile(means, [0.025, 0.975], axis=0)


def test_intervals_of_differences_are_those_of_drawn_users():
    a = random_ranks(3, 150)
    b = np.maximum(a - np.random.default_rng(4).integers(-4, 9, 150), 1)
    expected = np.stack(plain_paired_bootstrap(a, b, MANY, 6), axis=1)
    for difference, row in zip(paired_test(a, b, TABLE, MANY), expected.tolist(), strict=True):
        assert difference.interval == pytest.approx(row, abs=tolerance(difference.interval, len(a)))
        assert difference.b - difference.a == pytest.approx(difference.interval.value)


def test_exchanged_models_have_the_opposite_difference_and_the_same_p():
    a, b = random_ranks(5, 60), random_ranks(6, 60, worst=25)
    for first, second in zip(paired_test(a, b, TABLE, 2000), paired_test(b, a, TABLE, 2000), strict=True):
        assert first.interval.value == pytest.approx(-second.interval.value)
        assert first.p == pytest.approx(second.p, abs=0.05)


def test_equal_models_do_not_differ():
    a = random_ranks(7, 30)
    for difference in paired_test(a, a, TABLE, 200):
        assert difference.interval == (0, 0, 0)
        assert difference.p == 1
        assert not difference.is_significant


def test_a_difference_of_every_user_is_significant():
    for difference in paired_test(np.full(40, 20), np.full(40, 1), TABLE, 999):
        assert difference.interval == (1, 1, 1)
        assert difference.p == pytest.approx(0.001)


@pytest.mark.slow
def test_without_a_difference_a_twentieth_of_the_tests_is_significant():
    rejected = np.zeros(len(TABLE.names))
    for seed in range(400):
        a, b = random_ranks(2 * seed, 200), random_ranks(2 * seed + 1, 200)
        rejected += [difference.is_significant for difference in paired_test(a, b, TABLE, 500)]
    # 400 tests: the standard error is 0.011.
    assert np.all(rejected / 400 < 0.09)
    assert np.all(rejected / 400 > 0.01)
