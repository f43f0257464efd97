"""No thread of a suite program executes more loads than before; for speculative variants, no warp does."""

import pytest
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.ptx import parse, print_module
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import run
from suite_programs import compiled, optimized

#: Programs in which scalar replacement finds something, and which the emulator runs in a second.
PROGRAMS = (
    "cuda_samples/SobelFilter-consecutive",
    "rodinia/lud",
    "rodinia/particlefilter",
)
CLEAN_UP = "copyprop,dce,emptyblocks"


def loads(name: str, ptx: dict[str, str]) -> tuple[int, int, dict[str, bytes]]:
    """How many loads warps and threads execute, and the results of the program."""
    backend = EmulatorBackend(checks=False)
    outcome = run(find(name), backend, ptx)
    classes = backend.counts.by_class.items()
    pairs = [pair for what, pair in classes if what.startswith(("ld.global", "ld.shared", "ld.local"))]
    outputs = {output: value.tobytes() for output, value in outcome.outputs.items()}
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs), outputs


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_variant_loads_more(name: str) -> None:
    plain = compiled(name)
    warps, threads, outputs = loads(name, plain)
    seen = [{kernel: print_module(parse(text)) for kernel, text in plain.items()}]
    for variant in ("srqp", "esrqp", "ssrqp_s", "ssrqp"):
        made = {kernel: optimized(text, f"{variant},{CLEAN_UP}") for kernel, text in plain.items()}
        if made in seen:
            continue
        seen.append(made)
        now = loads(name, made)
        assert now[0] <= warps, variant
        if variant in ("srqp", "esrqp"):
            assert now[1] <= threads, variant
        assert now[2] == outputs, variant
    assert len(seen) > 1, "nothing is replaced, so nothing is tested"
