"""Profiles: what the emulator writes, which profiles match a kernel, and how the analyses use them."""

from __future__ import annotations

import json
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.analysis import Facts
from ptxmotion.analysis.graph.block_weights import NEVER
from ptxmotion.analysis.profile import Profile, ProfileError
from ptxmotion.cli import main
from ptxmotion.emulator import Emulator
from ptxmotion.ptx import Kernel, Module, flatten_scopes, parse
from ptxmotion.ptx.digest import code_digest

HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n"
#: A loop with a divergent exit, a bounds check at which one of many warps diverges, and a guarded return.
KERNEL = """
.visible .entry k(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<9>;
    ld.param.u64 %d1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r4, %r3, 64, %r2;
    setp.ge.u32 %p1, %r4, %r1;
    @%p1 ret;
    and.b32 %r5, %r2, 3;
    mov.u32 %r6, 0;
LOOP:
    add.u32 %r6, %r6, 1;
    setp.le.u32 %p2, %r6, %r5;
    @%p2 bra LOOP;
    setp.eq.u32 %p3, %r1, 7;
    @%p3 bra RARE;
    bra.uni END;
RARE:
    mov.u32 %r6, 9;
END:
    mul.wide.u32 %d2, %r4, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r6;
    ret;
}
"""


def measured(text: str = KERNEL, *, blocks: int = 40, n: int = 2500) -> tuple[Module, dict[str, Any]]:
    module = parse(HEAD + text)
    x = np.zeros(blocks * 64, np.uint32)
    result = Emulator().load(module).launch("k", blocks, 64, [x, np.uint32(n)])
    return module, result.counts.profile()


def test_counts_by_place() -> None:
    _, document = measured()
    (entry,) = document["kernels"]
    assert (entry["name"], entry["launches"], len(entry["digest"])) == ("k", 1, 64)
    blocks = {block["at"]: (block["label"], block["warps"], block["threads"]) for block in entry["blocks"]}
    # 2500 of 2560 threads, so 79 of 80 warps, one of them with 4 lanes. They run up to four iterations.
    assert blocks[0] == (None, 80, 2560)
    assert blocks[9] == ("LOOP", 79 * 4, 2500 * 10 // 4)
    assert blocks[15] == ("RARE", 0, 0)
    branches = {branch["at"]: (branch["executed"], branch["diverged"]) for branch in entry["branches"]}
    assert branches == {6: (80, 1), 11: (79 * 4, 79 * 3), 13: (79, 0)}


def test_a_profile_fits_the_same_code_only() -> None:
    module, document = measured()
    profile = Profile.of(document)
    assert profile.match(parse(HEAD + KERNEL.replace("%r6", "%r16")).kernels[0]) == ""
    changed = parse(HEAD + KERNEL.replace("and.b32 %r5, %r2, 3", "and.b32 %r5, %r2, 1")).kernels[0]
    assert "measured of other code of 'k'" in profile.match(changed)
    assert profile.blocks(changed)[0] is None
    renamed = parse(HEAD + KERNEL.replace(".entry k", ".entry q")).kernels[0]
    assert "has no kernel 'q'" in profile.match(renamed)
    assert profile.blocks(module.kernels[0])[:2] == [80, 79]


def test_scopes_may_be_flattened_after_and_before() -> None:
    nested = KERNEL.replace("mov.u32 %r6, 9;", "{ .reg .b32 %r1; mov.u32 %r1, 9; mov.u32 %r6, %r1; }")
    module, document = measured(nested)
    before = code_digest(module.kernels[0])
    flatten_scopes(module.kernels[0])
    assert code_digest(module.kernels[0]) == before
    assert Profile.of(document).match(module.kernels[0]) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("setp.le.u32", "setp.lt.u32"),
        ("@%p3 bra", "@!%p3 bra"),
        ("@%p3 bra", "bra"),
        ("bra.uni END", "bra.uni LOOP"),
        ("[%d3]", "[%d3+4]"),
        ("[%d3]", "[%d2]"),
        ("mul.wide.u32 %d2, %r4, 4", "mul.wide.u32 %d2, %r5, 4"),
        ("    mov.u32 %r6, 9;\n", ""),
    ],
)
def test_what_changes_the_code_changes_the_digest(old: str, new: str) -> None:
    assert old in KERNEL
    first, second = (parse(HEAD + text).kernels[0] for text in (KERNEL, KERNEL.replace(old, new)))
    assert code_digest(first) != code_digest(second)


def test_names_and_comments_do_not() -> None:
    other = KERNEL.replace("LOOP", "L9").replace("%r6", "%q6").replace("ret;", "ret; // done\n", 1).replace("x]", "y]")
    other = other.replace(".param .u64 x", ".param .u64 y").replace("%r<20>;", "%r<20>, %q6;")
    assert code_digest(parse(HEAD + KERNEL).kernels[0]) == code_digest(parse(HEAD + other).kernels[0])


def weights(kernel: Kernel, profile: Profile | None) -> list[float]:
    facts = Facts(kernel, profile=profile)
    return [facts.block_weight(block) for block in range(len(facts.cfg))]


def test_weights_are_measured_or_estimated() -> None:
    module, document = measured()
    kernel = module.kernels[0]
    assert weights(kernel, None) == [1, 1, 8, 1, 1, 1, 1]
    found = weights(kernel, Profile.of(document))
    wanted = [1, 79 / 80, 79 * 4 / 80, 79 / 80, 79 / 80, NEVER, 79 / 80]
    assert all(isclose(one, other) for one, other in zip(found, wanted, strict=True)), found
    document["kernels"][0]["digest"] = "0" * 64
    assert weights(kernel, Profile.of(document)) == [1, 1, 8, 1, 1, 1, 1]


def test_measured_branches_are_expected_and_proofs_stay() -> None:
    module, document = measured()
    kernel = module.kernels[0]
    facts = Facts(kernel, module, profile=Profile.of(document))
    assert facts.divergence.divergent_branches == [0, 2]  # the branch on n is proved uniform
    expected = facts.expected_divergence
    assert expected.divergent_branches == [2]  # one of eighty warps diverges at the bounds check
    assert expected.measured(0) == (80, 1)
    assert expected.cdrnd == [True, True, False, True, True, True, True]
    assert not all(facts.divergence.cdrnd)
    assert facts.divergence.is_divergent(0)


def test_a_branch_that_was_not_executed_keeps_the_pessimistic_answer() -> None:
    module, document = measured(n=0)
    facts = Facts(module.kernels[0], profile=Profile.of(document))
    assert facts.expected_divergence.divergent_branches == [2]
    assert facts.expected_divergence.measured(2) is None


def test_what_was_matched_stays_so_while_the_kernel_changes() -> None:
    module, document = measured()
    kernel = module.kernels[0]
    facts = Facts(kernel, profile=Profile.of(document))
    kernel.set_instrs(kernel.blocks[3], kernel.blocks[3].instrs[1:])
    assert facts.block_weight(2) == 79 * 4 / 80
    assert facts.expected_divergence.divergent_branches == [2]


def test_several_launches_add_up() -> None:
    module = parse(HEAD + KERNEL)
    loaded = Emulator().load(module)
    x = np.zeros(64, np.uint32)
    counts = loaded.launch("k", 1, 64, [x, np.uint32(64)]).counts
    counts.add(loaded.launch("k", 1, 64, [x, np.uint32(32)]).counts)
    again = Emulator().load(HEAD + KERNEL).launch("k", 1, 64, [x, np.uint32(16)]).counts
    counts.add(again)  # the same code, parsed again
    (entry,) = counts.profile()["kernels"]
    assert entry["launches"] == 3
    assert entry["blocks"][0]["warps"] == 6
    assert entry["branches"][0] == {"at": 6, "text": "@%p1 ret;", "executed": 6, "diverged": 1}


Keys = tuple[str | int, ...]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "x", "its format is not"),
        (("schema_version",), 2, "schema_version is 2"),
        (("kernels", 0, "blocks"), None, "incomplete or wrong"),
        (("kernels", 0, "branches", 0, "diverged"), 1000, "diverged 1000 times in 80"),
        (("kernels", 0, "blocks", 0, "warps"), -1, "warps is -1"),
        (("kernels", 0, "blocks", 0, "warps"), True, "warps is True"),
        (("kernels", 0, "name"), 3, "are strings"),
    ],
)
def test_what_is_no_profile_is_refused(path: Keys, value: object, message: str) -> None:
    _, document = measured()
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ProfileError, match=message):
        Profile.of(document)


def write(tmp_path: Path) -> tuple[Path, Path]:
    source, saved = tmp_path / "k.ptx", tmp_path / "k.profile"
    source.write_text(HEAD + KERNEL)
    words = ["--grid", "40", "--block", "64", "--arg", "u32[2560]", "--arg", "u32:2500", "--counts", "none"]
    assert main(["emulate", str(source), *words, "--profile", str(saved)]) == 0
    return source, saved


def test_the_command_line_writes_and_reads_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, saved = write(tmp_path)
    assert json.loads(saved.read_text())["kernels"][0]["blocks"][0]["warps"] == 80
    assert main(["opt", str(source), "--profile", str(saved), "--passes=sscm", "-o", str(tmp_path / "o.ptx")]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_stale_profile_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, saved = write(tmp_path)
    source.write_text(HEAD + KERNEL.replace("%r2, 3", "%r2, 7"))
    assert main(["opt", str(source), "--profile", str(saved)]) == 3
    assert "measured of other code of 'k', and no other kernel here matches either" in capsys.readouterr().err
    source.write_text(HEAD + KERNEL.replace("%r2, 3", "%r2, 7") + KERNEL.replace("entry k", "entry l"))
    document = json.loads(saved.read_text())
    document["kernels"].append({**document["kernels"][0], "name": "l"})
    saved.write_text(json.dumps(document))
    assert main(["opt", str(source), "--profile", str(saved), "-o", str(tmp_path / "o.ptx")]) == 0
    assert "measured of other code of 'k': the profile of this kernel is ignored" in capsys.readouterr().err
    for text in ("{", "[" * 100_000):
        saved.write_text(text)
        assert main(["opt", str(source), "--profile", str(saved)]) == 3
        assert "no profile" in capsys.readouterr().err
    assert main(["opt", str(source), "--profile", str(tmp_path / "none")]) == 3


RACE = """
.visible .entry k(.param .u64 x)
{
    .reg .b32 %r<9>; .reg .b64 %d<9>;
    ld.param.u64 %d1, [x];
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    st.global.u32 [%d1], %r2;
    atom.global.add.u32 %r3, [%d1+4], 1;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d3, %d1, %d2;
    st.global.u32 [%d3+8], %r3;
    ret;
}
"""


def test_warps_in_random_order_keep_their_lanes_together() -> None:
    loaded = Emulator().load(HEAD + RACE)
    last: set[int] = set()
    for seed in range(12):
        x = np.zeros(2 + 256, np.uint32)
        loaded.launch("k", 1, 256, [x], schedule="warps", seed=seed, checks=False)
        last.add(int(x[0]))
        tickets = x[2:].reshape(8, 32)
        assert (np.sort(tickets.reshape(-1)) == np.arange(256)).all()
        assert all(np.ptp(row) == 31 for row in tickets)  # the lanes of a warp ran one after the other
    assert len(last) > 2  # another warp was the last to write


#: Figure 4.6 of the thesis: whole warps diverge at the branches at N4 and N6. Blocks of one thread never do.
FIGURE = """
.visible .entry k(.param .u32 n, .param .u64 a)
{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<3>;
    ld.param.u32 %r1, [n];
    ld.param.u64 %d1, [a];
    mov.u32 %r2, %tid.x;
    mov.u32 %r4, 0;
    setp.eq.u32 %p1, %r1, 0;
    and.b32 %r3, %r2, 1;
    setp.eq.u32 %p2, %r3, 0;
    bra.uni N1;
N1:
    @%p1 bra N6;
    bra.uni N4;
N3:
    add.u32 %r4, %r1, %r2;
    bra.uni N10;
N4:
    @%p2 bra N3;
    bra.uni N10;
N6:
    @%p2 bra N8;
    add.u32 %r4, %r1, %r2;
    bra.uni N10;
N8:
    add.u32 %r4, %r1, %r2;
N10:
    st.global.u32 [%d1], %r4;
    ret;
}
"""


def test_what_was_measured_decides_where_sscm_speculates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "k.ptx"
    source.write_text(HEAD + FIGURE)
    printed: list[str] = []
    for threads in (0, 32, 1):  # 0: without a profile
        words = [
            "opt",
            str(source),
            "--passes=sscm:min_cost=0",
            "--gate=off",
            "--remarks",
            "-o",
            str(tmp_path / "o.ptx"),
        ]
        if threads:
            saved = tmp_path / f"{threads}.profile"
            launch = ["--block", str(threads), "--arg", "u32:1", "--arg", "u32[4]", "--no-checks", "--counts", "none"]
            assert main(["emulate", str(source), *launch, "--profile", str(saved)]) == 0
            words += ["--profile", str(saved)]
        assert main(words) == 0
        printed.append(capsys.readouterr().err)
    assert "evaluated at N1 instead of at" in printed[0]
    assert printed[1] == printed[0]  # a warp does diverge
    assert "evaluated at N1 instead of at" not in printed[2]
