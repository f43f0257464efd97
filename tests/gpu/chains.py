"""Kernels whose time is known by construction: chains of dependent instructions, with a planted slowdown.

In `chain`, each thread runs a loop of dependent multiply-adds between one load and one store. Its time is the number of
iterations times their latency, so 2 % more iterations take 2 % more time. `spin` runs for a given time, measured by the
timer of the GPU. Each is a work item with one launch.
"""

from __future__ import annotations

from ptxmotion.harness.workload import Arm, KernelWork

_HEADER = ".version 8.0\n.target sm_75\n.address_size 64\n"


def chain(turns: int, extra: str = "") -> str:
    """``out[i] = x`` after this number of iterations of ``x = x·a + b``. ``extra`` is added to the loop."""
    return f"""{_HEADER}
.visible .entry chain(.param .u64 source, .param .u64 target)
{{
  .reg .u64 %a<4>;
  .reg .u32 %r<6>;
  .reg .f32 %x, %y;
  .reg .pred %p;
  ld.param.u64 %a0, [source];
  ld.param.u64 %a1, [target];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  mul.wide.u32 %a2, %r3, 4;
  add.u64 %a3, %a0, %a2;
  ld.global.f32 %x, [%a3];
  mov.u32 %r4, 0;
LOOP:
  .pragma "nounroll";
  fma.rn.f32 %x, %x, 0f3F7FFFFF, 0f3A83126F;
  fma.rn.f32 %x, %x, 0f3F7FFFFE, 0f3A83126F;
  fma.rn.f32 %x, %x, 0f3F7FFFFD, 0f3A83126F;
  fma.rn.f32 %x, %x, 0f3F7FFFFC, 0f3A83126F;
  {extra}
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p, %r4, {turns};
  @%p bra LOOP;
  add.u64 %a3, %a1, %a2;
  st.global.f32 [%a3], %x;
  ret;
}}
"""


def planted(turns: int, share: float) -> str:
    """The same results as ``chain(turns)``, but slower: the share ``share`` of more iterations, with unused results."""
    more = max(1, round(turns * share))
    text = chain(turns)
    # Iterations on a copy, whose result is added to the output with a factor that is zero for finite numbers.
    wasted = f"""
  mov.f32 %y, %x;
  mov.u32 %r4, 0;
WASTE:
  .pragma "nounroll";
  fma.rn.f32 %y, %y, 0f3F7FFFFF, 0f3A83126F;
  fma.rn.f32 %y, %y, 0f3F7FFFFE, 0f3A83126F;
  fma.rn.f32 %y, %y, 0f3F7FFFFD, 0f3A83126F;
  fma.rn.f32 %y, %y, 0f3F7FFFFC, 0f3A83126F;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p, %r4, {more};
  @%p bra WASTE;
  setp.lt.f32 %p, %y, 0fFF7FFFFF;
  @%p add.f32 %x, %x, %y;
  add.u64 %a3, %a1, %a2;
"""
    return text.replace("  add.u64 %a3, %a1, %a2;\n", wasted)


def chain_work(name: str, blocks: int, threads: int = 256) -> KernelWork:
    """One launch of ``chain`` on random numbers."""
    count = blocks * threads
    arrays = {"source": ("float32", count), "target": ("float32", count)}
    grid, block = (blocks, 1, 1), (threads, 1, 1)
    return KernelWork(name, "m", "chain", grid, block, arrays, ("source", "target"), ("target",), group="chains")


def arm(id: str, ptx: str, launch: str = "auto") -> Arm:
    """An arm that consists of one module."""
    return Arm(id, {"m": ptx}, launch=launch)


def spin(nanoseconds: int) -> str:
    """A kernel that runs until this time has passed on the timer of the GPU, and then writes 1."""
    return f"""{_HEADER}
.visible .entry spin(.param .u64 target)
{{
  .reg .u64 %a, %t<3>;
  .reg .u32 %r;
  .reg .pred %p;
  ld.param.u64 %a, [target];
  mov.u64 %t0, %globaltimer;
LOOP:
  mov.u64 %t1, %globaltimer;
  sub.u64 %t2, %t1, %t0;
  setp.lt.u64 %p, %t2, {nanoseconds};
  @%p bra LOOP;
  mov.u32 %r, 1;
  st.global.u32 [%a], %r;
  ret;
}}
"""


def spin_work() -> KernelWork:
    """One launch of ``spin``."""
    one = (1, 1, 1)
    return KernelWork("chains/spin", "m", "spin", one, one, {"target": ("uint32", 1)}, ("target",), ("target",))


def replaced(body: str) -> str:
    """``chain`` with another body between the loads of its parameters and its end, for planted cheats."""
    head, _, _ = chain(1).partition("  ld.global.f32 %x")
    return f"{head}{body}\n  ret;\n}}\n"
