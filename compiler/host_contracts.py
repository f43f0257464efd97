"""Puts the contracts of a PTX file into the host object that nvcc compiles from the same source.

A step cicc writes, beside the PTX, two files for the host compiler: the *stub*, which contains the launches of the
kernels and becomes a part of the object, and a *device file* (``.cudafe1.c``), which nothing reads. nvcc removes both
at the end. With several targets there is a step cicc for each, and only one of the stubs is compiled. So

- the script of the step empties the device file (`toolkit_view`);
- the contracts of each target are written into its device file, as arrays in the section `SECTION`;
- the stub of each target includes the device files of all targets, where they exist.

`runtime/ptxmotion_cudart.c` finds the arrays in the linked program.

Guarantees: the object is compiled as before, also if the optimizer of a step ends before its files are written: its
device file is then empty.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .replacing import replace_file

if TYPE_CHECKING:
    from ..contract import Contract

__all__ = [
    "SECTION",
    "SIBLINGS",
    "TUNED",
    "HostFiles",
    "InvalidSetting",
    "check_tuned",
    "contracts_of",
    "host_files_of",
    "makes_objects",
    "siblings_of",
    "wants_contracts",
]

#: The section of the host object, which the C code knows by the same name.
SECTION = "ptxmotion_contracts"

#: The environment variable with the device files of the sources that are compiled for several targets: a JSON list of
#: lists of paths, as a dry run of the build has named them. Without the variable no versions are made.
SIBLINGS = "PTXMOTION_SIBLINGS"

#: The environment variable with a folder of `contract tune` (`tuned_modules`).
TUNED = "PTXMOTION_TUNED"

_PROCESS = re.compile(r"tmpxft_[0-9a-f]+_")


class InvalidSetting(ValueError):
    """An environment variable has a value that it must not have."""


def wants_contracts() -> bool:
    """Whether PTXMOTION_CONTRACT is ``1``. Raises `InvalidSetting` if it is neither that nor ``0`` nor empty."""
    text = os.environ.get("PTXMOTION_CONTRACT", "")
    if text not in ("", "0", "1"):
        raise InvalidSetting(f"PTXMOTION_CONTRACT='{text}' must be 1 or 0")
    return text == "1"


def check_tuned() -> None:
    """Raise `InvalidSetting` if PTXMOTION_TUNED names no folder, or contracts are not wanted."""
    folder = os.environ.get(TUNED)
    if not folder:
        return
    if not wants_contracts():
        raise InvalidSetting(f"{TUNED} needs PTXMOTION_CONTRACT=1: without checks at the launch no version is launched")
    if not os.path.isdir(folder):
        raise InvalidSetting(f"{TUNED}='{folder}' is not a folder; `ptxmotion contract tune -o DIR` makes one")


class HostFiles(NamedTuple):
    """The files of one step cicc: the stub, the device file, and the names of the device files of all targets."""

    stub: str
    device_file: str
    all_device_files: tuple[str, ...]

    def include(self) -> None:
        """Let the stub include the device files. Raises `OSError`."""
        lines = ["", "#ifdef __has_include"]
        for name in self.all_device_files:
            quoted = json.dumps(name, ensure_ascii=False)
            lines += [f"#if __has_include({quoted})", f"#include {quoted}", "#endif"]
        with open(self.stub, "rb") as file:
            text = file.read()
        replace_file(self.stub, text + "\n".join([*lines, "#endif", ""]).encode("utf-8", "surrogateescape"))

    def write(self, contracts: Sequence[bytes]) -> None:
        """Write contracts, in bytes, into the device file. Raises `OSError`."""
        replace_file(self.device_file, "".join(map(_definition, contracts)).encode())


def host_files_of(options: Mapping[str, str]) -> HostFiles | None:
    """The files of a step cicc with these options, or `None` if no host object is compiled with contracts."""
    if not os.environ.get(SIBLINGS):
        return None
    stub, device_file = options.get("--stub_file_name", ""), options.get("--gen_c_file_name", "")
    if not (os.path.isfile(stub) and os.path.isfile(device_file)):
        return None
    return HostFiles(stub, device_file, tuple(_siblings(device_file)))


def _siblings(device_file: str) -> list[str]:
    """The names of the device files of all targets, one of which is ``device_file``."""
    from .dry_run import is_same_file

    groups: list[list[str]] = json.loads(os.environ.get(SIBLINGS) or "[]")
    group = next((each for each in groups if any(is_same_file(name, device_file) for name in each)), [device_file])
    process = _PROCESS.search(os.path.basename(device_file))
    names = [os.path.basename(each) for each in group]
    return names if process is None else [_PROCESS.sub(process[0], name) for name in names]


def makes_objects(steps: Sequence[Sequence[str]]) -> bool:
    """Whether a step of a dry run compiles the host part of a source. ``nvcc -cubin`` has none."""
    return any("-c" in words and any(word.endswith(".cudafe1.cpp") for word in words) for words in steps)


def siblings_of(steps: Sequence[Sequence[str]]) -> list[list[str]]:
    """The device files that the steps cicc of a dry run write, for each source with several targets."""
    groups: dict[str, list[str]] = {}
    for words in steps:
        if os.path.basename(words[0]) == "cicc" and {"--include_file_name", "--gen_c_file_name"}.issubset(words[:-1]):
            source = words[words.index("--include_file_name") + 1]
            groups.setdefault(source, []).append(words[words.index("--gen_c_file_name") + 1])
    return [group for group in groups.values() if len(group) > 1]


def contracts_of(contract: Contract) -> dict[str, bytes]:
    """A contract, in bytes, for each kernel that has versions, by its name."""
    from ..contract import Contract
    from ..contract.bytecode import encode

    kernels = [kernel for kernel in contract.kernels.values() if len(kernel.versions) > 1]
    return {each.name: encode(Contract(contract.sha256, {each.name: each}, contract.producer)) for each in kernels}


def _definition(contract: bytes) -> str:
    """The definition of a contract in C and C++. The linker must not drop it: nothing refers to it by name."""
    name = f"ptxmotion_contract_{hashlib.sha256(contract).hexdigest()[:24]}"
    numbers = ",".join(map(str, contract))
    return f"""\
#ifndef {name}
#define {name} {name}
#if defined(__has_attribute) && !defined(PTXMOTION_RETAIN)
#if __has_attribute(retain)
#define PTXMOTION_RETAIN , retain
#endif
#endif
#ifndef PTXMOTION_RETAIN
#define PTXMOTION_RETAIN
#endif
static const unsigned char {name}[]
__attribute__((section("{SECTION}"), aligned(16), used PTXMOTION_RETAIN)) = {{{numbers}}};
#endif
"""
