"""Contracts: what is refused with which message, what is undecidable, and simple examples of each condition."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ptxmotion.contract import (
    Contract,
    ContractError,
    Disjoint,
    Extent,
    Holds,
    Inside,
    KernelContract,
    Launch,
    Parameter,
    Range,
    Undecidable,
    Version,
    decide,
    holds,
    load,
    loads,
    parse,
)
from ptxmotion.contract.document import digest_of, schema
from ptxmotion.contract.expressions import Operation, add, argument, begin, compare, end, minimum, multiply

PARAMETERS = (
    Parameter("x", 0, 8, "u64", pointer=True),
    Parameter("y", 8, 8, "u64", pointer=True),
    Parameter("n", 16, 4, "s32"),
    Parameter("a", 20, 4, "f32"),
    Parameter("s", 24, 8, "b8"),
)
LAUNCH = Launch(
    (0x1010, 0x2000, 4, None, bytes.fromhex("00000000ffffffff")),
    extents={0: Extent(0x1000, 0x1020), 1: Extent(0x2000, 0x2010)},
)


def contract_of(*versions: Version) -> Contract:
    kernel = KernelContract("axpy", PARAMETERS, (*versions, Version("axpy")))
    return Contract("0" * 64, {"axpy": kernel}, "test")


def part(pointer: int, start: str, stop: str) -> Range:
    return Range(pointer, parse(start), parse(stop))


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        ("0", "16", True),
        ("0", "17", False),
        ("-16", "0", True),
        ("-17", "0", False),
        ("0", "4 * arg2", True),
        ("100", "100", True),
        ("100", "-100", True),
        ("begin(arg0) - arg0", "end(arg0) - arg0", True),
    ],
)
def test_whether_a_range_is_inside_its_buffer(start: str, stop: str, expected: bool) -> None:
    assert decide(Inside(part(0, start, stop)), LAUNCH) == expected


def test_copies_of_an_expression_are_equal_and_carry_no_hash() -> None:
    """The hash of a text differs between processes."""
    expression = parse("min(arg0 * grid_x, 7) // 3")
    assert isinstance(expression, Operation)
    assert expression.__reduce__() == (Operation, (expression.operator, expression.operands))
    for same in (pickle.loads(pickle.dumps(expression)), copy.deepcopy(expression)):
        assert same == expression and hash(same) == hash(expression) and same in {expression}


def test_an_empty_range_needs_no_extent() -> None:
    unknown = Launch(LAUNCH.arguments)
    assert decide(Inside(part(0, "8", "8")), unknown)
    assert decide(Disjoint(part(0, "8", "8"), part(1, "0", "4")), unknown)
    with pytest.raises(Undecidable, match="the extent of arg0 is unknown"):
        decide(Inside(part(0, "0", "1")), unknown)


def test_whether_two_ranges_are_disjoint() -> None:
    assert decide(Disjoint(Range(0), Range(1)), LAUNCH)
    assert decide(Disjoint(part(0, "0", "4"), part(0, "4", "8")), LAUNCH)
    assert not decide(Disjoint(part(0, "0", "5"), part(0, "4", "8")), LAUNCH)
    assert not decide(Disjoint(Range(0), Range(0)), LAUNCH)
    assert not decide(Disjoint(part(0, "4096 - 16", "4096"), Range(1)), LAUNCH)
    assert decide(Disjoint(part(0, "0", "4096 - 16"), Range(1)), LAUNCH)


def test_ranges_of_memory_that_may_be_mapped_twice_are_not_disjoint() -> None:
    """No expression names an extent here, and the addresses differ; an unknown extent decides all the same."""
    condition = Disjoint(part(0, "0", "4"), part(1, "0", "4"))
    assert holds(condition, LAUNCH)
    assert not holds(condition, Launch(LAUNCH.arguments, extents={0: LAUNCH.extents[0]}))


def test_a_pointer_outside_of_the_given_extent_has_none() -> None:
    launch = Launch(LAUNCH.arguments, extents={0: Extent(0x1000, 0x1008), 1: Extent(0x2000, 0x2010)})
    assert not holds(Disjoint(Range(0), Range(1)), launch)
    assert holds(Holds(parse("end(arg1) - arg1 == 16")), launch)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arg2 == 4", True),
        ("arg0 % 16 == 0", True),
        ("-7 // 2 == -4 and -7 % 2 == 1 and 7 % -2 == -1", True),
        ('field(4, 4, "s32") == -1 and field(4, 4, "u32") == 4294967295', True),
        ("2 and 3 == 3", True),
        ("(2 and 3) == 1", True),
        ("0 or 0", False),
        ("1 // 0 == 1", None),
        ("not 1 // 0", None),
        ("0 and 1 // 0", False),
        ("1 or 1 // 0", True),
        ("1 // 0 or 1", None),
        ("1 if arg2 else 1 // 0", True),
        ("18446744073709551616 - 1", True),
        ("18446744073709551616 + 1 > 0", None),
        ("18446744073709551616 * -1 < 0", True),
        ("warps_per_scheduler > 0", None),
    ],
)
def test_whether_an_expression_holds(text: str, expected: bool | None) -> None:
    condition = Holds(parse(text))
    assert holds(condition, LAUNCH) == bool(expected)
    if expected is None:
        with pytest.raises(Undecidable):
            decide(condition, LAUNCH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no expression"),
        ("arg0 +", "is no expression"),
        ("x", "no symbol 'x'"),
        ("arg01", "no symbol 'arg01'"),
        ("arg0 / 2", "Div is not part"),
        ("arg0 ** 2", "Pow is not part"),
        ("~arg0", "UnaryOp is not part"),
        ("+arg0", "UnaryOp is not part"),
        ("arg0 in arg1", "the operator In"),
        ("True", "Constant is not part"),
        ("-True", "Constant is not part"),
        ("1.5", "Constant is not part"),
        ("begin(grid_x)", "takes a parameter"),
        ("begin(arg0, arg1)", "cannot be called"),
        ("field(0, 0, 'f32')", "cannot be called"),
        ("field(0, -1, 'u8')", "cannot be called"),
        ("field(True, 0, 'u8')", "cannot be called"),
        ("min(1)", "'min' with 1 operands"),
        ("min(*arg0)", "Starred is not part"),
        ("print(1)", "cannot be called"),
        ("().__class__", "Attribute is not part"),
        ("[1 for x in y]", "ListComp is not part"),
        (str(2**64 + 1), "larger than 2"),
        ("9" * 5000, "no expression"),
        ("(" * 300 + "1" + ")" * 300, "no expression"),
        ("not " * 250 + "1", "nested operations"),
        ("1" + " + 1" * 250, "nested operations"),
        ("1 + (" * 70 + "1" + ")" * 70, "64 intermediate values"),
        ("1" * 20_001, "20001 characters"),
    ],
)
def test_what_is_no_expression(text: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        parse(text)


def test_builders_simplify_expressions() -> None:
    x, n = argument(0), argument(2)
    assert str(multiply(n - 1, 4) + 4) == "4 * arg2"
    assert str(add(x, -3, 3, multiply(-2, x))) == "-arg0"
    assert str(3 - x * 2) == "-2 * arg0 + 3"
    assert str(minimum(3, n, minimum(n, 2))) == "min(arg2, 2)"
    assert str(compare("<", 2, 3)) == "1"
    assert str((end(0) - begin(0)) % 24) == "(end(arg0) - begin(arg0)) % 24"
    assert str(multiply(0, begin(0))) == "0 * begin(arg0)", "an unknown extent stays undecidable"
    assert str(multiply(0, n)) == "0"


def test_example_of_the_page(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text(encoding="utf-8")
    example = text.split("```json\n")[1].split("```")[0].replace("…", "0" * 64)
    path = tmp_path / "a.json"
    path.write_text(example)
    kernel = load(str(path)).kernels["axpy"]
    assert [version.entry for version in kernel.versions] == ["axpy__ptxmotion_1", "axpy"]
    assert json.loads(loads(example).dumps()) == json.loads(example)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The JSON of a contract with the value at one place replaced, or removed if it is None."""
    document = contract_of(Version("axpy_1", (Inside(Range(0)),))).to_json()
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return document


REQUIRES = ("kernels", "axpy", "versions", 0, "requires")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed("contract_version", to=2), "contract_version is 2; this ptxmotion reads 1"),
        (changed("module", "sha256", to="00"), "does not match"),
        (changed("module", to=None), "'module' is a required property"),
        (changed("other", to=1), "'other' was unexpected"),
        (changed(*REQUIRES, to=[{"holds": "arg9 == 1"}]), "there is no parameter arg9"),
        (changed(*REQUIRES, to=[{"holds": "arg3 == 1"}]), "arg3 .a, .f32. is not an integer"),
        (changed(*REQUIRES, to=[{"holds": "begin(arg2) == 1"}]), "arg2 .n, .s32. is not a pointer"),
        (changed(*REQUIRES, to=[{"holds": "field(2, 0, 'u8')"}]), "is not a structure"),
        (changed(*REQUIRES, to=[{"holds": "field(4, 1, 'u64')"}]), "is outside of s"),
        (changed(*REQUIRES, to=[{"holds": "warps_per_scheduler < 2"}]), "only prefer_when"),
        (changed(*REQUIRES, to=[{"holds": "arg0 +"}]), "is no expression"),
        (changed(*REQUIRES, to=[{"inside": {"pointer": "arg2"}}]), "is not a pointer"),
        (changed(*REQUIRES, to=[{"inside": {"pointer": "arg0", "from": "0"}}]), "'to' is a dependency of 'from'"),
        (changed(*REQUIRES, to=[{"holds": "1", "inside": {"pointer": "arg0"}}]), "too many properties|non-empty"),
        (changed("kernels", "axpy", "versions", to=[]), "non-empty|too short"),
        (changed("kernels", "axpy", "versions", 1, to=None), "the last version is not the kernel itself"),
        (changed("kernels", "axpy", "versions", 1, "prefer_when", to="1"), "the last version is not"),
        (changed("kernels", "axpy", "parameters", 1, "offset", to=4), "y overlaps the one before it"),
        (changed("kernels", "axpy", "parameters", 2, "pointer", to=True), "n is no integer of 8 bytes"),
        ([], "is not of type 'object'"),
    ],
)
def test_what_is_no_contract(document: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        loads(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ('{"a": NaN}', "NaN is no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
    ],
)
def test_what_is_no_json(text: str | bytes, message: str) -> None:
    with pytest.raises(ContractError, match=message) as error:
        loads(text, "a.json")
    assert error.value.place == "a.json"


def test_the_place_of_an_error() -> None:
    with pytest.raises(ContractError) as error:
        loads(json.dumps(changed(*REQUIRES, to=[{"holds": "arg9"}])), "a.json")
    assert error.value.place == "a.json: axpy, version axpy_1"


def test_a_contract_knows_its_module() -> None:
    contract = Contract(digest_of("// a\n"))
    assert contract.matches("// a\n") and contract.matches(b"// a\n") and not contract.matches("// a")


def test_which_extents_a_version_reads() -> None:
    version = Version("axpy_1", (Holds(parse("end(arg1) > 0")),))
    assert version.extents_read() == {1}
    assert Version("axpy_1", (Disjoint(Range(0), part(1, "0", "1")),)).extents_read() == {0, 1}
    assert Version("axpy_1", (Holds(parse("arg0 % 16 == 0")),)).extents_read() == frozenset()
