"""Forms that a warp or a block executes together: `ldmatrix`, `stmatrix`, `mbarrier`, `cp.async.bulk`, and exchanges in
warps of which some lanes have exited.

Computes: for each form a kernel body in the frame of `forms.kernel_lines`, as `launched.py` does. Guarantees: results
    do not depend on the order of threads: each thread has its own mbarrier and cell, each warp its own rows. The
    results of a lane that has exited are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from .forms import load_operand, store_result
from .launched import BLOCK, CELL, Launched

__all__ = ["UNDEFINED", "collective_cases"]

#: Details of forms whose results the manual leaves undefined: they are recorded, and not compared.
UNDEFINED = "undefined"


def _rows(lines: list[str]) -> None:
    """``%row``: the address of the 16 bytes of the lane; ``%other``: that of another lane, a permutation."""
    lines.append(f".shared .align 16 .b8 rows[{BLOCK * 16}]; .reg .b32 %row, %other, %lane;")
    lines.append("mov.u32 %row, rows; mov.u32 %j, %tid.x; mad.lo.u32 %row, %j, 16, %row;")
    lines.append("and.b32 %lane, %j, 31; mad.lo.u32 %t, %lane, 5, 3; and.b32 %t, %t, 31; sub.u32 %t, %t, %lane;")
    lines.append("mad.lo.s32 %other, %t, 16, %row;")


def _through_matrices() -> Iterator[Launched]:
    for number, trans, space in product((1, 2, 4), ("", ".trans"), (".shared", ".shared::cta", "")):
        words = ("b32",) * 4
        into_generic = [".reg .b64 %far; cvt.u64.u32 %far, %other; cvta.shared.u64 %far, %far;"] if not space else []
        address = "%other" if space else "%far"

        row = f"ldmatrix.sync.aligned.m8n8.x{number}{trans}{space}.b16"
        lines: list[str] = []
        _rows(lines)
        names = [load_operand(index, kind, lines) for index, kind in enumerate(words)]
        lines.append(f"st.shared.v4.b32 [%row], {{{', '.join(names)}}}; bar.warp.sync -1;")
        lines += into_generic
        results = [f"%d{index}" for index in range(number)]
        lines += [f".reg .b32 {name};" for name in results]
        lines.append(f"{row} {{{', '.join(results)}}}, [{address}];")
        for name in results:
            store_result("b32", name, lines)
        yield Launched(row, "", words, ("b32",) * number, tuple(lines))

        row = f"stmatrix.sync.aligned.m8n8.x{number}{trans}{space}.b16"
        lines = []
        _rows(lines)
        names = [load_operand(index, kind, lines) for index, kind in enumerate(words)]
        lines.append("st.shared.v4.b32 [%row], {0x5a5a5a5a, 0x6b6b6b6b, 0x7c7c7c7c, 0x4d4d4d4d}; bar.warp.sync -1;")
        lines += into_generic
        lines.append(f"{row} [{address}], {{{', '.join(names[:number])}}}; bar.warp.sync -1;")
        lines.append(".reg .b32 %d<4>; ld.shared.v4.b32 {%d0, %d1, %d2, %d3}, [%row];")
        for index in range(4):
            store_result("b32", f"%d{index}", lines)
        yield Launched(row, "", words, words, tuple(lines))


def _barrier(lines: list[str]) -> None:
    """``%bar``: the address of the mbarrier of the thread."""
    lines.append(f".shared .align 8 .b64 bars[{BLOCK}]; .reg .b32 %bar, %count; .reg .b64 %state, %old; .reg .pred %p;")
    lines.append("mov.u32 %bar, bars; mov.u32 %j, %tid.x; mad.lo.u32 %bar, %j, 8, %bar;")


class _Script:
    """Operations on the mbarrier of the thread. After each, the results of queries are stored."""

    def __init__(self, detail: str, row: str) -> None:
        self.detail = detail
        self.row = row
        self.lines: list[str] = []
        self.results: list[str] = []
        _barrier(self.lines)
        self.operand = load_operand(0, "b32", self.lines)

    def do(self, *statements: str) -> _Script:
        for statement in statements:
            self.lines.append(statement + ";")
        return self

    def keep(self, kind: str, register: str) -> _Script:
        store_result(kind, register, self.lines)
        self.results.append(kind)
        return self

    def parities(self) -> _Script:
        for parity in (0, 1):
            self.do(f"mbarrier.test_wait.parity.shared.b64 %p, [%bar], {parity}").keep("pred", "%p")
        return self

    def pending(self, state: str = "%state") -> _Script:
        return self.do(f"mbarrier.pending_count.b64 %count, {state}").keep("b32", "%count")

    def waits(self, state: str = "%state") -> _Script:
        return self.do(f"mbarrier.test_wait.shared.b64 %p, [%bar], {state}").keep("pred", "%p")

    def made(self) -> Launched:
        return Launched(self.row, self.detail, ("b32",), tuple(self.results), tuple(self.lines))


_ARRIVE = "mbarrier.arrive.shared.b64"


def _mbarriers() -> Iterator[Launched]:
    yield from _arrivals()
    yield from _transactions()
    yield from _invalidated()
    yield from _parity_waits()
    yield from _generic_arrivals()
    yield from _undefined_states()


def _arrivals() -> Iterator[Launched]:
    some = ("and.b32 %t, %s0, 3", "add.u32 %t, %t, 1")
    script = _Script("five times", _ARRIVE).do(*some, "mbarrier.init.shared.b64 [%bar], %t").parities()
    for _ in range(5):
        script.do(f"{_ARRIVE} %state, [%bar]").pending().waits().parities()
    yield script.made()
    script = _Script("an earlier state", _ARRIVE).do("mbarrier.init.shared.b64 [%bar], 2", f"{_ARRIVE} %old, [%bar]")
    for _ in range(4):
        script.waits("%old").do(f"{_ARRIVE} %state, [%bar]").pending().parities()
    yield script.made()
    script = _Script("with a count", _ARRIVE).do("mbarrier.init.shared.b64 [%bar], 7", *some)
    script.do(f"{_ARRIVE} %state, [%bar], %t").pending().parities()
    script.do("sub.u32 %t, 7, %t", f"{_ARRIVE} %state, [%bar], %t").pending().waits().parities()
    yield script.do(f"{_ARRIVE} %state, [%bar], 7").pending().parities().made()
    row = "mbarrier.arrive.noComplete.shared.b64"
    script = _Script("", row).do("mbarrier.init.shared.b64 [%bar], 9", *some, f"{row} %state, [%bar], %t").pending()
    yield script.do(f"{row} %state, [%bar], 1").pending().parities().made()
    row = "mbarrier.arrive_drop.shared.b64"
    script = _Script("", row).do("mbarrier.init.shared.b64 [%bar], 3", f"{row} %state, [%bar]").pending().parities()
    script.do(f"{_ARRIVE} %state, [%bar], 2").pending().waits().parities()
    for _ in range(3):
        script.do(f"{_ARRIVE} %state, [%bar]").pending().parities()
    script.do(f"{row} %state, [%bar], 1").pending().parities().do(f"{_ARRIVE} %state, [%bar]").pending().parities()
    yield script.made()


def _transactions() -> Iterator[Launched]:
    row = "mbarrier.arrive.expect_tx.shared.b64"
    script = _Script("", row).do("mbarrier.init.shared.b64 [%bar], 1", "and.b32 %t, %s0, 1023", "add.u32 %t, %t, 1")
    script.do(f"{row} %state, [%bar], %t").pending().waits().parities()
    script.do("mbarrier.complete_tx.shared::cta.b64 [%bar], 1").waits().parities()
    script.do("sub.u32 %t, %t, 1", "mbarrier.complete_tx.shared::cta.b64 [%bar], %t").waits().parities()
    script.do(f"{row} %state, [%bar], 16").pending().waits().parities()
    yield script.do("mbarrier.complete_tx.shared::cta.b64 [%bar], 16").waits().parities().made()
    script = _Script("and arrivals", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64")
    script.do("mbarrier.init.shared.b64 [%bar], 2", f"{script.row} [%bar], 32").parities()
    script.do(f"{_ARRIVE} %state, [%bar]").pending().do(f"{_ARRIVE} %state, [%bar]").pending().waits().parities()
    script.do("mbarrier.complete_tx.shared::cta.b64 [%bar], 32").waits().parities()
    yield script.do(f"{_ARRIVE} %state, [%bar]").pending().parities().made()
    script = _Script("completed first", "mbarrier.complete_tx.relaxed.cta.shared::cta.b64")
    script.do("mbarrier.init.shared.b64 [%bar], 1", f"{script.row} [%bar], 32").parities()
    yield script.do("mbarrier.arrive.expect_tx.shared.b64 %state, [%bar], 32").waits().parities().made()


def _invalidated() -> Iterator[Launched]:
    script = _Script("", "mbarrier.inval.shared.b64").do(
        "mbarrier.init.shared.b64 [%bar], 1", f"{_ARRIVE} %state, [%bar]"
    )
    script.do(f"{script.row} [%bar]", "mbarrier.init.shared.b64 [%bar], 2").parities()
    yield script.do(f"{_ARRIVE} %state, [%bar]").pending().do(f"{_ARRIVE} %state, [%bar]").pending().parities().made()


def _parity_waits() -> Iterator[Launched]:
    for wait, sense in product(("test_wait", "try_wait"), ("", ".acquire.cta", ".relaxed.cluster")):
        row = f"mbarrier.{wait}.parity{sense}.shared::cta.b64"
        script = _Script("", row).do("mbarrier.init.shared.b64 [%bar], 1", f"{_ARRIVE} %state, [%bar]")
        yield (
            script.do("mbarrier.try_wait.shared.b64 %p, [%bar], %state")
            .keep("pred", "%p")
            .do(f"{row} %p, [%bar], 0")
            .keep("pred", "%p")
            .made()
        )


def _generic_arrivals() -> Iterator[Launched]:
    """A generic address, without a result."""
    row = "mbarrier.arrive.b64"
    script = _Script("generic", row).do(".reg .b64 %far", "cvt.u64.u32 %far, %bar", "cvta.shared.u64 %far, %far")
    script.do("mbarrier.init.b64 [%far], 2", f"{row} %state, [%far]").pending().do(f"{row} _, [%far]").parities()
    yield script.do("mbarrier.test_wait.b64 %p, [%far], %state").keep("pred", "%p").made()


def _undefined_states() -> Iterator[Launched]:
    """The bits of the object, which the manual does not define."""
    script = _Script(UNDEFINED, "mbarrier.init.shared.b64").do("mbarrier.init.shared.b64 [%bar], 5")
    for statement in ("", f"{_ARRIVE} %state, [%bar]", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 48"):
        if statement:
            script.do(statement)
        script.do("ld.shared.b64 %old, [%bar]").keep("b64", "%old")
    script.do(f"{_ARRIVE} %state, [%bar]").keep("b64", "%state")
    yield (
        script.do("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 48", "ld.shared.b64 %old, [%bar]")
        .keep("b64", "%old")
        .made()
    )


def _cells(lines: list[str]) -> None:
    """``%near``: the cell of the thread in shared memory; ``%cell``: that in global memory, with four words of
    operands."""
    lines.append(f".reg .b64 %cell, %own, %near; .shared .align 32 .b8 cells_of_block[{BLOCK * CELL}];")
    lines.append(f"mov.u64 %near, cells_of_block; mov.u32 %j, %tid.x; mul.wide.u32 %own, %j, {CELL};")
    lines.append("add.s64 %near, %near, %own; st.shared.v2.b64 [%near], {0x5a5a5a5a5a5a5a5a, 0x6b6b6b6b6b6b6b6b};")
    lines.append("st.shared.v2.b64 [%near+16], {0x7c7c7c7c7c7c7c7c, 0x4d4d4d4d4d4d4d4d};")
    lines.append(f"mov.u64 %cell, cells_of_grid; mul.wide.u32 %own, %i, {CELL}; add.s64 %cell, %cell, %own;")
    lines.append(".reg .b64 %v<4>;")


def _kept_cell(space: str, address: str, lines: list[str]) -> tuple[str, ...]:
    lines.append(f"ld.{space}.v2.b64 {{%v0, %v1}}, [{address}]; ld.{space}.v2.b64 {{%v2, %v3}}, [{address}+16];")
    for index in range(4):
        store_result("b64", f"%v{index}", lines)
    return ("b64",) * 4


def _bulk_copies() -> Iterator[Launched]:
    kinds = ("b64", "b64", "b64", "b64")
    waiting = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra WAIT;"
    for space, size in product(("shared::cluster", "shared::cta"), (16, 32)):
        row = f"cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes"
        lines: list[str] = []
        _barrier(lines)
        _cells(lines)
        names = [load_operand(index, kind, lines) for index, kind in enumerate(kinds)]
        lines.append(f"st.global.v2.b64 [%cell], {{{names[0]}, {names[1]}}};")
        lines.append(f"st.global.v2.b64 [%cell+16], {{{names[2]}, {names[3]}}}; fence.proxy.async;")
        lines.append("mbarrier.init.shared.b64 [%bar], 1; fence.proxy.async;")
        lines.append(f"mbarrier.arrive.expect_tx.shared.b64 %state, [%bar], {size};")
        lines.append(f"{row} [%near], [%cell], {size}, [%bar];")
        lines.append(waiting)
        results = _kept_cell("shared", "%near", lines)
        yield Launched(row, str(size), kinds, results, tuple(lines))
    row = "cp.async.bulk.global.shared::cta.bulk_group"
    lines = []
    _cells(lines)
    names = [load_operand(index, kind, lines) for index, kind in enumerate(kinds)]
    lines.append("st.global.v2.b64 [%cell], {1, 2}; st.global.v2.b64 [%cell+16], {3, 4};")
    lines.append(f"st.shared.v2.b64 [%near], {{{names[0]}, {names[1]}}};")
    lines.append(f"st.shared.v2.b64 [%near+16], {{{names[2]}, {names[3]}}}; fence.proxy.async;")
    lines.append(f"{row} [%cell], [%near], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;")
    results = _kept_cell("global", "%cell", lines)
    yield Launched(row, "16", kinds, results, tuple(lines))


def _after_exits() -> Iterator[Launched]:
    """Exchanges whose membermask names lanes that have exited: those whose operand ends in two zero bits."""
    forms: list[tuple[str, tuple[str, ...], str]] = [
        ("vote.sync.all.pred", ("pred",), "%d0, %odd, -1"),
        ("vote.sync.any.pred", ("pred",), "%d0, %odd, -1"),
        ("vote.sync.uni.pred", ("pred",), "%d0, %odd, -1"),
        ("vote.sync.ballot.b32", ("b32",), "%d0, %odd, -1"),
        ("vote.sync.ballot.b32", ("b32",), "%d0, !%odd, -1"),
        ("match.any.sync.b32", ("b32",), "%d0, %few, -1"),
        ("match.all.sync.b32", ("b32", "pred"), "%d0|%d1, %same, -1"),
        ("redux.sync.add.u32", ("b32",), "%d0, %s0, -1"),
        ("redux.sync.and.b32", ("b32",), "%d0, %s0, -1"),
        ("redux.sync.min.s32", ("b32",), "%d0, %s0, -1"),
        ("elect.sync", ("b32", "pred"), "%d0|%d1, -1"),
        ("activemask.b32", ("b32",), "%d0"),
        ("bar.warp.sync", (), "-1"),
        ("shfl.sync.idx.b32", ("b32", "pred"), "%d0|%d1, %s0, %few, 31, -1"),
    ]
    for number, (row, results, operands) in enumerate(forms):
        lines: list[str] = []
        source = load_operand(0, "b32", lines)
        lines.append(".reg .pred %odd, %gone; .reg .b32 %few, %same;")
        lines.append(f"and.b32 %few, {source}, 3; setp.eq.u32 %gone, %few, 0; @%gone exit;")
        lines.append("mov.u32 %same, %ctaid.x;")
        lines.append(f"shr.u32 %t, {source}, 4; and.b32 %t, %t, 1; setp.ne.u32 %odd, %t, 0;")
        names = [f"%d{index}" for index in range(len(results))]
        for name, kind in zip(names, results, strict=True):
            lines.append(f".reg .{kind} {name};")
        lines.append(f"{row} {operands};")
        if not results:
            lines.append(".reg .b32 %d0; mov.b32 %d0, 1;")
            names, results = ["%d0"], ("b32",)
        for name, kind in zip(names, results, strict=True):
            store_result(kind, name, lines)
        detail = UNDEFINED if row.startswith("shfl") else f"after exits {number}"
        yield Launched(row, detail, ("b32",), results, tuple(lines))


@cache
def collective_cases() -> dict[str, Launched]:
    """Every form by its name."""
    made = (_through_matrices, _mbarriers, _bulk_copies, _after_exits)
    return {case.key: case for make in made for case in make()}
