"""Runs a case on the emulator; the format of recorded results.

Computes: the results of the emulator for a case as uint64 columns; a digest of 64 bits for each chunk of lanes; reading
    and writing of the file with recorded results. Guarantees: if the results of a chunk differ in any bit, the digests
    differ, except with probability 2**-64. For approximate rows the results of some lanes are stored, not digests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .forms import Case
from .operands import COMPARED_LANES, SPECIAL_LANES, digest_chunk, lanes_of, mix, width_of

__all__ = [
    "GOLDEN",
    "LAUNCHED",
    "MATRIX",
    "VIDEO",
    "VIDEO_DIFFERENCES",
    "Golden",
    "approximate_lanes",
    "digests",
    "emulate",
    "load",
    "operands_of",
    "save",
]

Lanes = npt.NDArray[Any]

#: Results of an NVIDIA H200 (sm_90), ptxas 13.0.
GOLDEN = Path(__file__).with_name("sm_90.npz")
#: The same for forms that are tested by whole launches.
LAUNCHED = Path(__file__).with_name("sm_90_launched.npz")
#: The same for products of matrices, and for operations of a whole warp or block.
MATRIX = Path(__file__).with_name("sm_90_matrix.npz")
#: The same for video instructions.
VIDEO = Path(__file__).with_name("sm_90_video.npz")
#: The keys of its forms with results that are not those of the manual, one in each line.
VIDEO_DIFFERENCES = Path(__file__).with_name("video_differences.txt")


def operands_of(case: Case) -> tuple[Lanes, ...]:
    """The columns of operands on which ``case`` is recorded, the carry last."""
    compared = case.form.op.semantics.startswith("compare_set")
    return lanes_of(case.kinds, COMPARED_LANES if compared else SPECIAL_LANES)


def approximate_lanes(lanes: int) -> Lanes:
    """The lanes of an approximate row whose results are stored: about 2,000 to 5,000."""
    return np.arange(0, lanes, 1 if lanes < 4096 else 3 if lanes < 1 << 16 else 13)


def emulate(case: Case, columns: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
    """The results of the emulator for ``columns``: one column of uint64 for each result that the kernel stores."""
    function = case.function
    assert function is not None, case.key
    pending = list(columns)
    carry = pending.pop().astype(bool) if case.reads_carry else None
    sources: list[Lanes] = []
    for spec in case.sources:
        if case.immediate is not None and spec.name == "e":
            sources.append(np.array([case.immediate], np.uint32))
            continue
        width, column = width_of(case.type_of(spec)), pending.pop(0)
        sources.append(column.astype(bool) if width == 1 else column.astype(f"u{width // 8}"))
    results = function(sources, carry)
    wanted = len(case.results)
    kept = (*results[: wanted - case.writes_carry], *results[-1:]) if case.writes_carry else results[:wanted]
    lanes = columns[0].size
    return tuple(np.broadcast_to(result, (lanes,)).astype(np.uint64) for result in kept)


def digests(results: tuple[Lanes, ...]) -> Lanes:
    """One digest for each chunk of lanes, over all results."""
    lanes = results[0].size
    words = np.zeros(lanes, np.uint64)
    for index, result in enumerate(results):
        words = mix(words + result + np.uint64((index + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)))
    chunk = digest_chunk(lanes)
    place = np.arange(lanes, dtype=np.uint64) % np.uint64(chunk)
    words = mix(words + (place + np.uint64(1)) * np.uint64(0xD1342543DE82EF95))
    return words.reshape(-1, chunk).sum(axis=1, dtype=np.uint64)


@dataclass(frozen=True)
class Golden:
    """Recorded results: ``exact`` has the digests of each case, ``approximate`` the stored results."""

    machine: dict[str, str]
    exact: dict[str, Lanes]
    approximate: dict[str, Lanes]


def save(path: Path, golden: Golden) -> None:
    """Writes ``golden`` as one compressed NumPy archive."""
    approximate: dict[str, Any] = {f"a{index}": column for index, column in enumerate(golden.approximate.values())}
    index = {
        "machine": golden.machine,
        "exact": {key: int(column.size) for key, column in golden.exact.items()},
        "approximate": list(golden.approximate),
    }
    text = np.frombuffer(json.dumps(index).encode(), np.uint8)
    exact = np.concatenate([*golden.exact.values(), np.zeros(0, np.uint64)])
    np.savez_compressed(path, index=text, exact=exact, **approximate)


@cache
def load(path: Path = GOLDEN) -> Golden:
    """The recorded results in ``path``."""
    with np.load(path) as archive:
        index = json.loads(bytes(archive["index"]))
        digest, start = archive["exact"], 0
        exact: dict[str, Lanes] = {}
        for key, size in index["exact"].items():
            exact[key] = digest[start : start + size]
            start += size
        approximate = {key: archive[f"a{number}"] for number, key in enumerate(index["approximate"])}
    return Golden(index["machine"], exact, approximate)
