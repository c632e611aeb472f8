"""Functions for NumPy and JAX arrays, and sums of counts."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.sampling.count import Accumulator, CellCounter, Counts, count_cells
from dpverify.util.arrays import (
    array_namespace,
    digitize,
    enable_x64,
    first_true,
    from_tensor,
    is_jax,
    multiply_rows,
    sum_outer_products,
)


@pytest.mark.parametrize("distribution", ["laplace", "cauchy", "clustered", "integers"])
@pytest.mark.parametrize("number", [1, 2, 15, 63, 1000])
def test_digitize_agrees_with_searchsorted(distribution, number):
    rng = np.random.default_rng(number)
    x = {
        "laplace": rng.laplace(size=20_000),
        "cauchy": rng.standard_cauchy(20_000),
        "clustered": np.where(rng.random(20_000) < 0.5, 1e-9, 1e6) * rng.standard_normal(20_000),
        "integers": rng.integers(-5, 5, 20_000).astype(float),
    }[distribution]
    edges = np.sort(rng.choice(x, number))  # samples that lie on edges occur
    for size in (100, 2000, 20_000):  # each is located in another way
        np.testing.assert_array_equal(digitize(edges, x[:size]), np.searchsorted(edges, x[:size]))


@pytest.mark.parametrize("shape", [(5, 1), (100, 7), (1000, 130)])
def test_sums_of_outer_products(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    np.testing.assert_allclose(sum_outer_products(x), x.T @ x, atol=1e-9)


@pytest.mark.parametrize("is_triangular", [False, True])
@pytest.mark.parametrize("columns", [2, 40, 230, 700])
def test_products_of_rows(columns, is_triangular):
    rng = np.random.default_rng(columns)
    x, matrix = rng.standard_normal((1003, columns)), rng.standard_normal((columns, columns))
    if is_triangular:
        matrix = np.triu(matrix)
    np.testing.assert_allclose(multiply_rows(x, matrix), x @ matrix, atol=1e-11)
    assert not np.allclose(multiply_rows(x, matrix), x @ np.triu(matrix, 1), atol=1e-3)


@pytest.mark.parametrize("size", [100, 1000, 5000])
@pytest.mark.parametrize("number", [3, 100])
def test_digitize_counts_nan_above_all_edges(size, number):
    x = np.random.default_rng(0).standard_normal(size)
    x[7] = np.nan
    edges = np.linspace(-1, 1, number)
    np.testing.assert_array_equal(digitize(edges, x), np.searchsorted(edges, x))


def test_a_running_sum_merges_in_batches():
    rng = np.random.default_rng(0)
    adder, every = Accumulator((CellCounter(None),)), []
    for _ in range(12):
        codes = rng.integers(0, 1 << 40, 200_000)
        every.append(codes)
        adder.merge([Counts(*np.unique(codes, return_counts=True))])
    assert len(adder._results[0]) < 12
    (total,) = adder.results()
    assert total.total == 2_400_000
    np.testing.assert_array_equal(total.codes, np.unique(np.concatenate(every), return_counts=True)[0])


def test_jax_arrays_are_counted_on_their_device_without_changing_settings():
    import jax
    import jax.numpy as jnp

    import dpverify as dpv
    from dpverify.events.partition import grid

    pilot = np.random.default_rng(0).standard_normal((100, 1, 2))
    samples = np.random.default_rng(1).standard_normal((1000, 1, 2))
    with enable_x64():
        device = jnp.asarray(samples)
    assert is_jax(device)
    assert array_namespace(device) is jnp
    for resolution in (3, 1000):  # a dense table on the device, sparse counts on the host
        partition = grid(dpv.high_likely_set(pilot), pilot, resolution)
        on_device, on_host = count_cells(partition, device), count_cells(partition, samples)
        np.testing.assert_array_equal(on_device.codes, on_host.codes)
        np.testing.assert_array_equal(on_device.counts, on_host.counts)
    assert jax.numpy.arange(3.0).dtype == np.float32


@pytest.mark.parametrize("length", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_the_first_true_values_are_found_in_order(length, share):
    jax = pytest.importorskip("jax")
    mask = np.random.default_rng(length).random(length) < share
    for size in (1, 40):
        expected = np.append(np.flatnonzero(mask), np.full(size, length))[:size]
        np.testing.assert_array_equal(first_true(jax.numpy.asarray(mask), size), expected)


class Tensor:
    """A tensor as other libraries have it."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)

    def detach(self):
        return Tensor(self.array, self.device)

    def cpu(self):
        return self.array


@pytest.mark.parametrize("device", [1, 2])
def test_a_tensor_of_another_library_is_an_array(device):
    """No accelerator is here: a tensor on one is copied to the host."""
    values = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(from_tensor(Tensor(values, device)), values)
    report = dpv.verify(
        lambda data, runs, rng: Tensor(data + rng.laplace(size=(runs, 1)), device), 0.0, 1.0, 0.1, test_runs=2000
    )
    assert report.refuted
