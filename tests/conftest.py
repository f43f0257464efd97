"""Options, markers and settings shared by all tests.

    --require-gpu   a test marked `gpu` fails, instead of being skipped, where there is no GPU
    --gpu           tests that can run on the emulator or on a GPU also run on the GPU
    --bless         tests that hold a rewritable expectation rewrite it
    --fuzz-n N      examples for each property, drawn at random; without it, a fixed set of them

A test with the fixture ``seeds`` gets the seeds of one share of the random programs. Its module has two constants:
``FIXED``, the number of programs without ``--fuzz-n``, and ``SHARE``, the number of programs in one test case.

Property tests with hypothesis leave `max_examples` to these settings. `Facts.checks_preserved` is on in all tests.
"""

import functools
import gc
import importlib
import random
from typing import Any

import pytest
from ptxmotion.analysis import Facts


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ptxmotion")
    group.addoption("--require-gpu", action="store_true", help="fail, do not skip, the tests that need a GPU")
    group.addoption("--gpu", action="store_true", help="also run on the GPU what can run on the emulator")
    group.addoption("--bless", action="store_true", help="rewrite the expectations that may be rewritten")
    group.addoption("--fuzz-n", type=int, default=0, metavar="N", help="random examples for each property")


def pytest_configure(config: pytest.Config) -> None:
    Facts.checks_preserved = True
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:
        return
    examples = int(config.getoption("--fuzz-n") or 0)
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    settings.register_profile("fixed", max_examples=50, derandomize=True, deadline=None)
    settings.register_profile(
        "fuzz",
        max_examples=max(examples, 1),
        derandomize=False,
        deadline=None,
        print_blob=True,
        suppress_health_check=quiet,
    )
    settings.load_profile("fuzz" if examples else "fixed")


def pytest_collection_finish() -> None:
    """The tests and their modules stay until the end. To visit them in each garbage collection takes 6 % of the time of
    a test process. Collections after each 100,000 new objects take 20 % of the time of tests that emulate kernels, and
    after each million 11 %, for 80 MB of memory."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        count = int(metafunc.config.getoption("--fuzz-n") or 0) or _constant(metafunc, "FIXED")
        shares = -(-count // _constant(metafunc, "SHARE"))
        metafunc.parametrize("seeds", range(shares), indirect=True, ids=lambda share: f"share{share}")


def _constant(test: Any, name: str) -> int:
    """A constant of the module of a test."""
    return int(getattr(test.module, name))


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """The seeds of a share: with ``--fuzz-n`` random numbers, else consecutive ones. Both have all remainders modulo
    the number of seeds."""
    each = _constant(request, "SHARE")
    if request.config.getoption("--fuzz-n"):
        return [each * random.randrange(1 << 37) + place for place in range(each)]
    return [each * request.param + place for place in range(each)]


@functools.cache
def why_no_gpu() -> str:
    """Why no GPU can be used here; the empty string if one can be used."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        return f"the extra `gpu` is not installed: {error}"
    try:
        (status,) = driver.cuInit(0)
        if status != driver.CUresult.CUDA_SUCCESS:
            return f"cuInit says {status.name}"
        status, count = driver.cuDeviceGetCount()
    except RuntimeError as error:  # raised where libcuda itself is missing
        return f"no driver: {error}"
    return "" if status == driver.CUresult.CUDA_SUCCESS and count else "the driver sees no device"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    if reason := why_no_gpu():
        if item.config.getoption("--require-gpu"):
            pytest.fail(f"--require-gpu: {reason}", pytrace=False)
        pytest.skip(f"no GPU: {reason}")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether this run rewrites expectations."""
    return bool(request.config.getoption("--bless"))
