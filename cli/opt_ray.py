"""`ptxmotion opt --engine=ray` for several files: each file is a task on a node of a Ray cluster.

Requires: the same version of ptxmotion on each node, and input and output folders that all nodes share. Guarantees: the
results have the order of the files; a file whose worker is lost is run again, `ATTEMPTS` times in all; an output is
replaced in one step, so a lost worker leaves no part of a file.
Refuses: `RequirementMissing` if a node does not see the output folder of this computer.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import os
import platform
import tempfile
from collections.abc import Callable, Generator, Mapping
from typing import Any

from ..programs.errors import RequirementMissing
from ..programs.ray_cluster import ATTEMPTS, Origin, connected, reason_of
from .opt_one import FileResult, FileRun, recorded
from .outcome import INTERNAL

__all__ = ["on_cluster"]

#: Files that wait or run, for each core of the cluster.
_SUBMITTED = 2


def on_cluster(
    tasks: Mapping[str, argparse.Namespace],
    one_file: Callable[[argparse.Namespace], FileRun],
    jobs: int | None,
    folder: str,
) -> Generator[tuple[str, FileResult]]:
    """The results in the order of the tasks, whose outputs are in ``folder``. At most ``jobs`` files run at the same
    time; None: as many as the cluster has cores. Raises `RequirementMissing`."""
    with connected() as ray, _marker(folder) as marker:
        run: Any = ray.remote(num_cpus=1, max_retries=0)(_run_on_node)
        limit = jobs or _SUBMITTED * max(1, int(ray.cluster_resources().get("CPU", 0)))
        origin = ray.put(Origin.here())
        waiting = collections.deque(tasks)
        calls: dict[Any, str] = {}
        lost: collections.Counter[str] = collections.Counter()
        results: dict[str, FileResult] = {}
        for path in tasks:
            while path not in results:
                while waiting and len(calls) < limit:
                    each = waiting.popleft()
                    calls[run.remote(origin, marker, one_file, each, tasks[each])] = each
                ready, _ = ray.wait(list(calls), num_returns=1)
                for call in ready:
                    each = calls.pop(call)
                    answer = _answer(ray, call)
                    if isinstance(answer, FileResult):
                        results[each] = answer
                        continue
                    lost[each] += 1
                    if lost[each] < ATTEMPTS:
                        waiting.appendleft(each)
                        continue
                    message = f"{each}: error: given up: {ATTEMPTS} workers were lost while they optimized it: "
                    results[each] = FileResult(INTERNAL, False, 0, f"{message}{reason_of(answer)}\n")
            yield path, results.pop(path)


def _run_on_node(
    origin: Origin,
    marker: str,
    one_file: Callable[[argparse.Namespace], FileRun],
    path: str,
    own: argparse.Namespace,
) -> FileResult:
    """Run one file on a node. Raises `RequirementMissing`."""
    origin.apply()
    if not os.path.isfile(marker):
        folder = os.path.dirname(marker)
        raise RequirementMissing(
            f"{platform.node()} does not see {folder}: --engine=ray needs folders that all nodes share"
        )
    return recorded(one_file, path, own)


def _answer(ray: Any, call: Any) -> FileResult | BaseException:
    """The result of a file, or the error that says that its worker was lost. Raises other errors."""
    errors: Any = importlib.import_module("ray.exceptions")
    try:
        return ray.get(call)
    except errors.RayTaskError as error:
        raise error.cause from error
    except errors.RayError as error:
        return error


@contextlib.contextmanager
def _marker(folder: str) -> Generator[str]:
    """The path of an empty file in ``folder``, by which a node finds out whether it sees this folder."""
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=".ptxmotion-", dir=os.path.abspath(folder)) as file:
        yield file.name
