"""The page of opcodes in the docs agrees with the table."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(DOCS / "opcode_page.py"))["page"]()
    assert (DOCS / "opcodes.md").read_text(encoding="utf-8") == made, "run: python docs/opcode_page.py"
