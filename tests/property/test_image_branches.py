"""Random schedules of operators with control flow: every pixel is that of naive kernels, and there are no races.

The operators of the other generators read the same window in every lane. Here lanes of a warp read different parts:
under branches and in loops that depend on pixels and coordinates, behind an early return, in conditions that are
evaluated in part, and in device functions. Tiles that lanes exchange by shuffles, and tiles behind barriers, must not
depend on that.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from ptxmotion.dsl import device, f32, i32
from ptxmotion.dsl import local as local_array
from ptxmotion.dsl.image import Accessor, Boundary, Domain, Window, here, operator_from_text
from ptxmotion.dsl.image.operators import Image
from test_image_schedules import BOUNDARIES, PIXELS, ZEROS, check, random_graph

#: Pipelines without --fuzz-n, and pipelines in one test case.
FIXED = 3
SHARE = 1

#: By type: numbers that pixels are compared with.
LIMITS = {"f32": ("0.25", "0.5", "1.5"), "i32": ("0", "100", "500"), "u8": ("60", "100", "200")}


@pytest.mark.fuzz
def test_schedules_of_operators_with_branches(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed, random_graph(random.Random(f"branches:{seed}"), windowed=branching))


@device
def float_branch(a: f32) -> f32:
    if a > 0.5:
        return a * 2.0
    return a - 1.0


@device
def integer_branch(a: i32) -> i32:
    if a > 50:
        return a * 2
    return a - 1


def branching(rng: random.Random, number: int, word: str, image: Image[Any]) -> Image[Any]:
    """An operator with one of `BODIES`."""
    left, right, up, down = rng.choice([0, 1, 2]), rng.choice([1, 1, 3]), rng.choice([0, 1, 2]), rng.choice([0, 1, 3])
    is_float = word == "f32"
    read: Read = lambda: f"src[{rng.randint(-left, right)}, {rng.randint(-up, down)}]"  # noqa: E731
    lines = rng.choice(BODIES)(read, "f32" if is_float else "i32", rng.choice(LIMITS[word]))
    text = "\n".join(f"    {line}" for line in lines).replace("LEFT", str(-left)).replace("RIGHT", str(right + 1))
    # Results of 8 bits keep the low bits.
    text = text.replace("RETURN", "return u8(255 & (" if word == "u8" else "return ((").replace("END", "))")
    branch = float_branch if is_float else integer_branch
    names = {"Window": Window, "here": here, "local_array": local_array, "i32": i32, "f32": f32, "branch": branch}
    names[word] = PIXELS[word][1]
    domain = Domain([(dx, dy) for dx in range(-left, right + 1) for dy in range(-up, down + 1)])
    operator = operator_from_text(f"def local{number}(src: Window[{word}]) -> {word}:\n{text}\n", names, domain)
    boundary = rng.choice([each for each in (*BOUNDARIES, *(ZEROS * is_float)) if each is not Boundary.UNDEFINED])
    offset = (rng.choice([-40, -3, 2, 37]), rng.randint(-2, 2)) if rng.random() < 0.2 else (0, 0)
    return operator(Accessor(image, boundary, offset=offset))


Read = Callable[[], str]


def branches(read: Read, kind: str, limit: str) -> list[str]:
    return [
        f"total: {kind} = {read()}",
        f"if {read()} > {limit}:",
        f"    total = total + {read()} * 3",
        f"    if {read()} > {read()}:",
        f"        total = total - {read()}",
        "else:",
        f"    total = total - {read()}",
        "RETURN total END",
    ]


def early_return(read: Read, kind: str, limit: str) -> list[str]:
    return ["x, y = here()", f"if {read()} > {limit} or (x + y) % 3 == 0:", f"    RETURN {read()} END",
            f"RETURN {read()} + {read()} END"]  # fmt: skip


def loop_over_pixels(read: Read, kind: str, limit: str) -> list[str]:
    return [
        "k = 0",
        f"total: {kind} = {read()}",
        f"while k < 3 and total < {limit}:",
        f"    total = total + {read()} + {kind}(k)",
        "    k += 1",
        "RETURN total END",
    ]


def loop_over_coordinates(read: Read, kind: str, limit: str) -> list[str]:
    return [
        "x, y = here()",
        f"total: {kind} = {read()}",
        "for k in range(x % 4):",
        f"    total = total + {read()} + {kind}(k)",
        "RETURN total END",
    ]


def jumps(read: Read, kind: str, limit: str) -> list[str]:
    return [
        f"total: {kind} = {read()}",
        "for dx in range(LEFT, RIGHT):",
        f"    if src[dx, 0] > {limit}:",
        "        continue",
        "    total = total * 3 + src[dx, 0]",
        f"    if total > {kind}(900):",
        "        break",
        "RETURN total END",
    ]


def conditions(read: Read, kind: str, limit: str) -> list[str]:
    value = f"{kind}({read()}) if {read()} > {read()} and {read()} > {limit} else {kind}({read()})"
    return [f"total: {kind} = {value}", "RETURN branch(total) END"]


def sorted_pixels(read: Read, kind: str, limit: str) -> list[str]:
    lines = [f"a = local_array({kind}, 3)", *(f"a[{index}] = {read()}" for index in range(3))]
    for first in (0, 1, 0):
        lines += [f"if a[{first}] > a[{first + 1}]:", f"    t = a[{first}]", f"    a[{first}] = a[{first + 1}]"]
        lines.append(f"    a[{first + 1}] = t")
    return [*lines, "RETURN a[1] END"]


BODIES = (branches, early_return, loop_over_pixels, loop_over_coordinates, jumps, conditions, sorted_pixels)
