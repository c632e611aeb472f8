"""Made-up measurements on a draw of sensors, for the tests of the reproduction."""

import math

from dpverify.paper.measurements import CurvePoint, PaperMeasurement, SensorDraw, TheoremBounds


def make_draw(number, rng, loss=1.0, spread=0.3, laws=("gibbs",)):
    """Return a draw whose mechanisms have epsilon = c / error.

    `loss` is c of the other mechanisms divided by c of the W2-MHE. `spread` is the standard deviation of ln c between
    draws.
    """
    scale = math.exp(spread * rng.standard_normal())

    def curve(name, factor):
        c = 0.015 * scale * factor * math.exp(0.1 * rng.standard_normal())
        return [CurvePoint(name, 0.6 - 10 * error, c / error, error) for error in (0.004, 0.008, 0.016)]

    names = [*laws, "perturbed", "ekf"]
    curves = [point for name in names for point in curve(name, 1.0 if name in laws else loss)]
    repeated = curve("gibbs", 1.0)
    paper = [PaperMeasurement(name, 1.0 + rng.random(), 0.004) for name in names]
    theorem = TheoremBounds(0.5, 1000.0, 50.0 + rng.random())
    return SensorDraw(number, 10.0, tuple(curves), tuple(paper), tuple(repeated), theorem)
