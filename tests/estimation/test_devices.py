"""The device on which JAX computes, and its start."""

from concurrent.futures import Future
from types import SimpleNamespace

import jax
import numpy as np

from dpverify.estimation import System
from dpverify.estimation import system as devices


def test_a_device_is_started_once():
    device = jax.devices("cpu")[0]
    devices.started.cache_clear()
    start = devices.started(device)
    assert devices.started(device) is start
    assert start.result().devices() == {device}


def test_a_new_system_starts_an_accelerator_and_waits_for_nothing(monkeypatch):
    begun = []

    def start(device):
        begun.append(device.platform)
        return Future()  # never done

    monkeypatch.setattr(devices, "started", start)
    System(A=np.eye(1), C=np.eye(1), start=(0.0,))
    assert begun == []
    monkeypatch.setattr(devices, "current_device", lambda: SimpleNamespace(platform="gpu"))
    System(A=np.eye(1), C=np.eye(1), start=(0.0,))
    assert begun == ["gpu"]
