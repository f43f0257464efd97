"""Host programs with fused launches: where launches are moved in Python, and which fusions are refused.

The name of a kernel states the memory that it accesses. `Merge` replaces legality and the fused body, so
these tests examine only the host program. tests/property/test_fusion.py tests what fused programs compute.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import pytest
from ptxmotion import dsl
from ptxmotion.dsl import program_from_text, ptx_source
from ptxmotion.dsl.host_nodes import Launch
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.ptx import Module, parse
from ptxmotion.transforms.kernel_fusion.launch_site import Fusibility, LaunchSite
from ptxmotion.transforms.kernel_fusion.objective import Allowed, best_fusions
from ptxmotion.transforms.kernel_fusion.pairs import Estimate
from ptxmotion.transforms.kernel_fusion.plan import FusedProgram, FusionOptions, fuse_program

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def touching(name: str, reads: str = "", writes: str = "", scalars: int = 0) -> str:
    """A kernel with a pointer parameter for each letter of ``reads`` and ``writes``, and that many scalars."""
    pointers = sorted(set(reads + writes))
    params = [f".param .u64 {p}" for p in pointers] + [f".param .u32 n{at}" for at in range(scalars)]
    body = "".join(
        f"ld.param.u64 %p, [{p}];\ncvta.to.global.u64 %p, %p;\n"
        + ("ld.global.u32 %v, [%p];\n" if p in reads else "")
        + ("st.global.u32 [%p], 7;\n" if p in writes else "")
        for p in pointers
    )
    return f"{HEAD}.visible .entry {name}({', '.join(params)})\n{{\n.reg .u64 %p;\n.reg .u32 %v;\n{body}ret;\n}}\n"


first = ptx_source(touching("first", "x", "y", 1))  # first(x, y, n)
second = ptx_source(touching("second", "x", "y", 1))
third = ptx_source(touching("third", "x", "y", 1))
both = ptx_source(touching("both", "xy", "xy", 1))
LOADING = "ld.param.u64 %p, [x];\nld.global.u64 %q, [%p];\nst.global.u32 [%q], 7;\n"
loading = ptx_source(
    f"{HEAD}.visible .entry loading(.param .u64 x, .param .u32 n)\n{{\n.reg .u64 %p, %q;\n{LOADING}ret;\n}}\n"
)
BLOCK = 64
NAMESPACE: dict[str, Any] = {**vars(dsl), **globals()}


@dataclass(frozen=True)
class Merged:
    module: Module
    name: str
    parameters: list[tuple[int, str]]
    site: LaunchSite
    remarks: tuple[str, ...] = ()


class Merge:
    """Fuses launches with the same configuration. The body of the fused kernel is empty."""

    def __init__(self) -> None:
        self.asked: list[tuple[LaunchSite, LaunchSite]] = []

    def decide(self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool) -> Fusibility:
        self.asked.append((first, second))
        if first.grid != second.grid or first.block != second.block:
            return Fusibility("none", (f"grids {first.grid} and {second.grid} differ",))
        return Fusibility("thread", ("same thread",))

    def build(
        self, first: LaunchSite, second: LaunchSite, fusibility: Fusibility, *, name: str, dead_buffers: frozenset[str]
    ) -> Merged:
        parameters = [(number, p.name) for number, s in enumerate((first, second)) for p in s.kernel.params or []]
        declared = ", ".join(
            f".param .{(first, second)[origin].kernel.params[at].type.name} p{number}"  # pyright: ignore
            for number, (origin, at) in enumerate(
                (number, at) for number, s in enumerate((first, second)) for at, _ in enumerate(s.kernel.params or [])
            )
        )
        return Merged(parse(f"{HEAD}.visible .entry {name}({declared})\n{{\nret;\n}}\n"), name, parameters, first)


def made(body: str) -> HostProgram:
    lines = ["def p(data: host[i32], n: i32, k: i32) -> None:"]
    lines += [f"    {name} = allocate(i32, n)" for name in "abcd"] + ["    copy(a, data)"]
    text = "\n".join([*lines, *("    " + line for line in body.splitlines()), "    copy(data, c)"]) + "\n"
    return program_from_text(text, NAMESPACE)


def fused(body: str, fuser: Merge | None = None, **options: Any) -> tuple[list[str], FusedProgram]:
    """The lines of the fused program between the upload and the download."""
    found = fuse_program(made(body), lambda kernel: kernel.ptx(), FusionOptions(**options), fuser or Merge())
    lines = [line[4:] for line in found.host.to_python().splitlines()]
    again = program_from_text(found.host.to_python(), found.host.namespace)
    assert again.to_python() == found.host.to_python()
    return lines[lines.index("copy(a, data)") + 1 : -1], found


def reasons(found: FusedProgram) -> set[str]:
    return {remark.reason for remark in found.remarks if remark.kind == "Missed"}


def test_consecutive_launches_are_one_launch() -> None:
    for strategy in ("kf_trad", "kfcm"):
        lines, found = fused("first[n, BLOCK](a, b, k)\nm = k\nsecond[n, BLOCK](b, c, n)", strategy=strategy)
        assert sorted(lines) == ["fused_first_second[n, BLOCK](a, b, k, b, c, n)", "m = k"]
        assert [remark.kind for remark in found.remarks] == ["Passed"]
        assert found.modules.keys() == {"fused_first_second"}


def test_a_launch_after_a_branch_gets_a_copy_on_the_other_path() -> None:
    body = "if k > 1:\n    first[n, BLOCK](a, b, k)\nsecond[n, BLOCK](b, c, n)"
    assert fused(body)[0] == [
        "if k > 1:",
        "    fused_first_second[n, BLOCK](a, b, k, b, c, n)",
        "else:",
        "    second[n, BLOCK](b, c, n)",
    ]
    assert fused(body, strategy="kf_trad")[1].result.fusions == 0


def test_a_launch_is_sunk_into_a_branch() -> None:
    body = "first[n, BLOCK](a, b, k)\nif k > 1:\n    second[n, BLOCK](b, c, n)\n"
    assert fused(body)[0] == [
        "if k > 1:",
        "    fused_first_second[n, BLOCK](a, b, k, b, c, n)",
        "else:",
        "    first[n, BLOCK](a, b, k)",
    ]


def test_a_chain_in_a_loop() -> None:
    body = "for i in range(k):\n    first[n, 8](a, b, i)\n    second[n, 8](b, c, i)\n    third[n, 8](c, d, i)"
    lines, found = fused(body)
    assert lines == ["for i in range(k):", "    fused_first_second_third[n, 8](a, b, i, b, c, i, c, d, i)"]
    assert found.result.fusions == 2


def test_swapped_handles_block_a_motion() -> None:
    body = "for i in range(k):\n    first[n, 8](a, b, i)\n    a, b = b, a\n    second[n, 8](a, c, i)"
    lines, _ = fused(body)
    assert lines[1:] == [f"    {line}" for line in ("first[n, 8](a, b, i)", "a, b = b, a", "second[n, 8](a, c, i)")]


@pytest.mark.parametrize(
    "between",
    [
        "k = read(b, 0)",
        "copy(c, b)",
        "write(b, 0, 3)",
        "copy(b, d)",
        "fill(b, 0)",
        "k = 3",
        "n = n + 1",
        "copy(b, data)",
    ],
)
def test_a_statement_that_conflicts_with_both_launches_blocks_them(between: str) -> None:
    first_and_back = f"first[n, 8](a, b, k)\n{between}\nsecond[n, 8](b, c, k)"
    lines, found = fused(first_and_back)
    assert found.result.fusions == 0 and lines == first_and_back.splitlines()
    (remark,) = found.remarks
    assert remark.reason == "blocked" and remark.message.startswith(f"'{between}' (line 8) is between them")


@pytest.mark.parametrize("between", ["v = read(a, 0)", "copy(data, a)", "copy(d, a)", "fill(d, 0)", "m = k"])
def test_a_statement_that_conflicts_with_neither_launch_does_not_block(between: str) -> None:
    lines, found = fused(f"first[n, 8](a, b, k)\n{between}\nsecond[n, 8](b, c, k)")
    assert found.result.fusions == 1 and between in lines


def test_the_launch_without_a_conflict_moves_past_the_statement() -> None:
    body = "first[n, 8](a, b, k)\nfill(a, 0)\nsecond[n, 8](b, c, k)"  # `first` reads a, so `second` moves up
    assert fused(body)[0] == ["fused_first_second[n, 8](a, b, k, b, c, k)", "fill(a, 0)"]
    body = "first[n, 8](a, b, k)\nfill(c, 0)\nsecond[n, 8](b, c, k)"  # `second` writes c, so `first` moves down
    assert fused(body)[0] == ["fill(c, 0)", "fused_first_second[n, 8](a, b, k, b, c, k)"]


def test_an_allocation_between_launches_does_not_block() -> None:
    body = "first[n, 8](a, b, k)\ne = allocate(i32, n)\nsecond[n, 8](b, e, k)\nthird[n, 8](e, c, k)"
    lines, _ = fused(body)
    assert lines == ["e = allocate(i32, n)", "fused_first_second_third[n, 8](a, b, k, b, e, k, e, c, k)"]


def test_a_free_between_launches_blocks() -> None:
    body = "first[n, 8](a, b, k)\nfree(a)\nfree(b)\nsecond[n, 8](d, c, k)"
    assert fused(body)[0] == ["fused_first_second[n, 8](a, b, k, d, c, k)", "free(a)", "free(b)"]
    body = "first[n, 8](a, b, k)\nfree(d)\nd = allocate(i32, k)\nsecond[n, 8](d, c, k)\nfree(d)"
    assert fused(body)[0][:2] == ["free(d)", "d = allocate(i32, k)"]


def test_possible_aliases_are_refused() -> None:
    body = "e = b\nif k > 1:\n    e = d\nfirst[n, 8](a, b, k)\nsecond[n, 8](e, c, k)"
    assert reasons(fused(body)[1]) == {"alias"}
    body = "e = a\nif k > 1:\n    e = d\nfirst[n, 8](a, b, k)\nsecond[n, 8](e, c, k)"  # a and e are only read
    assert fused(body)[1].result.fusions == 1


def test_launches_with_unknown_accesses_are_neither_fused_nor_moved() -> None:
    body = "first[n, 8](a, b, k)\nloading[n, 8](d, k)\nfill(c, 0)\nsecond[n, 8](b, c, k)"
    lines, found = fused(body)
    assert lines == body.splitlines() and "unknown-accesses" in reasons(found)


class Box:
    count = 4


box = Box()


def change() -> None:
    box.count += 1


@pytest.mark.parametrize(
    ("argument", "between"),
    [
        ("box.count", "change()"),
        # A view of a row or record of an array shows later writes to the array.
        ("v", "data[0] = 3"),
        ("w", "data[0] = 3"),
    ],
)
def test_the_object_of_an_argument_may_change_without_an_assignment(argument: str, between: str) -> None:
    NAMESPACE.update(box=box, change=change)
    launches = f"first[n, 8](a, b, {argument})\n{between}\nsecond[n, 8](b, c, {argument})"
    lines, found = fused(f"v = data[0]\nw = v\n{launches}")
    assert found.result.fusions == 0 and lines[2:] == launches.splitlines()
    assert reasons(found) == {"blocked"}
    assert fused(f"v = data[0]\nw = v\n{launches}".replace(between, "m = k"))[1].result.fusions == 1


def test_a_reassigned_parameter_is_not_its_only_assignment() -> None:
    """An earlier version took both launches for launches with 8 blocks, and fused them."""
    body = "m = n\nif k > 8:\n    n = 8\nfirst[m, 8](a, b, k)\nsecond[n, 8](b, c, k)"
    fuser = Merge()
    lines, found = fused(body, fuser)
    assert found.result.fusions == 0 and lines == body.splitlines()
    assert {(one.grid[0], other.grid[0]) for one, other in fuser.asked} == {("m", "n")}


def test_grids_of_unknown_shape_are_refused() -> None:
    def shape(n: int) -> tuple[int, int]:
        return n, 1

    NAMESPACE["shape"] = shape
    body = "g = shape(n)\nfirst[g, 8](a, b, k)\nsecond[g, 8](b, c, k)"
    assert reasons(fused(body)[1]) == {"grid-unknown"}


def test_constants_are_substituted_in_launch_sites() -> None:
    fuser = Merge()
    fused(
        "blocks = (n + BLOCK - 1) // BLOCK\nm = n\nfirst[blocks, BLOCK](a, b, 2 * 8)\nsecond[blocks](b, c, m)".replace(
            "second[blocks]", "second[(m + 63) // BLOCK, (64, 1)]"
        ),
        fuser,
    )
    one, other = fuser.asked[0]
    assert one.grid == ("(n + 64 - 1) // 64", 1, 1) and one.block == other.block == (64, 1, 1)
    assert other.grid == ("(n + 63) // 64", 1, 1)
    assert one.arguments["n0"].value == 16 and other.arguments["n0"].value == "n"  # pyright: ignore
    fuser = Merge()
    fused("m = n\nfor i in range(k):\n    first[m, 8](a, b, i)\n    second[m, 8](b, c, i)\n    m = m + 1", fuser)
    assert fuser.asked[0][0].grid == ("m", 1, 1)


def test_no_benefit_is_a_reason() -> None:
    from ptxmotion.transforms.kernel_fusion.pairs import Estimate

    def loses(*parts: object) -> Estimate:
        return Estimate(1e-6, 2e-6, "loses 1 us")

    _, found = fused("first[n, 8](a, b, k)\nsecond[n, 8](b, c, k)", benefit=loses)
    assert found.result.fusions == 0 and reasons(found) == {"no-benefit"}


def test_the_given_program_is_not_changed() -> None:
    program = made("first[n, 8](a, b, k)\nsecond[n, 8](b, c, k)")
    text = program.to_python()
    found = fuse_program(program, lambda kernel: kernel.ptx(), fuser=Merge())
    assert program.to_python() == text and found.host is not program
    launches = [node for node in found.host.nodes() if isinstance(node, Launch)]
    assert list(found.fused) == launches


LOOP = "for i in range({bounds}):\n    first[n, 8](a, b, k)\n    copy(c, b)\n    second[n, 8](b, c, k)"


def test_launches_are_fused_across_the_back_edge() -> None:
    lines, found = fused(LOOP.format(bounds="1, k, 2"))
    assert lines == [
        "if 1 < k:",
        "    i = 1",
        "    first[n, 8](a, b, k)",
        "    while True:",
        "        copy(c, b)",
        "        if i + 2 >= k:",
        "            second[n, 8](b, c, k)",
        "            break",
        "        i = i + 2",
        "        fused_second_first[n, 8](b, c, k, a, b, k)",
    ]
    assert found.result.fusions == 1
    body = LOOP.format(bounds="k")
    assert fused(body, invert_loops=False)[0] == body.splitlines()
    assert fused(body, strategy="kf_trad")[0] == body.splitlines()


def test_a_while_loop_is_inverted_too() -> None:
    body = LOOP.replace("for i in range({bounds})", "while k < n").replace("copy(c, b)", "copy(c, b)\n    k = k + 1")
    lines, found = fused(body.replace(", k)", ", n)"))
    assert found.result.fusions == 1 and lines[0] == "if k < n:" and "        if not k < n:" in lines


@pytest.mark.parametrize(
    "body",
    [
        LOOP.format(bounds="k") + "\n    k = k - 1",  # the bounds change
        LOOP.format(bounds="k") + "\n    i = i + 1",  # the variable changes
        LOOP.format(bounds="0, k, -1"),
        LOOP.format(bounds="0, k, n"),
        LOOP.format(bounds="k").replace("\n    copy", "\n    if k > n:\n        continue\n    copy"),
        LOOP.format(bounds="k") + "\n    if k > 3:\n        break\nelse:\n    k = 3",
    ],
)
def test_loops_that_are_not_inverted(body: str) -> None:
    lines, found = fused(body)
    assert found.result.fusions == 0 and lines == fused(body, invert_loops=False)[0]


def test_only_loops_that_gain_are_inverted() -> None:
    plain = "for j in range(k):\n    first[n, 8](a, b, j)\n    w = read(b, 1)\n"
    lines, found = fused(plain + LOOP.format(bounds="k"))
    assert lines[:3] == plain.splitlines() and found.result.fusions == 1


class Checking(Merge):
    """Fuses with a check at run time that ``n`` is small."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def decide(self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool) -> Fusibility:
        found = super().decide(first, second, assume_independent=assume_independent, may_check=may_check)
        if not may_check:
            return Fusibility("grid", ("n may be large",))
        return Fusibility(found.kind, found.reasons, (f"n < {100 if second.kernel.name == 'third' else self.limit}",))


def test_checks_are_tested_at_run_time() -> None:
    """If the check fails, the launches that do not need it are still fused."""
    body = "first[n, 8](a, b, k)\nsecond[n, 8](b, c, k)\nthird[n, 8](c, d, k)"
    lines, _ = fused(body, Checking(1000))
    assert lines == [
        "if n < 1000 and n < 100:",
        "    fused_first_second_third[n, 8](a, b, k, b, c, k, c, d, k)",
        "else:",
        "    if n < 1000:",
        "        fused_first_second[n, 8](a, b, k, b, c, k)",
        "    else:",
        "        first[n, 8](a, b, k)",
        "        second[n, 8](b, c, k)",
        "    third[n, 8](c, d, k)",
    ]
    _, found = fused("first[n, 8](a, b, k)\nsecond[n, 8](b, c, k)", Checking(9))  # a check that is almost never true
    assert found.result.fusions == 0 and reasons(found) == {"grid-wide"}


def test_motion_ends_for_a_launch_before_a_for_after_an_endless_loop() -> None:
    """An earlier version moved the launch again and again to the exit edge of ``while True``, which is never taken."""
    body = "while True:\n    first[n, 8](a, b, k)\n    k += 1\n    if k > 5:\n        break\n"
    body += "for i in range(k):\n    second[n, 8](a, c, n)\n    third[n, 8](c, d, n)"
    lines, found = fused(body)
    assert found.result.fusions == 1 and lines[-2].startswith("for i in") and "else:" not in lines


# --- objectives ---------------------------------------------------------------------------------------------------


def gains(table: dict[tuple[str, str], float]) -> Any:
    """Estimates by the names of the two kernels; other fusions are not possible."""

    def benefit(one: Any, other: Any, whole: Any, sites: Any, fusibility: Any) -> Estimate:
        saved = table.get((one.kernel.name, other.kernel.name))
        return Estimate(0, inf, "not possible") if saved is None else Estimate(saved, 0, f"saves {saved}")

    return benefit


THREE = "first[n, BLOCK](a, b, k)\nsecond[n, BLOCK](a, c, n)\nthird[n, BLOCK](a, d, n)"


def test_the_fusion_that_saves_most_is_made_in_place_of_the_first_one() -> None:
    """KFCM fuses the first two launches. Then the third one, whose fusion with the second one saves more, is left."""
    table = {("first", "second"): 1.0, ("second", "third"): 5.0}
    lines, _ = fused(THREE, benefit=gains(table))
    assert lines == ["fused_first_second[n, BLOCK](a, b, k, a, c, n)", "third[n, BLOCK](a, d, n)"]
    lines, found = fused(THREE, benefit=gains(table), objective="total")
    assert lines == ["first[n, BLOCK](a, b, k)", "fused_second_third[n, BLOCK](a, c, n, a, d, n)"]
    assert [(remark.kernel, remark.kind) for remark in found.remarks if remark.reason == "thread"] == [
        ("second+third", "Passed")
    ]
    assert "saves-less" in reasons(found)


def test_a_fusion_that_only_helps_with_another_one_is_made() -> None:
    table = {("first", "second"): -1.0, ("fused_first_second", "third"): 3.0}
    lines, _ = fused(THREE, benefit=gains(table))
    assert len(lines) == 3
    lines, _ = fused(THREE, benefit=gains(table), objective="total")
    assert len(lines) == 1
    # A loss that nothing makes up for is not accepted.
    lines, _ = fused(THREE, benefit=gains({**table, ("fused_first_second", "third"): 0.5}), objective="total")
    assert len(lines) == 3


def test_the_search_over_fusions_finds_the_best_ones() -> None:
    """Random values of pairs: the value of the fusions that are found is at least that of KFCM alone, and is that of
    the best division in nearly all cases."""
    rng = random.Random(5)
    best = 0
    for _ in range(40):
        kernels = ["first", "second", "third", "both"]
        table = {(a, b): rng.choice([-2.0, 1.0, 2.0, 4.0]) for a in kernels for b in kernels if rng.random() < 0.7}
        search = best_fusions(4, partial(Chain, kernels, table), Chain(kernels, table, lambda _: False))
        everything = [
            Chain(kernels, table, lambda numbers, cut=cut: not any(at in numbers and at + 1 in numbers for at in cut))
            for cut in ([at for at in range(3) if bits >> at & 1] for bits in range(8))
        ]
        best += search.saved == max(each.saved for each in everything)
        assert search.saved >= 0
    assert best >= 38


class Chain:
    """Kernels in a row of which neighbours are fused where that is allowed. A fused kernel is as its last part."""

    def __init__(self, kernels: list[str], table: dict[tuple[str, str], float], allowed: Allowed) -> None:
        self.saved, self.fused_launches = 0.0, list[frozenset[int]]()
        block = frozenset([0])
        for at in range(1, len(kernels)):
            value = table.get((kernels[at - 1], kernels[at]))
            if value is not None and allowed(block | {at}):
                self.saved, block = self.saved + value, block | {at}
            else:
                self.fused_launches += [block] if len(block) > 1 else []
                block = frozenset([at])
        self.fused_launches += [block] if len(block) > 1 else []
