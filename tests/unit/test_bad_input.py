"""Every kind of bad input gives one `PtxError` with the place, the line and a caret: no traceback, no endless loop."""

from pathlib import Path

import pytest
from bad_inputs import BAD_INPUTS, HEAD, BadInput, kernel
from ptxmotion.ptx import PtxError, load, parse
from ptxmotion.ptx.verify import verify


@pytest.mark.parametrize("case", BAD_INPUTS, ids=[case.name for case in BAD_INPUTS])
def test_is_refused_with_place_line_and_caret(case: BadInput, tmp_path: Path) -> None:
    path = tmp_path / "bad.ptx"
    path.write_bytes(case.data)
    with pytest.raises(PtxError) as caught:
        verify(load(str(path)))
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith(f"{path}:{case.place}")
    assert ": error: " in first
    assert case.message in first
    assert caret.strip() == "^"
    assert len(shown) < 200
    assert len(first) < len(str(path)) + 250


@pytest.mark.parametrize("cut", range(0, 600, 7))
def test_every_truncation_is_refused_or_whole(cut: int) -> None:
    text = kernel(
        ".reg .b32 %r<4>;\n.reg .pred %p<2>;\n.shared .align 4 .b8 s[64];\nmov.u32 %r1, %tid.x;\n"
        "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra DONE;\nst.shared.v2.u32 [s+8], {%r1, %r2};\nbar.sync 0;\n"
        '.pragma "nounroll";\nDONE:\n{ .reg .b32 %t; mov.b32 %t, 0f3F800000; }\nret;'
    )
    text = f"{HEAD}/* a */ .global .u32 a[2] = {{1, 2}};\n.func (.param .b32 r) f(.param .b32 a);\n{text[len(HEAD) :]}"
    part = text[:cut]
    try:
        verify(parse(part))
    except PtxError as error:
        assert error.pos >= 0
        assert str(error).count("\n") == 2
    else:
        # A text that is cut between two items is a valid module: its braces are balanced.
        assert part.count("{") == part.count("}")


def test_deep_but_balanced_scopes_are_no_fault() -> None:
    verify(parse(kernel("{" * 20_000 + "}" * 20_000 + "ret;")))
