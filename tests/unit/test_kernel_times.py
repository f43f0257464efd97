"""The script that times kernels of executables: what is left out, the executions, and the table. The programs are shell
scripts that write times as the injected library does."""

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from injection_builds import built_times
from test_times import built

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "experiments"))

rig: Any = importlib.import_module("kernel_times")
tabling: Any = importlib.import_module("kernel_times_table")

#: Writes three launches of `k`, whose time in nanoseconds is the place of the arm's code, and one of `other`.
PROGRAM = r"""#!/bin/bash
time=TIME
for launch in 1 2 3; do
  printf 'k\t4,1,1\t64,1,1\t16\t0\t512\t0\t%d\n' $((time + launch))
done > "$KERNEL_TIMES_OUT"
printf 'other\t1,1,1\t32,1,1\t16\t0\t0\t0\t700\n' >> "$KERNEL_TIMES_OUT"
[ "$1" = 10 ] || exit 9
[ "$time" != 3000 ] || exit 1
"""

FIGURES = {
    "registers": 16,
    "spills": 0,
    "warps": 64.0,
    "weight": 10.0,
    "cycles": 100.0,
    "looped": 40.0,
    "quickest": 30.0,
    "fetched": 8.0,
    "by_depth": [{"load_global": 2}, {"store_global": 1, "integer": 4}],
}


def program(out: Path, name: str, times: dict[str, str], codes: dict[str, str]) -> None:
    """An executable with a place for the code of each arm, and the figures of its kernels."""
    folder = out / name
    folder.mkdir(parents=True)
    (folder / "program").write_text(PROGRAM)
    for arm, written in times.items():
        (folder / f"{arm}.fatbin").write_text(written)
    arms = {arm: [f"{arm}.fatbin"] for arm in times}
    description = {"arguments": ["10"], "offsets": [PROGRAM.index("TIME")], "arms": arms}
    (folder / "arms.json").write_text(json.dumps(description))
    figures = {
        arm: [{"k": {**FIGURES, "code": codes[arm]}, "other": {**FIGURES, "code": "o"}, "unused": {"code": arm}}]
        for arm in times
    }
    (folder / "figures.json").write_text(json.dumps(figures))


def run(out: Path, results: Path, *, seconds: float = 60, host: float = 2, arms: frozenset[str] | None = None) -> None:
    limits = rig.Limits(time.monotonic() + seconds, 3, 30, host, arms)
    rig.run(out, results, 1, rig.programs_of(out, is_reversed=False), limits)


def executions_in(results: Path) -> list[tuple[str, str, int]]:
    rows = [json.loads(line) for line in (results / "gpu0.jsonl").read_text().splitlines()]
    return [(row["program"], row["arm"], row["round"]) for row in rows]


def test_arms_are_executed_in_turn_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    times = {"nvcc": "2000", "O3": "1000", "lcm": "1000", "sscm": "3000"}
    program(out, "a", times, {"nvcc": "x", "O3": "y", "lcm": "y", "sscm": "z"})
    run(out, results)
    executions = [json.loads(line) for line in (results / "gpu0.jsonl").read_text().splitlines()]
    # lcm has the code of O3 in the kernels that are launched; sscm ends with another exit code.
    assert [(row["arm"], row["round"]) for row in executions[:3]] == [("nvcc", 0), ("O3", 0), ("sscm", 0)]
    assert sorted((row["arm"], row["round"]) for row in executions[3:]) == [
        (arm, number) for arm in ("O3", "nvcc") for number in (1, 2)
    ]
    assert executions[0]["kernels"][0] == [
        "k",
        "4,1,1",
        "64,1,1",
        "16",
        "0",
        "512",
        "0",
        3,
        2002,
        2002,
        [2001, 2002, 2003],
    ]
    assert "sscm left out: another exit code" in capsys.readouterr().out

    table = list(tabling.rows(out, results))
    changed = next(row for row in table if row["arms"] == "O3 lcm")
    assert (changed["kernel"], changed["grid"], changed["block"], changed["shared"]) == ("k", "4,1,1", "64,1,1", "512")
    assert (changed["launches"], changed["nanoseconds"], changed["rounds"]) == (3, 2002, 3)
    assert float(changed["ratio"]) == pytest.approx(2002 / 1002, rel=1e-3)
    assert (changed["global_before"], changed["loads_after"]) == (2 + 8, 2)
    assert (changed["looped_before"], changed["quickest_after"], changed["weight_in_loops_after"]) == (40, 30, 8 * 5)
    assert changed["fetched_after"] == 8
    # `other` is unchanged, so two executions of each round are compared with each other.
    same = next(row for row in table if row["kernel"] == "other")
    assert (same["arms"], same["ratio"]) == ("nvcc O3 lcm sscm", "1.0000")


def test_a_program_that_takes_too_long_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    program(out, "a", {"nvcc": "2000", "O3": "1000"}, {"nvcc": "x", "O3": "y"})
    run(out, tmp_path / "results", host=-30)
    assert "a left out: exit code 0" in capsys.readouterr().out
    assert executions_in(tmp_path / "results") == [("a", "nvcc", 0)]


def test_an_arm_that_is_ended_early_is_compared(tmp_path: Path) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    program(out, "a", {"nvcc": "2000", "O3": "3000"}, {"nvcc": "x", "O3": "y"})
    ended = (out / "a" / "program").read_text().replace("exit 1\n", f"exit {rig.STOPPED}\n")
    (out / "a" / "program").write_text(ended)
    run(out, results)
    assert len(executions_in(results)) == 6
    assert [row["ratio"] for row in tabling.rows(out, results) if row["kernel"] == "k"] == [f"{2002 / 3002:.4f}"]


def test_a_program_whose_rounds_do_not_fit_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    for name in ("a", "b"):
        program(out, name, {"nvcc": "2000", "O3": "1000"}, {"nvcc": "x", "O3": "y"})
    slow = (out / "a" / "program").read_text().replace("exit 9\n", "exit 9\nsleep 0.7\n")
    (out / "a" / "program").write_text(slow)
    limits = rig.Limits(time.monotonic() + 3, 3, 30, 2, None)
    rig.run(out, results, 1, [("a", None), ("b", None)], limits)
    assert "a left out: 5 more executions of 0.7" in capsys.readouterr().out
    done = executions_in(results)
    assert (done[0], len(done), {each[0] for each in done[1:]}) == (("a", "nvcc", 0), 7, {"b"})


#: Asks for its turn, writes to the file `log` at both ends of it, and needs a while to end.
IN_TURN = r"""
printf t >&$KERNEL_TIMES_TURN
head -c 1 <&$KERNEL_TIMES_TURN > /dev/null
echo begin >> LOG; sleep 0.1; echo end >> LOG
printf t >&$KERNEL_TIMES_TURN
sleep 0.4
"""


def test_workers_execute_kernels_in_turn(tmp_path: Path) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    for name in ("a", "b", "c"):
        program(out, name, {"nvcc": "2000", "O3": "1000"}, {"nvcc": "x", "O3": "y"})
        path = out / name / "program"
        path.write_text(path.read_text() + IN_TURN.replace("LOG", str(tmp_path / "log")))
    started = time.monotonic()
    limits = rig.Limits(started + 60, 3, 1, 2, None, workers=3)
    rig.run(out, results, 1, rig.programs_of(out, is_reversed=False), limits)
    took = time.monotonic() - started
    rows = [json.loads(line) for path in results.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted((row["program"], row["arm"]) for row in rows) == sorted(
        [(name, arm) for name in "abc" for arm in ("nvcc", "O3")] * 3
    )
    assert (tmp_path / "log").read_text().split() == ["begin", "end"] * 18
    assert {row["exit"] for row in rows} == {0}
    assert all(0.1 <= row["turn"] < row["seconds"] for row in rows)
    assert took < sum(row["seconds"] for row in rows)  # they were side by side
    assert {row["ratio"] for row in tabling.rows(out, results) if row["kernel"] == "k"} == {f"{2002 / 1002:.4f}"}


def test_a_program_that_does_not_give_back_its_turn_is_killed(tmp_path: Path) -> None:
    turn = threading.Lock()
    script = "printf t >&$KERNEL_TIMES_TURN; exec sleep 60"
    hanging = rig.Execution(["bash", "-c", script], tmp_path, dict(os.environ), 0.3, turn)
    assert (hanging.code, turn.locked()) == (rig.TIMED_OUT, False)
    assert 0.2 < hanging.turn < 5
    before = rig.Execution(["sleep", "60"], tmp_path, dict(os.environ), 0.3, turn)
    assert (before.code, before.turn) == (rig.TIMED_OUT, 0)


@pytest.mark.parametrize("status", ["0", "1"])  # of subscribing to the creation of contexts
@pytest.mark.parametrize(("word", "ended_by_handler"), [("k=2000", True), ("kill", False)])
def test_the_library_asks_for_its_turn(tmp_path: Path, word: str, status: str, *, ended_by_handler: bool) -> None:
    environment = {
        **os.environ,
        "FAKE_CUPTI_SUBSCRIBED": status,
        "CUDA_INJECTION64_PATH": str(built_times()),
        "KERNEL_TIMES_CUPTI": str(built() / "libcupti.so.13"),
        "KERNEL_TIMES_OUT": str(tmp_path / "times.tsv"),
    }
    turn = threading.Lock()
    turn.acquire()
    done: list[Any] = []
    execution = threading.Thread(
        target=lambda: done.append(
            rig.Execution([str(built() / "program"), "k=1000", word], tmp_path, environment, 20, turn)
        )
    )
    execution.start()
    execution.join(timeout=0.5)
    assert execution.is_alive()  # it waits for its turn
    assert not (tmp_path / "times.tsv").read_text()
    turn.release()
    execution.join()
    assert (done[0].code, done[0].message, turn.locked()) == (0, "", False)
    assert 0 < done[0].turn < done[0].seconds
    assert bool((tmp_path / "times.tsv").read_text()) == ended_by_handler


def test_a_list_has_the_order_and_the_arguments(tmp_path: Path) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    for name in ("a", "b", "c"):
        program(out, name, {"nvcc": "2000", "O3": "1000", "lcm": "500"}, {"nvcc": "x", "O3": "y", "lcm": "z"})
    (tmp_path / "list").write_text("c 11\nb 10\n")
    programs = rig.listed_programs(out, tmp_path / "list")
    assert programs == [("c", ["11"]), ("b", ["10"])]
    rig.run(out, results, 1, programs, rig.Limits(time.monotonic() + 60, 3, 30, 2, frozenset({"lcm"})))
    rows = [json.loads(line) for line in (results / "gpu0.jsonl").read_text().splitlines()]
    assert [row["program"] for row in rows] == ["c"] * 6 + ["b"] * 6
    assert {row["arm"] for row in rows} == {"nvcc", "lcm"}
    assert [row["exit"] for row in rows] == [9] * 6 + [0] * 6  # the program wants 10
    (tmp_path / "list").write_text("d\n")
    with pytest.raises(SystemExit, match="has no d"):
        rig.listed_programs(out, tmp_path / "list")


def execution(arm: str, number: int, code: int, times: list[int]) -> dict[str, Any]:
    mean = sum(times) / len(times)
    kernel = ["k", "4,1,1", "64,1,1", "16", "0", "512", "0", len(times), mean, sorted(times)[len(times) // 2], times]
    return {"program": "a", "arm": arm, "round": number, "exit": code, "kernels": [kernel]}


def test_the_first_launches_count_where_one_execution_ends_early() -> None:
    figures = {arm: {"k": {**FIGURES, "code": arm}} for arm in ("nvcc", "O3", "lcm")}
    executions = [
        execution("nvcc", 0, 0, [200, 200, 200, 900, 900, 900, 900]),
        execution("O3", 0, rig.STOPPED, [100, 100, 100]),
        execution("lcm", 0, 1, [50, 50, 50]),
        execution("nvcc", 1, rig.STOPPED, [200, 200, 200, 200]),
        execution("O3", 1, 0, [100, 100, 100, 900, 900, 900, 900]),
        execution("nvcc", 2, 0, [200, 200, 200, 900, 900, 900, 900]),
        execution("O3", 2, rig.STOPPED, [100, 100, 100, 100]),
    ]
    (row,) = list(tabling.rows_of("a", executions, figures))
    assert (row["arms"], row["ratio"], row["rounds"], row["launches"]) == ("O3", "2.0000", 3, 3)


@pytest.mark.parametrize(
    ("makefile", "arguments"),
    [
        ("run: main\n\t$(LAUNCHER) ./$(program) 5 1000\n", ["5", "100"]),
        ("run: main\n\t./main 0.5 20\n", ["0.5", "20"]),
        ("run: main\n\t./main ../data/graph.txt\n", "it needs files of other folders"),
        ("flags = -I../here -lm\nrun: main\n\t./main 5\n", ["5"]),
        ("run: main\n\t./main input.txt\n", "it needs files"),
        ("LDFLAGS = -lcublas\nrun: main\n\t./main 5\n", "it needs libraries"),
        ("all: main\n", "its Makefile has no command"),
    ],
)
def test_the_command_of_a_makefile(tmp_path: Path, makefile: str, arguments: list[str] | str) -> None:
    (tmp_path / "here").mkdir()
    folder = tmp_path / "name-cuda"
    folder.mkdir()
    (folder / "Makefile").write_text(makefile)
    if isinstance(arguments, list):
        assert rig.arguments_of(folder) == arguments
        return
    with pytest.raises(rig.LeftOut, match=arguments):
        rig.arguments_of(folder)


def test_a_process_of_the_program_does_not_ask_for_a_turn(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CUDA_INJECTION64_PATH": str(built_times()),
        "KERNEL_TIMES_CUPTI": str(built() / "libcupti.so.13"),
        "KERNEL_TIMES_OUT": str(tmp_path / "times.tsv"),
    }
    turn = threading.Lock()
    done = rig.Execution([str(built() / "program"), "child", "k=1000"], tmp_path, environment, 20, turn)
    assert (done.code, done.message, turn.locked()) == (0, "", False)
    lines = (tmp_path / "times.tsv").read_text().splitlines()
    assert [(line.split("\t")[0], line.split("\t")[-1]) for line in lines] == [("child", "2000"), ("k", "1000")]


def test_lines_with_times_are_no_part_of_the_output() -> None:
    assert rig.without_times(b"PASS\nAverage kernel time 3 (us)\nsum 7\nrate 5 GB/s") == b"PASS\nsum 7"
