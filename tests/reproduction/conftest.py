"""The page of the reproduction from made-up measurements."""

import pytest
from made_reproduction import PAIRS, make_draws, make_own, make_readings


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Write all files of the full form once, without the figures that compile an estimator."""
    pytest.importorskip("jax", reason="the extra estimation is not installed")
    from reproduction import figures
    from reproduction.page import write_page

    folder = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("sensor_scene", "accuracy_figure"):
            drawing = figures.accuracy_against_privacy(make_draws(1))._replace(title="Fig. 4 right")
            patch.setattr(figures, name, lambda drawing=drawing: drawing)
        calibrated = {"tau": 1.4e-5, "s_hat": 0.993}
        write_page(folder, "full", calibrated, make_readings(), make_draws(20), PAIRS, make_own())
    return folder
