"""The contract of a module: its types, and reading and writing it as JSON.

Guarantees: a contract that was read is valid: it agrees with the JSON Schema beside this file, every expression reads
only what it may read (`KernelContract.check`), and the last version of each kernel is the kernel itself, without
conditions. `loads(contract.dumps()) == contract`.
Refuses: `ContractError` with the place in the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from .conditions import Condition, Disjoint, Holds, Inside, Range, expressions_of, extents_read, ranges_of
from .errors import ContractError
from .expressions import FIELD_TYPES, STACK, Expression, Symbol, stack_need, symbols
from .parsing import parse
from .tuning import TUNING_VERSION, TunedMachine, Tuning, tuned_kernel

__all__ = [
    "CONTRACT_VERSION",
    "Contract",
    "KernelContract",
    "LaunchChange",
    "Parameter",
    "Version",
    "digest_of",
    "load",
    "loads",
    "schema",
]

CONTRACT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: name, offset and size in bytes, and the name of its PTX type, such as `u64`.

    ``pointer``: it is an address of global memory. A structure has the type of its elements and the size of all.
    """

    name: str
    offset: int
    size: int
    type: str
    pointer: bool = False

    @property
    def is_structure(self) -> bool:
        """Whether this is an array of bytes, as nvcc passes a structure."""
        return self.size != _type_size(self.type)

    @property
    def is_integer(self) -> bool:
        """Whether an expression can read its value."""
        return not self.is_structure and self.type[0] in "usb" and self.size <= 8

    @property
    def is_signed(self) -> bool:
        """Whether its value is signed."""
        return self.type.startswith("s")

    def value(self, raw: bytes) -> int | bytes | None:
        """The value of an argument for `Launch.arguments`, given its bytes."""
        if self.is_integer:
            return int.from_bytes(raw, "little", signed=self.is_signed)
        return bytes(raw) if self.is_structure else None


def _type_size(type: str) -> int:
    return 4 if type == "f16x2" else int(type[1:]) // 8


@dataclass(frozen=True, slots=True)
class LaunchChange:
    """How the launch of a version differs from the original one. None: as in the original.

    ``arguments`` are the values of the parameters that the version has behind the original ones.
    """

    grid: tuple[Expression, Expression, Expression] | None = None
    block: tuple[Expression, Expression, Expression] | None = None
    shared: Expression | None = None
    arguments: tuple[Expression, ...] = ()

    def expressions(self) -> Iterator[Expression]:
        """All expressions."""
        yield from self.grid or ()
        yield from self.block or ()
        if self.shared is not None:
            yield self.shared
        yield from self.arguments


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a kernel: it may be launched if all of ``requires`` hold, and should be if ``prefer_when`` is true.

    ``prefer_when``: None means always.
    """

    entry: str
    requires: tuple[Condition, ...] = ()
    prefer_when: Expression | None = None
    launch: LaunchChange | None = None
    description: str = ""

    def expressions(self) -> Iterator[Expression]:
        """All expressions but ``prefer_when``."""
        for condition in self.requires:
            yield from expressions_of(condition)
        if self.launch is not None:
            yield from self.launch.expressions()

    def extents_read(self) -> frozenset[int]:
        """The pointer parameters whose extents the version may read."""
        extra = [*(self.launch.expressions() if self.launch else ()), *([self.prefer_when] if self.prefer_when else [])]
        conditions = (*self.requires, *map(Holds, extra))
        return frozenset(index for condition in conditions for index in extents_read(condition))


@dataclass(frozen=True, slots=True)
class KernelContract:
    """The versions of a kernel in the order in which they are tried. The last one is the kernel itself.

    ``tunings``: which versions were faster on which machine, at most one for each.
    """

    name: str
    parameters: tuple[Parameter, ...]
    versions: tuple[Version, ...]
    tunings: tuple[Tuning, ...] = ()

    def check(self) -> None:
        """Check what the JSON Schema cannot express. Raises `ContractError`."""
        last = self.versions[-1] if self.versions else None
        if last is None or last != Version(self.name, description=last.description):
            raise ContractError("the last version is not the kernel itself without conditions", self.name)
        for version in self.versions:
            place = f"{self.name}, version {version.entry}"
            for expression in version.expressions():
                self._check_expression(expression, place)
            if version.prefer_when is not None:
                self._check_expression(version.prefer_when, place, is_preference=True)
            for condition in version.requires:
                for range in ranges_of(condition):
                    self._parameter(range.pointer, place, "pointer")
        self._check_tunings()
        end = 0
        for parameter in self.parameters:
            if parameter.offset < end:
                raise ContractError(f"the parameter {parameter.name} overlaps the one before it", self.name)
            end = parameter.offset + parameter.size
            if parameter.pointer and (parameter.size != 8 or not parameter.is_integer):
                raise ContractError(f"the pointer {parameter.name} is no integer of 8 bytes", self.name)

    def _check_tunings(self) -> None:
        entries = [version.entry for version in self.versions[:-1]]
        machines = [each.machine for each in self.tunings]
        for each in self.tunings:
            try:
                each.check(entries)
            except ContractError as error:
                raise ContractError(str(error), self.name) from None
            if machines.count(each.machine) > 1:
                raise ContractError(f"there are two tunings for {each.machine.gpu}", self.name)

    def _check_expression(self, expression: Expression, place: str, *, is_preference: bool = False) -> None:
        if stack_need(expression) > STACK:
            raise ContractError(f"'{expression}' needs more than {STACK} intermediate values", place)
        for symbol in symbols(expression):
            self._check_symbol(symbol, place, is_preference)

    def _check_symbol(self, symbol: Symbol, place: str, is_preference: bool) -> None:
        if symbol.kind == "arg":
            self._parameter(symbol.index, place, "integer")
        elif symbol.kind in ("begin", "end"):
            self._parameter(symbol.index, place, "pointer")
        elif symbol.kind == "field":
            parameter = self._parameter(symbol.index, place, "structure")
            if symbol.offset + FIELD_TYPES[symbol.type] > parameter.size:
                raise ContractError(f"{symbol} is outside of {parameter.name}, which has {parameter.size} bytes", place)
        elif symbol.kind == "warps_per_scheduler" and not is_preference:
            raise ContractError("only prefer_when may read warps_per_scheduler", place)

    def _parameter(self, index: int, place: str, kind: str) -> Parameter:
        """The parameter with a number, which must be a pointer, an integer or a structure."""
        if index >= len(self.parameters):
            raise ContractError(f"there is no parameter arg{index}", place)
        found = self.parameters[index]
        if not {"pointer": found.pointer, "integer": found.is_integer, "structure": found.is_structure}[kind]:
            article = "an" if kind == "integer" else "a"
            raise ContractError(f"arg{index} ({found.name}, .{found.type}) is not {article} {kind}", place)
        return found


@dataclass(frozen=True, slots=True)
class Contract:
    """The contract of the module whose PTX text has this SHA-256. ``kernels`` maps a name to the contract."""

    sha256: str
    kernels: Mapping[str, KernelContract] = field(default_factory=dict[str, KernelContract])
    producer: str = ""

    def matches(self, ptx: str | bytes) -> bool:
        """Whether this is the contract of a PTX text."""
        return digest_of(ptx) == self.sha256

    def check(self) -> None:
        """Check every kernel. Raises `ContractError`."""
        for name, kernel in self.kernels.items():
            if name != kernel.name:
                raise ContractError(f"the contract of {kernel.name} has the key {name}")
            kernel.check()

    def tuned_for(self, machine: TunedMachine | None) -> Contract:
        """This contract with the preferences that were measured on a machine, and without tunings."""
        return replace(self, kernels={name: tuned_kernel(each, machine) for name, each in self.kernels.items()})

    def to_json(self) -> dict[str, Any]:
        """The document as dictionaries and lists."""
        return {
            "contract_version": CONTRACT_VERSION,
            **({"producer": self.producer} if self.producer else {}),
            "module": {"sha256": self.sha256},
            "kernels": {name: _kernel_json(kernel) for name, kernel in self.kernels.items()},
        }

    def dumps(self) -> str:
        """The document as text."""
        import json

        return json.dumps(self.to_json(), indent=1) + "\n"


def digest_of(ptx: str | bytes) -> str:
    """The SHA-256 of a PTX text, as hexadecimal digits. A text is encoded as UTF-8."""
    import hashlib

    return hashlib.sha256(ptx.encode("utf-8", "surrogateescape") if isinstance(ptx, str) else ptx).hexdigest()


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    import json
    from pathlib import Path

    return json.loads(Path(__file__).with_name("contract_schema.json").read_text(encoding="utf-8"))


# --- writing ---------------------------------------------------------------------------------------------------


def _kernel_json(kernel: KernelContract) -> dict[str, Any]:
    parameters = [
        {"name": each.name, "offset": each.offset, "size": each.size, "type": each.type, "pointer": each.pointer}
        for each in kernel.parameters
    ]
    document: dict[str, Any] = {
        "parameters": parameters,
        "versions": [_version_json(version) for version in kernel.versions],
    }
    if kernel.tunings:
        document["tunings"] = [each.to_json() for each in kernel.tunings]
    return document


def _version_json(version: Version) -> dict[str, Any]:
    document: dict[str, Any] = {"entry": version.entry}
    if version.description:
        document["description"] = version.description
    document["requires"] = [_condition_json(condition) for condition in version.requires]
    if version.prefer_when is not None:
        document["prefer_when"] = str(version.prefer_when)
    if version.launch is not None:
        change = version.launch
        launch: dict[str, Any] = {
            name: [str(each) for each in three]
            for name, three in (("grid", change.grid), ("block", change.block))
            if three
        }
        if change.shared is not None:
            launch["shared"] = str(change.shared)
        if change.arguments:
            launch["arguments"] = [str(each) for each in change.arguments]
        document["launch"] = launch
    return document


def _condition_json(condition: Condition) -> dict[str, Any]:
    if isinstance(condition, Holds):
        return {"holds": str(condition.expression)}
    ranges = [_range_json(range) for range in ranges_of(condition)]
    return {"inside": ranges[0]} if isinstance(condition, Inside) else {"disjoint": ranges}


def _range_json(range: Range) -> dict[str, str]:
    whole = {"pointer": f"arg{range.pointer}"}
    return whole if range.is_whole else {**whole, "from": str(range.start), "to": str(range.stop)}


# --- reading ---------------------------------------------------------------------------------------------------


def load(path: str) -> Contract:
    """Read a contract from a file. Raises `ContractError`, `OSError`."""
    with open(path, "rb") as file:
        return loads(file.read(), path)


def loads(text: str | bytes, name: str = "") -> Contract:
    """Read a contract from text; ``name`` is for messages. Raises `ContractError`."""
    import json

    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except ContractError as error:
        raise ContractError(str(error), name) from None
    except (ValueError, RecursionError) as error:
        raise ContractError(f"the contract is no JSON: {error}", name) from None
    try:
        _validate(document)
        contract = _contract(document)
        contract.check()
    except ContractError as error:
        raise ContractError(str(error), ": ".join(part for part in (name, error.place) if part)) from None
    return contract


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        raise ContractError(f"the key '{next(name for name in names if names.count(name) > 1)}' appears twice")
    return document


def _refuse_constant(name: str) -> Any:
    raise ContractError(f"{name} is no JSON")


def _validate(document: Any) -> None:
    """Compare with the JSON Schema. The version is looked at first, since another one has another schema."""
    import jsonschema

    found = cast("dict[str, Any]", document).get("contract_version") if isinstance(document, dict) else None
    if isinstance(found, int) and found != CONTRACT_VERSION:
        raise ContractError(f"contract_version is {found}; this ptxmotion reads {CONTRACT_VERSION}")
    for tuning in _tunings_of(document):
        if isinstance(tuning, int) and tuning != TUNING_VERSION:
            raise ContractError(f"tuning_version is {tuning}; this ptxmotion reads {TUNING_VERSION}")
    validator: Any = jsonschema.Draft202012Validator(schema())
    error = next(iter(validator.iter_errors(document)), None)
    if error is not None:
        raise ContractError(str(error.message)[:300], "/".join(map(str, error.absolute_path)))


def _tunings_of(document: Any) -> Iterator[Any]:
    """The versions of all tunings of a document that may have any form."""
    kernels = cast("dict[str, Any]", document).get("kernels") if isinstance(document, dict) else None
    for kernel in cast("dict[str, Any]", kernels).values() if isinstance(kernels, dict) else ():
        tunings = cast("dict[str, Any]", kernel).get("tunings") if isinstance(kernel, dict) else None
        for each in cast("list[Any]", tunings) if isinstance(tunings, list) else ():
            if isinstance(each, dict):
                yield cast("dict[str, Any]", each).get("tuning_version")


def _contract(document: dict[str, Any]) -> Contract:
    kernels = {name: _kernel(name, kernel) for name, kernel in document["kernels"].items()}
    return Contract(document["module"]["sha256"], kernels, document.get("producer", ""))


def _kernel(name: str, document: dict[str, Any]) -> KernelContract:
    try:
        return KernelContract(
            name,
            tuple(map(_parameter, document["parameters"])),
            tuple(_version(version) for version in document["versions"]),
            tuple(map(_tuning, document.get("tunings", ()))),
        )
    except ContractError as error:
        raise ContractError(str(error), error.place or name) from None


def _tuning(document: dict[str, Any]) -> Tuning:
    return Tuning.from_json(document)


def _parameter(document: dict[str, Any]) -> Parameter:
    # JSON Schema counts 8.0 as an integer.
    offset, size = int(document["offset"]), int(document["size"])
    return Parameter(document["name"], offset, size, document["type"], document["pointer"])


def _version(document: dict[str, Any]) -> Version:
    prefer = document.get("prefer_when")
    launch = document.get("launch")
    return Version(
        document["entry"],
        tuple(_condition(condition) for condition in document["requires"]),
        None if prefer is None else parse(prefer),
        None if launch is None else _change(launch),
        document.get("description", ""),
    )


def _change(document: dict[str, Any]) -> LaunchChange:
    def three(name: str) -> tuple[Expression, Expression, Expression] | None:
        if name not in document:
            return None
        x, y, z = map(parse, document[name])
        return x, y, z

    shared = document.get("shared")
    arguments = tuple(map(parse, document.get("arguments", ())))
    return LaunchChange(three("grid"), three("block"), None if shared is None else parse(shared), arguments)


def _condition(document: dict[str, Any]) -> Condition:
    ((kind, value),) = document.items()
    if kind == "holds":
        return Holds(parse(value))
    if kind == "inside":
        return Inside(_range(value))
    return Disjoint(_range(value[0]), _range(value[1]))


def _range(document: dict[str, str]) -> Range:
    pointer = int(document["pointer"].removeprefix("arg"))
    return Range(pointer, parse(document["from"]), parse(document["to"])) if "from" in document else Range(pointer)
