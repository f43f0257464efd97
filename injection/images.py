"""Optimizes code that a program loads: PTX, and fatbins with PTX.

PTX is optimized as in a build (`compiler.build_step`), for the device of the program. In a fatbin, the driver takes the
machine code for the device if there is some, and else compiles PTX. So the optimized PTX is assembled and takes the
place of that machine code, and it also takes the place of its PTX.

Guarantees: code is replaced only by code of the same kernels, for the same target, that ptxas accepts. Machine code is
replaced only where the fatbin has PTX of the same target, and the driver is not older than ptxas.
Refuses: with an entry ``left`` of the log, everything else, such as machine code that no PTX belongs to.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compiler.build_step import BuildStep, Flags, StepFailed
from ..toolchain.driver_version import cuda_version
from ..toolchain.fatbin import DeviceImage, FatbinError, device_images, with_contents
from ..toolchain.places import version_numbers
from .protocol import FATBIN, Request

__all__ = ["Answer", "answer_to"]

_DEBUG = re.compile(r"^\s*\.target\s[^\n]*\bdebug\b", re.MULTILINE)
_SM = re.compile(r"sm_(\d+)([af]?)")


@dataclass
class Answer:
    """``code`` is empty if nothing is to be replaced. ``entries`` are those of the log: of `BuildStep.optimized`, or
    with a reason ``left``."""

    code: bytes = b""
    entries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def answer_to(request: Request, parse_flags: Flags) -> Answer:
    """The answer to a request. Raises errors of the optimizer, and `StepFailed`."""
    if not request.targets:
        raise StepFailed("the driver names no device")
    answer = Answer()
    if request.kind == FATBIN:
        answer.code = _of_fatbin(request, parse_flags, answer.entries)
    else:
        target = _target_of(request)
        with _with_ptxas(request.code):
            text = _optimized(request, request.code, target, _jit_options(request), parse_flags, answer.entries)
        answer.code = (text or "").encode("utf-8", "surrogateescape")
    return answer


def _jit_options(request: Request) -> tuple[str, ...]:
    """The options of ptxas that correspond to those of the driver's compiler."""
    registers = (f"-maxrregcount={request.max_registers}",) if request.max_registers else ()
    return (*registers, *((f"-O{request.level}",) if request.level < 4 else ()))


def _target_of(request: Request) -> str:
    """The target for which PTX is compiled: that of the device; with the suffix of the PTX, which runs on no other."""
    from ..toolchain.tools import target_of

    own = _SM.fullmatch(target_of(request.code[: 1 << 16].decode("utf-8", "replace")))
    sm = f"sm_{request.targets[0]}"
    return sm + own[2] if own is not None and own[1] == str(request.targets[0]) else sm


def _optimized(
    request: Request,
    code: bytes,
    target: str,
    options: tuple[str, ...],
    parse_flags: Flags,
    entries: list[dict[str, Any]],
) -> str | None:
    """The optimized PTX; `None` if no kernel changed. Adds an entry."""
    if _DEBUG.search(code[: 1 << 16].decode("utf-8", "replace")):
        entries.append({"way": request.way, "left": "it is for a debugger"})
        return None
    entry = BuildStep(request.way, [(target, options)]).optimized(code, parse_flags)
    text: str | None = entry.pop("text")
    entries.append({"way": request.way, **entry})
    return text


# --- fatbins


def _of_fatbin(request: Request, parse_flags: Flags, entries: list[dict[str, Any]]) -> bytes:
    """The fatbin with optimized code; empty if nothing changed."""
    try:
        images = device_images(request.code)
    except FatbinError as error:
        raise StepFailed(str(error)) from error
    contents: dict[int, bytes] = {}
    done: set[int] = set()
    for device in request.targets:
        ptx, cubin = _images_for(device, images)
        if ptx is None:
            entries.append({"way": request.way, "left": "the PTX is for another target than the machine code"})
        elif ptx not in done:
            done.add(ptx)
            old = _content(images[cubin]) if cubin is not None else None
            target = images[ptx].target if cubin is not None else f"sm_{device}"
            code = _content(images[ptx])
            with _with_ptxas(code):
                made = _replaced(request, code, images[ptx].options, target, parse_flags, entries, old)
            contents.update((index, each) for index, each in zip((ptx, cubin), made, strict=False) if index is not None)
    return with_contents(request.code, contents) if contents else b""


def _images_for(device: int, images: Sequence[DeviceImage]) -> tuple[int | None, int | None]:
    """The numbers of the PTX to optimize for a device, and of the machine code that the driver takes. The first is
    `None` if the PTX and the machine code do not belong together, the second if the driver compiles the PTX."""
    cubins = {index: sm for index, sm in _numbers(images, "cubin") if sm // 10 == device // 10 and sm <= device}
    if not cubins:
        # PTX with a suffix runs on no other device.
        usable = {
            index: sm
            for index, sm in _numbers(images, "ptx")
            if sm == device or (sm < device and images[index].target[-1].isdigit())
        }
        return max(usable, key=lambda index: usable[index], default=None), None
    best = max(cubins.values())
    chosen = [index for index, sm in cubins.items() if sm == best]
    same = [index for index, _ in _numbers(images, "ptx") if images[index].target == images[chosen[0]].target]
    return (same[0], chosen[0]) if len(chosen) == len(same) == 1 else (None, None)


def _numbers(images: Sequence[DeviceImage], kind: str) -> Iterator[tuple[int, int]]:
    """Of each image of this kind: its index and the number of its target, 90 for sm_90."""
    for index, image in enumerate(images):
        match = _SM.fullmatch(image.target)
        if image.kind == kind and match is not None:
            yield index, int(match[1])


def _replaced(
    request: Request,
    code: bytes,
    options: str,
    target: str,
    parse_flags: Flags,
    entries: list[dict[str, Any]],
    old: bytes | None,
) -> list[bytes]:
    """The optimized PTX, and its machine code if there is an ``old`` one. Empty if no kernel changed, or the old
    machine code cannot be replaced."""
    if old is not None and (problem := _driver_problem(request)):
        entries.append({"way": request.way, "left": problem})
        return []
    words = tuple(options.split())
    text = _optimized(request, code, target, words, parse_flags, entries)
    if text is None:
        return []
    ptx = text.encode("utf-8", "surrogateescape")
    if old is None:
        return [ptx]
    made = _assembled(text, target, words)
    if _kernels(made) != _kernels(old):
        entries[-1] = {"way": request.way, "left": "the machine code has other kernels than the PTX"}
        return []
    return [ptx, made]


def _driver_problem(request: Request) -> str:
    """Why the driver may not load what ptxas writes; empty if it does."""
    from ..toolchain.tools import find_tool

    ptxas = version_numbers(find_tool("ptxas").version)[:2]
    driver = cuda_version(request.driver_version)
    if driver >= ptxas:
        return ""
    return f"the driver is for CUDA {driver[0]}.{driver[1]}, and ptxas is of {ptxas[0]}.{ptxas[1]}"


def _content(image: DeviceImage) -> bytes:
    try:
        return image.content()
    except FatbinError as error:
        raise StepFailed(str(error)) from error


def _assembled(text: str, target: str, options: tuple[str, ...]) -> bytes:
    from ..toolchain.cubin_cache import assemble_kept
    from ..toolchain.tools import ToolchainError

    try:
        return assemble_kept(text, target, flags=options).cubin
    except ToolchainError as error:
        raise StepFailed(f"ptxas refuses the optimized PTX: {' '.join(str(error).split())[:300]}") from error


def _kernels(cubin: bytes) -> set[str]:
    from ..toolchain.cubin import CubinError, kernel_registers

    try:
        return set(kernel_registers(cubin))
    except CubinError as error:
        raise StepFailed(f"machine code that cannot be read: {error}") from error


@contextlib.contextmanager
def _with_ptxas(ptx: bytes) -> Generator[None]:
    """Inside, PTXMOTION_PTXAS names the ptxas for this PTX, as it does in a build; keys of caches contain it. Raises
    `StepFailed` where there is none."""
    from ..toolchain.tools import ToolchainError, find_ptxas

    if os.environ.get("PTXMOTION_PTXAS"):
        yield
        return
    try:
        os.environ["PTXMOTION_PTXAS"] = str(find_ptxas(ptx[: 1 << 16].decode("utf-8", "replace")).path)
    except ToolchainError as error:
        raise StepFailed(str(error).partition("\n")[0]) from error
    try:
        yield
    finally:
        del os.environ["PTXMOTION_PTXAS"]
