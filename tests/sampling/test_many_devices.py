"""Several devices of one host: they draw different blocks, and the digest does not depend on their number."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

SCRIPT = """
import json
import jax, numpy as np
import dpverify as dpv

used = set()

def walk(data, runs, rng):
    with jax.enable_x64(True):
        output = data + jax.random.normal(dpv.jax_key(rng), (runs, 2))
    used.update(device.id for device in output.devices())
    return output

report = dpv.verify(walk, np.zeros(2), np.full(2, 0.4), 1.0, select_runs=2000, test_runs=20_000, events="cell")
print(json.dumps([report.digest, report.provenance["workers"], sorted(used)]))
"""


def outcome(devices):
    """Verify in a new process with so many devices; return the digest, the workers and the devices that drew."""
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    result = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.slow
def test_two_devices_draw_and_the_digest_is_that_of_one():
    one, two = outcome(1), outcome(2)
    assert one[1:] == [1, [0]]
    assert two[1:] == [2, [0, 1]]
    assert one[0] == two[0]
