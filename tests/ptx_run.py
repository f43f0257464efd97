"""The cases in `tests/run/*.ptx`: the head of each file states the launches and their arguments.

A head line is one of

    //! RUN kernel grid=(2,3) block=128 shared=64
    //! ARG i32[1024] bits            an array; `i16 i32 i64 u8 f16 f32 f64`, filled as named below
    //! ARG i32 7                     a value
    //! ARG struct i4:7 pad4 f8:2.5   a structure by value: kind and bytes of each member
    //! OUTPUT text                   a line that the kernel prints, in any order
    //! FINDING kind                  a finding that the checks must report (in `tests/run/faults`)

Fillings: `zeros`; `bits` any pattern; `normal`; `special` finite, infinite, NaN, subnormal; `range(n)` 0 to n - 1;
`sorted`; `integers` small; `halves` packed normal f16; `offsets(k)` k·i; `levels` 0 to 3; `dominant(n)` a diagonally
dominant matrix. The seed is the position of the argument and the name of the kernel, so an input never changes.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RUN", "Case", "cases", "digest"]

RUN = Path(__file__).resolve().parent / "run"
_RUN_LINE = re.compile(r"//! RUN (\w+) grid=(\S+) block=(\S+)(?: shared=(\d+))?$")
_ARRAY = re.compile(r"//! ARG ([iuf]\d+)\[(\d+)\] (\w+)(?:\((\d+)\))?$")
_VALUE = re.compile(r"//! ARG ([iuf]\d+) (\S+)$")


@dataclass
class Case:
    """One launch. ``args`` makes fresh arguments: NumPy arrays, scalars, or bytes for a structure."""

    file: Path
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    lines: list[str] = field(default_factory=list[str])
    output: list[str] = field(default_factory=list[str])
    finding: str = ""

    @property
    def name(self) -> str:
        return f"{self.file.stem}.{self.kernel}"

    def args(self) -> list[Any]:
        return [self._argument(number, line) for number, line in enumerate(self.lines)]

    def _argument(self, number: int, line: str) -> Any:
        if line.startswith("//! ARG struct "):
            return _structure(line.removeprefix("//! ARG struct ").split())
        if match := _ARRAY.match(line):
            kind, count, filling, parameter = match.groups()
            random = np.random.default_rng(zlib.crc32(f"{self.kernel}/{number}".encode()))
            return _filled(_dtype(kind), int(count), filling, int(parameter or 0), random)
        match = _VALUE.match(line)
        assert match, line
        return _dtype(match[1]).type(float(match[2]) if match[1][0] == "f" else int(match[2]))


def _dtype(kind: str) -> np.dtype[Any]:
    return np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")


def _structure(members: list[str]) -> bytes:
    data = bytearray()
    for member in members:
        if member.startswith("pad"):
            data += bytes(int(member[3:]))
        else:
            kind, _, value = member.partition(":")
            data += np.array(float(value), np.dtype(kind)).tobytes()
    return bytes(data)


def _filled(
    dtype: np.dtype[Any], count: int, filling: str, parameter: int, random: np.random.Generator
) -> npt.NDArray[Any]:
    if filling == "zeros":
        return np.zeros(count, dtype)
    if filling == "bits":
        return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()
    if filling == "normal":
        return random.standard_normal(count).astype(dtype)
    if filling == "special":
        values = np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()
        normal = random.standard_normal(count) * 100
        pick = random.integers(0, 4, count)
        values[pick == 0] = normal[pick == 0]
        edge = np.array(
            [0, -0.0, 1, -1, np.inf, -np.inf, np.finfo(dtype).tiny / 4, np.finfo(dtype).max, 0.5, 2.5], dtype
        )
        values[pick == 1] = edge[random.integers(0, edge.size, int((pick == 1).sum()))]
        return values
    if filling == "range":
        return random.integers(0, parameter, count).astype(dtype)
    if filling == "sorted":
        return np.sort(np.frombuffer(random.bytes(count * dtype.itemsize), dtype))
    if filling == "integers":
        return random.integers(-50, 50, count).astype(dtype)
    if filling == "halves":
        return random.standard_normal(2 * count).astype(np.float16).view(dtype)
    if filling == "offsets":
        return (np.arange(count) * parameter).astype(dtype)
    if filling == "levels":
        return random.integers(0, 4, count).astype(dtype)
    if filling == "dominant":
        matrix = random.standard_normal((parameter, parameter)) + 2 * parameter * np.eye(parameter)
        return matrix.astype(dtype).reshape(-1)
    raise ValueError(filling)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("()").split(","))


def cases(*stems: str, folder: Path = RUN) -> list[Case]:
    """All cases of ``folder``, or those of the files named, in the order of files and lines."""
    found: list[Case] = []
    for file in sorted(folder.glob("*.ptx")):
        if stems and file.stem not in stems:
            continue
        with file.open(encoding="utf-8") as text:
            for line in text:
                line = line.rstrip("\n")
                if not line.startswith("//! "):
                    break
                if line.startswith("//! OUTPUT "):
                    found[-1].output.append(line.removeprefix("//! OUTPUT "))
                elif line.startswith("//! FINDING "):
                    found[-1].finding = line.removeprefix("//! FINDING ")
                elif line.startswith("//! ARG "):
                    found[-1].lines.append(line)
                else:
                    match = _RUN_LINE.match(line)
                    assert match, line
                    kernel, grid, block, shared = match.groups()
                    found.append(Case(file, kernel, _shape(grid), _shape(block), int(shared or 0)))
    return found


def digest(args: list[Any]) -> list[str]:
    """A short hash of every array among ``args``."""
    return [hashlib.sha256(arg.tobytes()).hexdigest()[:16] for arg in args if isinstance(arg, np.ndarray)]
