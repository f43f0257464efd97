"""Finds out by running a kernel which words hold pointers, and what is in the memory that they point to.

Method: a kernel runs with memory and parameters full of pointers, each to its own region (`input_regions`). The
addresses of its accesses then identify the words that were used as pointers: parameters, members of structures, words
of memory and of module variables. A second run has pointers only in these words and in memory. Other integers are
small there, so that loops end.
Guarantees: the result affects only the later inputs. A word that was not found makes an input less useful, never a
comparison wrong.
"""

from __future__ import annotations

import time

from ...emulator.sparse import PAGE
from ...ptx import Instr, Kernel, registers
from .generated_inputs import Signature, float_registers, generate
from .input_regions import GeneratedMemory, Regions
from .input_runs import Device, EmulatedRun, OutOfTime

__all__ = ["find_pointers"]

#: The numbers of the fixed cases that the search runs.
_TRIED = (0, 4, 3)
_BUDGET = 10_000


def find_pointers(
    device: Device,
    kernel: Kernel,
    signature: Signature,
    regions: Regions,
    numbers: dict[str, int],
    deadline: float,
) -> None:
    """Complete ``signature.pointers`` and the regions. Raises the errors of a launch.

    ``deadline`` is the value of `time.monotonic` at which the search ends with its results so far.
    """
    for turn, number in enumerate(_TRIED):
        if time.monotonic() > deadline:
            return
        tried = Signature(signature.params, signature.certain, set(signature.words))
        if turn:
            tried.pointers = signature.pointers
        launch = generate(kernel, tried, regions, number)
        memory = GeneratedMemory(regions, "pointers", number, launch.threads)
        if not regions.is_wide:
            memory.fill = "index"
        try:
            run = device.run(
                kernel.name,
                launch.grid,
                launch.block,
                launch.shared,
                launch.arguments,
                seed=0,
                budget=_BUDGET,
                memory=memory,
                numbers=numbers,
                deadline=deadline,
            )
        except OutOfTime:
            return
        _record(run, signature, regions, _float_instructions(kernel))
    for region in regions.regions:
        region.infer_stride()


def _record(run: EmulatedRun, signature: Signature, regions: Regions, floats: set[Instr]) -> None:
    """Record the words that were used as pointers in the run, and how their regions were accessed."""
    words = set(signature.words)
    for instr, pages in run.touched.items():
        width = instr.form.type.bytes if instr.form.type is not None else 4
        for page in pages:
            origin = regions.origin(page * PAGE)
            if origin is None:
                continue
            kind, place, word = origin
            if kind == "parameter":
                if place not in words:
                    continue
                signature.pointers.add(place)
            elif place < len(regions.regions):
                regions.regions[place].pointers.add(word)
            region = regions.regions[regions.region(kind, place)]
            region.width = max(region.width, width)
            region.is_float |= instr in floats


def _float_instructions(kernel: Kernel) -> set[Instr]:
    """The accesses whose values are floats, by their type or by the instructions that use the values."""
    floats = float_registers(kernel)
    accesses: set[Instr] = set()
    for instr in kernel.instructions():
        if instr.address is None:
            continue
        scalar = instr.form.type
        values = [reg for operand in (*instr.dsts, *instr.srcs[1:]) for reg in registers(operand)]
        if (scalar is not None and scalar.is_float) or any(reg in floats for reg in values):
            accesses.add(instr)
    return accesses
