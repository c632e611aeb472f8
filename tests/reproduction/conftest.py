"""The page of the reproduction from made-up measurements."""

import pytest
from made_reproduction import OWN, PAIRS, SHIFTS, make_draws, make_readings


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Write all files of the full form once, without the figures that compile an estimator."""
    pytest.importorskip("jax", reason="the extra estimation is not installed")
    from reproduction import figures
    from reproduction.page import write_page

    folder = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        drawing = figures.accuracy_against_privacy(make_draws(1))._replace(title="Fig. 1")
        patch.setattr(figures, "sensor_scene", lambda: drawing)
        write_page(folder, "full", SHIFTS, make_readings(), make_draws(20), PAIRS, OWN)
    return folder
