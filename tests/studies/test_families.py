"""A family of mechanisms is a function of one parameter; what is passed instead is named."""

import pytest

import dpverify as dpv
from dpverify.studies.calibrate import check_family
from mechanisms import laplace

EXPECTED = "expected family(parameter) that returns a mechanism"
A_MECHANISM = (
    f"found a mechanism (its parameters are data, runs, rng); {EXPECTED}; define one that sets the noise of laplace, "
    "or verify laplace itself: verify(laplace, first, second)"
)


def test_a_mechanism_instead_of_a_family_is_named():
    with pytest.raises(dpv.InputError) as caught:
        dpv.calibrate(laplace, (0.1, 1.0), 0.0, 1.0, epsilon=1.0, delta=0.0)
    assert str(caught.value) == f"family: {A_MECHANISM}"
    with pytest.raises(dpv.InputError) as caught:
        dpv.tradeoff({"Laplace": (laplace, [0.5])}, 0.0, 1.0, 0.01, dpv.rmse([[0.0]]))
    assert str(caught.value) == f"families: Laplace: {A_MECHANISM}"


class Scaled:
    def __init__(self, scale, shift=0.0):
        self.scale = scale

    def __call__(self, data, runs, rng):
        return rng.laplace(data, self.scale, size=runs)


def test_functions_and_classes_of_one_parameter_are_families():
    for family in (Scaled, lambda scale: Scaled(scale), lambda *parameters: Scaled(*parameters)):
        check_family(family)
    for other, found in (
        (Scaled(1.0), "a mechanism (its parameters are data, runs, rng)"),
        (lambda a, b: Scaled(a), "a function of (a, b)"),
        (1.0, "float"),
    ):
        with pytest.raises(dpv.InputError) as caught:
            check_family(other)
        assert str(caught.value).startswith(f"family: found {found}; {EXPECTED}")
