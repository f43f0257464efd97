"""The variant ``…+contract``: each launch takes the first version of a kernel that its contract allows."""

from dataclasses import replace

import numpy as np
import pytest
from ptxmotion import Policy, optimize
from ptxmotion.contract import ContractError, parse
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.contract_guard import ContractGuard, under_contracts
from ptxmotion.harness.correctness import Checker
from ptxmotion.harness.workload import Arm, KernelWork
from ptxmotion.programs.variants import Variant, VariantError, Variants, parse_variant

#: out[i] += in[0] in a loop that reads in[0] in each iteration. If in = out, the value changes in the loop.
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
	mov.u32 %r2, 0;
LOOP:
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r3, [%rd1];
	st.global.u32 [%rd4], %r3;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra LOOP;
	ret;
}
"""

APART = KernelWork(
    "own/add", "m", "add", (1, 1, 1), (1, 1, 1), {"in": ("uint32", 8), "out": ("uint32", 8)},
    ("in", "out", np.uint32(8)), ("out",),
)  # fmt: skip
#: Both parameters point into one buffer.
SHARED = replace(APART, arguments=("out", "out", np.uint32(8)), arrays={"out": ("uint32", 8)})


def made() -> tuple[str, str]:
    """The PTX with a version, and its contract."""
    result = optimize(PTX, "O3", Policy(contract=True, gate="off"))
    assert result.contract is not None
    return result.text, result.contract.dumps()


def guard_over(work: KernelWork) -> ContractGuard:
    text, contract = made()
    guard = under_contracts(EmulatorBackend(), {text: contract})
    work.run(guard, {"m": text}, 0)
    return guard


def test_a_launch_takes_the_version_whose_conditions_hold() -> None:
    assert guard_over(APART).taken == {("add", "disjoint buffers"): 1}


def test_a_launch_with_one_buffer_takes_the_kernel() -> None:
    assert guard_over(SHARED).taken == {("add", ""): 1}


@pytest.mark.parametrize("work", [APART, SHARED], ids=["apart", "shared"])
def test_the_variant_computes_the_same(work: KernelWork) -> None:
    text, contract = made()
    checker = Checker(EmulatorBackend(), work, Arm("nvcc", {"m": PTX}), (0, 1), is_deterministic=True)
    assert checker.check_baseline().status == "ok"
    assert checker.check(Arm("contract", {"m": text}, contracts={text: contract})).status == "ok"
    launched = checker.recorded["contract"].launches[0].kernel
    assert (launched == "add") == (work is SHARED)


def test_a_version_that_is_not_preferred_is_not_taken() -> None:
    text, contract = made()
    guard = under_contracts(EmulatorBackend(), {text: contract})
    kernel = guard.contracts[text].kernels["add"]
    versions = (replace(kernel.versions[0], prefer_when=parse("warps_per_scheduler <= 4")), *kernel.versions[1:])
    changed = replace(guard.contracts[text], kernels={"add": replace(kernel, versions=versions)})
    guard = ContractGuard(EmulatorBackend(), {text: changed})
    APART.run(guard, {"m": text}, 0)
    assert all(what != "disjoint buffers" for _, what in guard.taken), "the emulator does not know the warps"


class Crowded(EmulatorBackend):
    """A backend on which no block of a version fits, because it has too many registers."""

    def occupancy(self, kernel: object, threads: int, shared: int) -> int:
        return 0 if "ptxmotion" in kernel.name else 8  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def attribute(self, name: str) -> int:
        return {"MULTIPROCESSOR_COUNT": 132}[name]


def test_a_version_whose_block_does_not_fit_is_not_taken() -> None:
    text, contract = made()
    guard = under_contracts(Crowded(), {text: contract})
    APART.run(guard, {"m": text}, 0)
    assert guard.taken == {("add", ""): 1}


def test_a_contract_of_another_module_is_refused() -> None:
    text, contract = made()
    with pytest.raises(ContractError, match="of another module"):
        under_contracts(EmulatorBackend(), {text + "\n": contract})


def test_the_variant_is_made_by_opt() -> None:
    variant = parse_variant("-O3 --gate=off+contract")
    assert variant == Variant("-O3 --gate=off+contract", ("-O3", "--gate=off"), contract=True)
    with Variants() as maker:
        for _ in range(2):  # from the optimizer, and from what it returned before
            modules = maker.modules(variant, {"m": PTX})
            assert maker.contracts(variant, {"m": PTX}).keys() == {modules["m"]}
            assert "add__ptxmotion_1" in modules["m"]
        assert maker.contracts(parse_variant("-O3"), {"m": PTX}) == {}


@pytest.mark.parametrize("text", ["O3+contract", "HEAD@-O3+contract", "kernels.ptx+contract"])
def test_a_contract_needs_options_of_this_version(text: str) -> None:
    with pytest.raises(VariantError, match="a contract needs options or passes of this version"):
        parse_variant(text)
