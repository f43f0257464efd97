"""`ptxmotion bisect`: finds the kernel and the rewrite by which the optimizer changes the result of a program.

The command builds with `ptxmotion nvcc` and runs the program; its exit status decides. Three searches follow each
other: the smallest set of kernels whose optimization makes the command fail; if it is one kernel, the number of
rewrites, by `--bisect-limit`; and the remarks that the last one adds.

Requires: a command that builds again each time, as `make -B` does, and whose exit status is 0 if and only if the
result is right. Guarantees: what is reported was run: the command fails with it, and succeeds without it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.host_contracts import InvalidSetting, wants_contracts
from .outcome import FINE, INCONCLUSIVE, CommandError, say, usage_error

EPILOG = """\
The exit code is 0 if a kernel is found, and 5 if the command succeeds with the optimizer.

examples:
  ptxmotion bisect -- sh -c 'make -B NVCC=ptxmotion-nvcc && ./program | cmp - expected.txt'
  ptxmotion bisect --flags='-O3 --alias=restrict' -- ./build_and_test.sh
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bisect`."""
    parser.add_argument(
        "--flags", metavar="OPTIONS", help="options of the optimizer (default: PTXMOTION_FLAGS, or else -O3)"
    )
    parser.add_argument("--show-output", action="store_true", default=None, help="print what the command prints")
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="builds the program and checks its result")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    flags = arguments.flags or os.environ.get("PTXMOTION_FLAGS") or "-O3"
    with tempfile.TemporaryDirectory(prefix="ptxmotion-bisect-") as folder:
        trials = Trials(arguments.words, os.path.join(folder, "log"), is_shown=bool(arguments.show_output))
        return _search(trials, flags)


@dataclass
class Trial:
    """One run of the command. ``entries`` are those of the log, one for each PTX file."""

    fails: bool
    entries: list[dict[str, Any]]

    @property
    def changed(self) -> list[str]:
        """The kernels that changed, or for which there are versions."""
        names = (name for entry in self.entries for name in [*entry["changed"], *entry["versioned"]])
        return list(dict.fromkeys(names))

    @property
    def rewrites(self) -> int:
        """The most rewrites in one PTX file."""
        return max((entry["rewrites"] for entry in self.entries), default=0)

    @property
    def remarks(self) -> list[str]:
        """The remarks about rewrites, without those of the gate."""
        texts = [text for entry in self.entries for _, text in entry["remarks"] if " gate: " not in text]
        return list(dict.fromkeys(texts))


class Trials:
    """Runs the command with different settings of the optimizer."""

    def __init__(self, command: Sequence[str], log: str, *, is_shown: bool) -> None:
        self._command = command
        self._log = log
        self._output = None if is_shown else subprocess.DEVNULL
        self._number = 0

    def run(self, what: str, flags: str, kernels: Sequence[str] | None = None, *, has_versions: bool = True) -> Trial:
        """Run the command once; ``kernels`` are the only ones that are optimized. Without ``has_versions`` they get no
        versions. Raises `CommandError`."""
        settings = {"PTXMOTION_FLAGS": flags, "PTXMOTION_LOG": self._log}
        if not has_versions:
            settings["PTXMOTION_CONTRACT"] = "0"
        if kernels is not None:
            settings["PTXMOTION_ONLY"] = f"^(?:{'|'.join(map(re.escape, kernels))})$"
        if os.path.exists(self._log):
            os.unlink(self._log)
        try:
            settings = {**os.environ, **settings}
            done = subprocess.run(self._command, env=settings, stdout=self._output, stderr=self._output)
        except OSError as error:
            usage_error(f"{self._command[0]}: {error.strerror}")
        if done.returncode == -2:
            raise KeyboardInterrupt
        self._number += 1
        trial = Trial(done.returncode != 0, self._entries())
        say(f"ptxmotion: run {self._number}: {what}: {f'fails ({done.returncode})' if trial.fails else 'succeeds'}")
        return trial

    def _entries(self) -> list[dict[str, Any]]:
        if not os.path.exists(self._log):
            return []
        with open(self._log, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
        return [entry for entry in entries if "changed" in entry]  # `ptxmotion run` also logs what it leaves as it is


def _search(trials: Trials, flags: str) -> int:
    try:
        has_contracts = wants_contracts()
    except InvalidSetting as error:
        usage_error(str(error))
    without = trials.run("without the optimizer", "-O0")
    if without.fails:
        usage_error("the command fails also without the optimizer: it must succeed then")
    if not without.entries:
        usage_error("the command has compiled nothing with ptxmotion nvcc; it must build again, as make -B does")
    whole = trials.run(f"with {flags}", flags)
    if not whole.fails:
        say("ptxmotion: the command succeeds with the optimizer: there is nothing to find")
        return INCONCLUSIVE
    if not whole.changed:
        raise CommandError(INCONCLUSIVE, "ptxmotion: error: the command fails, but no kernel changed in this run")
    kernels = smallest(
        whole.changed, lambda some: trials.run(f"{len(some)} of {len(whole.changed)} kernels", flags, some).fails
    )
    if len(kernels) > 1:
        print(f"only together, these {len(kernels)} kernels make the command fail:")
    for name in kernels:
        print(_described(name))
    if len(kernels) == 1:
        _search_rewrite(trials, flags, kernels, has_contracts=has_contracts)
    return FINE


def _search_rewrite(trials: Trials, flags: str, kernels: list[str], *, has_contracts: bool) -> None:
    """Find the first number of rewrites with which the command fails, and print the last of these rewrites."""
    if has_contracts and not trials.run("no versions", flags, kernels, has_versions=False).fails:
        print("the command succeeds without the versions of it that PTXMOTION_CONTRACT adds")
        return
    for limited in (f"{flags} --gate=off", flags):
        whole = trials.run(
            "all rewrites" + (" without the gate" if limited != flags else ""), limited, kernels, has_versions=False
        )
        if whole.fails:
            break
    else:
        print("the command does not fail in each run, so the rewrite is not searched")
        return
    found: dict[int, Trial] = {whole.rewrites: whole}

    def fails(number: int) -> bool:
        if number not in found:
            what = f"the first {number} of {whole.rewrites} rewrites"
            flags_of = f"{limited} --bisect-limit={number}"
            found[number] = trials.run(what, flags_of, kernels, has_versions=False)
        return found[number].fails

    if fails(0):
        print("the command fails also with no rewrite of this kernel, so the rewrite is not searched")
        return
    low, high = 0, whole.rewrites
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    print(f"rewrite {high} of {whole.rewrites}; its flags: {limited} --bisect-limit={high}")
    before = set(found[low].remarks)
    for text in found[high].remarks:
        if text not in before:
            print(f"  {text}")


def _described(name: str) -> str:
    from ..toolchain.demangle import demangled

    text = demangled(name)
    return f"kernel {name}" + (f"  ({text})" if text != name else "")


def smallest(items: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """A subset of ``items`` with which something fails, and no longer fails without any one of them.

    ``items`` as a whole fail.
    Reference: Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing Input*, 2002.

    >>> smallest(list("abcdefgh"), lambda some: "c" in some and "g" in some)
    ['c', 'g']
    """
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[at : at + size] for at in range(0, len(items), size)]
        found = next((chunk for chunk in chunks if fails(chunk)), None)
        if found is not None:
            items, parts = found, 2
            continue
        rest = ([each for each in items if each not in chunk] for chunk in chunks)
        found = next((some for some in rest if fails(some)), None) if parts > 2 else None
        if found is not None:
            items, parts = found, max(parts - 1, 2)
        elif parts >= len(items):
            break
        else:
            parts = min(2 * parts, len(items))
    return items
