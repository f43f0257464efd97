"""`ptxmotion nvcc`, and the program `ptxmotion-nvcc`: nvcc, with the optimizer between its steps cicc and ptxas.

All arguments are nvcc's. So the verb has no options of its own, and none of a settings file; environment variables are
its settings (`compiler.build_step`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .outcome import MISSING, CommandError, guarded, say, usage_error

if TYPE_CHECKING:
    import argparse

__all__ = ["main", "run_nvcc"]

EPILOG = """\
All arguments are passed to nvcc, --version included. `ptxmotion-nvcc --help` prints the help of nvcc. Settings of the
optimizer are environment variables: PTXMOTION_FLAGS (options of opt; default: -O3), PTXMOTION_ONLY and PTXMOTION_SKIP
(regular expressions for names of kernels), PTXMOTION_LOG (a file), PTXMOTION_SECONDS (for each PTX file) and
PTXMOTION_NVCC. PTXMOTION_VERBOSE=1 prints which kernels changed. PTXMOTION_CONTRACT=1 adds versions of kernels,
and checks at each launch whether one of them may take its place;
PTXMOTION_TUNED=DIR takes the versions that `ptxmotion contract tune` has written to DIR.

examples:
  ptxmotion nvcc -O3 -arch=sm_90 -c kernel.cu -o kernel.o
  make NVCC=ptxmotion-nvcc
  cmake -DCMAKE_CUDA_COMPILER="$(command -v ptxmotion-nvcc)" ..
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `nvcc`, for the help and for completion."""
    from argparse import REMAINDER

    parser.add_argument("arguments", nargs=REMAINDER, metavar="…", help="the arguments of nvcc")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb. It does not return."""
    return run_nvcc(arguments.arguments)


def run_nvcc(arguments: Sequence[str]) -> int:
    """Become nvcc. Raises `CommandError`."""
    from ..compiler.host_contracts import InvalidSetting
    from ..compiler.launch import NoCompiler, launch

    try:
        launch(arguments, say)
    except InvalidSetting as error:
        usage_error(str(error))
    except NoCompiler as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from None


def main() -> int:
    """The program `ptxmotion-nvcc`."""
    return guarded(["nvcc", *sys.argv[1:]], lambda argv: run_nvcc(argv[1:]))
