"""Compile the CUDA sources of this folder to the PTX files that the tests run: `python tests/run/build.py [NAME…]`.

The lines `//! …` of a source become the head of the PTX file: the launches and their arguments. Contraction is off, so
that ptxas does not contract products and sums, which the emulator never does.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(names: list[str]) -> int:
    from ptxmotion.toolchain.tools import compile_cuda

    for source in sorted(HERE.rglob("*.cu")):
        if names and source.stem not in names:
            continue
        target = source.with_suffix(".ptx")
        # The source is passed as text with a plain name, so that messages of assertions contain no path of this
        # machine.
        text = source.read_text()
        ptx = compile_cuda(f'#line 1 "{source.name}"\n{text}', arch="sm_90", flags=["-fmad=false", "-std=c++17"])
        head = [line for line in text.splitlines() if line.startswith("//! ")]
        body = [line for line in ptx.splitlines() if not line.startswith("//")]
        target.write_text("\n".join([*head, "", *body]).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
