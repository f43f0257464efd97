"""Finds the image pipeline of `ptxmotion image`: one of a Python file, or that of a program of the suites.

Refuses: a file with several pipelines of which none was chosen, a program of the suites that is no pipeline
(`BadRequest`), and what `host_programs.load_file` refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..dsl.image import Pipeline
from ..spelling import did_you_mean
from ..suites.registry import Benchmark, find
from .errors import BadRequest
from .host_programs import load_file

__all__ = ["FoundPipeline", "find_pipeline"]


@dataclass(frozen=True)
class FoundPipeline:
    """A pipeline, the nvcc options of its kernels, and values for its numbers, by name, where it has some."""

    pipeline: Pipeline[..., Any]
    flags: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])


def find_pipeline(source: str) -> FoundPipeline:
    """The pipeline of ``FILE.py:NAME``, of a ``FILE.py`` with one pipeline, or of a program of the suites. Raises
    `DslError`, `OSError`, `BadInput`, `BadRequest`."""
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        return _of_file(file, name)
    if source.endswith(".py"):
        return _of_file(source, "")
    benchmark = find(source)
    if benchmark.pipeline is None:
        raise BadRequest(f"{benchmark.fullname} is no image pipeline: 'ptxmotion bench list image' lists them")
    return FoundPipeline(benchmark.pipeline, tuple(benchmark.flags), _numbers(benchmark))


def _numbers(benchmark: Benchmark) -> dict[str, Any]:
    assert benchmark.pipeline is not None
    names = benchmark.pipeline.params.keys() - set(benchmark.pipeline.images)
    return {name: value for name, value in benchmark.data("tiny", 0).items() if name in names} if names else {}


def _of_file(file: str, name: str) -> FoundPipeline:
    module = load_file(Path(file).resolve())
    found: dict[str, Pipeline[..., Any]] = {}
    for variable, value in vars(module).items():
        if isinstance(value, Pipeline):
            found[variable] = value
    if not found:
        raise BadRequest("the file has no @pipeline at its top level", file)
    listed = ", ".join(found)
    if not name and len(found) > 1:
        raise BadRequest(f"choose one as {file}:NAME; there are {listed}", file)
    if name and name not in found:
        raise BadRequest(f"there is no pipeline '{name}'{did_you_mean(name, found)}; there are {listed}", file)
    return FoundPipeline(found[name] if name else next(iter(found.values())))
