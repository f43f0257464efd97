"""Random kernels with instructions that order memory: no load or store is moved across one or removed because of one.

A kernel is a sequence of *regions*, between which such instructions stand. They come from the lists of
`test_adversarial_synchronization` and from the rows of the opcode table with every modifier of memory order
(`test_table_synchronization`), so that every family is drawn. Half of the kernels have a loop around some regions. Most
of these instructions cannot run on the emulator, so the check is about the text. Every kernel writes global and shared
memory, since memory that no thread writes stays the same:

- a region accesses the same bytes as before, or fewer;
- what a region loads before it has stored it is still loaded there;
- each place to which it stores is still stored to there;
- nothing is read-only memory in a kernel with an instruction that orders accesses of other grids.

Another test is about the emulator: the lanes of a warp go through random *meetings*, each at an instruction with a
membermask, in one order for all. So none waits forever, in any schedule, and the results are known.
"""

from __future__ import annotations

import random
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ladder import transformed
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.analysis.memory.touched_memory import is_with_outside
from ptxmotion.emulator import Emulator
from ptxmotion.emulator.schedule import SCHEDULES
from ptxmotion.ptx import parse, print_module

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from test_adversarial_synchronization import BEHIND, OUTSIDE, WITHIN
from test_table_synchronization import STRONG, candidates

#: Programs without --fuzz-n, and programs in one test case.
FIXED, SHARE = 48, 12
LISTS = (
    "lcm:min_cost=0",
    "lcm:naming=lexical:min_cost=0",
    "scm:min_cost=0",
    "sscm:min_cost=0",
    "spre:min_cost=0:lazy=false",
    "srqp",
    "ssrqp",
    "ssrqp_s",
    "cse,copyprop",
    "deadstores,lcm:min_cost=0",
    "vectormerge:aligned=16",
    "O2",
    "O3",
)
#: Lists for the promise that the buffers of the parameters are apart.
APART = ("readonly", "readonly,vectormerge:aligned=16", "ssrqp_s", "deadstores", "O3")
RESTRICT = Promise.parse("restrict")

_HEAD = """\
.version 8.8
.target sm_90
.address_size 64
.shared .align 16 .b8 s[256];
.shared .align 8 .b64 mb;
.visible .entry k(.param .u64 a, .param .u64 o)
{
	.reg .pred %p<10>;
	.reg .b16 %h<2>;
	.reg .b32 %r<40>;
	.reg .b32 %v<400>;
	.reg .b64 %rd<40>;
	.reg .b128 %q<2>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [o];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	setp.gt.u32 %p1, %r1, 40;
	mov.u32 %r31, s;
	mov.u32 %r32, mb;
	shl.b32 %r33, %r1, 2;
	add.u32 %r34, %r31, %r33;
	mov.u32 %r20, 0;
	mov.u32 %r21, 0;
"""
#: Addresses of words. Those of the second group have other bases and may be the same words.
_PLACES = {
    "global": ("%rd4", "%rd4+4", "%rd4+8", "%rd5", "%rd5+4", "%rd2+16"),
    "shared": ("%r34", "%r34+4", "s+64", "s+68", "s+128"),
}
_ACCESS = re.compile(r"(ld|st)\.(global|shared)(\.nc)?(?:\.v(\d))?\.u32 (.*);")
_MARK = re.compile(r'\.pragma "region (\d+)";')


@cache
def synchronizing() -> tuple[tuple[str, ...], ...]:
    """Families of instructions that order memory. One of a family is drawn as often as one of another."""
    drawn: dict[str, list[str]] = {}
    for word in STRONG:
        for scope in ("sys", "gpu", "cta", ""):
            for row, text in candidates(word, scope):
                drawn.setdefault(row.name, []).append(text)
    listed = [*WITHIN, *OUTSIDE, *BEHIND]
    return (*map(tuple, drawn.values()), *((line,) for line in listed if not line.startswith("@")))


@dataclass
class Region:
    """What a region does: the words that it loads before it has stored them, all words that it loads, and those that it
    stores. A word is its state space and address."""

    first_loads: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    loads: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    stores: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    is_read_only: bool = False


class _Kernel:
    """The text of a random kernel."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"synchronization:{seed}")
        self.lines: list[str] = []
        self.values = 0
        self.region = 0

    def text(self) -> str:
        rng = self.rng
        self._mark()
        self.lines += ["st.global.u32 [%rd5], 11;", "st.shared.u32 [%r34], 12;"]
        self._accesses()
        regions = rng.randint(2, 6)
        # The loop begins and ends with such an instruction, so that its regions are the same in each iteration.
        first, last = sorted((rng.randrange(regions), rng.randrange(regions))) if rng.random() < 0.5 else (-1, -1)
        for number in range(regions):
            if number == first:
                self.lines.append("HEAD:")
            self._order()
            self._accesses()
            if number == last:
                self._order()
                self.lines += ["add.u32 %r21, %r21, 1;", "setp.lt.u32 %p3, %r21, 4;", "@%p3 bra HEAD;"]
                self._order()
        self.lines += ["st.volatile.global.u32 [%rd2+64], %r20;", "ret;"]
        return _HEAD + "".join(f"\t{line}\n" for line in self.lines) + "}\n"

    def _mark(self) -> None:
        self.lines.append(f'.pragma "region {self.region}";')
        self.region += 1

    def _order(self) -> None:
        """One or two instructions, and the mark of the next region. A label in them gets a name of its own."""
        for _ in range(1 + (self.rng.random() < 0.2)):
            text = self.rng.choice(self.rng.choice(synchronizing()))
            if "W:" not in text and self.rng.random() < 0.1:
                text = f"@{self.rng.choice(['', '!'])}%p1 {text}"
            self.lines.append(re.sub(r"\bW\b", f"W{len(self.lines)}", text))
        self._mark()

    def _accesses(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 6)):
            space = rng.choice(["global", "shared"])
            place = rng.choice(_PLACES[space])
            if rng.random() < 0.65:
                value = f"%v{self.values}"
                self.values += 1
                self.lines += [f"ld.{space}.u32 {value}, [{place}];", f"mad.lo.u32 %r20, %r20, 3, {value};"]
            else:
                self.lines.append(f"st.{space}.u32 [{place}], {rng.choice(['%r20', '%r1', str(rng.randrange(99))])};")


def regions_of(ptx: str) -> list[Region]:
    """The regions of a kernel, in the order of the text; the first is what precedes all marks. Instructions that order
    memory have other modifiers than these accesses."""
    found = [Region()]
    for line in ptx.splitlines():
        if _MARK.search(line):
            found.append(Region())
        match = _ACCESS.fullmatch(line.strip())
        if match is None:
            continue
        what, space, read_only, lanes, operands = match.groups()
        region = found[-1]
        region.is_read_only |= bool(read_only)
        address = re.search(r"\[([^\]]*)\]", operands)
        assert address is not None
        words = [(space, each) for each in _words(address[1], int(lanes or 1))]
        if what == "ld":
            region.first_loads |= set(words) - region.stores
            region.loads |= set(words)
        else:
            region.stores |= set(words)
    return found


def _words(address: str, lanes: int) -> list[str]:
    base, _, offset = address.partition("+")
    places = [int(offset or 0) + 4 * lane for lane in range(lanes)]
    return [f"{base}+{place}" for place in places]


def faults(before: list[Region], after: list[Region], *, has_read_only: bool = False) -> list[str]:
    """What moved between regions, or is missing. ``has_read_only``: some global memory stays the same while the kernel
    runs, so loads from global memory may move."""
    if len(before) != len(after):
        return [f"{len(after)} regions, not {len(before)}"]

    def counted(words: set[tuple[str, str]]) -> list[tuple[str, str]]:
        return sorted(word for word in words if word[0] == "shared" or not has_read_only)

    found: list[str] = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        found += [f"region {number}: {what} is not loaded" for what in counted(old.first_loads - new.loads)]
        found += [f"region {number}: {what} is loaded" for what in counted(new.loads - old.loads)]
        found += [f"region {number}: {what} is stored" for what in sorted(new.stores - old.stores)]
        found += [f"region {number}: {what} is not stored" for what in sorted(old.stores - new.stores)]
    return found


def has_outside(ptx: str) -> bool:
    return any(is_with_outside(instr.form) for instr in parse(ptx).kernel("k").instructions())


@pytest.mark.fuzz
def test_nothing_crosses_an_instruction_that_orders_memory(seeds: list[int]) -> None:
    for seed in seeds:
        ptx = _Kernel(seed).text()
        rng = random.Random(f"passes:{seed}")
        before = regions_of(print_module(parse(ptx)))
        for passes in rng.sample(LISTS, 2):
            after = regions_of(print_module(transformed(ptx, passes, CONSERVATIVE)))
            assert faults(before, after) == [], (seed, passes)
        passes = rng.choice(APART)
        outside = has_outside(ptx)
        after = regions_of(print_module(transformed(ptx, passes, RESTRICT)))
        assert faults(before, after, has_read_only=not outside) == [], (seed, passes, "restrict")
        assert not (outside and any(region.is_read_only for region in after)), (seed, passes)


def test_every_family_is_drawn() -> None:
    texts = [text for family in synchronizing() for text in family]
    words = {text.split()[0].split(".")[0].lstrip("@!") for text in texts}
    assert words >= {"ld", "st", "atom", "red", "fence", "membar", "bar", "barrier", "multimem", "mbarrier", "cp"}
    assert words >= {"griddepcontrol"}
    assert len(texts) > 200


def test_the_regions_of_plain_kernels_do_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: without instructions that order memory, loads and stores leave their regions."""
    monkeypatch.setattr(sys.modules[__name__], "synchronizing", lambda: (("add.u32 %r30, %r1, 1;",),))
    noticed = 0
    for seed in range(20):
        ptx = _Kernel(seed).text()
        before = regions_of(print_module(parse(ptx)))
        for passes in ("srqp", "deadstores"):
            after = regions_of(print_module(transformed(ptx, passes, CONSERVATIVE)))
            noticed += bool(faults(before, after))
    assert noticed > 10


# --- meetings of lanes -----------------------------------------------------------------------------------------------

#: A lane reads the words of its meetings: the number of the instruction, the membermask, a value, and two offsets in
#: shared memory. It stores the value at the first one. It writes a result; at `bar.warp.sync`, what is at the second.
MEETINGS = """\
.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 o)
{
	.reg .pred %p, %q;
	.reg .b32 %t, %w, %m, %v, %r, %x, %y;
	.reg .b64 %a, %o, %d;
	ld.param.u64 %a, [a]; ld.param.u64 %o, [o];
	.shared .b32 s[512];
	mov.u32 %t, %tid.x;
	mul.wide.u32 %d, %t, BYTES; add.u64 %a, %a, %d; add.u64 %o, %o, %d;
NEXT:
	ld.global.u32 %w, [%a]; ld.global.u32 %m, [%a+4]; ld.global.u32 %v, [%a+8];
	ld.global.u32 %x, [%a+12]; ld.global.u32 %y, [%a+16];
	setp.eq.u32 %p, %w, 99;
	LEAVE
	mov.u32 %r, s; add.u32 %x, %r, %x; add.u32 %y, %r, %y; st.shared.u32 [%x], %v;
	and.b32 %r, %v, 1; setp.ne.u32 %q, %r, 0; mov.u32 %r, 0;
	TABLE: .branchtargets A, B, C, D, E, F, G;
	brx.idx %w, TABLE;
A: vote.sync.ballot.b32 %r, %q, %m; bra DONE;
B: redux.sync.add.u32 %r, %v, %m; bra DONE;
C: match.any.sync.b32 %r, %v, %m; bra DONE;
D: shfl.sync.bfly.b32 %r, %v, 3, 31, %m; bra DONE;
E: elect.sync %r|%p, %m; bra DONE;
F: bar.warp.sync %m; ld.shared.u32 %r, [%y]; bra DONE;
G: bar.warp.sync %m; ld.shared.u32 %r, [%y]; add.u32 %r, %r, 1; bra DONE;
DONE:
	st.global.u32 [%o], %r; add.u64 %a, %a, 20; add.u64 %o, %o, 20;
	bra NEXT;
END: ret;
}
"""


def _meetings(rng: random.Random, lanes: int) -> list[list[tuple[list[int], int]]]:
    """For each lane its meetings: the words of each, and the result."""
    of_lane: list[list[tuple[list[int], int]]] = [[] for _ in range(lanes)]
    left = list(range(lanes))
    for number in range(rng.randint(3, 14)):
        if len(left) > 2 and rng.random() < 0.2:
            left.remove(rng.choice(left))  # has no further meeting; a membermask may still name it
        here = sorted(rng.sample(left, rng.randint(1, len(left))))
        mask = sum(1 << lane for lane in here)
        mask |= sum(1 << lane for lane in range(lanes) if lane not in left and rng.random() < 0.3)
        value = {lane: rng.randrange(4) for lane in here}
        what = rng.randrange(7)
        for lane in here:
            same = sum(1 << other for other in here if value[other] == value[lane])
            results = (
                sum((value[other] & 1) << other for other in here),
                sum(value.values()),
                same,
                value.get(lane ^ 3, value[lane]),
                here[0],
                value[here[-1]],
                value[here[-1]] + 1,
            )
            # Lanes meet at two `bar.warp.sync`, too.
            place = rng.choice((5, 6)) if what >= 5 else what
            offsets = [4 * (number * 32 + each) for each in (lane, here[-1])]
            of_lane[lane].append(([place, mask, value[lane], *offsets], results[place]))
    return of_lane


@pytest.mark.fuzz
def test_lanes_meet_those_of_their_membermask(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(f"meetings:{seed}")
        lanes = rng.choice((2, 3, 4, 8, 31, 32))
        of_lane = _meetings(rng, lanes)
        most = 5 * (max(map(len, of_lane)) + 1)
        told, expected, out = (np.zeros((lanes, most), np.uint32) for _ in range(3))
        for lane, meetings in enumerate(of_lane):
            words = [word for words, _ in meetings for word in words] + [99]
            told[lane, : len(words)] = words
            expected[lane, : 5 * len(meetings) : 5] = [result for _, result in meetings]
        leave = rng.choice(("@%p bra END;", "@%p exit;"))
        text = MEETINGS.replace("BYTES", str(4 * most)).replace("LEAVE", leave)
        schedule = rng.choice(SCHEDULES)
        result = Emulator(budget=100_000).load(text).launch("k", 1, lanes, [told, out], schedule=schedule, seed=seed)
        assert out.tolist() == expected.tolist(), (seed, schedule)
        # `shfl` may name a lane that is not at the meeting. The emulator then gives the lane's own value.
        assert {each.kind for each in result.findings} <= {"absent-lane"}, (seed, schedule)
