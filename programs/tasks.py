"""Makes tasks of the harness from programs of the suites: what `bench run` and the pytest plugin run."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ..harness.session import Task
from ..harness.workload import Arm, Work
from .alias_promises import promised_modules
from .fused_variants import HOST, fused_modules, host_of
from .variants import Variant, VariantError, VariantFailed, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..harness.alias_check import Promised
    from ..suites.registry import Benchmark

__all__ = ["SuiteWork", "select", "task_of"]


@dataclass(frozen=True)
class SuiteWork:
    """A program of a suite at a size. ``file`` is the Python file of a user's program, or empty."""

    fullname: str
    size: str
    file: str = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"fullname": self.fullname, "size": self.size, "file": self.file}

    @property
    def group(self) -> str:
        """The name of the suite."""
        return self.fullname.partition("/")[0]

    @property
    def params(self) -> Mapping[str, Any]:
        """The size."""
        return {"size": self.size}

    @cached_property
    def benchmark(self) -> Benchmark:
        """The program; imported when it is first used. Raises `DslError`."""
        from ..suites.registry import find, from_file

        if not self.file:
            return find(self.fullname)
        return next(each for each in from_file(self.file) if each.fullname == self.fullname)

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


# A work runs several times in a row on the same data, and a reference can take longer than all kernels together.
@lru_cache(maxsize=4)
def _data(work: SuiteWork, seed: int) -> Mapping[str, Any]:
    return work.benchmark.make_data(work.size, seed)


@lru_cache(maxsize=4)
def _reference(work: SuiteWork, seed: int) -> Mapping[str, NDArray[Any]]:
    return work.benchmark.reference(_data(work, seed))


def select(names: Sequence[str], pattern: str | None) -> list[tuple[Benchmark, str]]:
    """The selected programs, each with its Python file (empty for those of the suites).

    ``names`` are names, shell patterns or Python files; without names all programs of the suites are selected.
    ``pattern`` is a regular expression that the name must match. Raises `OSError`, and `DslError` where a name or a
    file selects no program.
    """
    from ..dsl import DslError
    from ..suites.registry import benchmarks, from_file, similar_program

    selected: list[tuple[Benchmark, str]] = []
    every = list(benchmarks())
    for name in names or ["*"]:
        if name.endswith(".py"):
            selected += [(each, name) for each in from_file(name)]
            continue
        matching = [b for b in every if any(fnmatch.fnmatch(n, name) for n in (b.fullname, b.name, b.suite))]
        if not matching:
            raise DslError(f"no program is called '{name}'{similar_program(name)}")
        selected += [(each, "") for each in matching]
    unique = {(each.fullname, file): (each, file) for each, file in selected}
    return [each for each in unique.values() if pattern is None or re.search(pattern, each[0].fullname)]


def task_of(
    benchmark: Benchmark, file: str, size: str, variants: Sequence[Variant], maker: Variants, nvcc: Callable[[], Any]
) -> Task:
    """The task of a program with these variants, the baseline first. ``nvcc`` is called when the task is prepared."""

    def make() -> tuple[Work, Sequence[Arm]]:
        from ..suites.runner import ptx_of

        plain = ptx_of(benchmark, nvcc())
        work = SuiteWork(benchmark.fullname, size, file)
        return work, list(_arms(variants, benchmark, plain, maker))

    return Task(benchmark.fullname, make)


def promises_of(variant: Variant, plain: Mapping[str, str], modules: Mapping[str, str]) -> dict[str, Promised]:
    """The promise that each module was optimized with, by the PTX of the module: every launch is checked against it."""
    try:
        return promised_modules(variant.options or (), plain, modules)
    except ValueError as error:
        raise VariantError(f"variant '{variant.id}': {error}") from error


def _arms(
    variants: Sequence[Variant], benchmark: Benchmark, plain: Mapping[str, str], maker: Variants
) -> Iterator[Arm]:
    for position, variant in enumerate(variants):
        try:
            if variant.fusion:
                modules = fused_modules(benchmark, plain, variant.fusion, as_graph=variant.launch != "stream")
                yield Arm(variant.id, modules, launch=variant.launch, same_program=HOST not in modules)
                continue
            modules = maker.modules(variant, plain)
            yield Arm(variant.id, modules, launch=variant.launch, promises=promises_of(variant, plain, modules))
        except VariantFailed as error:
            if position == 0:
                raise
            # The other variants are measured even if the optimizer fails on this one.
            yield Arm(variant.id, {}, launch=variant.launch, error=str(error))
