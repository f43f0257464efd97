"""No pass changes which sums ptxas contracts, and the analysis predicts it. Machine code shows both."""

import random

import pytest
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.contraction import Contraction, role
from ptxmotion.judges import Assembled
from ptxmotion.ptx import parse, print_module
from ptxmotion.ptx.printer import print_kernel
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import ToolMissing, assemble, disassemble, find_tool
from ptxmotion.transforms.pipeline import run_passes
from random_contraction import constant_of, contraction_kernel, sums_in

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
#: The kernels of a share are in one module. Their constants must be different after they are rounded in machine code.
FIXED, SHARE = 75, 25
LISTS = ("cse", "O1", "scm:min_cost=0", "sscm:min_cost=0", "spre:min_cost=0", "ssrqp", "deadstores,dce", "O3")


def transformed(text: str, passes: str, reader: Assembled | None) -> str:
    module = parse(text)
    run_passes(module, passes, float_code=reader)
    return print_module(module)


def wrong_kinds(text: str, contracted: dict[tuple[str, str], set[str]]) -> list[tuple[str, str, str]]:
    """The sums for which ptxas does not do what the analysis claims, by kernel and constant, with the claim of the
    analysis. ptxas removes a sum that no thread executes, as one with the guard ``%p1`` in a block for ``!%p1``."""
    module = parse(text)
    wrong: list[tuple[str, str, str]] = []
    for kernel in module.kernels:
        found = Contraction.of(Facts(kernel, module))
        for instr in found.live:
            constant = constant_of(instr) if role(instr.form) == "sum" else None
            kinds = {found.products[product].kind for product in found.sources.get(instr, ())}
            if constant is None or not kinds <= {"rounded", "contracted"}:
                continue
            expected = "FFMA" if "contracted" in kinds else "FADD"
            if contracted.get((kernel.name, constant), {expected}) != {expected}:
                wrong.append((kernel.name, constant, expected))
    return wrong


class MachineSums:
    """The sums in the machine code of many kernels, from one run of ptxas and nvdisasm, which takes 0.2 seconds for any
    module.

    ``_names`` has, for each text of a kernel without its name, the name of the kernel in the module that is assembled.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._sums: dict[tuple[str, str], set[str]] = {}

    def add(self, text: str) -> dict[str, str]:
        """Add the kernels of a module. The result is the name under which each will be assembled."""
        names: dict[str, str] = {}
        for kernel in parse(text).kernels:
            body = print_kernel(kernel).replace(f" {kernel.name}(", " NAME(", 1)
            names[kernel.name] = self._names.setdefault(body, f"m{len(self._names)}")
        return names

    def read(self) -> None:
        """Assemble what was added."""
        kernels = (body.replace(" NAME(", f" {name}(", 1) for body, name in self._names.items())
        self._sums = sums_in(disassemble(assemble(HEAD + "\n".join(kernels)).cubin))

    def of(self, names: dict[str, str]) -> dict[tuple[str, str], set[str]]:
        """The opcodes of the sums of a module that was added, by its own names of kernels and by constant."""
        own = {assembled: name for name, assembled in names.items()}
        return {(own[name], constant): found for (name, constant), found in self._sums.items() if name in own}


def changed_sums(
    after: dict[tuple[str, str], set[str]], before: dict[tuple[str, str], set[str]]
) -> list[tuple[str, str]]:
    """The sums, by kernel and constant, that ptxas compiles to other opcodes than ``before``."""
    return [key for key, opcodes in after.items() if opcodes != before.get(key, opcodes)]


@pytest.mark.fuzz
def test_sums_are_contracted_as_before(seeds: list[int]) -> None:
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    kernels = [contraction_kernel(seed, f"k{number}", 0) for number, seed in enumerate(seeds)]
    text = HEAD + "".join(kernels)
    sums = MachineSums()
    original = sums.add(text)
    added: list[tuple[dict[str, str], tuple[str, object]]] = []
    reader = Assembled(PtxasJudge())
    share = seeds[0] // SHARE
    for passes in (LISTS[(3 * share + number) % len(LISTS)] for number in range(3)):
        for each in (None, reader):  # without and with comparison of machine code
            once = transformed(text, passes, each)
            added.append((sums.add(once), (passes, each is not None)))
        # A second run reads the products that the first one has rounded.
        second = random.Random(f"again:{seeds[0]}:{passes}").choice(LISTS)
        added.append((sums.add(transformed(once, second, None)), (passes, second)))
    sums.read()
    before = sums.of(original)
    assert before
    assert wrong_kinds(text, before) == [], seeds
    for names, what in added:
        changed = changed_sums(sums.of(names), before)
        assert [(seeds[int(kernel[1:])], constant) for kernel, constant in changed] == [], what
