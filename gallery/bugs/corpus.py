"""All bugs, in the order of the page."""

from __future__ import annotations

from gallery.bugs import (
    adaptive_covariance,
    batch_normalisation,
    binary_tree,
    bounds_twice,
    clamped,
    data_scaled,
    floating_point,
    grid_noise,
    innovation,
    joint_release,
    last_bit,
    location_blur,
    mean_of_n,
    missing_bounds,
    outlier_gate,
    output_length,
    per_parameter_clip,
    per_step_claim,
    rejection,
    replace_one,
    replayed_noise,
    send_on_change,
    small_seed,
    smart_meter,
    squared_scale,
    stopping,
    svt_no_cutoff,
    svt_no_query_noise,
    svt_unnoised,
    threshold_delta,
    unclipped_variance,
    wrong_sensitivity,
)

LIBRARIES = (
    *(threshold_delta, output_length, last_bit, replace_one, batch_normalisation, bounds_twice, unclipped_variance),
    *(joint_release, svt_unnoised, wrong_sensitivity, squared_scale, mean_of_n, missing_bounds, per_parameter_clip),
)
ALGORITHMS = (svt_no_query_noise, svt_no_cutoff, small_seed, data_scaled, floating_point, rejection, clamped)
STREAMS = (
    *(innovation, adaptive_covariance, binary_tree, location_blur, smart_meter, send_on_change, outlier_gate),
    *(per_step_claim, replayed_noise, grid_noise, stopping),
)
BUGS = tuple(module.BUG for module in (*LIBRARIES, *ALGORITHMS, *STREAMS))
