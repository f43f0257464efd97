"""Runs a program, and answers the requests of the C library in it, until the program ends.

Each request is answered by a forked process, so that an optimizer that fails or takes too long has no effect on other
requests. The program and its children write to the same log, one line of JSON for each entry.

Guarantees: the program is started and waited for like by a shell: it has the same standard streams, gets the signals of
the terminal, and its exit status is returned. Requests that are not answered end when the program ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ..compiler.build_step import Flags, time_limit
from .images import Answer, answer_to
from .protocol import BadRequest, packed_reply, read_request

__all__ = ["LOG", "listening", "run_program"]

#: The names of the files in the folder of a run.
SOCKET, LOG = "socket", "log"


@contextlib.contextmanager
def listening(folder: str) -> Generator[socket.socket]:
    """The socket for requests, and an empty log, in a folder that only this user can read. Raises `OSError`."""
    with open(os.path.join(folder, LOG), "xb"), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.path.join(folder, SOCKET))
        listener.listen(128)
        yield listener


def run_program(
    command: Sequence[str], variables: Mapping[str, str], folder: str, listener: socket.socket, parse_flags: Flags
) -> int:
    """Run ``command`` with these ``variables`` added to the environment; ``listener`` is that of `listening`. The exit
    status, or the negative number of the signal that ended the program. Raises `OSError` if it cannot be started."""
    with _signals() as wakeup:
        program = subprocess.Popen(command, env={**os.environ, **variables})
        server = _Server(listener, wakeup, program, os.path.join(folder, LOG), parse_flags)
        try:
            server.serve()
        except Exception as error:  # the program goes on with its own code
            server.give_up(error)
    return program.wait()


@contextlib.contextmanager
def _signals() -> Generator[socket.socket]:
    """Signals that a terminal sends go to the program, too, and it decides what they do. The value is a socket that
    becomes readable when a child process ends, or a signal arrives."""
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)

    def nothing(*_: object) -> None:
        """The program gets the signal from `_Server`, or from the terminal."""

    kinds = (signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    before = {kind: signal.signal(kind, nothing) for kind in kinds}
    old = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(old)
        for kind, handler in before.items():
            signal.signal(kind, handler)
        read.close()
        write.close()


class _Server:
    """``workers`` are the processes that answer requests."""

    def __init__(
        self,
        listener: socket.socket,
        wakeup: socket.socket,
        program: subprocess.Popen[bytes],
        log: str,
        parse_flags: Flags,
    ) -> None:
        self._listener = listener
        self._wakeup = wakeup
        self._program = program
        self._log = log
        self._parse_flags = parse_flags
        self._workers: set[int] = set()

    def serve(self) -> None:
        """Answer requests until the program ends."""
        _import_optimizer()
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, self._accept)
            selector.register(self._wakeup, selectors.EVENT_READ, self._pass_signals)
            while self._program.poll() is None:
                for key, _ in selector.select():
                    key.data()
                self._reap()
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(worker, 0)

    def give_up(self, error: Exception) -> None:
        """Refuse further requests, and wait for the program."""
        self._listener.close()
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        with contextlib.suppress(OSError):
            self._append([{"way": "ptxmotion run", "left": problem}])
        self._program.wait()

    def _pass_signals(self) -> None:
        """SIGTERM and SIGHUP are passed on. Those of a terminal reach the program without that."""
        numbers = self._wakeup.recv(4096)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if number in numbers:
                self._program.send_signal(number)

    def _reap(self) -> None:
        for worker in list(self._workers):
            if os.waitpid(worker, os.WNOHANG)[0]:
                self._workers.discard(worker)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            try:
                worker = os.fork()
            except OSError as error:  # no process, or no memory: the program uses its own code
                self._append([{"way": "ptxmotion run", "left": f"no process for the optimizer: {error.strerror}"}])
                return
            if worker:
                self._workers.add(worker)
                return
            try:
                self._work(connection)
            finally:
                os._exit(0)

    def _work(self, connection: socket.socket) -> None:
        """Answer one request. Whatever fails is an entry of the log."""
        signal.set_wakeup_fd(-1)
        for kind in (signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(kind, signal.SIG_DFL if kind == signal.SIGCHLD else signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _end)  # so that ptxas and temporary files do not stay
        self._listener.close()
        answer = Answer()
        way = "ptxmotion run"
        try:
            with connection.makefile("rb") as stream:
                request = read_request(stream)
            way = request.way
            with time_limit():
                answer = answer_to(request, self._parse_flags)
        except (BadRequest, ConnectionError) as error:
            answer.entries = [{"way": way, "left": str(error)}]
        except Exception as error:
            problem = " ".join(str(error).split())
            answer = Answer(entries=[{"way": way, "left": problem or type(error).__name__}])
        self._append(answer.entries)  # before the reply, so that a program that ends at once has its entries
        with contextlib.suppress(OSError):  # the program may have ended
            connection.sendall(packed_reply(answer.code))

    def _append(self, entries: Sequence[dict[str, Any]]) -> None:
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        handle = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)


def _end(*_: object) -> None:
    raise SystemExit(130)


def _import_optimizer() -> None:
    """Import what requests need, before a request comes and while the program starts. A fork then takes milliseconds,
    and an import in it would be repeated for each request."""
    import importlib

    package = __name__.partition(".")[0]
    names = ("driver", "judges", "transforms.pipeline", "toolchain.ptxas_judge", "toolchain.cubin", "ptx.parser")
    for name in names:
        importlib.import_module(f"{package}.{name}")
