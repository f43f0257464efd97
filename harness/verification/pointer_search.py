"""Find out by running which words hold pointers, and what lies behind them.

Method: a kernel runs over memory and parameters that are full of pointers, each to a region of its own
(`input_regions`). The addresses of its accesses then lead back to the words that served as pointers: parameters,
members of structures, words of memory and of module variables, however they came into the address. A second run has
pointers only in the words that were found and in memory; other integers are small there, so that loops end.
Guarantees: what was found only decides what later inputs look like; a word that was missed makes an input that is worth
less, never a wrong comparison.
"""

from __future__ import annotations

import time

from ...emulator.sparse import PAGE
from ...ptx import Instr, Kernel, registers
from .generated_inputs import Signature, float_registers, generate
from .input_regions import GeneratedMemory, Regions
from .input_runs import Device, OutOfTime, Run

__all__ = ["find_pointers"]

#: The fixed cases whose launches are tried, by number.
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
    """Complete ``signature.pointers`` and the regions. Raises what a launch raises.

    ``deadline`` is the time, by `time.monotonic`, at which the search ends with what was found up to then.
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
        _note(run, signature, regions, _float_instructions(kernel))
    for region in regions.regions:
        region.infer_stride()


def _note(run: Run, signature: Signature, regions: Regions, floats: set[Instr]) -> None:
    """Note the words that the run's accesses lead back to, and how the regions are accessed."""
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
    """The accesses whose values are floats by their type or by what uses them."""
    floats = float_registers(kernel)
    found: set[Instr] = set()
    for instr in kernel.instructions():
        if instr.address is None:
            continue
        scalar = instr.form.type
        values = [reg for operand in (*instr.dsts, *instr.srcs[1:]) for reg in registers(operand)]
        if (scalar is not None and scalar.is_float) or any(reg in floats for reg in values):
            found.add(instr)
    return found
