"""Entries that are duplicated under other names become what they would be if the passes ran on each of them.

The programs are the PTX files of `tests/ptx` and random programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ptxmotion.driver import optimize_module
from ptxmotion.ptx import Directive, Instr, Kernel, PtxError, flatten_scopes, parse, print_kernel, print_module
from ptxmotion.ptx.correspondence import Correspondence
from ptxmotion.ptx.verify import verify
from ptxmotion.transforms.equal_kernels import EqualKernels
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import KernelTransform
from ptxmotion.transforms.remarks import Remarks
from random_programs import random_kernel
from random_rewrites import rewritten

FILES = sorted((Path(__file__).parents[1] / "ptx").rglob("*.ptx"))

#: Random programs without --fuzz-n.
FIXED = 24
SHARE = 4
SIZES = (5, 20, 35, 60)

_WORD = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")


def doubled(text: str, name: str) -> str | None:
    """The text with each entry twice, with different names; `None` if there is no entry, or if the text is not valid
    PTX."""
    try:
        module = parse(text, name)
        verify(module)
    except PtxError:
        return None
    text = print_module(module)
    for entry in module.entries:
        shown = print_kernel(entry)
        text = text.replace(shown, "\n".join(renamed(entry, shown, suffix) for suffix in ("_1", "_2")))
    return text if module.entries else None


def renamed(kernel: Kernel, text: str, suffix: str) -> str:
    """The text of the kernel with a suffix at the names of the kernel, its parameters, labels and objects."""
    own = {kernel.name, *(each.name for each in kernel.params or ()), *(each.name for each in kernel.variables)}
    own.update(block.label.text for block in kernel.blocks if block.label is not None)
    return _WORD.sub(lambda word: word[0] + suffix if word[0] in own else word[0], text)


def outcome(text: str, passes: str) -> object:
    module = parse(text, "a.ptx")
    remarks = Remarks(module)
    changed = optimize_module(module, module.kernels, KernelTransform(passes_of(passes)), None, remarks)
    verify(module)
    places = [instr.pos for kernel in module.kernels for instr in _all(kernel)]
    return print_module(module), remarks.items, remarks.counts, remarks.rewrites, places, changed


def _all(kernel: Kernel) -> Iterator[Instr]:
    return (instr for block in kernel.blocks for instr in block.instrs)


def check(text: str, passes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(text, passes)
    with monkeypatch.context() as patched:
        patched.setattr(EqualKernels, "find", lambda *_: None)  # pyright: ignore
        assert found == outcome(text, passes)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_with_doubled_entries_are_transformed_equally(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = doubled(path.read_text(encoding="utf-8"), path.name)
    if text is None or re.search(r"\.(alias|section)\b", text):
        pytest.skip("no entry that can be doubled")
    check(text, "O3", monkeypatch)


def test_doubled_random_programs(seeds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        program = random_kernel(seed, SIZES[seed % len(SIZES)])
        text = doubled(rewritten(program.ptx, seed) if seed % 2 else program.ptx, "a.ptx")
        assert text is not None
        given, again = parse(text).entries
        for kernel in (given, again):
            flatten_scopes(kernel)
        has_labelled = any(isinstance(each, Directive) and each.label is not None for each in _all(given))
        assert (Correspondence.of(given, again) is None) == has_labelled
        check(text, "O3" if seed % 3 else "lcm:min_cost=0,ssrqp", monkeypatch)
