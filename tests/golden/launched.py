"""Forms that are tested by whole launches: atomics, loads and stores, packed moves, exchanges between lanes.

Computes: for each form a kernel body between loads of its operands and stores of its results, in the frame of
    `forms.kernel_lines`; the operands, from a seed. Requires: only the notation of PTX.
Guarantees: results do not depend on the order of threads: for atomics each thread has its own cell, and an exchange
    reads only lanes that take part. Launches are compared, not lane functions: `replay.launch`.
Atomics are tested with every operation, type and space. Orders (`.relaxed` …) and scopes are used in turn, since they
    do not change the result for a cell that only one thread accesses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from .forms import load_operand, store_result
from .operands import lanes_of, mix, width_of

__all__ = ["Launched", "columns_of", "launched_cases"]

Lanes = npt.NDArray[Any]

#: Threads of a block. Every launch has only whole blocks.
BLOCK = 256
#: Bytes of the cell of a thread.
CELL = 32


@dataclass(frozen=True)
class Launched:
    """One form. Its name is ``row``, the mnemonic, and ``detail``, which distinguishes forms with the same mnemonic."""

    row: str
    detail: str
    kinds: tuple[str, ...]
    results: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.row} {self.detail}".rstrip()

    @property
    def body(self) -> list[str]:
        return list(self.lines)


# Operands


def _word(seed: int, count: int) -> Lanes:
    counter = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)
    return mix(counter * np.uint64(0x9E3779B97F4A7C15))


def _alike(width: int, seed: int, lanes: int) -> Lanes:
    """Values that are equal in all lanes of a warp, in all but one, in a few groups of lanes, or in none."""
    bits, choice = _word(seed, lanes), _word(seed + 1, lanes)
    first = np.repeat(bits[::32], 32)
    turn = np.repeat(choice[::32] % np.uint64(5), 32)
    odd_one = np.repeat(choice[::32] >> np.uint64(8), 32) % np.uint64(32) == np.arange(lanes, dtype=np.uint64) % 32
    few = first ^ ((choice >> np.uint64(16)) % np.uint64(4) << np.uint64(max(width - 2, 0)))
    last = np.where(odd_one, first ^ (np.uint64(1) << (choice % np.uint64(width))), first)
    zero = np.zeros(lanes, np.uint64)
    return np.select([turn == index for index in range(4)], [zero, first, last, few], bits) & np.uint64(
        (1 << width) - 1
    )


def columns_of(case: Launched) -> tuple[Lanes, ...]:
    """The operands of ``case``, for whole blocks."""
    plain = tuple(kind for kind in case.kinds if not kind.startswith("warp:"))
    if plain and plain != case.kinds:
        raise ValueError(f"{case.key}: kinds of both sorts")
    if not plain:
        return tuple(
            _alike(width_of(kind.removeprefix("warp:")), 70 + 10 * index, 4 * 1024)
            for index, kind in enumerate(case.kinds)
        )
    columns = lanes_of(plain)
    size = -(-columns[0].size // BLOCK) * BLOCK
    return tuple(np.resize(column, size) for column in columns)


# Bodies


def _register(width: int) -> str:
    return f".b{max(width, 16)}"


def _cell(space: str, lines: list[str]) -> str:
    """Writes the address of the cell of the thread to ``%cell``. The result is the space that accesses to it name."""
    lines.append(".reg .b64 %cell, %own;")
    if space.endswith("shared"):
        lines.append(f".shared .align {CELL} .b8 cells_of_block[{BLOCK * CELL}];")
        lines.append(f"mov.u64 %cell, cells_of_block; mov.u32 %j, %tid.x; mul.wide.u32 %own, %j, {CELL};")
        lines.append("add.s64 %cell, %cell, %own;")
    elif space == "local":
        lines.append(f".local .align {CELL} .b8 cells_of_thread[{CELL}];")
        lines.append("mov.u64 %cell, cells_of_thread;")
    else:
        lines.append(f"mov.u64 %cell, cells_of_grid; mul.wide.u32 %own, %i, {CELL}; add.s64 %cell, %cell, %own;")
    if space.startswith("generic"):
        lines.append(f"cvta.{space.partition(' ')[2]}.u64 %cell, %cell;")
        return ""
    return f".{space}"


def _rotated(column: int, turn: int, register: str, width: int, lines: list[str]) -> None:
    """Loads ``register`` from operand ``column`` of the lane that is ``37 * turn`` lanes later."""
    lines.append(f"add.u32 %j, %i, {37 * turn}; rem.u32 %j, %j, %n; mul.wide.u32 %w, %j, 8;")
    lines.append("ld.param.u64 %from, [inputs]; add.s64 %from, %from, %w;")
    lines += ["add.s64 %from, %from, %step;"] * column
    # It is not extracted from 64 bits: ptxas 13.0 then uses a wrong upper half for the packed operand of an atomic.
    lines.append(f"ld.global.b{max(width, 16)} {register}, [%from];")


def _atomic(row: str, space: str, kind: str, count: int, operands: int, detail: str = "") -> Launched:
    """``row`` on a cell with ``count`` elements of ``kind``.

    Stores its result and the contents of the cell after it.
    """
    width = width_of(kind)
    wide = kind == "b128"
    lines: list[str] = [".reg .b64 %from;"]
    place = _cell(space, lines)
    names: list[list[str]] = []
    for column in range(operands + 1):
        group: list[str] = []
        for index in range(count):
            name = f"%s{column}_{index}"
            group.append(name)
            if wide:
                lines.append(f".reg .b128 {name}; .reg .b64 {name}l, {name}h;")
                for turn, half in enumerate("lh"):
                    _rotated(column, turn, name + half, 64, lines)
                lines.append(f"mov.b128 {name}, {{{name}l, {name}h}};")
            else:
                lines.append(f".reg {_register(width)} {name};")
                _rotated(column, index, name, width, lines)
        names.append(group)
    for index, name in enumerate(names[0]):
        lines.append(f"st{place}.b{width} [%cell+{index * width // 8}], {name};")
    sources = ["{" + ", ".join(group) + "}" if count > 1 else group[0] for group in names[1:]]
    results: list[str] = []
    if row.startswith("atom"):
        olds = [f"%d{index}" for index in range(count)]
        lines += [f".reg {'.b128' if wide else _register(width)} {old};" for old in olds]
        target = "{" + ", ".join(olds) + "}" if count > 1 else olds[0]
        lines.append(f"{row} {target}, [%cell], {', '.join(sources)};")
        for old in olds:
            if wide:
                lines.append(f".reg .b64 {old}l, {old}h; mov.b128 {{{old}l, {old}h}}, {old};")
                for half in "lh":
                    store_result("b64", old + half, lines)
                    results.append("b64")
            else:
                store_result(f"b{width}", old, lines)
                results.append(f"b{width}")
    else:
        lines.append(f"{row} [%cell], {', '.join(sources)};")
    words = -(-count * width // 64)
    for index in range(words):
        part = min(count * width, 64)
        lines.append(f".reg {_register(part)} %m{index}; ld{place}.b{part} %m{index}, [%cell+{8 * index}];")
        store_result(f"b{part}", f"%m{index}", lines)
        results.append(f"b{part}")
    column = "b64" if wide else kind
    return Launched(row, detail, (column,) * (operands + 1), tuple(results), tuple(lines))


_SPACES = ("global", "shared", "generic global", "generic shared")
_ORDERS = [
    ".".join(["", order, scope]).replace("..", ".").rstrip(".")
    for order, scope in product(("", "relaxed", "acquire", "release", "acq_rel"), ("", "cta", "cluster", "gpu", "sys"))
]

_SCALAR = [
    *product(("and", "or", "xor"), ("b32", "b64")),
    *product(("add",), ("u32", "s32", "u64", "f32", "f64")),
    *product(("min", "max"), ("u32", "s32", "u64", "s64")),
    *product(("inc", "dec"), ("u32",)),
]
_EXCHANGED = ("b32", "b64", "b128")
_COMPARED = ("b16", "b32", "b64", "b128")
_NOFTZ = ("f16", "bf16", "f16x2", "bf16x2")


def _atomics() -> Iterator[Launched]:
    forms: list[tuple[str, str, str, int, int]] = []
    for space, base in product(_SPACES, ("atom", "red")):
        forms += [(base, space, f"{operation}.{kind}", 1, 1) for operation, kind in _SCALAR]
        forms += [(base, space, f"add.noftz.{kind}", 1, 1) for kind in _NOFTZ]
        if base == "atom":
            forms += [(base, space, f"exch.{kind}", 1, 1) for kind in _EXCHANGED]
            forms += [(base, space, f"cas.{kind}", 1, 2) for kind in _COMPARED]
        if space.endswith("global"):
            forms += [(base, space, f"add.v{count}.f32", count, 1) for count in (2, 4)]
            for operation, kind in product(("add", "min", "max"), _NOFTZ):
                counts = (2, 4) if kind.endswith("x2") else (2, 4, 8)
                forms += [(base, space, f"{operation}.noftz.v{count}.{kind}", count, 1) for count in counts]
    for turn, (base, space, words, count, operands) in enumerate(forms):
        named = "" if space.startswith("generic") else f".{space}"
        detail = space.partition(" ")[2]
        kind = words.rpartition(".")[2]
        chosen = ["", _ORDERS[1 + turn % (len(_ORDERS) - 1)]]
        for order in chosen:
            # A reduction has no result, so it cannot be an acquire.
            sense = order.replace("acquire", "relaxed").replace("acq_rel", "release") if base == "red" else order
            yield _atomic(f"{base}{sense}{named}.{words}", space, kind, count, operands, detail)


_LOADED = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64".split()


def _memory() -> Iterator[Launched]:
    for space, kind, count in product((*_SPACES, "local"), _LOADED, (1, 2, 4)):
        width = width_of(kind)
        if count * width > 128:
            continue
        vector = "" if count == 1 else f".v{count}"
        named = "" if space.startswith("generic") else f".{space}"
        detail = space.partition(" ")[2]
        for register in (16, 32, 64):
            if register < width or (kind[0] == "f" and register != width) or (count > 1 and register > max(width, 32)):
                continue
            into = f"{detail} b{register}".strip()
            yield _load_form(f"ld{named}{vector}.{kind}", space, width, count, register, into)
            yield _store_form(f"st{named}{vector}.{kind}", space, width, count, register, into)
            if space == "global":
                yield _load_form(f"ldu.global{vector}.{kind}", space, width, count, register, into)


def _load_form(row: str, space: str, width: int, count: int, register: int, detail: str) -> Launched:
    lines: list[str] = [".reg .b64 %from;"]
    place = _cell(space, lines)
    for word in range(2):
        lines.append(f".reg .b64 %p{word};")
        _rotated(0, word, f"%p{word}", 64, lines)
        lines.append(f"st{place}.b64 [%cell+{8 * word}], %p{word};")
    names = [f"%d{index}" for index in range(count)]
    lines += [f".reg .b{register} {name};" for name in names]
    lines.append(f"{row} {'{' + ', '.join(names) + '}' if count > 1 else names[0]}, [%cell];")
    for name in names:
        store_result(f"b{register}", name, lines)
    return Launched(row, detail, ("b64",), (f"b{register}",) * count, tuple(lines))


def _store_form(row: str, space: str, width: int, count: int, register: int, detail: str) -> Launched:
    lines: list[str] = [".reg .b64 %from;"]
    place = _cell(space, lines)
    lines.append(f"st{place}.b64 [%cell], 0x5a5a5a5a5a5a5a5a; st{place}.b64 [%cell+8], 0x6b6b6b6b6b6b6b6b;")
    names = [f"%s{index}" for index in range(count)]
    for index, name in enumerate(names):
        lines.append(f".reg .b{register} {name};")
        _rotated(0, index, name, register, lines)
    lines.append(f"{row} [%cell], {'{' + ', '.join(names) + '}' if count > 1 else names[0]};")
    for word in range(2):
        lines.append(f".reg .b64 %m{word}; ld{place}.b64 %m{word}, [%cell+{8 * word}];")
        store_result("b64", f"%m{word}", lines)
    return Launched(row, detail, ("b64",), ("b64", "b64"), tuple(lines))


def _moves() -> Iterator[Launched]:
    """Packing and unpacking moves, such as ``mov.b32 {a, b}, c``."""
    for whole, count in ((16, 2), (32, 2), (32, 4), (64, 2), (64, 4), (128, 2), (128, 4)):
        part = whole // count
        lines: list[str] = [".reg .b64 %from;"]
        names = [f"%s{index}" for index in range(count)]
        kept = f".b{part}"
        for index, name in enumerate(names):
            lines.append(f".reg {kept} {name};")
            if part == 8:
                lines.append(f".reg .b16 {name}w;")
                _rotated(0, index, f"{name}w", 16, lines)
                lines.append(f"cvt.u8.u16 {name}, {name}w;")
            else:
                _rotated(0, index, name, part, lines)
        packed = [*lines, f".reg .b{whole} %d; mov.b{whole} %d, {{{', '.join(names)}}};"]
        results = _keep_whole(whole, "%d", packed)
        yield Launched(f"mov.b{whole}", f"pack {count}", ("b64",), results, tuple(packed))
        unpacked = [*lines, f".reg .b{whole} %d; mov.b{whole} %d, {{{', '.join(reversed(names))}}};"]
        parts = [f"%u{index}" for index in range(count)]
        unpacked += [f".reg {kept} {name};" for name in parts]
        unpacked.append(f"mov.b{whole} {{{', '.join(parts)}}}, %d;")
        for name in parts:
            if part == 8:
                unpacked.append(f".reg .b16 {name}w; cvt.u16.u8 {name}w, {name};")
                store_result("b16", f"{name}w", unpacked)
            else:
                store_result(f"b{part}", name, unpacked)
        yield Launched(f"mov.b{whole}", f"unpack {count}", ("b64",), (f"b{max(part, 16)}",) * count, tuple(unpacked))


def _keep_whole(whole: int, register: str, lines: list[str]) -> tuple[str, ...]:
    if whole != 128:
        store_result(f"b{whole}", register, lines)
        return (f"b{whole}",)
    lines.append(f".reg .b64 {register}l, {register}h; mov.b128 {{{register}l, {register}h}}, {register};")
    for half in "lh":
        store_result("b64", register + half, lines)
    return ("b64", "b64")


def _copies() -> Iterator[Launched]:
    """`cp.async` from the cell of the thread in global memory to that in shared memory; all, some or no bytes are
    read."""
    for level, nbytes in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        row = f"cp.async.{level}.shared.global"
        for detail in ("", "part", "ignored"):
            lines: list[str] = [".reg .b64 %from, %near, %p0, %p1;"]
            _cell("shared", lines)
            lines.append("mov.b64 %near, %cell;")
            lines.append("st.shared.v2.b64 [%near], {0x5a5a5a5a5a5a5a5a, 0x6b6b6b6b6b6b6b6b};")
            lines.append(f"mov.u64 %cell, cells_of_grid; mul.wide.u32 %own, %i, {CELL}; add.s64 %cell, %cell, %own;")
            for word in range(2):
                _rotated(0, word, f"%p{word}", 64, lines)
                lines.append(f"st.global.b64 [%cell+{8 * word}], %p{word};")
            extra = ""
            if detail == "part":
                lines.append(f".reg .b32 %some; and.b32 %some, %i, 31; min.u32 %some, %some, {nbytes};")
                extra = ", %some"
            elif detail == "ignored":
                lines.append(".reg .pred %none; and.b32 %t, %i, 3; setp.eq.u32 %none, %t, 0;")
                extra = ", %none"
            lines.append(f"{row} [%near], [%cell], {nbytes}{extra}; cp.async.commit_group; cp.async.wait_group 0;")
            for word in range(2):
                lines.append(f"ld.shared.b64 %p{word}, [%near+{8 * word}];")
                store_result("b64", f"%p{word}", lines)
            yield Launched(row, f"{nbytes} {detail}".rstrip(), ("b64",), ("b64", "b64"), tuple(lines))


_ASKED = ("global", "shared", "local", "const", "param", "shared::cta", "shared::cluster")


def _addresses() -> Iterator[Launched]:
    """Generic addresses: `isspacep` for an address of each space, and `cvta.to` as the inverse of `cvta`."""
    for space in ("global", "shared", "local", "const", "param"):
        start: list[str] = [".reg .b64 %from, %generic, %again; .reg .pred %same;"]
        if space == "const":
            start.append(".reg .b64 %cell; mov.u64 %cell, constants; and.b32 %t, %i, 7; mul.wide.u32 %w, %t, 8;")
            start.append("add.s64 %cell, %cell, %w;")
        elif space == "param":
            start.append(".reg .b64 %cell; mov.b64 %cell, outputs;")
        else:
            _cell(space, start)
        start.append(f"cvta.{space}.u64 %generic, %cell; cvta.to.{space}.u64 %again, %generic;")
        for asked in _ASKED:
            lines = [*start, f"isspacep.{asked} %same, %generic;"]
            store_result("pred", "%same", lines)
            yield Launched(f"isspacep.{asked}", space, ("b64",), ("pred",), tuple(lines))
        lines = [*start, "setp.eq.u64 %same, %again, %cell;"]
        store_result("pred", "%same", lines)
        yield Launched(f"cvta.{space}.u64", "and back", ("b64",), ("pred",), tuple(lines))


# Exchanges between the lanes of a warp and of a block


def _exchange(
    row: str, detail: str, kinds: tuple[str, ...], results: tuple[str, ...], statement: str, *, split: bool
) -> Launched:
    """``statement`` names its operands ``{s0}`` …, its results ``{d0}`` …, its membermask ``{mask}``.

    With ``split`` the odd and the even lanes of a warp execute it separately, each half with its own mask.
    """
    lines: list[str] = []
    operands = [load_operand(index, kind.removeprefix("warp:"), lines) for index, kind in enumerate(kinds)]
    names: list[str] = []
    for index, kind in enumerate(results):
        names.append(f"%d{index}")
        lines.append(f".reg .{'pred' if kind == 'pred' else f'b{width_of(kind)}'} %d{index};")
    places = {f"s{index}": operand for index, operand in enumerate(operands)}
    places |= {f"d{index}": name for index, name in enumerate(names)}
    if split:
        lines.append(".reg .pred %odd; .reg .b32 %mask; and.b32 %t, %i, 1; setp.ne.u32 %odd, %t, 0;")
        lines.append("selp.b32 %mask, 0xaaaaaaaa, 0x55555555, %odd; @%odd bra ODD;")
        lines.append(statement.format(mask="%mask", **places) + " bra.uni MET;")
        lines.append("ODD: " + statement.format(mask="%mask", **places))
        lines.append("MET: bar.warp.sync 0xffffffff;")
    else:
        lines.append(statement.format(mask="0xffffffff", **places))
    for kind, name in zip(results, names, strict=True):
        store_result(kind, name, lines)
    return Launched(row, f"{detail} split".strip() if split else detail, kinds, results, tuple(lines))


def _shuffles() -> Iterator[Launched]:
    for mode in ("up", "down", "bfly", "idx"):
        row = f"shfl.sync.{mode}.b32"
        for detail, offset, clamp, kinds in (
            ("", "{s1}", "{s2}", ("b32", "b32", "b32")),
            ("segments of 8", "{s1}", "0x181f", ("b32", "b32")),
            ("segments of 16, clamped", "{s1}", "0x1009", ("b32", "b32")),
            ("by 1", "1", "{s1}", ("b32", "b32")),
            ("by 33 in all", "33", "0x1f", ("b32",)),
            ("by 17 from 0", "17", "0", ("b32",)),
        ):
            operands = f"{{s0}}, {offset}, {clamp}, {{mask}};"
            yield _exchange(row, detail, kinds, ("b32",), f"{row} {{d0}}, {operands}", split=False)
            pair = f"{row} {{d0}}|{{d1}}, {operands}"
            yield _exchange(row, f"{detail} and a predicate".strip(), kinds, ("b32", "pred"), pair, split=False)
    # The source lane must take part: its low bit is set to the parity of the reader.
    own = "{{ .reg .b32 %own; and.b32 %own, %i, 1; and.b32 {s1}, {s1}, -2; or.b32 {s1}, {s1}, %own;\n"
    taking = own + "shfl.sync.idx.b32 {d0}|{d1}, {s0}, {s1}, 0x1f, {mask}; }}"
    yield _exchange("shfl.sync.idx.b32", "of its half", ("b32", "b32"), ("b32", "pred"), taking, split=True)


def _votes() -> Iterator[Launched]:
    for split in (False, True):
        for mode in ("all", "any", "uni"):
            row = f"vote.sync.{mode}.pred"
            for negation in ("", "!"):
                statement = f"{row} {{d0}}, {negation}{{s0}}, {{mask}};"
                yield _exchange(row, negation, ("warp:pred",), ("pred",), statement, split=split)
        row = "vote.sync.ballot.b32"
        yield _exchange(row, "", ("warp:pred",), ("b32",), f"{row} {{d0}}, {{s0}}, {{mask}};", split=split)
        for kind in ("b32", "b64"):
            operand = (f"warp:{kind}",)
            row = f"match.any.sync.{kind}"
            yield _exchange(row, "", operand, ("b32",), f"{row} {{d0}}, {{s0}}, {{mask}};", split=split)
            row = f"match.all.sync.{kind}"
            yield _exchange(row, "", operand, ("b32",), f"{row} {{d0}}, {{s0}}, {{mask}};", split=split)
            pair = f"{row} {{d0}}|{{d1}}, {{s0}}, {{mask}};"
            yield _exchange(row, "and a predicate", operand, ("b32", "pred"), pair, split=split)
        for operation, kinds in (("add min max", "u32 s32"), ("and or xor", "b32")):
            for word, kind in product(operation.split(), kinds.split()):
                row = f"redux.sync.{word}.{kind}"
                for operand in ("b32", "warp:b32"):
                    statement = f"{row} {{d0}}, {{s0}}, {{mask}};"
                    yield _exchange(row, operand.partition(":")[0], (operand,), ("b32",), statement, split=split)
        row = "elect.sync"
        yield _exchange(row, "", ("b32",), ("b32", "pred"), f"{row} {{d0}}|{{d1}}, {{mask}};", split=split)
        row = "activemask.b32"
        yield _exchange(row, "", ("b32",), ("b32",), f"{row} {{d0}};", split=split)


def _barriers() -> Iterator[Launched]:
    for base, count in product(("bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red"), ("", f", {BLOCK}")):
        aligned = (".aligned", "") if base.startswith("barrier") else ("",)
        for word, number in product(aligned, (0, 15)):
            detail = f"{number}{count}"
            for operation in ("and", "or"):
                row = f"{base}.{operation}{word}.pred"
                statement = f"{row} {{d0}}, {number}{count}, {{s0}};"
                yield _exchange(row, detail, ("warp:pred",), ("pred",), statement, split=False)
            row = f"{base}.popc{word}.u32"
            statement = f"{row} {{d0}}, {number}{count}, !{{s0}};"
            yield _exchange(row, detail, ("warp:pred",), ("b32",), statement, split=False)


@cache
def launched_cases() -> dict[str, Launched]:
    """Every form by its name."""
    found: dict[str, Launched] = {}
    for make in (_atomics, _memory, _copies, _addresses, _moves, _shuffles, _votes, _barriers):
        for case in make():
            found.setdefault(case.key, case)
    return found
