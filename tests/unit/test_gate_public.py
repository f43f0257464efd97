"""The script that compares the gate with times of public programs, on synthetic tables."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.cost import LEAST_GAIN

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "experiments"))

study: Any = importlib.import_module("gate_public")

HEADER = "program,arms,kernel,grid,block,shared,launches,nanoseconds,rounds,ratio,low,high"
FIGURES = ("registers", "spills", "warps", "weight", "cycles")
BEFORE = {"registers": 32, "spills": 0, "warps": 64.0, "weight": 1000.0, "cycles": 100_000.0}


def table(path: Path, *rows: tuple[str, str, str, int, float, dict[str, float]]) -> list[Any]:
    """The versions of a table with rows (program, kernel, arms, blocks, ratio, figures that differ after)."""
    columns = [f"{figure}_{when}" for when in ("before", "after") for figure in FIGURES]
    lines = [",".join([HEADER, *columns])]
    for program, kernel, arms, blocks, ratio, change in rows:
        figures = [*BEFORE.values(), *{**BEFORE, **change}.values()]
        cells = [program, arms, kernel, f'"{blocks},1,1"', '"256,1,1"', 0, 10, 1000, 5, ratio, ratio, ratio, *figures]
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")
    return study.read(path)


def test_a_rule_is_reported_by_kernel(tmp_path: Path) -> None:
    gains = {"cycles": 90_000.0}
    small = {"cycles": 100_000.0 * (1 - LEAST_GAIN / 2)}
    versions = table(
        tmp_path / "table.csv",
        ("p", "fast", "O3 gated", 132, 1.25, gains),
        ("p", "slow", "gated", 132, 0.9, gains),
        ("p", "part", "O3", 132, 0.5, {"cycles": 110_000.0}),
        ("p", "part", "gated", 132, 1.02, gains),
        ("p", "small", "O3", 132, 0.98, small),
        ("p", "fast", "nvcc", 132, 1.0, {}),
    )
    found = study.report(versions, study.of_the_gate)
    assert (found.kernels, found.kept, found.slower, found.faster, found.worst) == (4, 3, 1, 2, 0.9)
    assert found.gain == pytest.approx((1.25 * 0.9 * 1.02) ** (1 / 4))
    assert found.best == pytest.approx((1.25 * 1.02) ** (1 / 4))
    # Before, half of the least gain was enough.
    assert study.report(versions, study.of_the_gate_before).slower == 2


def test_there_is_no_share_where_nothing_is_faster(tmp_path: Path) -> None:
    versions = table(tmp_path / "t.csv", ("p", "k", "O3", 132, 1.005, {"cycles": 90_000.0}))
    found = study.report(versions, study.of_the_gate)
    assert (found.kept, found.faster, found.best, found.share) == (1, 0, 1.0, "n/a")
    assert found.row().endswith("| 1.0050 | 1.0000 | n/a | n/a | n/a")


def test_each_program_counts_once_as_well(tmp_path: Path) -> None:
    versions = table(
        tmp_path / "t.csv",
        *(("p", f"k{number}", "gated", 132, 1.1, {"cycles": 90_000.0}) for number in range(3)),
        ("q", "k", "O3", 132, 1.1, {"cycles": 110_000.0}),
    )
    found = study.report(versions, study.of_the_gate)
    assert (found.share, found.row().split(" | ")[-2:]) == ("75%", ["50%", "0% to 100%"])
    kept = study.kept_by(versions, study.of_the_gate)
    assert {key: each.ratio for key, each in kept.items()} == {("p", f"k{number}"): 1.1 for number in range(3)}
    assert {each.kernel for each in study.first_kernels(versions, 1)} == {"k0", "k"}
    assert study.report(study.first_kernels(versions, 1), study.of_the_gate).share == "50%"


def test_kernels_that_are_slower_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gains = {"cycles": 90_000.0}
    ratios = {"a": (0.9, 0.98), "b": (0.9, 1.0), "c": (1.1, 1.1)}
    first, second = (
        table(tmp_path / f"{run}.csv", *(("p", name, "O3", 132, each[run], gains) for name, each in ratios.items()))
        for run in (0, 1)
    )
    versions = study.with_another_run(first, second[:2])
    study.print_slower_again(versions)
    expected = "\nthe gate: 2 kernels are kept, 1 of them slower by more than 1 % in both runs; p a\n"
    assert expected in capsys.readouterr().out
    found = study.report(versions, study.of_the_gate)
    assert (found.kept, found.slower, found.faster) == (2, 1, 0)
    assert found.gain == pytest.approx((0.9 * 0.98 * 0.9) ** (1 / 4))


def test_kernels_whose_rounds_differ_can_be_left_out(tmp_path: Path) -> None:
    gains = {"cycles": 90_000.0}
    rows = [("p", "k", "O3", 132, 1.1, gains), ("p", "k", "gated", 132, 1.0, gains), ("p", "m", "O3", 132, 1.1, gains)]
    versions = table(tmp_path / "t.csv", *rows)
    text = (tmp_path / "t.csv").read_text().replace("5,1.0,1.0,1.0", "5,1.0,0.97,1.05")
    (tmp_path / "t.csv").write_text(text)
    assert len(study.steady(versions, 0.05)) == 3
    versions = study.read(tmp_path / "t.csv")
    assert [each.kernel for each in study.steady(versions, 0.05)] == ["m"]
    assert len(study.steady(versions, 0.1)) == 3
    again = study.with_another_run(study.steady(versions, 0.1)[:1], versions)
    assert again[0].is_steady(0.05) and len(study.steady(study.with_another_run(versions, versions), 0.05)) == 1


def test_noise_is_no_possible_gain(tmp_path: Path) -> None:
    """The version that seems the fastest in one run is measured in the other one."""
    faster, slower = {"cycles": 90_000.0}, {"cycles": 110_000.0}
    first, second = (
        table(tmp_path / f"{run}.csv", ("p", "k", "O3", 132, one, slower), ("p", "k", "gated", 132, other, faster))
        for run, (one, other) in enumerate(((1.2, 1.1), (0.9, 1.1)))
    )
    assert study.report(first, study.of_the_gate).best == pytest.approx(1.2)
    found = study.report(study.with_another_run(first, second), study.of_the_gate)
    assert found.best == pytest.approx((0.9 * 1.1) ** 0.5)  # O3 of the first run is 0.9, gated of the second one 1.1
    assert (found.gain, found.faster) == (pytest.approx(1.1), 1)


def test_figures_of_loops_are_read_if_the_table_has_them(tmp_path: Path) -> None:
    """Fewer instructions in the loops, and longer latencies."""
    (version,) = table(tmp_path / "t.csv", ("p", "k", "O3", 132, 1.1, {"weight": 950.0, "cycles": 15_000.0}))
    assert version.before.looped is None and study.RULES["latencies of loops"](version)
    text = (tmp_path / "t.csv").read_text().replace("100000.0", "15000.0").splitlines()
    extra = ("looped", 4000.0, 4010.0), ("quickest", 4000.0, 4000.0), ("weight_in_loops", 900.0, 850.0)
    text[0] += "".join(f",{name}_before,{name}_after" for name, _, _ in extra)
    text[1] += "".join(f",{before},{after}" for _, before, after in extra)
    (tmp_path / "t.csv").write_text("\n".join(text) + "\n")
    (version,) = study.read(tmp_path / "t.csv")
    assert (version.after.looped, version.before.weight_in_loops) == (4010.0, 900.0)
    kept = {name: study.RULES[name](version) for name in ("the gate", "without loops", "latencies of loops")}
    assert kept == {"the gate": True, "without loops": True, "latencies of loops": False}


def test_equal_code_shows_the_noise(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    same: dict[str, float] = {}
    rows = [("p", f"k{number}", "nvcc gated", 132, ratio, same) for number, ratio in enumerate((0.99, 1.0, 1.002))]
    assert table(path, *rows, ("p", "k", "O3", 132, 0.5, {"cycles": 90_000.0}))[0].ratio == 0.5
    assert study.equal_code(path) == [0.99, 1.0, 1.002]
    expected = "equal code: 3 comparisons, half of them within 0.20%, 90 % between 0.9910 and 1.0018, "
    assert study.spread(study.equal_code(path)) == expected + "all between 0.9900 and 1.0020"
    assert study.spread([]) == "equal code: 0 comparisons"


@pytest.mark.parametrize("unseen", [False, True])
def test_programs_that_no_threshold_has_seen_are_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, unseen: bool
) -> None:
    gains = {"cycles": 90_000.0}
    table(tmp_path / "t.csv", *((f"program{number}", "k", "O3", 132, 1.5, gains) for number in range(20)))
    monkeypatch.setattr(sys, "argv", ["gate_public.py", str(tmp_path / "t.csv"), *(["--unseen"] if unseen else [])])
    assert study.main() == 0
    printed = capsys.readouterr().out
    assert ("unseen: 20 programs" in printed) is unseen
    assert ("| the gate | unseen | 20 | 20 | 0 | 20 | 1.500 |" in printed) is unseen
    assert ("| the gate | first |" in printed) is not unseen


def test_the_time_of_all_launches_counts(tmp_path: Path) -> None:
    gains = {"cycles": 90_000.0}
    (version,) = table(tmp_path / "t.csv", ("p", "k", "O3", 132, 2.0, gains), ("p", "k", "O3", 264, 1.0, gains))
    assert version.ratio == pytest.approx(2000 / 1500)
    assert [launch.warps(version.before) for launch in version.launches] == [2, 4]


def test_hoisted_loads_are_counted_by_launch(tmp_path: Path) -> None:
    change = {"cycles": 50_000.0, "weight": 1100.0}
    # One, four and sixteen warps per scheduler; the latencies are a hundred times the instructions.
    rows = [("p", "k", "hoisted", blocks, ratio, change) for blocks, ratio in ((66, 1.5), (264, 1.2), (9999, 0.8))]
    versions = table(tmp_path / "table.csv", *rows)
    assert study.preferences(versions, study.LIMITS["always"]).startswith("3 | 3 | 1 | 2 | 0.800")
    assert study.preferences(versions, study.LIMITS["at most 4 warps"]) == "3 | 2 | 0 | 2 | 1.000 | 100%"
    assert study.preferences(versions, study.by_model).startswith("3 | 3 | 1")


def test_the_halves_do_not_depend_on_the_times() -> None:
    names = [f"program{number}" for number in range(200)]
    assert 70 < sum(map(study.is_first_half, names)) < 130
