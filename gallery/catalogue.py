"""All entries of the gallery, in the order of the page."""

from __future__ import annotations

from gallery import (
    binary,
    bounded_laplace,
    consensus,
    fast,
    kalman,
    location_guard,
    matrix,
    opendp_tree,
    output_noise,
    pegasus,
    planar_laplace,
    posterior,
    quantiser,
    triggered,
    truncated,
    w_event,
)

MODULES = (
    *(kalman, output_noise, posterior, consensus, triggered, binary, matrix, fast, w_event, pegasus),
    *(planar_laplace, quantiser, truncated, bounded_laplace, location_guard, opendp_tree),
)
ENTRIES = tuple(module.ENTRY for module in MODULES)
