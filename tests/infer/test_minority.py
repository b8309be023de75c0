"""Rows that do not have a column's commonest value, seen in no cell: bounds that are likely to hold them, or none."""

from statistics import median

import numpy as np
import pyarrow as pa
import pytest

from dpframe.accounting.budget import Budget
from dpframe.inference.findings import unidentified_columns
from dpframe.inference.grids import first_grid, present_numbers
from dpframe.inference.inferred import Inferred, Measured
from dpframe.inference.minority import fit_minority
from dpframe.inference.number_counts import bounds_of_counts, number_counts
from dpframe.inference.numbers import Numbers
from dpframe.spaces import Real
from dpframe.spaces.field import Field

ROWS, NOISE = 2_700, 32.0


def inferred(values, seed, rows=ROWS):
    """Return the space and the noisy counts of a column of which one round has been measured."""
    task = Numbers(Field("fee", pa.array(values).type, False), rows, 2)
    grid = first_grid(task.type).opened()
    present, _ = present_numbers(pa.array(values))
    noise = np.random.default_rng(seed).normal(0, NOISE, len(grid.edges) + 1).round().astype(int)
    counts = tuple((grid.count(present) + noise).tolist())
    task.grid = grid
    task.measured.append(Measured("fee", "intervals", grid.edges, counts, NOISE**2))
    return task.space(), tuple(task.measured)


def fees(seed, share, typical=600.0, rows=ROWS):
    """Return a fee that a share of the rows pays, within a few doublings of what is typical."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows) < share, rng.lognormal(np.log(typical), 0.8, rows).round(2), 0.0)


def draws(share, times, whole=False):
    """Yield values, bounds and whether the column counts as found."""
    for seed in range(times):
        values = fees(seed, share).astype(np.int64) if whole else fees(seed, share)
        space, measured = inferred(values, 1_000 + seed)
        lost = unidentified_columns(Inferred(Budget(0.1, 1e-7), ("fee",), measured), {"fee": space}, ROWS)
        yield values, bounds_of_counts(space.inner_space, None), not lost


@pytest.mark.parametrize(("whole", "times"), [(False, 6), (True, 6), pytest.param(False, 60, marks=pytest.mark.slow)])
def test_a_fee_of_a_tenth_of_the_rows_has_bounds_that_hold_it(whole, times):
    """270 ± 32 rows, in four doublings of which each holds 2 errors: most are found, with bounds of the right size.

    Of fixed draws. One of ten may be found with bounds that leave out a third of the fees; clipping to them moves no
    mean by a third of the standard deviation.
    """
    found = [(values, bounds) for values, bounds, is_found in draws(0.1, times, whole) if is_found]
    missed = [np.mean(values[values != 0] > high) for values, (_, high) in found]
    moved = [abs(np.clip(values, *bounds).mean() - values.mean()) / values.std() for values, bounds in found]
    assert len(found) >= times / 2
    assert sum(share > 1 / 3 for share in missed) <= len(found) / 10
    assert 600 < median(high for _, (_, high) in found) < 20_000
    assert max(moved) < 1 / 3


def test_rows_within_one_error_are_not_placed():
    """A hundredth of the rows, 27 ± 32: they may lie anywhere, and the bounds stay as narrow as they were."""
    for values, (_, high), _ in draws(0.01, 5):
        assert high <= max(values.max(), 1.0)


def test_bounds_that_may_miss_the_others_are_said():
    """Fifteen of 2,700 rows, in fixed draws: what bounds there are have a chance of the others beyond them."""
    chances = []
    for seed in range(6):
        space, measured = inferred(fees(seed, 0.005), 1_000 + seed)
        chances.append(number_counts(measured, space, ROWS).miss_chance)
    assert all(0.01 < chance < 0.5 for chance in chances)
    space, measured = inferred(fees(0, 0.4), 1_000)
    assert number_counts(measured, space, ROWS).miss_chance < 1e-6


@pytest.mark.parametrize("sign", [1, -1])
def test_either_sign_is_placed(sign):
    ends = np.array([-np.inf, -16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16, np.inf])
    counts = np.zeros(12)
    counts[[6, 8, 9]] = 1_880, 60, 60
    if sign < 0:
        counts[[8, 9, 4, 3]] = 0, 0, 60, 60
    found = fit_minority([(ends, counts, 100.0)], 6, 2_000.0, 0.0, whole=True)
    low, high = found.bounds
    assert (low, high) in ([(0.0, 7.0), (0.0, 15.0)] if sign > 0 else [(-4.0, 0.0), (-8.0, 0.0), (-16.0, 0.0)])
    assert found.miss_chance(((ends[:-1] >= low) & (ends[1:] <= high + 1)).astype(float)) < 0.2
    assert found.miss_chance(np.eye(12)[6]) > 0.99


def test_values_below_a_spike_at_1_are_placed_at_0():
    ends = np.array([0, 1, 2, 4, 8, 16], dtype=float)
    counts = np.array([100.0, 1_900, -10, 5, -5])
    assert fit_minority([(ends, counts, 400.0)], 1, 2_000.0, 400.0, whole=True).bounds == (0.0, 1.0)


def test_cells_that_no_shape_fits_place_nothing():
    found = fit_minority([(np.array([-2.0, -1.0, 3e9]), np.array([5.0, 90.0]), 1.0)], 1, 100.0, 0.0, whole=False)
    assert found.miss_chance(np.ones(2)) == 0


def test_two_rounds_weigh_as_their_dense_covariance_does():
    """Both rounds' noise and the uncertain number of rows, against the normal law with the whole covariance."""
    fine, coarse = np.array([0.0, 1, 2, 4, 8, 16]), np.array([0.0, 4, 16])
    rounds = [(coarse, np.array([950.0, 40]), 900.0), (fine, np.array([880.0, 10, 35, 40, 5]), 400.0)]
    fit = fit_minority(rounds, 0, 1_000.0, 250.0, whole=True)
    union = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]])
    design = np.vstack([union, np.eye(5)])
    values = np.concatenate([counts for _, counts, _ in rounds])
    spike = design[:, 0]
    covariance = np.diag([900.0] * 2 + [400.0] * 5) + 250.0 * np.outer(spike, spike)
    shares = np.linspace(0.0005, 0.9995, 1_000)
    for shape, share in zip(fit.shapes, fit.shares, strict=True):
        means = 1_000.0 * (np.outer(1 - shares, spike) + np.outer(shares, design @ shape))
        residuals = values - means
        likelihood = np.exp(-np.einsum("ij,jk,ik->i", residuals, np.linalg.inv(covariance), residuals) / 2)
        assert share == pytest.approx(float(shares @ likelihood / likelihood.sum()), rel=0.02)


@pytest.mark.parametrize("high", [2.0**-400, 2.0**-12, 64.0])
def test_few_rows_that_nothing_shows_leave_a_column_lost(high):
    """Zeros but for 40 ± 32 rows, and no cell within the bounds has any: bounds of noise were found without a word."""
    grid = first_grid(pa.float64()).opened()
    counts = np.zeros(len(grid.edges) + 1, dtype=int)
    counts[np.searchsorted(np.array(grid.edges), 0.0)] = ROWS - 40
    measured = Measured("fee", "intervals", grid.edges, tuple(counts.tolist()), NOISE**2)
    inferred = Inferred(Budget(0.1, 1e-7), ("fee",), (measured,))
    (lost,) = unidentified_columns(inferred, {"fee": Real(0.0, high)}, ROWS)
    assert lost.column == "fee"
