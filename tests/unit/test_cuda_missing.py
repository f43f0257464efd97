"""A machine without a usable GPU: each reason is reported with a remedy."""

import importlib
from enum import Enum
from typing import Any

import pytest
from ptxmotion.harness.cuda import CudaBackend, probe
from ptxmotion.harness.machine import MachineMissing


class Status(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


class Driver:
    """The part of the bindings that is called before a GPU is used."""

    CUresult = Status

    def __init__(self, init: Status = Status.CUDA_SUCCESS, version: int = 13000, count: int = 1) -> None:
        self.init, self.version, self.count = init, version, count

    def cuInit(self, flags: int) -> tuple[Status]:
        return (self.init,)

    def cuDriverGetVersion(self) -> tuple[Status, int]:
        return Status.CUDA_SUCCESS, self.version

    def cuDeviceGetCount(self) -> tuple[Status, int]:
        return Status.CUDA_SUCCESS, self.count


class NoLibrary(Driver):
    def cuInit(self, flags: int) -> tuple[Status]:
        raise RuntimeError("libcuda.so.1 is not there")


@pytest.mark.parametrize(
    ("driver", "reason", "advice"),
    [
        (None, "cuda-bindings cannot be loaded", r"pip install 'ptxmotion\[gpu\]'"),
        (NoLibrary(), "no NVIDIA driver", "580 or newer"),
        (Driver(Status.CUDA_ERROR_NO_DEVICE), "CUDA_ERROR_NO_DEVICE", "580 or newer"),
        (Driver(Status.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH), "DRIVER_MISMATCH", "580 or newer"),
        (Driver(version=12040), "too old: it supports CUDA 12.4, and 13.0 is required", "580 or newer"),
        (Driver(count=0), "sees no device", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_why_no_gpu_can_be_used(
    driver: Driver | None, reason: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bindings(name: str) -> Any:
        if driver is None:
            raise ImportError("No module named 'cuda'")
        return driver

    monkeypatch.setattr(importlib, "import_module", bindings)
    with pytest.raises(MachineMissing, match=f"(?s){reason}.*{advice}"):
        CudaBackend()
    count, why = probe()
    assert count == 0 and why


def test_a_usable_driver_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: Driver(count=3))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert probe() == (3, "")
