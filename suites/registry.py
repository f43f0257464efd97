"""The definition of a benchmark program, and the search for all programs.

A program is a Python module in the folder of a suite (``suites/rodinia/pathfinder.py``), or a user's own file, that
declares a `Benchmark` at its top level. Modules are imported when they are first needed.

An installed package adds programs by entry points of the group ``ptxmotion.suites``. An entry point names a module with
benchmarks at its top level, a package of such modules, a `Benchmark`, or a sequence of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..dsl import DslError, Program
from ..dsl.errors import Place
from ..spelling import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..dsl.image import Pipeline

__all__ = [
    "ENTRY_POINTS",
    "EXACT",
    "SIZES",
    "Benchmark",
    "NoBenchmark",
    "Tolerance",
    "benchmarks",
    "error_in_file",
    "find",
    "from_file",
    "installed",
    "similar_program",
    "spec_of",
    "suites",
]

#: The group of the entry points of other packages.
ENTRY_POINTS = "ptxmotion.suites"

#: ``tiny`` runs on the emulator in about two seconds. ``full`` has the default size of the original program.
SIZES = ("tiny", "small", "full")

#: The program's arguments by name: arrays and scalars.
Data: TypeAlias = Mapping[str, Any]
#: Arrays by the names of the program's outputs.
Arrays: TypeAlias = "Mapping[str, NDArray[Any]]"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed difference between an output and the reference, as in `numpy.isclose`. If both are 0, the bits must
    be equal.

    ``mismatches`` is the share of elements that may differ more, for algorithms in which rounding decides a branch.
    """

    relative: float = 0.0
    absolute: float = 0.0
    mismatches: float = 0.0


EXACT = Tolerance()


@dataclass(frozen=True)
class Benchmark:
    """A program with its data and its reference.

    ``make_data(size, seed)`` returns the program's arguments; they are equal for equal size and seed.
    ``reference(data)`` computes the expected outputs with NumPy, independently of the kernels. Outputs that it does not
    return are not checked. ``stresses`` says what the program exercises, such as ``divergent branches``.
    """

    suite: str
    name: str
    program: Program[...]
    make_data: Callable[..., Data]
    reference: Callable[[Data], Arrays]
    stresses: Sequence[str]
    description: str
    tolerance: Tolerance | Mapping[str, Tolerance] = EXACT
    sizes: Mapping[str, str] = field(default_factory=dict[str, str])  #: by size: its meaning, such as ``4096 x 1024``
    flags: Sequence[str] = ()  #: flags for nvcc, for every kernel
    #: By name: the default value of a parameter of the data, which `make_data` takes by name; `--param` sets others.
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])
    #: The work of one run on these data: its ``bytes`` of memory traffic, its ``elements``, or both; for throughputs.
    work: Callable[[Data], Mapping[str, float]] | None = None
    #: By name: the words that a parameter of the program can be, the default first. `choose` takes them by name, and
    #: makes the benchmark with another program.
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    choose: Callable[..., Benchmark] | None = None
    #: The image pipeline whose naive lowering the program is. The data have the sizes of its images, as ``src_width``.
    pipeline: Pipeline[..., Any] | None = None

    def __post_init__(self) -> None:
        unknown = set(self.sizes) - set(SIZES)
        if unknown or not self.sizes:
            raise DslError(
                f"{self.fullname}: sizes must be some of {', '.join(SIZES)}, not {', '.join(unknown) or 'none'}"
            )

    @property
    def fullname(self) -> str:
        """The name with the suite, such as ``rodinia/pathfinder``."""
        return f"{self.suite}/{self.name}"

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels in the order of the program text."""
        return tuple(kernel.name for kernel in self.program.kernels.values())

    def data(self, size: str, seed: int, values: Mapping[str, int | str] | None = None) -> Data:
        """The data of a size and a seed, with these values of parameters in place of the defaults. Raises `DslError`
        for an unknown parameter."""
        chosen = {**self.parameters, **(values or {})}
        if unknown := sorted(chosen.keys() - self.parameters.keys() - self.choices.keys()):
            known = ", ".join([*self.parameters, *self.choices]) or "none"
            raise DslError(f"{self.fullname} has no parameter '{unknown[0]}'; there are {known}")
        return self.make_data(size, seed, **{name: chosen[name] for name in self.parameters})

    def of(self, values: Mapping[str, int | str]) -> Benchmark:
        """The benchmark whose program is that of these values of parameters. Raises `DslError` for an unknown word."""
        words = {name: str(value) for name, value in values.items() if name in self.choices}
        for name, word in words.items():
            if word not in self.choices[name]:
                known = ", ".join(self.choices[name])
                raise DslError(f"'{word}' is no {name} of {self.fullname}; there are {known}")
        return self.choose(**words) if words and self.choose is not None else self

    def check(self, result: Arrays, reference: Arrays) -> list[str]:
        """The differences between ``result`` and ``reference``, one line for each output that differs."""
        return [line for name in reference for line in self._differences(name, result, reference)]

    def _differences(self, name: str, result: Arrays, reference: Arrays) -> Iterator[str]:
        import numpy as np

        if name not in result:
            yield f"{name}: the program has no such output"
            return
        got, expected = np.asarray(result[name]), np.asarray(reference[name])
        if got.shape != expected.shape or got.dtype != expected.dtype:
            yield f"{name}: {got.dtype}{list(got.shape)}, but {expected.dtype}{list(expected.shape)} is expected"
            return
        limit = self.tolerance if isinstance(self.tolerance, Tolerance) else self.tolerance.get(name, EXACT)
        wrong = _wrong(got, expected, limit)
        count = int(np.count_nonzero(wrong))
        if count > limit.mismatches * wrong.size:
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            shown = ", ".join(map(str, at))
            yield f"{name}: {count} of {wrong.size} elements differ; [{shown}] is {got[at]}, expected {expected[at]}"


def _wrong(got: NDArray[Any], expected: NDArray[Any], limit: Tolerance) -> NDArray[Any]:
    """The elements that differ, as an array of bool. NaN equals only NaN. A vector differs if a component does."""
    import numpy as np

    if names := got.dtype.names:
        return np.any([_wrong(got[name], expected[name], limit) for name in names], axis=0)
    if got.dtype.kind != "f" or limit.relative == limit.absolute == 0.0:
        same = got == expected
        return ~(same | ((got != got) & (expected != expected))) if got.dtype.kind == "f" else ~same
    return ~np.isclose(got, expected, rtol=limit.relative, atol=limit.absolute, equal_nan=True)


def suites() -> list[str]:
    """The names of the suites."""
    return sorted(name for _, name, is_package in pkgutil.iter_modules([str(Path(__file__).parent)]) if is_package)


def benchmarks(suite: str = "") -> Iterator[Benchmark]:
    """Every program of a suite, or of all suites, sorted by name. Modules without a `Benchmark` are skipped."""
    for chosen in [suite] if suite else suites():
        package = importlib.import_module(f".{chosen}", __package__)
        for module in sorted(found.name for found in pkgutil.iter_modules(package.__path__)):
            yield from _declared(importlib.import_module(f".{module}", package.__name__))


def installed(problems: list[str]) -> list[Benchmark]:
    """The programs of entry points. A package that cannot be loaded, or that has a program of a name that exists
    already, is a line of ``problems``."""
    from importlib.metadata import entry_points

    names = {each.fullname for each in benchmarks()}
    found: list[Benchmark] = []
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        try:
            loaded = _of_entry_point(entry.load())
        except Exception as error:
            problems.append(f"entry point '{entry.name}' ({entry.value}): {type(error).__name__}: {error}")
            continue
        if not loaded:
            problems.append(f"entry point '{entry.name}' ({entry.value}): no Benchmark")
        for each in loaded:
            if each.fullname in names:
                problems.append(f"entry point '{entry.name}' ({entry.value}): there is already a {each.fullname}")
            else:
                names.add(each.fullname)
                found.append(each)
    return found


def _of_entry_point(value: Any) -> list[Benchmark]:
    if isinstance(value, Benchmark):
        return [value]
    if isinstance(value, ModuleType):
        modules = [value]
        for each in pkgutil.iter_modules(getattr(value, "__path__", [])):
            modules.append(importlib.import_module(f"{value.__name__}.{each.name}"))
        return [each for module in modules for each in _declared(module)]
    return [each for each in value if isinstance(each, Benchmark)]


def find(name: str) -> Benchmark:
    """The program ``suite/name``, also of an entry point. The suite may be omitted if only one suite has a program of
    that name. Raises `DslError`."""
    suite = name.rpartition("/")[0]
    matching = [b for b in benchmarks(suite if suite in suites() else "") if name in (b.fullname, b.name)]
    if not matching:
        matching = [b for b in installed([]) if name in (b.fullname, b.name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise DslError(f"{len(matching)} programs are called {name!r}: {', '.join(b.fullname for b in matching)}")
    raise DslError(f"no program is called {name!r}{similar_program(name)}")


def similar_program(name: str) -> str:
    """The text of a message that follows an unknown ``name``: a similar name, and how to list all names."""
    every = list(benchmarks())
    # Suites begin many names, so what follows a suite is compared first.
    short = name.rpartition("/")[2]
    alike = [each.fullname for each in every if did_you_mean(short, [each.name])]
    best = did_you_mean(name, alike) or did_you_mean(short, [*(each.name for each in every), *suites()])
    return f"{best}; there are the suites {', '.join(suites())}, whose programs `ptxmotion bench list` prints"


class NoBenchmark(DslError):
    """A Python file declares no `Benchmark`."""


def from_file(path: str | Path) -> list[Benchmark]:
    """The programs that a Python file declares. Raises `OSError`, and `DslError` with the line if the file cannot be
    run, `NoBenchmark` if it declares no program."""
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    name = f"ptxmotion_benchmark_{file.stem}"
    spec = spec_of(name, file)
    if spec is None or spec.loader is None:
        raise DslError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, DslError | OSError) or not isinstance(error, Exception):
            raise
        raise error_in_file(file, error) from error
    declared = _declared(module)
    if not declared:
        raise NoBenchmark(f"{path} declares no Benchmark")
    return declared


class _Compiler(SourceFileLoader):
    """Compiles the file each time. Python takes the bytecode that it has kept if the size of the file and the second in
    which it was changed are the same. So a file that is changed twice in a second, as in a search through commits,
    would be run as it was before."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def spec_of(name: str, file: Path) -> ModuleSpec | None:
    """How to import a user's file as the module ``name``; `None` if it is not a Python file. No bytecode is kept."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is not None and isinstance(spec.loader, SourceFileLoader):
        spec.loader = _Compiler(name, str(file))
        spec.cached = None
    return spec


def error_in_file(file: Path, error: Exception) -> DslError:
    """The error that running a Python file raised, as an error at the line of this file that raised it."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        place = Place(str(file), error.lineno or 1, error.offset or 1, (error.text or "").rstrip())
        return DslError(f"{type(error).__name__}: {error.msg}", place)
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(file)]
    message = f"{type(error).__name__}: {error}"
    if not frames:
        return DslError(f"{file}: {message}")
    at = frames[-1]
    return DslError(message, Place(str(file), at.lineno or 1, 1, at.line or ""))


def _declared(module: ModuleType) -> list[Benchmark]:
    """The benchmarks at the top level of a module."""
    values = [value for value in vars(module).values() if isinstance(value, Benchmark)]
    return list({id(value): value for value in values}.values())
