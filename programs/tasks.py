"""Makes tasks of the harness from programs of the suites: what `bench run` and the pytest plugin run."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import itertools
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..harness.session import Task
from ..harness.workload import Arm, Work
from .alias_promises import promised_modules
from .arm_texts import remember_arm
from .fused_variants import HOST, fused_modules, host_of
from .launch_accesses import with_accesses
from .lowered_variants import check_lowerings, lowered_modules
from .variants import Variant, VariantError, VariantFailed, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..harness.alias_check import Promised
    from ..suites.registry import Benchmark

__all__ = ["Problems", "SuiteWork", "Values", "select", "sweep", "task_of"]

#: Names and values of parameters: numbers of the data, and words that choose between programs.
Values: TypeAlias = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True)
class SuiteWork:
    """A program of a suite at a size. ``file`` is the Python file of a user's program, or empty. ``values`` are those
    parameters that are not the default. ``digest`` is that of the file; it is empty if the file is not compared with
    it. The process that runs the work reads the file again, maybe on another computer."""

    program: str
    size: str
    file: str = ""
    values: Values = ()
    digest: str = ""

    def __getstate__(self) -> dict[str, Any]:
        names = ("program", "size", "file", "values", "digest")
        return {name: getattr(self, name) for name in names}

    @property
    def fullname(self) -> str:
        """The name of the program, with its parameters in brackets."""
        shown = ",".join(f"{name}={value}" for name, value in self.values)
        return f"{self.program}[{shown}]" if shown else self.program

    @property
    def group(self) -> str:
        """The name of the suite."""
        return self.program.partition("/")[0]

    @property
    def params(self) -> Mapping[str, Any]:
        """The size and the parameters of the program, by name; what the task leaves out has its default."""
        defaults = {name: words[0] for name, words in self.benchmark.choices.items()}
        return {"size": self.size, **self.benchmark.parameters, **defaults, **dict(self.values)}

    @property
    def amounts(self) -> Mapping[str, float]:
        """The work of one run on the data of the first seed: ``bytes``, ``elements``; empty if the program has none."""
        work = self.benchmark.work
        return {} if work is None else {name: float(value) for name, value in work(_data(self, 1)).items()}

    @cached_property
    def benchmark(self) -> Benchmark:
        """The program; imported when it is first used. Raises `DslError`."""
        from ..dsl import DslError
        from ..suites.registry import find, from_file

        if not self.file:
            return find(self.program).of(dict(self.values))
        if self.digest and _digest(self.file) != self.digest:
            raise DslError(f"{self.file} on {platform.node()} differs from the file that the run began with")
        found = next(each for each in from_file(self.file) if each.fullname == self.program)
        return found.of(dict(self.values))

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> Mapping[str, NDArray[Any]]:
        """Run the host program on the data of a seed; the outputs by name."""
        from ..dsl.run import Loaded

        host, ptx = host_of(self.benchmark, modules)
        return Loaded(host, backend, ptx).run(dict(_data(self, seed)))

    def get_ready(self, seed: int, reference: bool, /) -> None:
        """Make the data of a seed, and the reference outputs if ``reference``."""
        _data(self, seed)
        if reference:
            _reference(self, seed)

    def check(self, seed: int, outputs: Mapping[str, NDArray[Any]], /) -> list[str]:
        """Compare with the program's NumPy reference: one line for each output that differs."""
        return self.benchmark.check(outputs, _reference(self, seed))


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


# A work runs several times in a row on the same data, and a reference can take longer than all kernels together.
@lru_cache(maxsize=4)
def _data(work: SuiteWork, seed: int) -> Mapping[str, Any]:
    return work.benchmark.data(work.size, seed, dict(work.values))


@lru_cache(maxsize=4)
def _reference(work: SuiteWork, seed: int) -> Mapping[str, NDArray[Any]]:
    return work.benchmark.reference(_data(work, seed))


@dataclass
class Problems:
    """What `select` left out: ``skipped`` are sentences about files without a benchmark and packages that cannot be
    loaded, ``errors`` are the errors of files that cannot be run."""

    skipped: list[str] = field(default_factory=list[str])
    errors: list[Exception] = field(default_factory=list[Exception])


def select(names: Sequence[str], pattern: str | None, problems: Problems | None = None) -> list[tuple[Benchmark, str]]:
    """The selected programs, each with its Python file (empty for those of the suites and of entry points).

    ``names`` are names of programs, shell patterns over them, Python files, shell patterns of Python files, or folders;
    without names all programs are selected. Of a folder, the files below it that contain the word `Benchmark` are
    read. ``pattern`` is a regular expression that the name of a program must match. With ``problems``, one bad file
    does not end the selection unless nothing is selected. Raises `OSError`, and `DslError` where a name or a file
    selects no program.
    """
    from ..dsl import DslError
    from ..suites.registry import benchmarks, installed, similar_program

    known = problems if problems is not None else Problems()
    selected: list[tuple[Benchmark, str]] = []
    every = [*benchmarks(), *installed(known.skipped)]
    for name in names or ["*"]:
        if (files := _files_of(name)) is not None:
            for file in files:
                selected += [(each, file) for each in _of_file(file, known)]
            continue
        matching = [b for b in every if any(fnmatch.fnmatch(n, name) for n in (b.fullname, b.name, b.suite))]
        if not matching:
            raise DslError(f"no program is called '{name}'{similar_program(name)}")
        selected += [(each, "") for each in matching]
    if known.errors and (problems is None or not selected):
        raise known.errors[0]
    unique = {(each.fullname, file): (each, file) for each, file in selected}
    return [each for each in unique.values() if pattern is None or re.search(pattern, each[0].fullname)]


def _files_of(name: str) -> list[str] | None:
    """The Python files that a name stands for; None if it is no name of files. Raises `DslError` if there are none."""
    from ..dsl import DslError

    if os.path.isdir(name):
        files = [str(path) for path in sorted(Path(name).rglob("*.py")) if _may_declare(path)]
        if not files:
            raise DslError(f"{name}: no file *.py below this folder declares a Benchmark")
        return files
    if not name.endswith(".py"):
        return None
    if glob.has_magic(name) and not os.path.exists(name):
        files = sorted(glob.glob(name, recursive=True))
        if not files:
            raise DslError(f"no file matches '{name}'")
        return files
    return [name]


def _may_declare(path: Path) -> bool:
    """Whether a file of a folder is run: hidden folders are left out, and scripts that have nothing to do with this."""
    hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts if part not in (".", ".."))
    return not hidden and b"Benchmark" in path.read_bytes()


def _of_file(file: str, problems: Problems) -> list[Benchmark]:
    from ..dsl import DslError
    from ..suites.registry import NoBenchmark, from_file

    try:
        return from_file(file)
    except (DslError, OSError) as error:
        if isinstance(error, NoBenchmark):
            problems.skipped.append(str(error).removeprefix("error: "))
        problems.errors.append(error)
        return []


def sweep(benchmark: Benchmark, sweeps: Mapping[str, Sequence[int | str]]) -> list[Values]:
    """Each combination of the values of those parameters that the program has; one empty combination if it has none."""
    known = {*benchmark.parameters, *benchmark.choices}
    own = [[(name, value) for value in values] for name, values in sweeps.items() if name in known]
    return list(itertools.product(*own))


def task_of(
    benchmark: Benchmark,
    file: str,
    size: str,
    variants: Sequence[Variant],
    maker: Variants,
    nvcc: Callable[[], Any],
    values: Values = (),
) -> Task:
    """The task of a program with these variants, the baseline first. ``nvcc`` is called when the task is prepared.
    ``values`` are parameters. Raises `BadRequest` for a lowering of a program that has none."""
    check_lowerings(benchmark, variants)
    work = SuiteWork(benchmark.fullname, size, file, values, _digest(file) if file else "")

    def make() -> tuple[Work, Sequence[Arm]]:
        from ..suites.runner import ptx_of

        chosen = benchmark.of(dict(values))
        plain = ptx_of(chosen, nvcc())
        lowered = {
            each.lowering: lowered_modules(chosen, each.lowering, _data(work, 1), nvcc())
            for each in variants
            if each.lowering
        }
        arms = [with_accesses(arm, chosen) for arm in _arms(variants, chosen, plain, maker, lowered)]
        for arm in arms:
            if not arm.error:
                remember_arm(arm.modules)
        return work, arms

    return Task(work.fullname, make)


def promises_of(variant: Variant, plain: Mapping[str, str], modules: Mapping[str, str]) -> dict[str, Promised]:
    """The promise that each module was optimized with, by the PTX of the module: every launch is checked against it."""
    try:
        return promised_modules(variant.options or (), plain, modules)
    except ValueError as error:
        raise VariantError(f"variant '{variant.id}': {error}") from error


def _arms(
    variants: Sequence[Variant],
    benchmark: Benchmark,
    plain: Mapping[str, str],
    maker: Variants,
    lowered: Mapping[str, Mapping[str, str]],
) -> Iterator[Arm]:
    """The arms. ``lowered`` maps lowerings to modules."""
    for position, variant in enumerate(variants):
        try:
            if variant.lowering:
                yield Arm(variant.id, lowered[variant.lowering], launch=variant.launch, same_program=False)
                continue
            if variant.fusion:
                modules = fused_modules(benchmark, plain, variant.fusion, as_graph=variant.launch != "stream")
                yield Arm(variant.id, modules, launch=variant.launch, same_program=HOST not in modules)
                continue
            modules = maker.modules(variant, plain)
            promises, contracts = promises_of(variant, plain, modules), maker.contracts(variant, plain)
            yield Arm(variant.id, modules, launch=variant.launch, promises=promises, contracts=contracts)
        except VariantFailed as error:
            if position == 0:
                raise
            # The other variants are measured even if the optimizer fails on this one.
            yield Arm(variant.id, {}, launch=variant.launch, error=str(error))
