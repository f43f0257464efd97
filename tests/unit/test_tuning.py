"""Tuning of contracts, with a stand-in for the GPU whose times the tests state."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_tuning_gpu import FAKE, fake_gpu
from ptxmotion.cli import main
from ptxmotion.contract import ContractError, LaunchClass, TunedMachine, Tuning, loads
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.benchmark_run import Conditions, Task, prepare, run_benchmark
from ptxmotion.harness.contract_guard import under_contracts
from ptxmotion.harness.launch_work import LaunchWork, observe, snapshots
from ptxmotion.harness.machine import Machine
from ptxmotion.harness.protocol import Plan
from ptxmotion.harness.worker import Worker
from ptxmotion.harness.workload import Arm
from ptxmotion.programs import tuning, tuning_hosts
from ptxmotion.programs.bench_session import assembler_for
from ptxmotion.programs.tuning import TunedModule, class_of
from ptxmotion.programs.tuning_hosts import tune
from ptxmotion.programs.tuning_trials import ModuleTrials, Trial
from ptxmotion.programs.variants import VariantFailed, Variants, parse_variant
from ptxmotion.ptx import parse
from ptxmotion.runtime import EmulatedDevice, load
from test_clamped_versions import ADDRESS, KERNEL
from test_contract_guard import APART, PTX

PLAN = Plan(rounds=8, samples=5, doublings=0, seeds=(1,))
VERSION = "-O3: disjoint buffers"


def host(backend: Any, ptx: str) -> None:
    """Two launches of one thread, with two buffers."""
    kernel = backend.load(ptx).kernel("add")
    x, y = backend.allocate(32), backend.allocate(32)
    backend.write(x, np.arange(8, dtype=np.uint32))
    backend.write(y, np.zeros(8, dtype=np.uint32))
    for _ in range(2):
        backend.launch(kernel, (1, 1, 1), (1, 1, 1), 0, [x, y, np.uint32(8)])


def one_buffer(backend: Any, ptx: str) -> None:
    """A launch in which both parameters point into one buffer."""
    x = backend.allocate(32)
    backend.write(x, np.arange(8, dtype=np.uint32))
    backend.launch(backend.load(ptx).kernel("add"), (1, 1, 1), (1, 1, 1), 0, [x, x, np.uint32(8)])


def tuned(seconds: dict[str, float], program: Any = host) -> TunedModule:
    return tune(PTX, program, machine=fake_gpu(seconds), plan=PLAN)


def entry_of(made: TunedModule, threads: int, machine: TunedMachine = FAKE, shared: bool = False) -> str:
    """The description of the version that a launch takes; empty for the kernel itself."""
    device = EmulatedDevice(multiprocessors=machine.multiprocessors, gpu=machine.gpu)
    kernel = load(made.ptx, made.contract, device=device, strict=True)["add"]
    x, y = np.zeros(8, np.uint32), np.zeros(8, np.uint32)
    entry = kernel.decide(1, threads, x, x if shared else y, 8).entry
    return next(each.description for each in made.contract.kernels["add"].versions if each.entry == entry)


OTHER = TunedMachine("NVIDIA Other", 4)


def test_a_faster_version_is_taken() -> None:
    made = tuned({VERSION: 0.5})
    (found,) = made.contract.kernels["add"].tunings
    assert (found.machine, found.driver) == (FAKE, "580.1")
    assert found.date.startswith("20")
    (launches,) = found.classes
    (entry,) = launches.preferred
    assert (launches.least, launches.most) == (1, 3)
    assert 1.9 < launches.speedups[entry] < 2.1
    assert entry_of(made, 1) == "disjoint buffers"
    assert loads(made.contract.dumps()) == made.contract


def test_a_version_that_is_slower_or_equal_is_not_taken() -> None:
    for factor in (2.0, 1.0):
        made = tuned({VERSION: factor})
        assert made.contract.kernels["add"].tunings[0].classes[0].preferred == ()
        assert entry_of(made, 1) == ""
        # The model decides about launches of other sizes, and on another machine.
        assert entry_of(made, 4) == "disjoint buffers"
        assert entry_of(made, 1, OTHER) == "disjoint buffers"
        assert entry_of(made, 1, replace(FAKE, multiprocessors=5)) == "disjoint buffers"


def test_a_version_whose_conditions_fail_is_not_taken() -> None:
    assert entry_of(tuned({VERSION: 0.5}), 1, shared=True) == ""


def test_a_version_whose_conditions_fail_in_the_program_is_not_timed() -> None:
    made = tuned({VERSION: 0.5}, one_buffer)
    (result,) = made.results
    assert result.verdicts[VERSION] == ("CONDITIONS", None)
    assert made.contract.kernels["add"].tunings[0].classes[0].speedups.keys() == set()
    assert entry_of(made, 1) == ""


def with_trials(monkeypatch: pytest.MonkeyPatch, *extra: Trial, instead: Trial | None = None) -> None:
    """Add trials to those of a module; ``instead`` takes the place of the version for disjoint buffers."""
    honest = ModuleTrials.of.__func__  # type: ignore[attr-defined]

    def changed(cls: type[ModuleTrials], ptx: str, arch: str | None = None) -> ModuleTrials:
        made = honest(cls, ptx, arch)
        given = made.trials["add"]
        kept = [replace(each, kernel=instead.kernel) if instead and each.name == VERSION else each for each in given]
        made.trials["add"] = [*kept, *extra]
        return made

    monkeypatch.setattr(ModuleTrials, "of", classmethod(changed))


def test_further_options_are_taken_only_where_they_were_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    option = "an option"
    kernel = parse(PTX.replace("ret;", "membar.gl;\n\tret;")).kernel("add")
    with_trials(monkeypatch, Trial(option, kernel, {"": ()}))
    made = tuned({option: 0.5, VERSION: 0.8})
    # The slower version stands in front of the faster one, and its conditions would hold.
    assert entry_of(made, 1) == option
    assert entry_of(made, 1, shared=True) == option
    assert entry_of(made, 1, OTHER) == "disjoint buffers"
    assert entry_of(made, 1, OTHER, shared=True) == ""
    both = tuned({option: 0.8, VERSION: 0.5})
    assert entry_of(both, 1) == "disjoint buffers"
    assert entry_of(both, 1, shared=True) == option
    assert option not in [each.description for each in tuned({VERSION: 0.5}).contract.kernels["add"].versions]


def test_tunings_for_other_machines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    option = "an option"
    kernel = parse(PTX.replace("ret;", "membar.gl;\n\tret;")).kernel("add")
    with_trials(monkeypatch, Trial(option, kernel, {"": ()}))
    first = tuned({option: 0.5})
    second = tune(PTX, host, machine=fake_gpu({VERSION: 0.5}, OTHER.gpu), plan=PLAN, former=first.contract)
    assert [each.machine for each in second.contract.kernels["add"].tunings] == [FAKE, OTHER]
    assert entry_of(second, 1) == option
    assert entry_of(second, 1, OTHER) == "disjoint buffers"
    third = tune(PTX, host, machine=fake_gpu({}), plan=PLAN, former=second.contract)
    assert [each.machine for each in third.contract.kernels["add"].tunings] == [OTHER, FAKE]
    assert entry_of(third, 1) == ""
    assert entry_of(third, 1, OTHER) == "disjoint buffers"
    assert option not in [each.description for each in third.contract.kernels["add"].versions]


GATHER = KERNEL.replace("ARM", f"{ADDRESS} ld.global.u32 %r5, [%rd11];")


def gather_host(backend: Any, ptx: str) -> None:
    """A launch of a kernel with an index from memory, which is far outside of the buffer where it is not used."""
    arrays = [np.array(each, np.uint32) for each in ([1, 0, 1, 0], [3, 1 << 30, 0, 77], [5, 6, 7, 8], [0] * 4, [9] * 4)]
    buffers = [backend.allocate(each.nbytes) for each in arrays]
    for buffer, each in zip(buffers, arrays, strict=True):
        backend.write(buffer, each)
    backend.launch(backend.load(ptx).kernel("gather"), (1, 1, 1), (4, 1, 1), 0, [*buffers, np.int32(4)])


def test_versions_with_further_arguments_are_timed() -> None:
    trials = ModuleTrials.of(GATHER)
    trial = next(each for each in trials.trials["gather"] if "clamped" in each.name)
    text, contract = trials.arm("gather", trial)
    guard = under_contracts(EmulatorBackend(), {text: contract})
    gather_host(guard, text)
    assert dict(guard.taken) == {("gather", "clamped loads inside buffers"): 1}
    made = tune(GATHER, gather_host, machine=fake_gpu({trial.name: 0.5}), plan=PLAN)
    assert made.results[0].verdicts[trial.name][0] == "FASTER"
    assert made.results[0].preferred == (trial.name,)
    tuned = made.contract.tuned_for(FAKE).kernels["gather"]
    entry = made.contract.kernels["gather"].tunings[0].classes[0].preferred[0]
    (taken,) = (each for each in tuned.versions if each.entry == entry)
    assert taken.launch == trial.launch and taken.prefer_when is not None


def test_nothing_counts_if_the_baseline_differs_from_itself() -> None:
    made = tuned({VERSION: 0.5, "control": 2.0})
    assert made.results[0].verdicts[VERSION][0] == "INVALID"
    assert entry_of(made, 1) == ""


def test_the_code_of_a_wrong_trial_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that stores another value, without conditions, and one in place of a version of `-O3`."""
    wrong = parse(PTX.replace("st.global.u32 [%rd4], %r3", "st.global.u32 [%rd4], %r2")).kernel("add")
    trial = Trial("wrong", wrong, {"": ()})
    with_trials(monkeypatch, trial, instead=trial)
    made = tuned({"wrong": 0.1, VERSION: 0.1})
    assert made.results[0].verdicts["wrong"][0] == made.results[0].verdicts[VERSION][0] == "MISMATCH"
    assert [each.entry for each in made.contract.kernels["add"].versions] == ["add"]
    assert "__ptxmotion" not in made.ptx


def test_without_a_gpu_the_gate_decides() -> None:
    made = tune(PTX, host, backend="emulator")
    assert made.results == made.contract.kernels["add"].tunings == ()
    assert entry_of(made, 1) == "disjoint buffers"


def test_classes_of_launches() -> None:
    for threads in (1, 3, 4, 15, 16, 255, 256, 2**40):
        least, most = class_of(threads)
        assert least <= threads <= most
        assert class_of(least) == class_of(most) == (least, most)
        assert class_of(most + 1)[0] == most + 1


def test_launches_of_several_classes_are_timed_apart() -> None:
    def both(backend: Any, ptx: str) -> None:
        for threads in [(1, 1, 1)] * 9 + [(64, 1, 1)]:
            kernel = backend.load(ptx).kernel("add")
            x, y = backend.allocate(32), backend.allocate(32)
            backend.write(x, np.arange(8, dtype=np.uint32))
            backend.write(y, np.zeros(8, dtype=np.uint32))
            backend.launch(kernel, (1, 1, 1), threads, 0, [x, y, np.uint32(8)])

    made = tuned({VERSION: 0.5}, both)
    assert sorted((each.least, each.launches) for each in made.results) == [(1, tuning.LAUNCHES), (64, 1)]
    assert [each.least for each in made.contract.kernels["add"].tunings[0].classes] == [1, 64]


def recorded() -> LaunchWork:
    """The launches of `host`."""
    backend = fake_gpu({}).open()
    work, arm = tuning_hosts._HostWork(host, "own/host"), Arm("given", {"module": PTX})
    seen = observe(backend, work, arm, 1)
    wanted = tuning.wanted_launches(seen)
    kept = snapshots(backend, work, arm, 1, [0, 1])
    (found,) = tuning.recorded_works("own/host", seen, wanted, kept)
    return found


def test_recorded_launches_can_be_kept_in_a_file() -> None:
    work = recorded()
    assert len(work.launches) == 2
    assert work.launches[0].buffers[1] == bytes(32)
    assert work.launches[1].buffers[1] == bytes(32)  # the kernel stores x[0], which is 0
    again = LaunchWork.load(work.save())
    assert again == work
    for damaged in (b"", b"x" * 100, work.save()[:-200]):
        with pytest.raises(ValueError, match="these are no recorded launches"):
            LaunchWork.load(damaged)


# --- the command ---------------------------------------------------------------------------------------------------


def on_fake(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> None:
    def chosen(wanted: str, require_gpu: bool = False) -> tuple[Machine, int, str]:
        return fake_gpu(seconds), 1, "fake: chosen by the test"

    monkeypatch.setattr("ptxmotion.harness.machine.choose", chosen)


def test_the_command_on_recorded_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "launches.npz"
    file.write_bytes(recorded().save())
    on_fake(monkeypatch, {VERSION: 0.5})
    folder = tmp_path / "tuned"
    assert main(["contract", "tune", "--launches", str(file), "--rounds", "8", "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert VERSION in out
    assert "FASTER" in out
    (contract,) = folder.glob("*.contract.json")
    (module,) = folder.glob("*.ptx")
    assert main(["contract", "check", str(contract), "--module", str(module)]) == 0
    assert main(["contract", "show", str(contract)]) == 0
    shown = capsys.readouterr().out
    assert "tuned on NVIDIA Fake, 4 multiprocessors, driver 580.1, 20" in shown
    assert "1 to 3 threads: add__ptxmotion_1 (speedups: add__ptxmotion_1 " in shown
    variant = parse_variant(f"tuned:{folder}")
    with Variants() as variants:
        made = variants.modules(variant, {"add": PTX})
        assert made["add"] == module.read_text()
        assert variants.contracts(variant, {"add": PTX}) == {made["add"]: contract.read_text()}
        with pytest.raises(VariantFailed, match="has no module that was made of the PTX of add"):
            variants.modules(variant, {"add": PTX + "\n"})


def test_the_command_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["contract", "tune", "rodinia/gaussian", "--backend=emulator", "--size=tiny"]
    assert main(command) == 0
    assert "no GPU: nothing was timed, and the gate decides; 2 modules are in tuned" in capsys.readouterr().out
    assert main([*command, "--record", "launches"]) == 0
    files = sorted(map(str, Path("launches").glob("*.npz")))
    assert len(files) == 2
    assert main(["contract", "tune", "--backend=emulator", "--launches", *files, "-o", "again"]) == 0
    assert sorted(each.read_text() for each in Path("again").glob("*.ptx")) == sorted(
        each.read_text() for each in Path("tuned").glob("*.ptx")
    )
    assert main(["bench", "run", "rodinia/gaussian", "--backend=emulator", "--size=tiny", "--variant=tuned"]) == 0


def test_a_program_that_is_done_is_kept_if_the_next_one_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tuning.Tuner.tune

    def tune_gaussian(tuner: tuning.Tuner, work: Any, modules: Any) -> list[TunedModule]:
        if work.fullname != "rodinia/gaussian":
            raise KeyboardInterrupt
        return whole(tuner, work, modules)

    monkeypatch.setattr(tuning.Tuner, "tune", tune_gaussian)
    command = ["contract", "tune", "rodinia/gaussian", "rodinia/lud", "--backend=emulator", "--size=tiny"]
    assert main([*command, "-o", str(tmp_path)]) == 130
    assert len(list(tmp_path.glob("*.ptx"))) == len(list(tmp_path.glob("*.contract.json"))) == 2


def test_wrong_usage_of_tune_has_an_exit_code(tmp_path: Path) -> None:
    assert main(["contract", "tune", "--backend=emulator", "-o", str(tmp_path)]) == 2
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"nothing")
    assert main(["contract", "tune", "--backend=emulator", "--launches", str(bad), "-o", str(tmp_path)]) == 3
    assert main(["contract", "tune", "--backend=emulator", "--launches", str(bad), "--record", "x"]) == 2


# --- the document --------------------------------------------------------------------------------------------------


def test_tunings_that_are_refused() -> None:
    made = tuned({VERSION: 0.5})
    document = json.loads(made.contract.dumps())

    def refused(change: dict[str, Any]) -> str:
        copy = json.loads(json.dumps(document))
        copy["kernels"]["add"]["tunings"][0].update(change)
        with pytest.raises(ContractError) as error:
            loads(json.dumps(copy))
        return str(error.value)

    assert refused({"tuning_version": 2}) == "tuning_version is 2; this ptxmotion reads 1"
    assert "overlaps" in refused({"classes": [{"threads": [4, 3], "preferred": [], "speedups": {}}]})
    one: dict[str, Any] = {"threads": [1, 3], "preferred": [], "speedups": {}}
    assert "overlaps" in refused({"classes": [one, one]})
    assert "'add'" in refused({"classes": [{**one, "preferred": ["add"]}]})
    assert "'other'" in refused({"classes": [{**one, "speedups": {"other": 1.0}}]})
    assert "required property" in refused({"classes": [{"threads": [1, 3]}]})
    kernel = made.contract.kernels["add"]
    twice = replace(kernel, tunings=(*kernel.tunings, Tuning(FAKE, "", "", (LaunchClass(1, 3),))))
    with pytest.raises(ContractError, match="two tunings for NVIDIA Fake"):
        twice.check()


def test_arms_whose_contracts_differ_are_timed_apart() -> None:
    """The machine code of a tuned module may be that of the module with the contract of `-O3`. The launches differ."""
    made = tuned({VERSION: 2.0})
    plain = made.contract.tuned_for(None).dumps()
    same, other = ({made.ptx: text} for text in (plain, made.contract.dumps()))
    arms = [Arm("O3", {"m": PTX}), *(Arm(id, {"m": made.ptx}, contracts=same) for id in ("contract", "again"))]
    arms.append(Arm("tuned", {"m": made.ptx}, contracts=other))
    machine = fake_gpu({"contract": 0.9, "tuned": 0.5})
    prepared = prepare(Task("own/add", lambda: (APART, arms)), assembler_for({"compute_capability": 90}))
    with Worker(machine) as worker:
        result = run_benchmark(Conditions(machine, PLAN), worker, prepared)
    assert result.arm("again").same_code_as == "contract"
    speedups = {each.candidate: each.speedup or 0.0 for each in result.candidates}
    assert 1.08 < speedups["contract"] < 1.15
    assert 1.9 < speedups["tuned"] < 2.1
