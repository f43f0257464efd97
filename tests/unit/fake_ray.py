"""A part of Ray in this process, whose workers are lost on demand, for the tests of the engine without Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

__all__ = ["FakeRay", "RayError", "RayTaskError", "exceptions"]


class RayError(Exception):
    """A worker was lost."""


class RayTaskError(RayError):
    """A call raised ``cause``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


#: In place of the module `ray.exceptions`.
exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)


@dataclass(eq=False)
class _Call:
    answer: Callable[[], Any]


class FakeRay:
    """``answer`` gives the answer of each call: the number of the worker, the name of the method, its arguments. An
    exception that it raises is the error of the call. ``killed`` has the numbers of killed workers."""

    def __init__(self, answer: Callable[[int, str, Sequence[Any]], Any]) -> None:
        self._answer = answer
        self.started = 0
        self.killed: list[int] = []

    def remote(self, **_: Any) -> Callable[[type], Any]:
        """The options of a class of workers are not used."""
        return lambda kind: SimpleNamespace(remote=self._start)

    def _start(self, *_: Any) -> Any:
        number, self.started = self.started, self.started + 1

        def method(name: str) -> Any:
            def remote(*given: Any) -> _Call:
                return _Call(lambda: self._answer(number, name, given))

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(describe=method("describe"), run=method("run"), number=number)

    def wait(self, calls: Sequence[_Call], num_returns: int, timeout: float) -> tuple[list[_Call], list[_Call]]:
        """The first call is ready."""
        return list(calls[:num_returns]), list(calls[num_returns:])

    def get(self, call: _Call) -> Any:
        """The answer of a call. Raises its error."""
        return call.answer()

    def kill(self, actor: Any) -> None:
        """Remember that a worker was killed."""
        self.killed.append(actor.number)
