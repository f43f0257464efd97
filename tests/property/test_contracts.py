"""What a contract says is true of every launch on the emulator.

- *Ranges*: where the needs of an access range hold, all bytes that the access touches are in the range. Memory exists
  at every address, so that wrapped addresses are seen.
- *Versions*: a version whose conditions hold computes the same as the kernel, bit for bit, and has no finding that the
  kernel does not have. Allocations end exactly at their last byte.

- *Programs*: the programs of the suites give the same outputs when every launch takes the first version that it may.

The counts of launches that were refused although the bytes that they access are disjoint are printed with ``-s``.
`--fuzz-n=N` uses N new kernels, each with several launches.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from contract_oracle import Device, Done
from contract_suites import differences_under_contract
from ptxmotion import Policy, optimize
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.memory.access_ranges import AccessRange, AccessRanges
from ptxmotion.contract import Condition, Contract, Disjoint, Holds, Launch, Range, Undecidable, holds, loads
from ptxmotion.emulator.trace import SPACES
from ptxmotion.ptx import Instr, Param, flatten_scopes, parse
from ptxmotion.suites.registry import benchmarks, find
from ptxmotion.versions import inside, search
from random_affine_kernels import POINTERS, RandomContract, RandomLaunch, fitted, random_contract, random_launch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from caching_judges import RefusesOnce, Remembers
from suite_programs import compiled

SHARE = 10
FIXED = 60
LAUNCHES = 5
#: The passes behind those that hoist loads, with and without code motion.
PASSES = ("O3", "vectormerge,readonly,deadstores,copyprop,dce,emptyblocks")
#: Programs of the suites that take a second or so.
QUICK = ("rodinia/gaussian", "rodinia/pathfinder", "parboil/histo")
#: How often kernels have adjacent loads in the tests of vector loads.
MANY = 30
#: The widest window for which allocations are made that fit.
WIDEST = 1 << 16


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "program" in metafunc.fixturenames:
        every = [each.fullname for each in benchmarks()]
        metafunc.parametrize("program", every if metafunc.config.getoption("--fuzz-n") else QUICK)


@dataclass
class Tally:
    """What was seen: accesses with a range, launches in which its needs hold; launches of versions."""

    counts: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))


# --- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
def test_accesses_are_in_their_ranges(seeds: list[int]) -> None:
    tally = Tally()
    for seed in seeds:
        assert outside_of_ranges(seed, tally) == [], seed
    assert tally.counts.get("in force", 0), "no range was in force"
    print(tally)


def outside_of_ranges(seed: int, tally: Tally) -> list[str]:
    """The accesses outside of their ranges, over some launches of the kernel of ``seed``."""
    kernel = random_contract(seed)
    module = parse(kernel.ptx)
    entry = module.kernel("k")
    flatten_scopes(entry)
    ranges = Facts(entry, module).get(AccessRanges)
    found: dict[int, tuple[Instr, AccessRange]] = {}
    for instr in entry.instructions():
        known = ranges.of(instr)
        tally.add("accesses", instr.form.space == "global")
        if known is not None:
            tally.add("with a range")
            found[module.source.line_column(instr.pos)[0]] = (instr, known)
    device = Device(kernel.ptx, sparse=True)
    wrong: list[str] = []
    for number in range(LAUNCHES):
        launch = random_launch(kernel, 1000 * seed + number)
        done = device.run("k", launch, seed, trace=True)
        if done.rows is None:
            tally.add("endless")
            continue
        rows = done.rows[done.rows["space"] == SPACES.index("global")]
        for line, (instr, known) in found.items():
            mine = rows[rows["instruction"] == line]
            if not is_in_force(known, done.launch):
                tally.add("not in force")
                continue
            tally.add("in force")
            wrong += outside(instr, known, done, mine, tally)
    return wrong


def is_in_force(known: AccessRange, launch: Launch) -> bool:
    return all(holds(Holds(need), launch) for need in known.needs)


def outside(instr: Instr, known: AccessRange, done: Done, rows: object, tally: Tally) -> list[str]:
    """Describes an access outside of its range; empty if there is none."""
    try:
        first, last = Range(known.pointer, known.start, known.stop).addresses(done.launch)
    except Undecidable:
        return []
    starts = [int(each) for each in rows["address"]]  # type: ignore[index]
    ends = [start + int(size) for start, size in zip(starts, rows["bytes"], strict=True)]  # type: ignore[index]
    if not starts:
        return []
    tally.add("exact" if min(starts) == first and max(ends) == last else "wider")
    if first <= min(starts) and max(ends) <= last:
        return []
    pointer = done.launch.pointer(known.pointer)
    seen = f"[{min(starts) - pointer}, {max(ends) - pointer})"
    return [f"{instr.text}: {seen} is not in [{known.start}, {known.stop}) = [{first - pointer}, {last - pointer})"]


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_programs_compute_the_same_under_their_contracts(program: str) -> None:
    """The quick ones; with ``--fuzz-n`` all."""
    found, taken = differences_under_contract(find(program), compiled(program))
    print(program, dict(taken))
    assert found == []
    assert program not in QUICK or any(taken.keys() - {""}), "no launch took a version"


#: Whether a condition holds. A test replaces it.
are_met = holds


# --- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
def test_versions_compute_the_same(seeds: list[int]) -> None:
    tally = Tally()
    for seed in seeds:
        assert wrong_versions(seed, tally, MANY if seed % 4 == 0 else 3) == [], seed
    assert tally.counts.get("versions", 0), "no kernel had a version"
    print(tally)


@pytest.mark.fuzz
def test_outcomes_in_the_cache_promise_nothing(seeds: list[int]) -> None:
    """A run without a contract gives the same if a run with a contract has filled the cache of its judge before, also
    if the judge could not judge the kernel then."""
    for seed in seeds[::2]:  # five optimizations each
        ptx = random_contract(seed, MANY).ptx
        alone = optimize(ptx, "O3", Policy(judge=Remembers())).text
        for judge in (Remembers(), RefusesOnce()):
            optimize(ptx, "O3", Policy(contract=True, judge=judge))
            assert optimize(ptx, "O3", Policy(judge=judge)).text == alone, seed


def wrong_versions(seed: int, tally: Tally, adjacents: int = 3) -> list[str]:
    """The versions of the kernel of ``seed`` that compute something else in a launch for which their conditions
    hold. ``adjacents``: how often the kernel has loads that follow each other."""
    kernel = random_contract(seed, adjacents)
    result = optimize(kernel.ptx, PASSES[seed % 4 == 3], Policy(gate="off", contract=True))
    assert result.contract is not None and result.contract.matches(result.text)
    assert loads(result.contract.dumps()) == result.contract
    versions = result.contract.kernels["k"].versions
    tally.add("kernels")
    if len(versions) == 1:
        return []
    tally.add("versions")
    before, after, mapped = Device(kernel.ptx), Device(result.text), Device(kernel.ptx, sparse=True)
    wrong: list[str] = []
    for number in range(LAUNCHES):
        launch = fitting_launch(mapped, kernel, 1000 * seed + number)
        given = before.run("k", launch, seed, trace=True)
        if given.fault or "race" in given.kinds:
            tally.add("faults or races")
            continue
        plain = after.run("k", launch, seed)
        wrong += fault("k", given, plain)
        taken = [each for each in versions[:-1] if all(are_met(one, plain.launch) for one in each.requires)]
        for entry, what in {each.entry: each.description for each in taken}.items():
            # A load that is executed early may read what another thread writes. Then its value is not used.
            benign = {"race", "same-value-race"} if "inside" in what else set[str]()
            change = next(each.launch for each in taken if each.entry == entry)
            limits = change.arguments if change is not None else ()
            wrong += fault(entry, given, after.run(entry, launch, seed, limits=limits), benign)
            tally.add("launches of vector loads", "aligned" in what)
        if taken:
            tally.add(f"taken: {taken[0].description}")
        elif all("inside" in each.description for each in versions[:-1]):
            tally.add("refused, hoisted loads only")
        else:
            is_safe = are_apart(kernel.ptx, result.contract, given)
            tally.add("refused, safe" if is_safe else "refused, not safe")
    return wrong


def fitting_launch(mapped: Device, kernel: RandomContract, seed: int) -> RandomLaunch:
    """A launch whose allocations end where the accesses end, if that is possible: memory at every address shows where.
    Half of the launches have one thread, so that no threads race."""
    launch = random_launch(kernel, seed)
    if seed % 2:
        launch = replace(launch, grid=(1, 1, 1), block=(1, 1, 1))
    if seed % 5 == 0:
        return launch
    apart = replace(launch, allocations=[4, 4, 4], places={name: (number, 0) for number, name in enumerate(POINTERS)})
    done = mapped.run("k", apart, seed, trace=True)
    if done.rows is None:
        return launch
    rows = done.rows[done.rows["space"] == SPACES.index("global")]
    starts, sizes = rows["address"].astype(np.int64), rows["bytes"].astype(np.int64)
    distances = np.stack([np.abs(starts - done.addresses[name]) for name in POINTERS])
    windows: dict[str, tuple[int, int]] = {}
    for number, name in enumerate(POINTERS):
        mine = distances.argmin(axis=0) == number
        own = starts[mine] - done.addresses[name]
        windows[name] = (int(own.min()), int((own + sizes[mine]).max())) if own.size else (0, 0)
    if any(max(last, 0) - min(first, 0) > WIDEST for first, last in windows.values()):
        return launch
    return fitted(launch, windows, seed)


def fault(entry: str, given: Done, done: Done, benign: frozenset[str] | set[str] = frozenset()) -> list[str]:
    if done.fault or done.kinds - given.kinds - benign:
        return [f"{entry}: {done.fault or done.kinds - given.kinds}"]
    return [] if done.memory == given.memory else [f"{entry}: other results"]


def are_apart(ptx: str, contract: Contract, done: Done) -> bool:
    """Whether the launch touched disjoint bytes through the pairs of parameters that a version needs to be disjoint."""
    module = parse(ptx)
    entry = module.kernel("k")
    memory = Facts(entry, module).memory
    touched: dict[tuple[str, bool], set[int]] = {}
    for instr in entry.instructions():
        reference = memory.reference(instr)
        rows = done.rows[done.rows["instruction"] == module.source.line_column(instr.pos)[0]]
        if reference is None or reference.space != "global":
            continue
        bytes_of = {int(row["address"]) + k for row in rows for k in range(int(row["bytes"]))}
        for each in reference.objects or ():
            if isinstance(each, Param):
                touched.setdefault((each.name, bool(rows["write"].any())), set()).update(bytes_of)
    names = [each.name for each in contract.kernels["k"].parameters]
    pairs = {
        (names[one.first.pointer], names[one.second.pointer])
        for version in contract.kernels["k"].versions
        if version.description == "disjoint buffers"
        for one in version.requires
        if isinstance(one, Disjoint)
    }
    return not any(
        touched.get((one, writes), set()) & touched.get((two, also), set())
        for one, two in pairs
        for writes, also in ((True, True), (True, False), (False, True))
    )


# --- the tests notice what is assumed wrongly ------------------------------------------------------------------------


def is_noticed(first: int, seeds: range) -> bool:
    """Whether a version of one of the kernels of ``seeds`` computes something else or faults. ``first``: a seed with
    which one does, to save time."""
    return any(wrong_versions(seed, Tally()) for seed in (first, *seeds))


@pytest.mark.slow
def test_vector_loads_are_launched() -> None:
    """Enough of the random launches take a version that requires alignment."""
    tally = Tally()
    for seed in range(40):
        assert wrong_versions(seed, tally, MANY) == [], seed
        if tally.counts.get("launches of vector loads", 0) >= 10:
            return
    pytest.fail(str(tally))


@pytest.mark.slow
def test_missing_conditions_for_vector_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(promise: object, numbers: object) -> tuple[Condition, ...]:
        return ()

    monkeypatch.setattr(search, "alignment_conditions", nothing)
    assert any(wrong_versions(seed, Tally(), MANY) for seed in range(40))


@pytest.mark.slow
def test_overlaps_that_count_as_disjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_disjoint(condition: Condition, launch: Launch) -> bool:
        return isinstance(condition, Disjoint) or holds(condition, launch)

    monkeypatch.setattr(sys.modules[__name__], "are_met", all_disjoint)
    assert is_noticed(51, range(120))


@pytest.mark.slow
def test_missing_conditions_for_hoisted_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_needs(known: AccessRange, size: int) -> list[Holds]:
        return [Holds(need) for need in known.needs]

    monkeypatch.setattr(inside, "_inside", only_needs)
    assert is_noticed(5, range(120))
