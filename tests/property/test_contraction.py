"""No pass changes which sums ptxas contracts. The machine code shows it, for random kernels of products and sums."""

import random

import pytest
from ptxmotion.ptx import parse, print_module
from ptxmotion.toolchain.tools import ToolMissing, assemble, disassemble, find_tool
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks
from random_contraction import contraction_kernel, sums_in

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
#: Kernels of one module. Their constants must differ from each other by more than machine code rounds.
TOGETHER = 25
FIXED = 4
LISTS = ("cse", "O1", "scm:min_cost=0", "sscm:min_cost=0", "spre:min_cost=0", "ssrqp", "deadstores,dce", "O3")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        count = int(metafunc.config.getoption("--fuzz-n") or 0)
        metafunc.parametrize("share", range(max(1, -(-count // TOGETHER)) if count else FIXED))


def transformed(text: str, passes: str) -> tuple[str, Remarks]:
    module = parse(text)
    remarks = Remarks(module)
    run_passes(module, passes, remarks)
    return print_module(module), remarks


@pytest.mark.fuzz
def test_sums_are_contracted_as_before(share: int, pytestconfig: pytest.Config) -> None:
    try:
        for tool in ("ptxas", "nvdisasm"):
            find_tool(tool)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    start = random.randrange(1 << 40) if pytestconfig.getoption("--fuzz-n") else share * TOGETHER
    kernels = [contraction_kernel(start + number, f"k{number}", 0) for number in range(TOGETHER)]
    text = HEAD + "".join(kernels)
    before = sums_in(disassemble(assemble(text).cubin))
    assert before
    for passes in LISTS if share == 0 else random.Random(f"lists:{start}").sample(LISTS, 3):
        after = sums_in(disassemble(assemble(transformed(text, passes)[0]).cubin))
        for key, opcodes in after.items():
            assert opcodes == before.get(key, opcodes), (start, passes, key)
