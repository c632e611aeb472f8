"""The smallest ellipsoid: against cvxpy + Clarabel, against its own symmetries, and at the edges of its domain."""

from __future__ import annotations

import contextlib
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from dpverify.errors import InputError
from dpverify.events.region import Ellipsoid, log_volume, minimum_volume_ellipsoid

SHAPES = [(814, 2), (2000, 4), (814, 6)]
CLOUDS = ["normal", "ball", "heavy-tailed", "near-degenerate", "clustered"]


def cloud(kind: str, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng([n, d, CLOUDS.index(kind)])
    normal = rng.normal(size=(n, d))
    match kind:
        case "ball":
            return normal / np.linalg.norm(normal, axis=1, keepdims=True) * rng.random((n, 1)) ** (1 / d)
        case "heavy-tailed":
            return rng.standard_cauchy((n, d))
        case "near-degenerate":
            return normal * np.geomspace(1, 1e-7, d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
        case "clustered":
            return 0.01 * normal + rng.normal(size=(5, d))[rng.integers(5, size=n)]
    return normal


def inside(e: Ellipsoid, x: np.ndarray) -> bool:
    """Every row of x, with the two orders of summation that NumPy offers."""
    batched = np.linalg.norm(x @ e.A.T - e.b, axis=1)
    single = [np.linalg.norm(e.A @ row - e.b) for row in x[np.argsort(batched)[-50:]]]
    pinned = np.abs(x @ e.flat.directions.T - e.flat.values) <= e.flat.tolerance
    return bool((batched <= 1).all() and max(single, default=0) <= 1 and pinned.all())


def log_ball(d: int) -> float:
    return float(d / 2 * np.log(np.pi) - gammaln(d / 2 + 1))


def oracle(x: np.ndarray) -> float:
    """The least log-volume by cvxpy + Clarabel, on whitened points: on raw ones the solver loses its digits."""
    cvxpy = pytest.importorskip("cvxpy")
    n, d = x.shape
    triangle = np.linalg.qr(x - x.mean(axis=0), mode="r") / np.sqrt(n)
    white = np.linalg.solve(triangle.T, (x - x.mean(axis=0)).T).T
    A, b = cvxpy.Variable((d, d), PSD=True), cvxpy.Variable(d)
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.log_det(A)), [cvxpy.norm(white @ A - b[None, :], axis=1) <= 1])
    # Clarabel breaks down on some of these clouds; a shorter step towards the boundary then helps.
    for fraction in (0.9, 0.99, 0.8):
        with contextlib.suppress(cvxpy.SolverError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
            problem.solve(solver=cvxpy.CLARABEL, max_step_fraction=fraction, tol_gap_abs=1e-8, tol_gap_rel=1e-8)
        if problem.status == "optimal":
            break
    assert problem.status == "optimal"
    assert A.value is not None
    assert b.value is not None
    assert np.linalg.norm(white @ A.value - b.value, axis=1).max() <= 1 + 1e-8
    return -np.linalg.slogdet(A.value)[1] + np.linalg.slogdet(triangle)[1] + log_ball(d)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", CLOUDS)
def test_agrees_with_clarabel(kind, shape):
    x = cloud(kind, *shape)
    e = minimum_volume_ellipsoid(x)
    assert e.A.shape == (shape[1], shape[1])
    assert (e.A == e.A.T).all()
    assert np.linalg.eigvalsh(e.A).min() > 0
    assert inside(e, x)
    assert 0 <= e.gap <= 1e-7
    assert log_volume(e) == pytest.approx(oracle(x), rel=0, abs=1e-6)


@pytest.mark.parametrize("kind", CLOUDS)
def test_both_solvers_of_the_weights_agree_in_many_dimensions(kind, monkeypatch):
    x = cloud(kind, 1500, 20)
    pivoting = minimum_volume_ellipsoid(x)
    monkeypatch.setattr("dpverify.events.region.MIN_PIVOTING_DIMENSION", 1000)
    active_set = minimum_volume_ellipsoid(x)
    assert inside(pivoting, x)
    assert max(pivoting.gap, active_set.gap) <= 1e-7
    assert log_volume(pivoting) == pytest.approx(log_volume(active_set), abs=1e-7)
    approximate = minimum_volume_ellipsoid(x, approximate=True)
    assert log_volume(approximate) > log_volume(pivoting) + 1e-3


def test_gap_is_certified_without_an_oracle():
    """Known answers: balls around the cube's corners and the cross-polytope, Steiner's ellipsoid of a simplex."""
    for d in range(1, 7):
        corners = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
        cross = np.vstack([np.eye(d), -np.eye(d)])
        simplex = np.vstack([np.zeros(d), np.eye(d)])
        # The regular simplex of unit circumradius has volume ((d + 1) / d)^(d / 2) sqrt(d + 1) / d!; ours has 1 / d!.
        steiner = -(d / 2) * np.log((d + 1) / d) - np.log(d + 1) / 2
        for x, expected in [(corners, d / 2 * np.log(d)), (cross, 0.0), (simplex, steiner)]:
            e = minimum_volume_ellipsoid(x)
            assert abs(log_volume(e) - log_ball(d) - expected) <= e.gap + 1e-14 <= 1e-7
            assert inside(e, x)


def test_checks_have_teeth():
    """An ellipsoid shrunk by 1e-3 fails containment; one of the shape of the covariance fails the volume."""
    x = cloud("normal", 814, 2)
    e = minimum_volume_ellipsoid(x)
    assert not inside(e._replace(A=e.A * 1.001, b=e.b * 1.001), x)
    root = np.linalg.inv(np.linalg.cholesky(np.cov(x.T)))
    radius = np.linalg.norm((x - x.mean(axis=0)) @ root.T, axis=1).max()
    covariance = e._replace(A=root / radius, b=root @ x.mean(axis=0) / radius)
    assert log_volume(covariance) > log_volume(e) + 1e-3
    shifted = e._replace(flat=minimum_volume_ellipsoid([[1.0, 2.0]]).flat)
    assert not inside(shifted, x)


@pytest.mark.parametrize("n", [2, 3, 100])
def test_interval(n):
    x = np.random.default_rng(n).normal(size=n)
    e = minimum_volume_ellipsoid(x)
    ends = (e.b + np.array([-1, 1])) / e.A[0]
    assert ends == pytest.approx([x.min(), x.max()], rel=1e-13)
    assert inside(e, x[:, None])
    assert minimum_volume_ellipsoid(x[:, None]).A == e.A


@pytest.mark.parametrize("x", [np.ones((1, 3)), np.full((7, 2), 0.1), np.zeros((4, 1)), [5.0, 5.0], [[1e300, -1e-300]]])
def test_single_point(x):
    x = np.asarray(x, dtype=float).reshape(len(x), -1)
    e = minimum_volume_ellipsoid(x)
    d = x.shape[1]
    assert e.A.shape == (0, d)
    assert e.b.shape == (0,)
    assert (e.flat.directions == np.eye(d)).all()
    assert (e.flat.values == x[0]).all()
    assert (e.flat.tolerance <= 1e-14 * np.abs(x[0])).all()
    assert (log_volume(e), e.gap) == (0.0, 0.0)
    assert inside(e, x)


def test_constant_coordinate_is_pinned_along_its_axis():
    x = np.insert(cloud("normal", 100, 2), 1, 0.1, axis=1)
    e, plane = minimum_volume_ellipsoid(x), minimum_volume_ellipsoid(x[:, [0, 2]])
    assert (e.flat.directions == [[0, 1, 0]]).all()
    assert e.flat.values == 0.1
    assert (e.A[:, 1] == 0).all()
    assert e.A[:, [0, 2]] == pytest.approx(plane.A, rel=1e-12)
    assert inside(e, x)
    x[:, 1] += 1e-15 * x[:, 0]  # rounding, not spread
    assert (minimum_volume_ellipsoid(x).flat.directions == [[0, 1, 0]]).all()


@pytest.mark.parametrize(("units", "offset"), [([1, 1, 1], 0), ([1, 1, 1], 1e6), ([1e-9, 1, 1e3], 0)])
@pytest.mark.parametrize("rank", [1, 2])
def test_affine_hull(rank, units, offset):
    """Points on an oblique line or plane in R^3: pinned within float rounding, and of the volume in the hull."""
    rng = np.random.default_rng(rank)
    coordinates, frame = rng.normal(size=(200, rank)), rng.normal(size=(rank, 3)) * units
    x = coordinates @ frame + offset
    e = minimum_volume_ellipsoid(x)
    assert e.A.shape == (rank, 3)
    assert e.flat.directions @ e.flat.directions.T == pytest.approx(np.eye(3 - rank), abs=1e-12)
    assert np.abs(e.A @ e.flat.directions.T).max() <= 1e-12 * np.abs(e.A).max()
    assert (e.flat.tolerance <= 1e-14 * np.abs(x).max()).all()
    assert inside(e, x)
    stretch = np.log(np.abs(np.diagonal(np.linalg.qr(frame.T, mode="r")))).sum()
    assert log_volume(e) == pytest.approx(log_volume(minimum_volume_ellipsoid(coordinates)) + stretch, abs=1e-7)
    # Off the hull is out, by the pins alone.
    moved = x[:1] + 1e-6 * np.abs(x).max() * e.flat.directions[0]
    assert not inside(e, moved)


def test_fewer_points_than_dimensions_and_duplicates():
    x = np.random.default_rng(0).normal(size=(3, 5))
    e = minimum_volume_ellipsoid(np.repeat(x, 4, axis=0))
    assert e.A.shape == (2, 5)
    assert len(e.flat.directions) == 3
    assert inside(e, x)
    # All three are on the boundary of Steiner's ellipse.
    assert np.linalg.norm(x @ e.A.T - e.b, axis=1) == pytest.approx(np.ones(3), abs=1e-7)


def test_units_are_not_flatness():
    x = cloud("normal", 500, 2)
    e, scaled = minimum_volume_ellipsoid(x), minimum_volume_ellipsoid(x * [1e-9, 1e3])
    assert scaled.A.shape == (2, 2)
    assert log_volume(scaled) == pytest.approx(log_volume(e) + np.log(1e-6), abs=1e-9)
    assert inside(scaled, x * [1e-9, 1e3])


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scale(scale):
    x = cloud("normal", 500, 3)
    e = minimum_volume_ellipsoid(x * scale)
    assert log_volume(e) == pytest.approx(log_volume(minimum_volume_ellipsoid(x)) + 3 * np.log(scale), abs=1e-7)
    assert e.gap <= 1e-7
    assert inside(e, x * scale)


def test_huge_offset():
    x = cloud("normal", 500, 3) + 1e6
    e, near = minimum_volume_ellipsoid(x), minimum_volume_ellipsoid(x - 1e6)
    assert e.gap <= 1e-7
    assert log_volume(e) == pytest.approx(log_volume(near), abs=1e-7)
    assert inside(e, x)
    # With fewer significant digits the points are still inside, and the gap is larger.
    far = cloud("normal", 500, 3) + 1e10
    assert inside(minimum_volume_ellipsoid(far), far)
    assert minimum_volume_ellipsoid(far).gap > 1e-7


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([[1.0, np.nan], [0, 1]], "point 0"),
        ([[1.0, 2], [np.inf, 1]], "point 1"),
        (np.empty((0, 2)), r"\(0, 2\)"),
        (np.empty((3, 0)), r"\(3, 0\)"),
        ([], r"\(0,\)"),
        (1.0, r"\(\)"),
        (np.zeros((2, 2, 2)), r"\(2, 2, 2\)"),
        ([[1.0], [1.0, 2.0]], "different lengths"),
        (["a", "b"], "real numbers"),
        ([1j, 2j], "real numbers"),
    ],
)
def test_bad_input(points, words):
    with pytest.raises(InputError, match=words) as error:
        minimum_volume_ellipsoid(points)
    assert "\n" not in str(error.value)


def test_integers_are_points_too():
    x = np.array([[0, 0], [2, 0], [0, 2], [2, 2]])
    e = minimum_volume_ellipsoid(x)
    assert np.linalg.solve(e.A, e.b) == pytest.approx([1, 1])
    assert x.dtype.kind == "i"


@st.composite
def clouds(draw):
    """Clouds of every shape the theory must bear: few points, repeated points, integers (many ties), heavy tails."""
    d, n = draw(st.integers(1, 5)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = draw(
        st.sampled_from(
            [
                lambda: rng.normal(size=(n, d)),
                lambda: rng.integers(-2, 3, size=(n, d)).astype(float),
                lambda: rng.standard_cauchy((n, d)),
                lambda: np.repeat(rng.random((n, d)), 3, axis=0),
                lambda: rng.normal(size=(n, max(d - 1, 1))) @ rng.normal(size=(max(d - 1, 1), d)),
            ]
        )
    )()
    return rng, x


@settings(max_examples=150, deadline=None)
@given(clouds())
def test_contains_every_point(drawn):
    _, x = drawn
    e = minimum_volume_ellipsoid(x)
    assert len(e.A) + len(e.flat.directions) == x.shape[1]
    assert inside(e, x)
    assert np.isfinite(log_volume(e))
    assert 0 <= e.gap <= 1e-6


@settings(max_examples=100, deadline=None)
@given(clouds())
def test_permutation_invariance(drawn):
    rng, x = drawn
    e, shuffled = minimum_volume_ellipsoid(x), minimum_volume_ellipsoid(rng.permutation(x))
    assert len(shuffled.A) == len(e.A)
    assert log_volume(shuffled) == pytest.approx(log_volume(e), abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(clouds())
def test_affine_equivariance(drawn):
    """Radii of fresh points are unchanged under an affine map, and log-volume shifts by its log determinant."""
    rng, x = drawn
    d = x.shape[1]
    map_ = (
        np.linalg.qr(rng.normal(size=(d, d)))[0]
        * rng.uniform(0.2, 5, size=d)
        @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    )
    shift = rng.normal(size=d)
    e, image = minimum_volume_ellipsoid(x), minimum_volume_ellipsoid(x @ map_.T + shift)
    assert len(image.A) == len(e.A)
    fresh = rng.dirichlet(np.ones(len(x)), size=20) @ x * 1.5 - 0.5 * x.mean(axis=0)  # in the hull, in and out
    before = np.linalg.norm(fresh @ e.A.T - e.b, axis=1)
    after = np.linalg.norm((fresh @ map_.T + shift) @ image.A.T - image.b, axis=1)
    assert after == pytest.approx(before, abs=1e-3)  # the volume is flat at its minimum: 1e-7 in it is 3e-4 in shape
    if len(e.A) == d:
        assert log_volume(image) - log_volume(e) == pytest.approx(np.linalg.slogdet(map_)[1], abs=1e-6)
