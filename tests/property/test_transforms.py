"""Every pass on random programs, with the checks of `ladder`: no pass changes a bit of a program's results.

The programs are those of `random_programs`, half of them rewritten by `random_rewrites`. The seed of a program
determines its lists of passes, inputs and schedule. `make fuzz N=` uses N new programs.
"""

import contextlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ladder import Ladder, Launch, launch_of, reduced, run, shortest_failure
from ptxmotion.ptx import Kernel, PtxError, parse, print_module
from ptxmotion.transforms.passes import is_built_in, pass_names, passes_of
from random_programs import random_kernel
from random_rewrites import REWRITES, rewritten

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptx_run import Case, cases

#: Lists of passes that are checked by the ladder, one or two for each program.
LISTS = (
    "cse,copyprop,dce",
    "lcm:naming=lexical:min_cost=0",
    "lcm:naming=value:min_cost=0",
    "O1",
    "scm:min_cost=0:weights=uniform",
    "scm:min_cost=0",
    "spre:min_cost=0",
    "spre:min_cost=0:weights=uniform",
    "sscm:min_cost=0",
    "sscm:min_cost=0:weights=uniform",
    "O2",
    "deadstores",
    "earlyloads:distance=20",
    "vectormerge:aligned=16",
    "readonly,vectormerge:aligned=16,deadstores,sscm:min_cost=0",
    "srqp",
    "srqp:threshold=1:forwarding=false",
    "esrqp",
    "esrqp:paper=true",
    "ssrqp",
    "ssrqp:threshold=8:rounds=5:guarded=true",
    "ssrqp_s",
    "O3",
    "isp:least=1",
    "isp:least=1,motion,vectormerge:aligned=16,readonly,deadstores,copyprop,dce,emptyblocks",
)
#: Passes that must be correct in a random order with repetitions, too.
SHUFFLED = (
    *("cse", "copyprop", "dce", "emptyblocks", "lcm:min_cost=0", "scm:min_cost=0:lazy=false"),
    *("spre:min_cost=0:lazy=false", "sscm:min_cost=0", "lcm:naming=lexical:min_cost=0"),
    *("srqp", "esrqp", "ssrqp", "ssrqp_s"),
)
TWICE = "lcm,dce,emptyblocks,lcm,dce,emptyblocks"

SIZES = (5, 12, 20, 20, 35, 35, 60, 90)
ISSUES = sorted((Path(__file__).parents[1] / "ptx").glob("issue_*.ptx"))

#: Programs without --fuzz-n, and programs in one test case.
FIXED = 24
SHARE = 8


def drawn(seed: int, *, for_gpu: bool = False) -> tuple[str, Launch]:
    """The program of ``seed`` and how to launch it."""
    program = random_kernel(seed, SIZES[seed % len(SIZES)], for_gpu=for_gpu)
    return rewritten(program.ptx, seed) if seed % 2 else program.ptx, launch_of(program)


def chosen(rng: random.Random) -> Iterator[str]:
    """The lists of passes that a program is checked with."""
    yield rng.choice(LISTS)
    if rng.random() < 0.3:
        yield TWICE
    else:
        yield ",".join(rng.choice(SHUFFLED) for _ in range(rng.randint(2, 4)))


@pytest.mark.fuzz
def test_nothing_changes_but_the_code(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(f"passes:{seed}")
        ptx, launch = drawn(seed)
        ladder = Ladder(ptx, launch, (seed,))
        assert ladder.is_sound, seed
        assert ladder.divergence_faults() == [], seed
        for passes in chosen(rng):
            schedule = rng.choice(["order", "random"])
            assert ladder.faults(passes, schedule=schedule) == [], (seed, passes, schedule)


def test_every_pass_of_this_package_runs_over_random_programs() -> None:
    tested = [each for text in (*LISTS, *SHUFFLED) for each in passes_of(text)]
    assert {each.name for each in tested if is_built_in(each)} == {name for name in pass_names() if _is_own(name)}


def _is_own(name: str) -> bool:
    return is_built_in(passes_of(name)[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 24, 2))
def test_ptxas_accepts_transformed_programs(seed: int) -> None:
    ptx, launch = drawn(seed)
    ladder = Ladder(ptx, launch, (seed,))
    assert ladder.faults(random.Random(seed).choice(LISTS), ptxas=True) == []


@pytest.mark.parametrize("name", [*REWRITES, "merged", "typed"])
def test_rewrites_keep_what_a_program_computes(name: str) -> None:
    """Each rewrite changes the text. Only `vectors` changes what a program computes."""
    changed = 0
    for seed in range(4, 7):
        program = random_kernel(seed, 35)
        launch = launch_of(program)
        ptx = rewritten(program.ptx, seed, frozenset([name]))
        changed += print_module(parse(ptx)) != print_module(parse(rewritten(program.ptx, seed, frozenset())))
        before, after = run(program.ptx, launch, seed), run(ptx, launch, seed)
        assert (after.fault, after.details) == ("", []), seed
        if name != "vectors":
            for one, other in zip(before.arrays, after.arrays, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}")
    assert changed


def launch_of_case(case: Case) -> Launch:
    return Launch(case.kernel, case.grid, case.block, case.shared, lambda _: case.args())


@pytest.mark.parametrize("path", ISSUES, ids=lambda path: path.stem)
def test_what_was_wrong_once_is_right(path: Path) -> None:
    for case in cases(path.stem, folder=path.parent):
        ladder = Ladder(path.read_text(encoding="utf-8"), launch_of_case(case), (0,))
        assert ladder.is_sound
        for passes in LISTS:
            assert ladder.faults(passes) == [], passes


def with_one_entry(ptx: str, name: str) -> str:
    """The module without its other entries, which have cases of their own."""
    module = parse(ptx)
    module.items[:] = [
        each for each in module.items if not (isinstance(each, Kernel) and each.is_entry and each.name != name)
    ]
    return print_module(module)


#: Waits for another block in a loop. How many iterations it has, and so how often it evaluates, depends on timing.
SPINS = ("atomics.handoff",)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "case"), list(enumerate(cases())), ids=lambda value: getattr(value, "name", ""))
def test_kernels_of_tests_run(number: int, case: Case, pytestconfig: pytest.Config) -> None:
    """Each kernel with one list of passes; with ``--fuzz-n`` with all lists."""
    ptx = with_one_entry(case.file.read_text(encoding="utf-8"), case.kernel)
    ladder = Ladder(ptx, launch_of_case(case), (0,), budget=2_000_000)
    assert not ladder.fault
    for passes in LISTS if pytestconfig.getoption("--fuzz-n") else LISTS[number % len(LISTS) :][:1]:
        faults = ladder.faults(passes)
        if case.name in SPINS:
            faults = [each for each in faults if "not at most" not in each]
        assert faults == [], passes


# --- the ladder itself: each rung breaks under what it is for -----------------------------------------------------

PLANTED = """\
.version 8.8
.target sm_90
.address_size 64

.visible .entry k(
	.param .u64 p
)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<4>;
	.reg .b32 %r<5>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	mul.lo.u32 %r3, %r2, %r1;
	bar.sync 0;
	st.global.u32 [%rd3], %r3;
	ret;
}

"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("mul.lo.u32 %r3, %r2, %r1", "mul.lo.u32 %r3, %r2, %r2", "array 0"),
        ("%r3, %r2, %r1", "%r3, %r2, %r4", "new findings"),
        ("[%rd3];\n", "[%rd3+4096];\n", "fault"),
        ("\tbar.sync 0;\n", "", "sync ran"),
        ("\tst.global.u32 [%rd3], %r3;\n", 2 * "\tst.global.u32 [%rd3], %r3;\n", "global memory was written"),
        ("\tmul.lo.u32 %r3, %r2, %r1;\n", 2 * "\tmul.lo.u32 %r3, %r2, %r1;\n", "evaluations by threads"),
        ("\tld.global.u32 %r2, [%rd3];\n", 2 * "\tld.global.u32 %r2, [%rd3];\n", "ld.global ran"),
        ("%r3, %r2, %r1", "%r3, %r2, %rd1", "verify"),
        ("%r2, %r1;", "%r2, %r1", "parse"),
        ("mul.lo.u32 %r3, %r2, %r1;", "bra L;\nL:\n\tmul.lo.u32 %r3, %r2, %r1;", ""),
    ],
)
def test_the_ladder_notices(old: str, new: str, fault: str) -> None:
    launch = Launch("k", (1,), (32,), 0, lambda seed: [np.arange(seed, seed + 32, dtype=np.uint32)])
    ladder = Ladder(PLANTED, launch)
    assert ladder.is_sound
    after = PLANTED.replace(old, new)
    with contextlib.suppress(PtxError):
        after = print_module(parse(after))
    found = ladder.judge(after, frozenset(["lcm"]))
    assert any(fault in line for line in found) if fault else found == []


@pytest.mark.parametrize(("guard", "complaint"), [("lt", ""), ("ge", "global memory was written")])
def test_a_store_counts_where_its_guard_is_true(guard: str, complaint: str) -> None:
    """A pass may remove a store whose guard is false in all threads, as `isp` does for a block without a border."""
    launch = Launch("k", (1,), (32,), 0, lambda seed: [np.zeros(32, np.uint32)])
    with_store = f"\tsetp.{guard}.s32 %p0, %r1, 0;\n\t@%p0 st.global.u32 [%rd3], %r3;\n"
    without = with_store.splitlines(keepends=True)[0]
    before, after = (PLANTED.replace("\tbar.sync 0;\n", f"{each}\tbar.sync 0;\n") for each in (with_store, without))
    found = Ladder(before, launch).judge(print_module(parse(after)))
    assert any(complaint in line for line in found) if complaint else found == []


def test_a_failure_is_reduced() -> None:
    text = "".join(f"line {number}\n" for number in range(40))
    assert reduced(text, lambda shorter: "line 7\n" in shorter and "line 31\n" in shorter) == "line 7\nline 31\n"
    launch = Launch("k", (1,), (32,), 0, lambda seed: [np.zeros(32, np.uint32)])
    assert shortest_failure(PLANTED, launch, "O1", (0,)) == PLANTED
