"""The arguments of a kernel as `emulate` reads them from the command line.

An argument of the kernel is one of

    x.npy            an array, copied to the device     x.npy:y.npy     the same; its final content is saved to y.npy
    f32[1000]        an array of zeros                  i32[64]:range   0, 1, 2 …
    f32[64]:normal   random numbers, by --seed          i32[64]:5       all elements are 5
    f32[64]:bits     random bits, by --seed             0x00ff…:bytes   the bytes of a structure, in hexadecimal
    i32:7 f32:2.5    a value

with the types i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64. `=FILE.npy` after an array saves its final content.
"""

from __future__ import annotations

import re
from typing import Any, cast

from ..spelling import did_you_mean

__all__ = ["FILLINGS", "TYPES", "kernel_arguments"]

TYPES = "i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64".split()

#: What may follow the length of an array, besides a number.
FILLINGS = ("zeros", "range", "normal", "bits")

_ARRAY = re.compile(rf"({'|'.join(TYPES)})\[(\d+)\](?::([\w.+-]+))?(?:=(.+))?")
_VALUE = re.compile(rf"({'|'.join(TYPES)}):(\S+)")


def kernel_arguments(texts: list[str], seed: int) -> tuple[list[Any], list[tuple[Any, str]]]:
    """The arguments of the kernel, and the arrays to save with their paths. Raises `OSError`, `ValueError`."""
    values: list[Any] = []
    saves: list[tuple[Any, str]] = []
    for number, text in enumerate(texts):
        value, save = _argument(text, (seed, number))
        values.append(value)
        if save:
            saves.append((value, save))
    return values, saves


def _argument(text: str, seed: tuple[int, int]) -> tuple[Any, str]:
    """One argument, and the path that its final content is saved to; empty where it is not saved."""
    if match := _ARRAY.fullmatch(text):
        kind, count, filling, save = match.groups()
        return _filled(_dtype(kind), int(count), filling, seed), save or ""
    if match := _VALUE.fullmatch(text):
        return _value(*match.groups()), ""
    if text.endswith(":bytes"):
        return _structure(text.removesuffix(":bytes").removeprefix("0x")), ""
    if ".npy" in text:
        path, _, save = text.partition(":")
        return _loaded(path), save
    kind = re.match(r"(\w+)[\[:]", text)
    if kind is not None and kind[1] not in TYPES:
        near = did_you_mean(kind[1], TYPES)
        raise ValueError(f"'{kind[1]}' of argument '{text}' is no type{near}; there are {' '.join(TYPES)}")
    raise ValueError(f"argument '{text}' is neither an array, a value nor a .npy file")


def _dtype(kind: str) -> str:
    """NumPy's name of a type: ``f4`` for ``f32``."""
    return f"{kind[0]}{int(kind[1:]) // 8}"


def _value(kind: str, literal: str) -> Any:
    import numpy as np

    try:
        return np.dtype(_dtype(kind)).type(float(literal) if kind[0] == "f" else int(literal, 0))
    except (ValueError, OverflowError):
        raise ValueError(f"'{literal}' is not a value of type {kind}") from None


def _structure(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError(f"'{digits}' is not an even number of hexadecimal digits") from None


def _loaded(path: str) -> Any:
    """The array in an `.npy` file. Raises `OSError`, `ValueError`."""
    import zipfile

    import numpy as np

    try:
        value = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} has no array: {str(error).splitlines()[0]}") from None
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{path} has several arrays")
    return cast("Any", value)


def _filled(dtype: str, count: int, filling: str | None, seed: tuple[int, int]) -> Any:
    import numpy as np

    if filling is None or filling == "zeros":
        return np.zeros(count, dtype)
    if filling == "range":
        return np.arange(count).astype(dtype)
    if filling == "normal":
        return np.random.default_rng(seed).standard_normal(count).astype(dtype)
    if filling == "bits":
        return np.frombuffer(np.random.default_rng(seed).bytes(count * np.dtype(dtype).itemsize), dtype).copy()
    try:
        return np.full(count, float(filling) if dtype[0] == "f" else int(filling, 0), dtype)
    except (ValueError, OverflowError):
        raise ValueError(f"'{filling}' is neither {', '.join(FILLINGS)} nor a number") from None
