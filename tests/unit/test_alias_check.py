"""The launch-time check of `restrict`: which arguments break the promise, and that the conservative kernel then
runs.
"""

import numpy as np
import pytest
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.alias_check import AliasGuard, Place, broken_promise, guarded
from ptxmotion.harness.correctness import Checker, run_once
from ptxmotion.harness.workload import Arm, KernelWork
from ptxmotion.programs.alias_promises import promised_modules
from ptxmotion.programs.tasks import promises_of
from ptxmotion.programs.variants import VariantError, parse_variant
from ptxmotion.ptx import parse, print_module
from ptxmotion.transforms.pipeline import run_passes


class Touches:
    def __init__(self, reads: str, writes: str) -> None:
        self.reads, self.writes = frozenset(reads.split()), frozenset(writes.split())


@pytest.mark.parametrize(
    ("covered", "reads", "writes", "places", "broken"),
    [
        ("a b", "a", "b", {"a": (0, 64), "b": (64, 128)}, False),
        ("a b", "a", "b", {"a": (0, 64), "b": (0, 64)}, True),
        ("a b", "a", "b", {"a": (0, 65), "b": (64, 128)}, True),
        ("a", "a", "b", {"a": (0, 64), "b": (0, 64)}, True),
        ("b", "a", "b", {"a": (0, 64), "b": (0, 64)}, True),
        ("", "a", "b", {"a": (0, 64), "b": (0, 64)}, False),
        ("c", "a", "b", {"a": (0, 64), "b": (0, 64), "c": (64, 80)}, False),
        ("a b", "a b", "", {"a": (0, 64), "b": (0, 64)}, False),  # no parameter is written
        ("a b", "", "b", {"a": (0, 64), "b": (0, 64)}, False),  # a is not accessed
        ("a b", "a", "a b", {"a": (0, 64), "b": (0, 64)}, True),
        ("a b", "a", "b", {"a": (0, 64), "b": None}, False),
    ],
)
def test_what_breaks_the_promise(
    covered: str, reads: str, writes: str, places: dict[str, tuple[int, int] | None], broken: bool
) -> None:
    where = {name: Place(*span) if span is not None else None for name, span in places.items()}
    found = broken_promise("k", frozenset(covered.split()), Touches(reads, writes), where)
    assert bool(found) == broken
    assert not found or ("'a'" in found and "'b'" in found)


#: out[i] += in[0] as a loop that reads in[0] in each iteration. If in = out, the value changes in the loop.
PTX = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry add(.param .u64 in, .param .u64 out, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.param.u32 %r1, [n];
	cvta.to.global.u64 %rd3, %rd1;
	cvta.to.global.u64 %rd4, %rd2;
L:
	ld.global.u32 %r2, [%rd3];
	ld.global.u32 %r3, [%rd4];
	add.s32 %r4, %r3, %r2;
	st.global.u32 [%rd4], %r4;
	add.s32 %r1, %r1, -1;
	setp.ne.s32 %p1, %r1, 0;
	@%p1 bra L;
	ret;
}
"""


def restricted() -> str:
    module = parse(PTX)
    run_passes(module, "O1", promise=Promise(everything=True))
    return print_module(module)


def work(arguments: tuple[str, str]) -> KernelWork:
    """A work item that launches the kernel on the arrays with these names. ``y`` is read and written."""
    arrays = dict.fromkeys(dict.fromkeys(arguments), ("uint32", 4))
    return KernelWork(
        "tests/add", "m", "add", (1, 1, 1), (1, 1, 1), arrays, (*arguments, np.uint32(5)), outputs=(arguments[1],)
    )


class Overlapping(KernelWork):
    """A work item whose outputs also contain random numbers, because the kernel reads them."""

    def data(self, seed: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(seed)
        return {name: generator.integers(1, 100, count).astype(dtype) for name, (dtype, count) in self.arrays.items()}


def overlapping(arguments: tuple[str, str]) -> KernelWork:
    made = work(arguments)
    return Overlapping(**{name: getattr(made, name) for name in made.__dataclass_fields__})


def outputs(arm: Arm, arguments: tuple[str, str]) -> tuple[np.ndarray, tuple[str, ...]]:
    found = run_once(EmulatorBackend(), overlapping(arguments), arm, 3, None)
    return found.outputs[arguments[1]], found.fallbacks


def test_overlapping_buffers_run_the_conservative_kernel() -> None:
    fast = restricted()
    assert fast.index("ld.global.u32") < fast.index("L:")  # the load is moved because of the promise
    promises = promised_modules(["-O1", "--alias=restrict"], {"m": PTX}, {"m": fast})
    plain, trusting, checked = Arm("O0", {"m": PTX}), Arm("x", {"m": fast}), Arm("x", {"m": fast}, promises=promises)
    one = ("x", "x")
    right = outputs(plain, one)[0]
    assert not np.array_equal(outputs(trusting, one)[0], right)
    found, fallbacks = outputs(checked, one)
    np.testing.assert_array_equal(found, right)
    assert fallbacks == ("add: the buffers of 'in' and 'out' overlap, and 'out' is written",)


def test_buffers_of_their_own_run_the_promised_kernel() -> None:
    fast = restricted()
    promises = promised_modules(["--alias", "restrict:add.out"], {"m": PTX}, {"m": fast})
    two = ("x", "y")
    right = outputs(Arm("O0", {"m": PTX}), two)[0]
    backend = EmulatorBackend()
    found = run_once(backend, overlapping(two), Arm("x", {"m": fast}, promises=promises), 3, None)
    np.testing.assert_array_equal(found.outputs["y"], right)
    assert found.fallbacks == ()
    assert backend.counts.by_class["ld.global"][1] == 6  # not 10: the load was moved out of the loop


def test_the_check_reports_the_fallback() -> None:
    fast = restricted()
    promises = promised_modules(["--alias=restrict"], {"m": PTX}, {"m": fast})
    checker = Checker(EmulatorBackend(), overlapping(("x", "x")), Arm("O0", {"m": PTX}), (1, 2), is_deterministic=True)
    assert checker.check_baseline().status == "ok"
    found = checker.check(Arm("x", {"m": fast}, promises=promises))
    assert found.status == "ok"
    assert [line for line in found.details if "launched without the promise" in line] == found.details != []
    assert checker.check(Arm("x", {"m": fast})).status == "mismatch"


def test_real_addresses_and_pointers_in_scalars() -> None:
    backend = EmulatorBackend()
    promises = promised_modules(["--alias=restrict"], {"m": PTX}, {"m": restricted()})
    guard = guarded(backend, promises)
    assert isinstance(guard, AliasGuard)
    buffer = guard.allocate(16)
    guard.write(buffer, np.arange(4, dtype=np.uint32))
    kernel = guard.load(restricted()).kernel("add")
    guard.launch(kernel, (1, 1, 1), (1, 1, 1), 0, [np.uint64(buffer.address), buffer, np.uint32(1)])
    assert len(guard.fallbacks) == 1
    other = guard.allocate(16)
    guard.write(other, np.arange(4, dtype=np.uint32))
    guard.launch(kernel, (1, 1, 1), (1, 1, 1), 0, [other, buffer, np.uint32(1)])
    assert len(guard.fallbacks) == 1
    guard.free(other)


def test_only_what_is_promised_is_checked() -> None:
    backend = EmulatorBackend()
    assert guarded(backend, {}) is backend
    assert promised_modules(["-O2"], {"m": PTX}, {"m": restricted()}) == {}
    assert promised_modules(["--alias=restrict"], {"m": PTX}, {"m": PTX}) == {}
    found = promised_modules(["--alias=restrict:other"], {"m": PTX}, {"m": restricted()})
    assert [each.covered["add"] for each in found.values()] == [frozenset()]


def test_a_variant_with_a_promise_is_checked() -> None:
    variant = parse_variant("r=-O1 --alias=restrict")
    found = promises_of(variant, {"m": PTX}, {"m": restricted()})
    assert [each.covered["add"] for each in found.values()] == [{"in", "out"}]
    with pytest.raises(VariantError, match="neither conservative nor restrict"):
        promises_of(parse_variant("-O1 --alias=none"), {"m": PTX}, {"m": restricted()})
