"""How well the figures of the gate predict time: predicted and measured ratios, for every arm of result files.

    python docs/experiments/gate_model.py [RESULT.json …] [--verbose]

Without files, it takes those of `tests/results` that contain times of the suites. The arms are made again with nvcc,
optimizer and ptxas of this machine. An arm whose machine code is not what was timed is left out, and counted. Arms of
equal machine code count once. For each model of a kernel's cost:

    rank      Spearman's correlation of predicted with measured ratios, over all arms
    order     pairs of arms of a program whose measured ratios differ by more than the least effect (1 %): those that
              the model orders correctly : wrongly; pairs that are equal by the model are left out
    kept      arms that the gate would keep by it, and how many of these were measured slower by more than 1 %
    missed    arms that it would revert although they were faster by more than 1 %
    loss      how much slower than its best arm (or nvcc's code) a program is with the arm that the model finds best
              among those that the gate keeps: the geometric mean, and the maximum

The cost of a program is the sum over its kernels, as if each were launched equally often, because no launch is known.
Needs no GPU. The exit code is 1 if less than half of the arms could be made again.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxmotion.harness.results import ArmResult, BenchmarkResult, read
from ptxmotion.judges import Assembled
from ptxmotion.programs.variants import METHODS, Variants, parse_variants
from ptxmotion.ptx import parse
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import compiler, ptx_of
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.transforms.gate.gate import Figures, is_better, worse
from ptxmotion.transforms.gate.static_judge import StaticJudge

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "results"
FILES = (
    "thesis_small_h200.json",
    "suites_full_h200.json",
    "restrict_small_h200.json",
    *(f"subsets_small_{number}_h200.json" for number in (1, 2, 3)),
    "subsets_full_h200.json",
)

#: The options that made the arms of committed files whose names do not contain the options.
NAMED = {
    "restrict": "-O3 --alias=restrict",
    "ssrqp_restrict": "--passes=ssrqp,dce,emptyblocks --alias=restrict",
    **{name: f"--passes={name},dce,emptyblocks" for name in METHODS},
    "forwarding": "--passes=ssrqp,dce,emptyblocks",
    "guarded": "--passes=ssrqp:forwarding=false:guarded=true,dce,emptyblocks",
    "vectormerge": "--passes=vectormerge:aligned=256,dce,emptyblocks",
    "readonly_restrict": "--passes=readonly,dce,emptyblocks --alias=restrict",
}

#: The least effect: smaller differences of time are ignored.
EFFECT = 0.01

#: The cost of a kernel, from the figures of ptxas and those of the static model.
Model = Callable[[Figures, Figures], float]
MODELS: dict[str, Model] = {
    "one warp alone": lambda kernel, _: kernel.cycles,
    "full multiprocessor": lambda kernel, _: kernel.full,
    "weighted instructions": lambda kernel, _: kernel.weight,
    "registers": lambda kernel, _: kernel.registers,
    "static: accesses and long operations": lambda _, ptx: ptx.weight,
}


@dataclass(frozen=True, slots=True)
class Arm:
    """A timed arm of a program: the measured ratio, and the figures of ptxas and of the static model for its
    kernels."""

    program: str
    name: str
    ratio: float
    kernels: Mapping[str, Figures]
    static: Mapping[str, Figures]


def main() -> int:
    """Read the files, make the arms again, judge them, and print the tables; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="RESULT.json")
    parser.add_argument("--verbose", action="store_true", help="each arm as well")
    arguments = parser.parse_args()
    files = arguments.files or [RESULTS / name for name in FILES]
    study = Study()
    with Variants() as maker:
        for path in files:
            result = read(str(path))
            for each in result.benchmarks:
                if each.timing is not None and each.gates:
                    study.add(f"{path.stem}:{each.fullname}", each, maker)
    programs = [arms for arms in study.programs if len(arms) > 1]
    arms = sum(len(each) - 1 for each in programs)
    print(f"{arms} arms of {len(programs)} programs; {study.lost} of other machine code than was timed left out\n")
    if arguments.verbose:
        _print_arms(programs)
    print("| model | rank | order | loss: mean, most |\n| --- | --- | --- | --- |")
    for name, model in MODELS.items():
        print(f"| {name} | {rank(programs, model):.2f} | {order(programs, model)} | {loss(programs, model)} |")
    print("\n| gate | kept: slower | reverted: faster |\n| --- | --- | --- |")
    print(f"| by ptxas | {decisions(programs, lambda arm: arm.kernels)} |")
    print(f"| by the static model | {decisions(programs, lambda arm: arm.static)} |")
    print(f"\nThe two gates agree on {agreement(programs)} kernels of these arms.")
    return 1 if study.lost > arms else 0


class Study:
    """The arms by program, those with the code of nvcc first."""

    def __init__(self) -> None:
        self.programs: list[list[Arm]] = []
        self.lost = 0
        self._nvcc = compiler("sm_90a")
        self._judge = Assembled(PtxasJudge("sm_90a"))
        self._plain: dict[str, dict[str, str]] = {}
        self._known: dict[str, tuple[Mapping[str, Figures], Mapping[str, Figures]]] = {}

    def add(self, name: str, found: BenchmarkResult, maker: Variants) -> None:
        """Make the arms of a benchmark again."""
        if found.fullname not in self._plain:
            self._plain[found.fullname] = ptx_of(find(found.fullname), self._nvcc)
        ratios = {each.candidate: each.speedup for each in found.candidates if each.speedup is not None}
        base = next(arm for arm in found.arms if arm.role == "baseline")
        arms: list[Arm] = []
        known: set[tuple[str, ...]] = set()
        for arm in (base, *(each for each in found.arms if each.id in ratios and each.correctness.status == "ok")):
            code = tuple(str(figures["code_sha256"]) for _, figures in sorted(arm.static.items()))
            if code in known:
                continue
            made = self._made(name, arm, base, self._plain[found.fullname], maker, ratios.get(arm.id, 1.0))
            if made is None:
                self.lost += 1
                if arm is base:
                    return
                continue
            known.add(code)
            arms.append(made)
        self.programs.append(arms)

    def _made(
        self, name: str, arm: ArmResult, base: ArmResult, plain: Mapping[str, str], maker: Variants, ratio: float
    ) -> Arm | None:
        variant = parse_variants("O3" if arm is base else NAMED.get(arm.id, arm.id))[0]
        if variant.fusion:
            return None
        after, before = _hashes(arm), _hashes(base)
        # Only the kernels whose machine code differs from that of nvcc are made again.
        changed = {plain[kernel] for kernel in plain if after.get(kernel) != before.get(kernel)}
        modules = {**plain, **maker.modules(variant, {k: text for k, text in plain.items() if text in changed})}
        kernels: dict[str, Figures] = {}
        static: dict[str, Figures] = {}
        for text in dict.fromkeys(modules.values()):
            if text not in self._known:
                module = parse(text)
                self._known[text] = self._judge.figures(module), StaticJudge().figures(module)
            kernels |= self._known[text][0]
            static |= self._known[text][1]
        if any(kernel not in kernels or kernels[kernel].code.partition("/")[0] != after[kernel] for kernel in after):
            return None
        return Arm(name, arm.id, ratio, kernels, static)


def _hashes(arm: ArmResult) -> dict[str, str]:
    """By kernel: the hash of the machine code that was timed."""
    return {kernel: str(figures["code_sha256"]) for kernel, figures in arm.static.items()}


def _predicted(base: Arm, arm: Arm, model: Model) -> float:
    """The ratio of times that a model predicts."""
    costs = [sum(model(each.kernels[name], each.static[name]) for name in base.kernels) for each in (base, arm)]
    return costs[0] / costs[1]


def rank(programs: Iterable[Sequence[Arm]], model: Model) -> float:
    pairs = [(_predicted(arms[0], arm, model), arm.ratio) for arms in programs for arm in arms[1:]]
    return statistics.correlation(*map(_ranks, zip(*pairs, strict=True)))


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in their order, the mean place for equal ones."""
    order = sorted(values)
    return [(bisect.bisect_left(order, each) + bisect.bisect_right(order, each) - 1) / 2 for each in values]


def order(programs: Iterable[Sequence[Arm]], model: Model) -> str:
    right = wrong = 0
    for arms in programs:
        for one, other in itertools.combinations(arms, 2):
            measured = math.log(one.ratio / other.ratio)
            predicted = math.log(_predicted(arms[0], one, model) / _predicted(arms[0], other, model))
            if abs(measured) > EFFECT and abs(predicted) > 0.001:
                right += measured * predicted > 0
                wrong += measured * predicted < 0
    return f"{right} : {wrong}"


def loss(programs: Iterable[Sequence[Arm]], model: Model) -> str:
    losses: list[float] = []
    for arms in programs:
        kept = [arms[0], *(arm for arm in arms[1:] if _keeps(arms[0].kernels, arm.kernels))]
        chosen = max(kept, key=lambda arm: _predicted(arms[0], arm, model))
        losses.append(math.log(max(arm.ratio for arm in arms) / chosen.ratio))
    return f"{math.expm1(statistics.mean(losses)):.2%}, {math.expm1(max(losses)):.1%}"


def _keeps(before: Mapping[str, Figures], after: Mapping[str, Figures]) -> bool:
    """Whether the gate keeps every kernel that changed."""
    changed = [name for name in before if name in after and before[name].code != after[name].code]
    return all(is_better(before[name], after[name]) for name in changed)


def decisions(programs: Iterable[Sequence[Arm]], of: Callable[[Arm], Mapping[str, Figures]]) -> str:
    kept = slower = given_back = faster = 0
    for arms in programs:
        for arm in arms[1:]:
            if _keeps(of(arms[0]), of(arm)):
                kept += 1
                slower += arm.ratio < 1 - EFFECT
            else:
                given_back += 1
                faster += arm.ratio > 1 + EFFECT
    return f"{kept}: {slower} | {given_back}: {faster}"


def agreement(programs: Iterable[Sequence[Arm]]) -> str:
    same = asked = 0
    seen: set[tuple[str, str]] = set()
    for arms in programs:
        for arm in arms[1:]:
            for name, before in arms[0].kernels.items():
                after = arm.kernels[name]
                if before.code == after.code or (before.code, after.code) in seen:
                    continue
                seen.add((before.code, after.code))
                asked += 1
                same += is_better(before, after) == is_better(arms[0].static[name], arm.static[name])
    return f"{same} of {asked}"


def _print_arms(programs: Iterable[Sequence[Arm]]) -> None:
    print("| program | arm | measured | one warp | full | gate |\n| --- | --- | --- | --- | --- | --- |")
    for arms in programs:
        for arm in arms[1:]:
            ratios = [f"{_predicted(arms[0], arm, model):.3f}" for model in list(MODELS.values())[:2]]
            reasons = [
                worse(arms[0].kernels[name], figures)
                for name, figures in arm.kernels.items()
                if figures.code != arms[0].kernels[name].code
            ]
            decision = next(filter(None, reasons), "kept" if _keeps(arms[0].kernels, arm.kernels) else "no better")
            print(f"| {arm.program} | {arm.name} | {arm.ratio:.3f} | {' | '.join(ratios)} | {decision} |")
    print()


if __name__ == "__main__":
    sys.exit(main())
