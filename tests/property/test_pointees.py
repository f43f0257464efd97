"""The objects that an address may point into do not depend on which other values are analyzed.

The results are compared with a solution over all values, for addresses and for other registers of random kernels with
many pointers.
"""

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.effects import late_registers
from ptxmotion.analysis.memory.points_to import Pointees
from ptxmotion.ptx import Instr, Mem, Module, parse

from .random_pointers import pointer_kernel


class _OfAll(Pointees):
    """Analyzes all values."""

    def _make_addresses(self) -> bytearray:
        return bytearray(b"\1" * len(self.ssa.instr))


def _pointees(kind: type[Pointees], facts: Facts) -> Pointees:
    return kind(facts.kernel, facts.cfg, facts.ssa, late_registers(facts.kernel), 64)


def _instructions(module: Module) -> list[Instr]:
    return list(module.kernels[0].instructions())


@pytest.mark.parametrize("seed", range(40))
def test_answers_are_those_of_a_solution_over_all_values(seed: int) -> None:
    module = parse(pointer_kernel(seed, 60).ptx)
    facts = Facts(module.kernels[0], module)
    asked, whole = _pointees(Pointees, facts), _pointees(_OfAll, facts)
    addresses = [(instr, instr.address) for instr in _instructions(module) if instr.address is not None]
    for space in ("generic", "global", "shared"):
        for instr, address in addresses:
            assert asked.of_address(instr, address, space) == whole.of_address(instr, address, space), instr


def test_the_objects_of_any_register_are_known_while_the_code_is_unchanged() -> None:
    refused = 0
    for seed in range(10):
        module = parse(pointer_kernel(seed, 60).ptx)
        kernel = module.kernels[0]
        facts = Facts(kernel, module)
        asked, late, whole = _pointees(Pointees, facts), _pointees(Pointees, facts), _pointees(_OfAll, facts)
        reads = [(instr, Mem(reg)) for instr in _instructions(module) for reg in instr.uses() if reg.type.bits == 64]
        known = [whole.of_address(instr, address) for instr, address in reads]
        assert [asked.of_address(instr, address) for instr, address in reads] == known
        kernel.changed()
        found = [late.of_address(instr, address) for instr, address in reads]
        assert all(one in (None, other) for one, other in zip(found, known, strict=True))
        refused += found != known
    assert refused
