"""Tests of the divergence analysis: PTX files that contain the expected results as comments.

Every ``.ptx`` file in this folder is a test. Comments after an instruction are about this instruction:

    // DIVERGENT: %r3, branch     these may differ between the lanes of a warp
    // UNIFORM: %r3, address      these do not
    // WHY: branch diverges: …    the explanation of a divergent branch, as `Divergence.explain` words it

A register stands for the value that the instruction writes to it; if the instruction only reads it, for the value that
is read. ``branch`` is the branch itself, and ``address`` is the address that the instruction accesses. The other
comments are about the kernel that contains them:

    // BLOCK: 64, 4, 1            the block shape of the launch
    // LANES APART                lanes are not assumed to stay together
    // CDRND: s, L1, L2           the labels of the blocks in the control dependence region of non-divergence
    // LOOP EXIT: L1              the headers of the loops with a divergent exit
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.divergence.divergence import Divergence
from ptxmotion.ptx import Instr, Kernel, load

_NOTE = re.compile(
    r"//\s*(DIVERGENT|UNIFORM|WHY|BLOCK|LANES APART|CDRND|LOOP EXIT)(?::[ \t]*(.*?))?[ \t]*$", re.MULTILINE
)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".ptx":
        return None
    return cast("pytest.Collector", PtxFile.from_parent(parent, path=file_path))  # pyright: ignore[reportUnknownMemberType]


class PtxFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield cast("pytest.Item", DivergenceItem.from_parent(self, name="divergence"))  # pyright: ignore[reportUnknownMemberType]


class Disagreement(Exception):
    """The results of the analysis differ from the comments in a file."""


class DivergenceItem(pytest.Item):
    def runtest(self) -> None:
        text = self.path.read_text()
        module = load(str(self.path))
        wrong: list[str] = []
        checked = 0
        starts = [kernel.pos for kernel in module.kernels] + [len(text)]
        for kernel, start, end in zip(module.kernels, starts, starts[1:], strict=False):
            notes = [(m.start(), m.group(1), m.group(2) or "") for m in _NOTE.finditer(text, start, end)]
            checked += len(notes)
            wrong += _check(kernel, text, notes)
        if not checked:
            wrong.append("says nothing")
        if wrong:
            raise Disagreement("\n".join(wrong))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, Disagreement):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}"


def _check(kernel: Kernel, text: str, notes: list[tuple[int, str, str]]) -> Iterator[str]:
    settings = {kind: value for _, kind, value in notes}
    shape = None
    if "BLOCK" in settings:
        x, y, z = (int(part) for part in settings["BLOCK"].split(","))
        shape = (x, y, z)
    facts = Facts(kernel)
    found = Divergence(
        kernel,
        facts.cfg,
        facts.loops,
        facts.control_dependence,
        facts.ssa,
        shape=shape,
        are_lanes_together="LANES APART" not in settings,
    )
    for pos, kind, value in notes:
        line = text.count("\n", 0, pos) + 1
        if kind in ("CDRND", "LOOP EXIT"):
            have = _region(found) if kind == "CDRND" else _loops(found)
            if have != _words(value):
                yield f"line {line}: {kind} is {', '.join(sorted(have))}"
        elif kind not in ("BLOCK", "LANES APART"):
            instr = _before(kernel, text, pos)
            for problem in _check_instr(found, facts, instr, kind, value):
                yield f"line {line}: {instr.text} {problem}"


def _words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",")} - {""}


def _before(kernel: Kernel, text: str, pos: int) -> Instr:
    line_start = text.rfind("\n", 0, pos) + 1
    there = [instr for instr in kernel.instructions() if line_start <= instr.pos < pos]
    if not there:  # a comment on a separate line is about the instruction above
        return max((instr for instr in kernel.instructions() if instr.pos < pos), key=lambda instr: instr.pos)
    return there[-1]


def _region(found: Divergence) -> set[str]:
    return {
        block.label.text if block.label is not None else str(number)
        for number, block in enumerate(found.cfg.blocks)
        if found.cdrnd[number]
    }


def _loops(found: Divergence) -> set[str]:
    headers = [found.cfg.blocks[loop.header] for loop in found.loops.loops if found.has_divergent_exit(loop.index)]
    return {block.label.text for block in headers if block.label is not None}


def _check_instr(found: Divergence, facts: Facts, instr: Instr, kind: str, value: str) -> Iterator[str]:
    block = next(number for number, block in enumerate(facts.cfg.blocks) if instr in block.instrs)
    if kind == "WHY":
        if not found.is_divergent(block):
            yield "does not diverge"
        elif found.explain(block) != value:
            yield f"is explained by: {found.explain(block)}"
        return
    for name in sorted(_words(value)):
        if name == "branch":
            is_divergent = found.is_divergent(block)
        elif name == "address":
            is_divergent = found.is_address_divergent(instr)
        else:
            written = [reg for reg in instr.defs() if reg.text == name]
            read = [reg for reg in instr.uses() if reg.text == name]
            if not written and not read:
                yield f"has no {name}"
                continue
            bits = found.varying_result(instr, written[0]) if written else found.varying_read(instr, read[0])
            is_divergent = bits != 0
        if is_divergent != (kind == "DIVERGENT"):
            yield f"has {name} {'divergent' if is_divergent else 'uniform'}"
