"""Fused host programs with real kernels: reassigned parameters, and fusions that are legal only if checks are true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion import dsl
from ptxmotion.dsl import program_from_text, ptx_source
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.dsl.run import Loaded
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.transforms.kernel_fusion.host_values import HostValues, Signs, bounds_of_check
from ptxmotion.transforms.kernel_fusion.kernel_code import AnyKernel
from ptxmotion.transforms.kernel_fusion.plan import FusedProgram, FusionOptions, fuse_program

SIZE = 1024


def pitched(name: str, operation: str) -> str:
    """``y[row * pitch + column] = operation(x[row * pitch + column], 3)`` for each thread of a grid of two axes."""
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 x, .param .u64 y, .param .u32 pitch)
{{
  .reg .u64 %x, %y, %o;
  .reg .u32 %t, %b, %w, %row, %p, %i, %v, %r;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  ld.param.u32 %p, [pitch];
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mov.u32 %w, %ntid.x;
  mov.u32 %row, %ctaid.y;
  mad.lo.s32 %i, %b, %w, %t;
  mad.lo.s32 %i, %row, %p, %i;
  mul.wide.s32 %o, %i, 4;
  add.s64 %x, %x, %o;
  add.s64 %y, %y, %o;
  ld.global.u32 %v, [%x];
  {operation} %r, %v, 3;
  st.global.u32 [%y], %r;
  ret;
}}
"""


KERNELS = {"one": pitched("one", "add.u32"), "two": pitched("two", "mul.lo.u32")}
NAMESPACE: dict[str, Any] = {**vars(dsl), **{name: ptx_source(text, name) for name, text in KERNELS.items()}}


def program(body: str) -> HostProgram:
    lines = ["def p(data: host[i32], n: i32, m: i32) -> None:"]
    lines += [f"    {name} = allocate(i32, {SIZE})" for name in "abc"]
    lines += [f"    copy({name}, data)" for name in "abc"]
    lines += ["    " + line for line in body.splitlines()]
    return program_from_text("\n".join([*lines, "    copy(data, c)"]) + "\n", NAMESPACE)


def fused(body: str) -> FusedProgram:
    return fuse_program(program(body), given, FusionOptions())


def given(kernel: AnyKernel) -> str:
    return KERNELS[kernel.name]


def run(host: HostProgram, ptx: Callable[[AnyKernel], str], n: int, m: int) -> NDArray[Any]:
    data = np.arange(SIZE, dtype=np.int32)
    loaded = Loaded(host, EmulatorBackend(schedule="order"), ptx)
    return loaded.run({"data": data, "n": n, "m": m})["data"]


def check(body: str, sizes: list[tuple[int, int]]) -> FusedProgram:
    """Fuse, and compare what both programs compute for each ``n`` and ``m``."""
    before, after = program(body), fused(body)
    for n, m in sizes:
        wanted = run(before, given, n, m)
        assert np.array_equal(run(after.host, after.ptx, n, m), wanted), (n, m, after.host.to_python())
    return after


@pytest.mark.parametrize("change", ["if n > 8:\n    n = 2", "while n > 8:\n    n = 2", "for n in range(3):\n    m = m"])
def test_a_parameter_that_is_assigned_once_has_two_values(change: str) -> None:
    """The grids of the two launches differ, and so do the elements that they store."""
    body = f"blocks = n\n{change}\none[(blocks, 1), 32](a, b, 32)\ntwo[(n, 1), 32](b, c, 32)"
    after = check(body, [(4, 1), (12, 1)])
    assert "(2, 1)" not in after.host.to_python()


def test_a_pitch_assigned_in_a_branch_has_no_single_value() -> None:
    body = "q = n\nif m > 1:\n    n = 32\none[(1, 4), 32](a, b, q)\ntwo[(1, 4), 32](b, c, n)"
    check(body, [(64, 0), (64, 2), (32, 0)])


PITCHED = "one[(m // 32, 4), 32](a, b, n)\ntwo[(m // 32, 4), 32](b, c, n)"


def test_checks_are_facts_for_forwarding_and_dead_stores() -> None:
    after = check(PITCHED, [(64, 64), (128, 64), (48, 64), (32, 128)])
    text = after.host.to_python()
    assert "if " in text and "else:" in text
    (pair,) = after.fused.values()
    forms = [instr.form.text for instr in pair.code.entry.instructions()]
    assert (forms.count("ld.global.u32"), forms.count("st.global.u32")) == (1, 1)
    assert {remark.name for remark in after.remarks} == {"Fused", "DeadStores"}


@pytest.mark.parametrize("first", ["k = 32\none[(k // 32, 4), 32]", "k = 2\none[(m // 32, k * 2), 32]"])
def test_the_parts_of_a_checked_fusion_keep_their_arguments(first: str) -> None:
    """The fused launch has the value of ``k``, its parts have ``k`` itself. So none of them may be moved over an
    assignment of it."""
    body = f"{first}(a, b, n)\nk = m\ntwo[(m // 32, 4), 32](b, c, n)\none[(k // 32, 4), 32](c, a, n)"
    check(body, [(64, 96), (32, 64), (64, 32), (96, 64), (128, 32)])
    without = body.replace("k = m\n", "").replace("(k // 32", "(m // 32")
    assert "if " in check(without, [(64, 96)]).host.to_python()


def test_a_store_is_kept_if_the_parts_may_read_it_in_a_later_iteration() -> None:
    """If the check fails in a later iteration, the second part may read values that only the fused kernel wrote."""
    body = "for i in range(2):\n" + "\n".join("    " + line for line in PITCHED.splitlines())
    body += "\n    m = m * 2 - 96 * i\n    n = n - 32"
    after = check(body, [(64, 64), (128, 64), (96, 32)])
    assert "if " in after.host.to_python()
    assert "DeadStores" not in {remark.name for remark in after.remarks}


def test_checks_give_bounds() -> None:
    values = HostValues({}, ("4 * n - 256 * (m // 64) + 1 > 0", "n <= 100"))
    signs = Signs(values, may_check=False)
    assert signs.is_positive(values.poly("4 * n - 256 * (m // 64) + 1"))
    assert signs.is_positive(values.poly("101 - n"))
    assert not signs.is_positive(values.poly("n"))
    for text in ("n == 3", "n > m", "1 < n < 3", "n"):
        with pytest.raises(ValueError, match="does not bound"):
            bounds_of_check(text)
