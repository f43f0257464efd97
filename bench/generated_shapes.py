"""Kernels of any size with one shape, at which the time of the passes may grow faster than the kernel.

    python bench/generated_shapes.py [--shape branches] [--level O3] [--instructions 3000 12000 48000] [--contract]

`SHAPES` are by name: a chain of branches that all change one sum, loops inside loops, loads and stores in one block,
and loops one after the other. Guarantees: the text is valid PTX; the same arguments give the same text.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator

__all__ = ["SHAPES", "kernel_of"]

_BANKS = (("pred", "p"), ("b32", "r"), ("f32", "f"), ("b64", "rd"))
_DEEPEST = 40

#: From a number of instructions to the lines of the body. %r1 is ``n``, %r2 the number of the thread, %rd1 the address
#: of the input, and %rd2 of the output.
Shape = Callable[[int], Iterator[str]]


def kernel_of(shape: str, instructions: int) -> str:
    """A module with one entry ``k`` of this shape, with about so many instructions."""
    declared = " ".join(f".reg .{type} %{bank}<{4 * instructions + 100}>;" for type, bank in _BANKS)
    start = (
        "ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;"
        " cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;"
    )
    lines = "\n".join(SHAPES[shape](instructions))
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    entry = ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)"
    return f"{head}{entry}\n{{\n{declared}\n{start}\n{lines}\nret;\n}}\n"


def _branches(instructions: int) -> Iterator[str]:
    """Each branch adds a loaded value, or another one, to a sum that is stored behind it."""
    yield "mov.u32 %r3, 0;"
    for number in range(instructions // 7):
        own = 10 + number
        yield f"setp.lt.s32 %p{own}, %r3, {number}; @%p{own} bra A{number};"
        yield f"ld.global.u32 %r{own}, [%rd1+{4 * (number % 50)}]; bra.uni B{number};"
        yield f"A{number}: add.s32 %r{own}, %r3, {number};"
        yield f"B{number}: add.s32 %r3, %r3, %r{own}; st.global.u32 [%rd2+{4 * (number % 64)}], %r3;"


def _nest(instructions: int) -> Iterator[str]:
    """Loops inside loops, up to 40 deep. Each loads at its own counter, and adds to one sum."""
    depth = max(2, min(instructions // 9, _DEEPEST))
    yield "mov.u32 %r3, 0;"
    for nest in range(instructions // (9 * depth) + 1):
        first = 10 + 2 * depth * nest
        for loop in range(first, first + depth):
            yield f"mov.u32 %r{loop}, 0;"
            yield f"L{loop}: mul.wide.s32 %rd{loop}, %r{loop}, 4; add.s64 %rd{loop + depth}, %rd1, %rd{loop};"
            yield f"ld.global.u32 %r{loop + depth}, [%rd{loop + depth}]; add.s32 %r3, %r3, %r{loop + depth};"
        for loop in reversed(range(first, first + depth)):
            yield f"add.s32 %r{loop}, %r{loop}, 1; setp.lt.s32 %p{loop}, %r{loop}, %r1; @%p{loop} bra L{loop};"
    yield "st.global.u32 [%rd2], %r3;"


def _block(instructions: int) -> Iterator[str]:
    """One block of loads at indices of the thread, each with a store."""
    for number in range(instructions // 5):
        own = 10 + 2 * number
        yield f"add.s32 %r{own}, %r2, {number}; mul.wide.s32 %rd{own}, %r{own}, 4;"
        yield f"add.s64 %rd{own + 1}, %rd1, %rd{own}; ld.global.f32 %f{own}, [%rd{own + 1}];"
        yield f"st.global.f32 [%rd2+{4 * number}], %f{own};"


def _loops(instructions: int) -> Iterator[str]:
    """Loops one after the other. Each loads at ``counter * n + thread`` and stores."""
    for number in range(instructions // 8):
        own = 10 + 2 * number
        yield f"mov.u32 %r{own}, 0;"
        yield f"L{number}: mad.lo.s32 %r{own + 1}, %r{own}, %r1, %r2; mul.wide.s32 %rd{own}, %r{own + 1}, 4;"
        yield f"add.s64 %rd{own + 1}, %rd1, %rd{own}; ld.global.f32 %f{own}, [%rd{own + 1}];"
        yield f"st.global.f32 [%rd2+{4 * number}], %f{own};"
        yield f"add.s32 %r{own}, %r{own}, 1; setp.lt.s32 %p{own}, %r{own}, %r1; @%p{own} bra L{number};"


SHAPES: dict[str, Shape] = {"branches": _branches, "nest": _nest, "block": _block, "loops": _loops}


def main() -> int:
    """Print how the time grows with the kernel, without the gate; reading and printing count."""
    from ptxmotion.driver import Policy, optimize

    parser = argparse.ArgumentParser(description="Print how CPU seconds grow with kernels of one shape.")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="by default all")
    parser.add_argument("--level", default="O3")
    parser.add_argument("--instructions", type=int, nargs="+", default=[3_000, 12_000, 48_000])
    parser.add_argument("--contract", action="store_true", help="also search for versions")
    arguments = parser.parse_args()
    for shape in arguments.shape or SHAPES:
        for instructions in arguments.instructions:
            text = kernel_of(shape, instructions)
            started = time.process_time()
            optimize(text, arguments.level, Policy(gate="off", contract=arguments.contract))
            print(f"{shape:10} {instructions:8} {time.process_time() - started:8.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
