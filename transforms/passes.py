"""The passes by name: which there are, which a level runs, and how their options are written.

A pass of this package is named in `_BUILT_IN`. A pass of another distribution is named by an entry point of the group
``ptxmotion.passes``, whose value is the class: ``my_pass = "my_package:MyPass"``. Where both have a name, the pass of
this package is used.

Guarantees: only the modules of the selected passes are imported, because `opt` is started for every file of a build.
Raises `UnknownPass` for an unknown name, option or value.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ..spelling import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ..analysis.manager import Facts
    from ..ptx import Kernel
    from .remarks import Remarks

__all__ = [
    "ENTRY_POINTS",
    "LEVELS",
    "Pass",
    "UnknownPass",
    "create_pass",
    "is_built_in",
    "option",
    "option_text",
    "pass_class",
    "pass_names",
    "passes_of",
]

_Value = TypeVar("_Value", int, bool, str)

#: The group of entry points under which other distributions register passes.
ENTRY_POINTS = "ptxmotion.passes"


class Pass(Protocol):
    """A transform of one kernel. Its dataclass fields, of type ``int``, ``bool`` or ``str``, are its options.

    `opt --print-passes` describes the pass by the first sentence of its docstring, and an option by the text that is
    given to `option`.
    """

    name: ClassVar[str]

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Transform ``kernel`` in place and return whether anything changed.

        The pass calls `Remarks.may_rewrite` before each rewrite.
        """
        ...


def option(default: _Value, text: str) -> _Value:
    """The field of an option of a pass: its default value, and what `opt --print-passes` says about it."""
    return field(default=default, metadata={_TEXT: text})


def option_text(declared: Any) -> str:
    """What is said about an option, which is one of `dataclasses.fields`; empty where its pass says nothing."""
    return declared.metadata.get(_TEXT, "")


#: The key of the text in the metadata of a field.
_TEXT = "ptxmotion.text"


class UnknownPass(ValueError):
    """There is no pass, level or option of that name, or the option does not take that value."""


#: Module (in this folder) and class of each pass, in the order of the default pipeline.
_BUILT_IN: dict[str, tuple[str, str]] = {
    "cse": ("code_motion.total_redundancy", "TotalRedundancy"),
    "lcm": ("code_motion.lazy_code_motion", "LazyCodeMotion"),
    "scm": ("code_motion.sparse_code_motion", "SparseCodeMotion"),
    "spre": ("code_motion.sparse_code_motion", "SpeculativePartialRedundancyElimination"),
    "sscm": ("code_motion.sparse_code_motion", "SpeculativeSparseCodeMotion"),
    "srqp": ("scalar_replacement.passes", "ScalarReplacement"),
    "esrqp": ("scalar_replacement.passes", "ExtendedScalarReplacement"),
    "ssrqp_s": ("scalar_replacement.passes", "SpeculativeScalarReplacementEverywhere"),
    "ssrqp": ("scalar_replacement.passes", "SpeculativeScalarReplacement"),
    "isp": ("partition.iteration_space", "IterationSpacePartitioning"),
    "motion": ("code_motion.motion_fixpoint", "MotionFixpoint"),
    "vectormerge": ("memory.vector_merge", "VectorMerge"),
    "readonly": ("memory.read_only_loads", "ReadOnlyLoads"),
    "deadstores": ("memory.dead_stores", "DeadStores"),
    "earlyloads": ("memory.early_loads", "EarlyLoads"),
    "copyprop": ("cleanup.copy_propagation", "CopyPropagation"),
    "dce": ("cleanup.dead_code", "DeadCodeElimination"),
    "emptyblocks": ("cleanup.dead_code", "EmptyBlocks"),
}

#: The passes of each level, in order.
LEVELS: dict[str, tuple[str, ...]] = {
    "O0": (),
    # lcm removes total redundancies and cleans up between its rounds. dce removes what was dead before lcm.
    "O1": ("lcm", "dce", "emptyblocks"),
    # sscm runs lcm first and keeps its insertions out of the arms of divergent branches.
    "O2": ("sscm", "dce", "emptyblocks"),
    # motion alternates sscm and ssrqp. vectormerge comes after it, because ssrqp replaces loads one by one. readonly
    # changes the remaining loads. deadstores comes last, because a store is dead only where no load reads it.
    "O3": ("motion", "vectormerge", "readonly", "deadstores", "copyprop", "dce", "emptyblocks"),
}


def pass_names() -> list[str]:
    """The names of all passes: those of this package in the default order, then the registered passes."""
    return [*_BUILT_IN, *(name for name in sorted(_registered()) if name not in _BUILT_IN)]


def is_built_in(each: Pass) -> bool:
    """Whether the pass belongs to this package. The ``repr`` of such a pass shows all of its options."""
    module, class_name = _BUILT_IN.get(each.name, ("", ""))
    return (type(each).__module__, type(each).__qualname__) == (f"{__package__}.{module}", class_name)


def passes_of(text: str) -> list[Pass]:
    """The passes of a level (``O1``), of ``none``, or of a list of passes separated by commas. Raises `UnknownPass`.

    >>> [each.name for each in passes_of("O1")]
    ['lcm', 'dce', 'emptyblocks']
    """
    if text == "none":
        return []
    if not text:
        raise UnknownPass("no pass is named; 'none' stands for no passes")
    if text not in LEVELS and len(text) == 2 and text.startswith("O"):
        raise UnknownPass(f"there is no level '{text}'; there are {', '.join(LEVELS)}")
    return [create_pass(name) for name in LEVELS.get(text, tuple(text.split(",")))]


def create_pass(text: str) -> Pass:
    """The pass that ``name`` or ``name:option=value:option=value`` describes. Raises `UnknownPass`."""
    name, *settings = text.split(":")
    chosen = pass_class(name)
    types = {each.name: str(each.type) for each in fields(chosen)}
    options: dict[str, object] = {}
    for setting in settings:
        called, equals, value = setting.partition("=")
        if called not in types or not equals:
            offered = ", ".join(types) or "none"
            similar = did_you_mean(called, types) if called not in types else ""
            raise UnknownPass(f"pass '{name}' has no option '{setting}'{similar}; its options: {offered}")
        options[called] = _converted(name, called, types[called], value)
    try:
        return chosen(**options)
    except ValueError as error:
        raise UnknownPass(str(error)) from None


def pass_class(name: str) -> Any:
    """The class of a pass. Raises `UnknownPass` where there is none, or where it is not as `Pass` describes."""
    if name in _BUILT_IN:
        module, class_name = _BUILT_IN[name]
        return getattr(import_module(f".{module}", __package__), class_name)
    registered = _registered()
    if name not in registered:
        names = [*_BUILT_IN, *sorted(registered)]
        raise UnknownPass(f"there is no pass '{name}'{did_you_mean(name, names)}; there are {', '.join(names)}")
    called = f"pass '{name}' ({registered[name].value})"
    try:
        loaded = registered[name].load()
    except Exception as error:  # whatever the module of another distribution raises
        raise UnknownPass(f"{called} cannot be imported: {error}") from error
    if not is_dataclass(loaded) or getattr(loaded, "name", None) != name or not callable(getattr(loaded, "run", None)):
        raise UnknownPass(f"{called} is not a dataclass with that name and a method 'run'")
    for each in fields(loaded):
        if each.default is MISSING:
            raise UnknownPass(f"{called}: option '{each.name}' has no default value")
    return loaded


def _registered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes 20 ms, and most runs name no such pass

    return {each.name: each for each in entry_points(group=ENTRY_POINTS)}


def _converted(name: str, called: str, kind: str, value: str) -> object:
    kind = kind.removeprefix("<class '").removesuffix("'>")  # where annotations are not strings
    try:
        if kind == "int":
            return int(value)
        if kind == "bool":
            return {"true": True, "false": False}[value]
    except (KeyError, ValueError):
        raise UnknownPass(f"option '{called}' of pass '{name}' takes a value of type {kind}, not '{value}'") from None
    return value
