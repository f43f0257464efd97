"""The figures that `ptxas -v` prints for each function.

The spill bytes are only there: in the cubin, a spill and an access to a local array are the same instruction. The other
figures are also in the cubin (`cubin.py`); tests compare the two.

Guarantees: a line or figure of another version of ptxas that is not understood is ignored.
Reference: CUDA Compiler Driver NVCC 13.0, "--resource-usage" and the example of its output.
"""

import re
from dataclasses import dataclass, replace

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame")
_SPILL = re.compile(r"(\d+) bytes spill (stores|loads)")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_BARRIERS = re.compile(r"used (\d+) barriers")


@dataclass(frozen=True, slots=True)
class PtxasFigures:
    """The figures of one function. A device function has only the first three.

    `registers`, `shared_bytes` and `barriers` are `None` if ptxas does not print them.
    """

    frame_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    registers: int | None = None
    shared_bytes: int | None = None
    barriers: int | None = None


def ptxas_figures(log: str) -> dict[str, PtxasFigures]:
    """The figures of each function in the log of `ptxas -v`.

    >>> ptxas_figures("Function properties for k\\n    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads")
    {'k': PtxasFigures(frame_bytes=8, spill_store_bytes=8, spill_load_bytes=4, registers=None, shared_bytes=None, \
barriers=None)}
    """
    figures: dict[str, PtxasFigures] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            spills = {kind: int(size) for size, kind in _SPILL.findall(line)}
            figures[function] = replace(
                figures.get(function, PtxasFigures()),
                frame_bytes=int(match[1]),
                spill_store_bytes=spills.get("stores", 0),
                spill_load_bytes=spills.get("loads", 0),
            )
        elif match := _USED.search(line):
            shared, barriers = _SHARED.search(line), _BARRIERS.search(line)
            figures[entry] = replace(
                figures.get(entry, PtxasFigures()),
                registers=int(match[1]),
                shared_bytes=int(shared[1]) if shared else 0,
                barriers=int(barriers[1]) if barriers else 0,
            )
    return figures
