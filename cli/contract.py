"""`ptxmotion contract`: prints a launch contract, checks it against its PTX module, tunes contracts, and prints the
options of the linker for programs whose objects contain contracts.

Exit codes: 1 if the contract does not fit the module, 3 if a file is damaged.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .outcome import BAD_INPUT, DIFFERENT, FINE, MISSING, CommandError

if TYPE_CHECKING:
    from ..contract import Contract

EPILOG = """\
A contract says which versions of each kernel a PTX module has, and for which launches a version computes the same as
the kernel. `check` without --module checks the contract alone: its form, and that each expression reads only parameters
that exist. With --module it also compares the SHA-256, the entries and their parameters. Exit code 1: it does not fit.

examples:
  ptxmotion contract show faster.contract.json
  ptxmotion contract check faster.contract.json --module faster.ptx
  ptxmotion contract tune rodinia/gaussian --size small -o tuned
  ptxmotion contract link-options
"""
_SHOW_EXAMPLES = """\
examples:
  ptxmotion contract show faster.contract.json
  ptxmotion contract show faster.contract.json --kernel matmul
"""
_CHECK_EXAMPLES = """\
examples:
  ptxmotion contract check faster.contract.json
  ptxmotion contract check faster.contract.json --module faster.ptx
"""
_LINK_EXAMPLES = """\
examples:
  ptxmotion contract link-options
  ptxmotion contract link-options --compiler g++
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `contract` and of each of its actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "print the versions of each kernel with their conditions in words"
    show = actions.add_parser("show", help=text, description=text.capitalize() + ".", epilog=_SHOW_EXAMPLES)
    show.add_argument("--kernel", metavar="NAME", help="only this kernel; its name in PTX or in the source")
    text = "check a contract, and whether it fits its module"
    check = actions.add_parser("check", help=text, description=text.capitalize() + ".", epilog=_CHECK_EXAMPLES)
    check.add_argument("--module", metavar="PTX", help="the PTX file that the contract belongs to; - is stdin")
    text = "print the options with which another program than nvcc links objects that contain contracts"
    link = actions.add_parser("link-options", help=text, description=text.capitalize() + ".", epilog=_LINK_EXAMPLES)
    link.add_argument("--compiler", metavar="CXX", default="c++", help="the host compiler (default: c++)")
    text = "time the versions of kernels in the launches of programs, and keep what was faster in their contracts"
    tune = actions.add_parser("tune", help=text, description=text.capitalize() + ".", epilog=_tune_examples())
    _add_tune_arguments(tune)
    for each in (show, check):
        each.add_argument("contract", metavar="FILE", help="the contract; - is stdin")


def _tune_examples() -> str:
    from .contract_tune import EXAMPLES

    return EXAMPLES


def _add_tune_arguments(parser: argparse.ArgumentParser) -> None:
    from .contract_tune import add_arguments

    add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; its exit code."""
    if arguments.action == "tune":
        from .contract_tune import run as tune

        return tune(arguments)
    if arguments.action == "link-options":
        return _link_options(arguments.compiler)
    contract = _read(arguments.contract)
    return _show(contract, arguments.kernel) if arguments.action == "show" else _check(contract, arguments)


def _link_options(compiler: str) -> int:
    from ..compiler.launch_archive import NoArchive, launch_archive, link_options

    try:
        options = link_options(launch_archive([compiler]))
    except NoArchive as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from None
    print(" ".join(f"-Wl,{option}" if option.startswith("--") else option for option in options))
    return FINE


def _read(path: str) -> Contract:
    from ..contract import ContractError, loads
    from .files import STDIN_NAME, read_bytes

    name = STDIN_NAME if path == "-" else path
    try:
        return loads(read_bytes(path), name)
    except ContractError as error:
        raise CommandError(BAD_INPUT, f"{error.place or name}: error: {error}") from None


def _show(contract: Contract, only: str | None) -> int:
    from ..contract.wording import kernel_words
    from ..spelling import did_you_mean
    from ..toolchain.demangle import demangled

    names = {name: demangled(name) for name in contract.kernels}
    shown = [name for name, source in names.items() if only in (None, name, source, source.partition("(")[0])]
    if only is not None and not shown:
        similar = did_you_mean(only, [*names, *(source.partition("(")[0] for source in names.values())])
        listed = ", ".join(names.values()) or "none"
        message = f"ptxmotion: error: the contract has no kernel '{only}'{similar}; there are {listed}"
        raise CommandError(BAD_INPUT, message)
    producer = f", written by {contract.producer}" if contract.producer else ""
    print(f"contract of the module with SHA-256 {contract.sha256}{producer}")
    for name in shown:
        print(f"\n{kernel_words(contract.kernels[name], demangled)}")
    return FINE


def _check(contract: Contract, arguments: argparse.Namespace) -> int:
    versions = sum(len(kernel.versions) - 1 for kernel in contract.kernels.values())
    faults = _faults(contract, arguments.module) if arguments.module is not None else []
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    if faults:
        sys.stdout.write("so the kernels themselves would be launched\n")
        return DIFFERENT
    fits = " and fits the module" if arguments.module is not None else ""
    numbers = f"number of kernels {len(contract.kernels)}, of their versions {versions}"
    sys.stdout.write(f"the contract is valid{fits}: {numbers}\n")
    return FINE


def _faults(contract: Contract, path: str) -> list[str]:
    from ..ptx.verify import verify
    from ..runtime.matching import mismatches
    from .files import parse_bytes, read_bytes

    data = read_bytes(path)
    module = parse_bytes(data, path)
    verify(module)
    faults = list(mismatches(contract, module))
    if not contract.matches(data):
        faults.insert(0, f"{path}: the contract is of another module: the SHA-256 of the PTX differs")
    return faults
