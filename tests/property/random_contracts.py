"""Random expressions, conditions, contracts and launches over one list of parameters."""

from __future__ import annotations

from hypothesis import strategies as st
from ptxmotion.contract import (
    Condition,
    Contract,
    Disjoint,
    Expression,
    Extent,
    Holds,
    Inside,
    KernelContract,
    Launch,
    LaunchChange,
    LaunchClass,
    Number,
    Operation,
    Parameter,
    Range,
    Symbol,
    TunedMachine,
    Tuning,
    Version,
)
from ptxmotion.contract.expressions import COMPARISONS, FIELD_TYPES, PLAIN_SYMBOLS, STACK, stack_need

#: Two pointers, a third one behind scalars of all kinds, and a structure of 24 bytes.
PARAMETERS = (
    Parameter("p0", 0, 8, "u64", pointer=True),
    Parameter("p1", 8, 8, "b64", pointer=True),
    Parameter("n", 16, 4, "u32"),
    Parameter("stride", 20, 4, "s32"),
    Parameter("small", 24, 1, "s8"),
    Parameter("half", 26, 2, "u16"),
    Parameter("scale", 28, 4, "f32"),
    Parameter("p2", 32, 8, "u64", pointer=True),
    Parameter("wide", 40, 8, "s64"),
    Parameter("struct", 48, 24, "b8"),
)
POINTERS = tuple(index for index, each in enumerate(PARAMETERS) if each.pointer)
INTEGERS = tuple(index for index, each in enumerate(PARAMETERS) if each.is_integer)
STRUCTURE = len(PARAMETERS) - 1

_EDGES = [0, 1, 2, 3, 4, 7, 8, 16, 31, 32, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
_literals = st.sampled_from([*_EDGES, *(-edge for edge in _EDGES)]) | st.integers(-100, 100)


def _field(offset: int, type: str) -> Symbol:
    return Symbol("field", STRUCTURE, min(offset, 24 - FIELD_TYPES[type]), type)


symbols = st.one_of(
    st.sampled_from([Symbol("arg", index) for index in INTEGERS]),
    st.sampled_from([Symbol(kind, index) for kind in ("begin", "end") for index in POINTERS]),
    st.sampled_from([Symbol(name) for name in PLAIN_SYMBOLS if name != "warps_per_scheduler"]),
    st.builds(_field, st.integers(0, 23), st.sampled_from(sorted(FIELD_TYPES))),
)


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def operation(operator: str, *operands: Expression) -> Expression:
        return Operation(operator, operands)

    binary = st.sampled_from(["+", "-", "*", "//", "%", "min", "max", "and", "or", *COMPARISONS])
    return st.one_of(
        st.builds(operation, binary, inner, inner),
        st.builds(operation, st.sampled_from(["min", "max", "and", "or"]), inner, inner, inner),
        st.builds(operation, st.just("if"), inner, inner, inner),
        st.builds(operation, st.just("not"), inner),
        # The minus of a literal is part of the literal.
        inner.filter(lambda e: not isinstance(e, Number)).map(lambda e: operation("-", e)),
    )


expressions = st.recursive(st.builds(Number, _literals) | symbols, _larger, max_leaves=12).filter(
    lambda expression: stack_need(expression) <= STACK
)


def _affine(constant: int, factor: int, index: int, later: int) -> Expression:
    """A sum and a product of small numbers and an argument, as the C library evaluates without code."""
    product = Operation("*", (Symbol("arg", index), Number(factor)))
    return Operation("-", (Operation("+", (Number(constant), product)), Operation("*", (Number(later), product))))


_factors = st.integers(-9, 9) | st.sampled_from([2**30 - 1, 2**30, -(2**30), 2**31, 2**33])
affine = st.builds(_affine, st.integers(-70, 140) | _factors, _factors, st.sampled_from(INTEGERS), _factors)

#: Expressions that often stay near the extents of `launches`.
_near = st.builds(Number, st.integers(-70, 140)) | affine | expressions
ranges = st.builds(Range, st.sampled_from(POINTERS)) | st.builds(Range, st.sampled_from(POINTERS), _near, _near)
conditions: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Inside, ranges), st.builds(Disjoint, ranges, ranges), st.builds(Holds, expressions)
)

_threes = st.tuples(expressions, expressions, expressions)
_changes = st.builds(
    LaunchChange,
    st.none() | _threes,
    st.none() | _threes,
    st.none() | expressions,
    st.lists(expressions, max_size=2).map(tuple),
)


def _few_warps(limit: int) -> Expression:
    return Operation("<", (Symbol("warps_per_scheduler"), Number(limit)))


def _contract(kernel: KernelContract, digest: str) -> Contract:
    return Contract(digest, {kernel.name: kernel}, "test")


_preferences = expressions | st.just(Symbol("warps_per_scheduler")) | st.integers(0, 20).map(_few_warps)
versions = st.builds(
    Version,
    st.sampled_from(["k_1", "k_2", "k_3"]),
    st.lists(conditions, max_size=4).map(tuple),
    st.none() | _preferences,
    st.none() | _changes,
    st.sampled_from(["", "disjoint"]),
)
#: Versions whose conditions often hold: the rest of the decision is reached.
_true = st.sampled_from([Holds(Number(1)), Inside(Range(0)), Disjoint(Range(0, Number(0), Number(0)), Range(1))])
easy_changes = st.builds(
    LaunchChange,
    st.none() | st.sampled_from([1, 2, 0]).map(lambda height: (Symbol("grid_x"), Number(height), Number(1))),
    st.none() | st.just((Number(64), Number(1), Number(1))),
    st.none() | st.just(Number(64)),
    st.lists(symbols, max_size=2).map(tuple),
)
_easy_versions = st.builds(
    Version,
    st.sampled_from(["k_1", "k_2", "k_3"]),
    st.lists(_true, max_size=2).map(tuple),
    st.none() | _preferences,
    st.none() | easy_changes,
)


#: Kinds of machines. The first one may be that of a fake driver.
MACHINES = (TunedMachine("NVIDIA Fake", 4), TunedMachine("NVIDIA Fake", 132), TunedMachine("Another GPU", 4))


@st.composite
def _tunings(draw: st.DrawFn, entries: list[str]) -> tuple[Tuning, ...]:
    """Tunings for some machines, with classes that do not overlap."""
    found: list[Tuning] = []
    for machine in draw(st.lists(st.sampled_from(MACHINES), unique=True)):
        bounds = sorted(draw(st.sets(st.sampled_from([1, 63, 64, 127, 128, 5000, 2**20, 2**40, 2**63]), max_size=4)))
        preferred = st.lists(st.sampled_from(entries), unique=True).map(tuple) if entries else st.just(())
        pairs = zip(bounds[::2], bounds[1::2], strict=False)
        classes = [LaunchClass(least, most, draw(preferred), dict.fromkeys(entries, 1.5)) for least, most in pairs]
        found.append(Tuning(machine, "580", "2026-01-02", tuple(classes)))
    return tuple(found)


@st.composite
def _kernels(draw: st.DrawFn, versions: st.SearchStrategy[list[Version]]) -> KernelContract:
    found = draw(versions)
    tunings = draw(st.just(()) | _tunings(list(dict.fromkeys(each.entry for each in found))))
    return KernelContract("k", PARAMETERS, (*found, Version("k")), tunings)


easy_kernels = _kernels(st.lists(_easy_versions, min_size=1, max_size=3))
kernels = _kernels(st.lists(versions, max_size=4))
contracts = st.builds(_contract, kernels, st.text("0123456789abcdef", min_size=64, max_size=64))


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """A launch whose pointers are in a few small allocations, or anywhere."""
    arguments: list[int | bytes | None] = []
    extents: dict[int, Extent | None] = {}
    # Allocations that follow each other, and one that ends where the address space ends.
    allocations = [Extent(0x1000, 0x1040), Extent(0x1040, 0x1080), Extent(0x2000, 0x2001), Extent(2**64 - 64, 2**64)]
    for index, parameter in enumerate(PARAMETERS):
        if parameter.pointer:
            extent = draw(st.sampled_from(allocations))
            inside = st.integers(extent.begin, min(extent.end, 2**64 - 1))
            pointer = draw(inside | st.sampled_from([0, 2**64 - 1]))
            arguments.append(pointer)
            extents[index] = draw(st.just(extent) | st.none())
        elif parameter.is_integer:
            raw = draw(st.binary(min_size=parameter.size, max_size=parameter.size) | st.just(bytes(parameter.size)))
            arguments.append(parameter.value(raw))
        else:
            arguments.append(draw(st.binary(min_size=24, max_size=24)) if parameter.is_structure else None)
    sizes = st.tuples(*[st.integers(1, 1024)] * 3)
    warps = draw(st.none() | st.integers(1, 16))
    return Launch(tuple(arguments), draw(sizes), draw(sizes), draw(st.integers(0, 2**32 - 1)), extents, warps)
