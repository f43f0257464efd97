"""A child process that runs works, so that an endless or crashing kernel does not end the session.

`Worker` is the side of the parent: `begin` a work, `check` its arms, `time` them. Each call has a time limit, after
which the child is killed. The child opens the machine when it first needs it. It answers on a separate socket, because
kernels may print to stdout.

Guarantees: after `close`, or at the end of a `with`, no child is left. A child that failed is not used again: the next
call starts another.
Refuses: `WorkerHung` after the limit, `WorkerDied` if the child ended, `WorkerFailed` if it raised an exception.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from ..python_child import child_environment, python_command
from .alias_check import guarded
from .contract_guard import under_contracts
from .machine import DeviceFailed, Machine, MachineMissing
from .protocol import CONTROL, Plan, Rounds
from .results import Correctness
from .stats import Estimate
from .workload import Arm, Recording, Work

if TYPE_CHECKING:
    from .launch_work import ObservedLaunch, Snapshot

__all__ = ["end_with", "Timed", "Worker", "WorkerDied", "WorkerError", "WorkerFailed", "WorkerHung"]


#: Seconds within which a child must start.
_START = 120.0


class WorkerError(Exception):
    """The child did not answer a request."""


class WorkerHung(WorkerError):
    """The child exceeded its limit and was killed."""


class WorkerDied(WorkerError):
    """The process of the child ended."""


class WorkerFailed(WorkerError):
    """The child raised an exception: the name of its class, its message, its traceback, and whether it was a
    `DeviceFailed`, after which the machine may be gone."""

    def __init__(self, kind: str, message: str, trace: str, is_device_failure: bool = False) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message, self.trace, self.is_device_failure = kind, message, trace, is_device_failure

    def __reduce__(self) -> tuple[type[WorkerFailed], tuple[str, str, str, bool]]:
        return type(self), (self.kind, self.message, self.trace, self.is_device_failure)


class Timed:
    """The result of timing. ``rounds`` has the samples, ``estimates`` the comparison of each pair; ``how`` describes
    the method. ``after`` maps the number of an arm to the errors that the check after timing found."""

    def __init__(
        self, rounds: Rounds, estimates: list[Estimate], how: dict[str, Any], after: dict[int, list[str]]
    ) -> None:
        self.rounds, self.estimates, self.how, self.after = rounds, estimates, how, after


class Worker:
    """The side of the parent: one child on one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a child. A new child has no work yet."""
        return self._connection is not None

    def describe(self, limit: float) -> dict[str, Any]:
        """The description of the machine. Raises `MachineMissing`, `WorkerError`."""
        return self._call(limit, "describe")

    def get_ready(self, work: Work, baseline: Arm, plan: Plan, limit: float) -> None:
        """Load a work: compute its data and its reference. Runs nothing on the machine."""
        self._call(limit, "get_ready", work, baseline, plan)

    def begin(self, limit: float) -> Correctness:
        """Run the baseline, and compare it with itself and with the reference."""
        return self._call(limit, "begin")

    def check(self, arm: Arm, limit: float) -> Correctness:
        """Compare an arm with the baseline."""
        return self._call(limit, "check", arm)

    def counts(self) -> dict[str, Any]:
        """The counts of the first run of the last arm; empty on a machine that counts nothing."""
        return self._call(60.0, "counts")

    def launches(self) -> dict[str, tuple[int, int]]:
        """By kernel of the baseline: the threads of its largest block, and the dynamic shared bytes of that launch."""
        return self._call(60.0, "launches")

    def amounts(self) -> dict[str, float]:
        """The work of one run of the current work; empty if it declares none."""
        return self._call(60.0, "amounts")

    def time(
        self,
        work: Work,
        arms: Sequence[Arm],
        pairs: Sequence[tuple[int, int]],
        plan: Plan,
        limit: float,
        first: float,
        report: Callable[[int, int], None] = lambda done, of: None,
    ) -> Timed:
        """Time arms. ``limit`` is for each round, ``first`` for the preparation before them."""
        return self._call(first, "time", work, list(arms), list(pairs), plan, report=report, later=limit)

    def observe(self, work: Work, arm: Arm, seed: int, limit: float) -> list[ObservedLaunch]:
        """The launches of one run of an arm."""
        return self._call(limit, "observe", work, arm, seed)

    def snapshots(self, work: Work, arm: Arm, seed: int, wanted: Collection[int], limit: float) -> dict[int, Snapshot]:
        """The launches with these numbers in one run of an arm, with the memory that they find."""
        return self._call(limit, "snapshots", work, arm, seed, frozenset(wanted))

    def profile(self, work: Work, arm: Arm, seed: int, limit: float) -> None:
        """Run an arm once and do nothing else, for a profiler."""
        self._call(limit, "profile", work, arm, seed)

    def close(self) -> None:
        """Kill the child."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _start(self) -> Connection:
        local, remote = socket.socketpair()
        script = f"from {__name__} import serve; serve({remote.fileno()})"
        self._process = subprocess.Popen(
            python_command(script),
            env=child_environment(self.machine.environment),
            pass_fds=[remote.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        remote.close()
        self._connection = Connection(local.detach())
        self._connection.send(self.machine)
        # The start of Python must not count in the limit of a kernel.
        if not self._connection.poll(_START):
            raise WorkerHung(f"the process did not start within {_START:g} s")
        self._connection.recv()
        return self._connection

    def _call(
        self, limit: float, *request: Any, report: Callable[[int, int], None] | None = None, later: float | None = None
    ) -> Any:
        """The answer to a request. ``limit`` is for the first message, ``later`` (default: the same) for the others."""
        try:
            connection = self._connection or self._start()
            connection.send(request)
            end = time.monotonic() + limit
            while True:
                if not connection.poll(max(0.0, end - time.monotonic())):
                    raise WorkerHung(f"no answer within {limit:g} s: killed")
                kind, *answer = connection.recv()
                if kind == "ok":
                    return answer[0]
                if kind == "machine missing":
                    raise MachineMissing(answer[0])
                if kind == "error":
                    raise WorkerFailed(*answer)
                if report is not None:
                    report(*answer)
                limit = later if later is not None else limit
                end = time.monotonic() + limit
        except (EOFError, ConnectionError) as error:
            raise WorkerDied(self._death_message()) from error
        except BaseException:
            self.close()
            raise

    def _death_message(self) -> str:
        process = self._process
        code = process.wait() if process is not None else None
        self.close()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-3:]
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return "; ".join([f"the process ended with {how}", *lines])


class _Child:
    """The side of the child: one backend, one work at a time."""

    def __init__(self, machine: Machine, report: Callable[[int, int], None]) -> None:
        self.machine, self.report = machine, report
        self._backend: Any = None
        self._checker: Any = None

    @property
    def backend(self) -> Any:
        if self._backend is None:
            self._backend = self.machine.open()
        return self._backend

    def describe(self) -> dict[str, Any]:
        describe: Any = getattr(self.backend, "describe", None)
        return {"backend": self.machine.name, **(describe() if describe is not None else {})}

    def get_ready(self, work: Work, baseline: Arm, plan: Plan) -> None:
        from .correctness import Checker

        deterministic = self.machine.is_deterministic
        self._checker = Checker(self.backend, work, baseline, plan.seeds, is_deterministic=deterministic)
        self._checker.get_ready()

    def begin(self) -> Correctness:
        return self._checker.check_baseline()

    def check(self, arm: Arm) -> Correctness:
        return self._checker.check(arm)

    def counts(self) -> dict[str, Any]:
        return self._checker.counts

    def launches(self) -> dict[str, tuple[int, int]]:
        return self._checker.launches()

    def amounts(self) -> dict[str, float]:
        return dict(getattr(self._checker.work, "amounts", {}))

    def time(self, work: Work, arms: list[Arm], pairs: list[tuple[int, int]], plan: Plan) -> Timed:
        from .protocol import time_arms

        stopwatch: Any = self.machine.open_stopwatch(self.backend, work, arms, plan.seeds[0], self._recorded(arms))
        rounds, estimates = time_arms(stopwatch, len(arms), pairs, plan, self.report)
        after: dict[int, list[str]] = {arm: stopwatch.verify(arm) for arm in range(len(arms))}
        stopwatch.close()
        return Timed(rounds, estimates, stopwatch.how(), {arm: lines for arm, lines in after.items() if lines})

    def _recorded(self, arms: list[Arm]) -> dict[str, Recording]:
        """The recordings of the checks by arm; the control has that of the baseline. A child after a hang has none."""
        recorded: dict[str, Recording] = self._checker.recorded if self._checker is not None else {}
        by_arm = {each.id: recorded.get(each.id.removesuffix(CONTROL)) for each in arms}
        return {id: recording for id, recording in by_arm.items() if recording is not None}

    def observe(self, work: Work, arm: Arm, seed: int) -> list[ObservedLaunch]:
        from .launch_work import observe

        return observe(self.backend, work, arm, seed)

    def snapshots(self, work: Work, arm: Arm, seed: int, wanted: Collection[int]) -> dict[int, Snapshot]:
        from .launch_work import snapshots

        return snapshots(self.backend, work, arm, seed, wanted)

    def profile(self, work: Work, arm: Arm, seed: int) -> None:
        work.run(under_contracts(guarded(self.backend, arm.promises), arm.contracts), arm.modules, seed)
        self.backend.synchronize()


def end_with(parent: int) -> None:
    """End this process when its parent is gone, also while it runs an endless kernel."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _place(error: Exception) -> str:
    """The place where an error was raised, if it is outside of harness and emulator, for example in a benchmark. An
    error that names a place itself has no other one."""
    if getattr(error, "place", None):
        return ""
    root = os.path.dirname(os.path.dirname(__file__))
    ours = (os.path.join(root, "harness"), os.path.join(root, "emulator"))
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(ours)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def serve(handle: int) -> None:
    """Answer requests until the parent ends."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    connection = Connection(handle)
    machine: Machine = connection.recv()
    importlib.import_module(f"{__package__}.correctness")  # this import also loads NumPy
    connection.send("ready")
    child = _Child(machine, lambda done, of: connection.send(("report", done, of)))
    while True:
        try:
            name, *arguments = connection.recv()
        except (EOFError, ConnectionError):
            os._exit(0)  # without the clean-up of the driver, which can hang
        try:
            answer = ("ok", getattr(child, name)(*arguments))
        except MachineMissing as error:
            answer = ("machine missing", f"{error}{_place(error)}")
        except Exception as error:
            message, is_device_failure = f"{error}{_place(error)}", isinstance(error, DeviceFailed)
            answer = ("error", type(error).__name__, message, traceback.format_exc(), is_device_failure)
        connection.send(answer)
