"""`--engine=ray` on a cluster of two nodes, which are local processes: results, and lost workers, nodes and drivers.

The programs write a line to `runs.txt` each time that their data is made: name, process of the worker's child, process
of the worker. Some of them kill their worker or their node.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from own_kernels import COALESCED, write_program
from ptxmotion.harness import results
from ptxmotion.harness.results import ResultFile

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ray: Any = pytest.importorskip("ray", reason="needs Ray: pip install 'ptxmotion[ray]'")

ROOT = Path(__file__).parents[2]

_DATA = """\
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent

def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

def make_data(size, seed):
    worker = os.getppid()
    is_first = not (HERE / "NAME.first").exists()
    if seed == 1:
        (HERE / "NAME.first").touch()
        with open(HERE / "runs.txt", "a") as file:
            file.write(f"NAME {os.getpid()} {worker}\\n")
    ACTION
"""

#: What a program does when its data is made.
NOTHING = "pass"
KILL_WORKER = "os.kill(worker, signal.SIGKILL); time.sleep(60)"
KILL_WORKER_ONCE = f"if is_first: {KILL_WORKER}"
KILL_NODE_ONCE = "if is_first: os.kill(parent_of(worker), signal.SIGKILL); time.sleep(60)"
WAIT = "while not (HERE / 'go').exists(): time.sleep(0.05)"


def program(folder: Path, name: str, action: str = NOTHING) -> None:
    """A program `mine/NAME` in a file of its own."""
    path = write_program(folder / f"{name}.py", COALESCED)
    text = path.read_text().replace('"mine", "scale"', f'"mine", "{name}"')
    start = _DATA.replace("NAME", name).replace("ACTION", action)
    path.write_text(text.replace("def make_data(size, seed):\n", start))


def start_cluster() -> Any:
    """A head without cores, and two nodes with one core each."""
    kind: Any = importlib.import_module("ray.cluster_utils").Cluster
    small = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    made: Any = kind(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    made.wait_for_nodes()
    return made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    made = start_cluster()
    yield made
    made.shutdown()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ptxmotion", *words]


def bench(folder: Path, name: str, *words: str) -> list[str]:
    """The command that runs the programs of the folder into the result file of that name."""
    common = ["--backend=emulator", "--seeds=1", "--variant=cse", f"--json={folder / name}"]
    return command("bench", "run", str(folder), *common, *words)


def environment(cluster: Any) -> dict[str, str]:
    """For a command on this cluster; without one, `--engine=ray` starts its own."""
    address = cluster.address if cluster is not None else "local"
    return {**os.environ, "PYTHONPATH": str(ROOT / "typings"), "RAY_ADDRESS": address}


def done(words: list[str], cluster: Any = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment(cluster), capture_output=True, text=True, timeout=300)


def runs(folder: Path) -> list[tuple[str, int, int]]:
    """Name, child and worker of each run."""
    path = folder / "runs.txt"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(name, int(child), int(worker)) for name, child, worker in lines]


def run_counts(folder: Path) -> dict[str, int]:
    names = [name for name, _, _ in runs(folder)]
    return {name: names.count(name) for name in sorted(names)}


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def no_process_is_left(folder: Path) -> None:
    started = {process for _, child, worker in runs(folder) for process in (child, worker)}
    assert started
    wait_until(lambda: not any(map(is_alive, started)), 30.0)


def content(result: ResultFile) -> Any:
    """All of a result that does not depend on when and where it was made."""
    plain = results.to_json(result)
    del plain["datetime"], plain["machine_info"]["workers"]
    for each in plain["benchmarks"]:
        del each["seconds"]
    return plain


def test_the_result_is_that_of_one_computer(cluster: Any, tmp_path: Path) -> None:
    for name in "abcde":
        program(tmp_path, name)
    on_cluster = done(bench(tmp_path, "ray.json", "--engine=ray"), cluster)
    assert on_cluster.returncode == 0, on_cluster.stderr
    assert "ray: 3 nodes, 0 GPUs; emulator: chosen with --backend" in on_cluster.stderr
    assert run_counts(tmp_path) == dict.fromkeys("abcde", 1)
    assert len({worker for _, _, worker in runs(tmp_path)}) == 2
    no_process_is_left(tmp_path)
    here = done(bench(tmp_path, "local.json"))
    assert here.returncode == 0, here.stderr
    both = [results.read(tmp_path / name) for name in ("ray.json", "local.json")]
    assert len(both[0].machine_info["workers"]) == 2
    both[1].machine_info["workers"] = []
    assert content(both[0]) == content(both[1])
    assert done(command("bench", "audit", str(tmp_path / "ray.json"))).returncode == 0


def test_the_program_of_a_lost_worker_is_run_again_and_given_up_after_three(cluster: Any, tmp_path: Path) -> None:
    program(tmp_path, "a")
    program(tmp_path, "b", KILL_WORKER)
    program(tmp_path, "c", KILL_WORKER_ONCE)
    program(tmp_path, "d")
    ended = done(bench(tmp_path, "r.json", "--engine=ray"), cluster)
    assert ended.returncode == 3, ended.stderr
    assert "ray: a worker was lost while it ran mine/c: worker" in ended.stderr
    assert run_counts(tmp_path) == {"a": 1, "b": 3, "c": 2, "d": 1}
    result = results.read(tmp_path / "r.json")
    assert [each.fullname for each in result.benchmarks] == ["mine/a", "mine/b", "mine/c", "mine/d"]
    assert result.complete
    errors = [each.error for each in result.benchmarks]
    assert errors[1].startswith("given up: 3 workers were lost while they ran it: worker ")
    assert [errors[0], *errors[2:]] == ["", "", ""]
    assert f"ptxmotion: error: mine/b: {errors[1]}" in ended.stderr
    no_process_is_left(tmp_path)


def test_the_program_of_a_lost_node_is_run_again(tmp_path: Path) -> None:
    cluster = start_cluster()
    try:
        program(tmp_path, "a")
        program(tmp_path, "b", KILL_NODE_ONCE)
        for name in "cd":
            program(tmp_path, name)
        ended = done(bench(tmp_path, "r.json", "--engine=ray"), cluster)
        assert ended.returncode == 0, ended.stderr
        assert run_counts(tmp_path) == {"a": 1, "b": 2, "c": 1, "d": 1}
        result = results.read(tmp_path / "r.json")
        assert [each.fullname for each in result.benchmarks] == ["mine/a", "mine/b", "mine/c", "mine/d"]
        assert result.complete and not any(each.error for each in result.benchmarks)
        no_process_is_left(tmp_path)
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("own", [False, True], ids=["a cluster that stays", "a cluster of the driver"])
def test_a_killed_driver_leaves_a_file_to_resume_and_no_process(request: Any, tmp_path: Path, own: bool) -> None:
    cluster: Any = None if own else request.getfixturevalue("cluster")
    program(tmp_path, "a")
    program(tmp_path, "b", WAIT)
    program(tmp_path, "c", WAIT)
    words = bench(tmp_path, "r.json", "--engine=ray", "--jobs=2")
    with subprocess.Popen(words, env=environment(cluster), stderr=subprocess.PIPE, start_new_session=True) as driver:
        path = tmp_path / "r.json"
        wait_until(lambda: run_counts(tmp_path) == {"a": 1, "b": 1, "c": 1} and path.exists())
        ours = descendants(driver.pid)
        driver.send_signal(signal.SIGKILL)
    no_process_is_left(tmp_path)
    # Two agents of Ray look for their lost cluster for 60 seconds.
    wait_until(lambda: not any(map(is_alive, ours)), 120.0)
    left = results.read(path)
    assert [each.fullname for each in left.benchmarks] == ["mine/a"] and not left.complete
    (tmp_path / "go").touch()
    again = done([*words, "--resume"], cluster)
    assert again.returncode == 0, again.stderr
    assert "mine/a: kept from the result file" in again.stderr
    assert run_counts(tmp_path) == {"a": 1, "b": 2, "c": 2}
    result = results.read(path)
    assert [each.fullname for each in result.benchmarks] == ["mine/a", "mine/b", "mine/c"] and result.complete
    no_process_is_left(tmp_path)


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True).stdout
    found = [int(each) for each in children.split()]
    return found + [each for child in found for each in descendants(child)]


def test_a_file_that_changed_since_the_start_is_an_error(cluster: Any, tmp_path: Path) -> None:
    program(tmp_path, "a", WAIT)
    program(tmp_path, "b")
    program(tmp_path, "c", WAIT)
    words = bench(tmp_path, "r.json", "--engine=ray", "--jobs=1")
    with subprocess.Popen(words, env=environment(cluster), stderr=subprocess.PIPE, text=True) as driver:
        wait_until(lambda: run_counts(tmp_path) == {"a": 1})
        with open(tmp_path / "b.py", "a") as file:
            file.write("# another file\n")
        (tmp_path / "go").touch()
        _, err = driver.communicate(timeout=120)
    assert driver.returncode == 3
    assert "b.py on " in err and "differs from the file that the run began with" in err
    assert [bool(each.error) for each in results.read(tmp_path / "r.json").benchmarks] == [False, True, False]


def test_opt_writes_what_it_writes_on_one_computer(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for path in sorted((ROOT / "tests" / "ptx").glob("*.ptx"))[:12]:
        (tmp_path / "in" / "sub" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "in" / "bad.ptx").write_text("no PTX\n")
    endings = [
        done(command("opt", str(tmp_path / "in"), "-o", str(tmp_path / name), "--remarks", *words), on)
        for name, words, on in (("a", ["--engine=ray"], cluster), ("b", [], None))
    ]
    assert [each.returncode for each in endings] == [3, 3]
    assert endings[0].stderr == endings[1].stderr and "2 failed" in endings[0].stderr
    written = [{p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*.*")} for n in "ab"]
    assert written[0] == written[1] and len(written[0]) > 5


def test_opt_gives_a_file_up_after_three_workers(cluster: Any, tmp_path: Path) -> None:
    """A ptxas that kills its caller. Its name is in the environment, which the workers take over."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.ptx").write_bytes((ROOT / "tests" / "ptx" / "lcm_diamond.ptx").read_bytes())
    (tmp_path / "in" / "b.ptx").write_text("no PTX\n")
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(f"#!/bin/sh\necho $PPID >> {tmp_path}/killed\nkill -9 $PPID\n")
    ptxas.chmod(0o755)
    with_ptxas = {**environment(cluster), "PTXMOTION_PTXAS": str(ptxas), "PTXMOTION_CACHE": str(tmp_path / "cache")}
    words = command("opt", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "-O2", "--engine=ray")
    ended = subprocess.run(words, env=with_ptxas, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 70, ended.stderr
    first, second, *_, last = ended.stderr.splitlines()
    assert first.startswith(f"{tmp_path}/in/a.ptx: error: given up: 3 workers were lost while they optimized it: ")
    assert second.startswith(f"{tmp_path}/in/b.ptx:1:1: error: ")
    assert last.startswith("ptxmotion: 2 files: 0 changed, 2 failed")
    killed = (tmp_path / "killed").read_text().split()
    assert len(killed) == len(set(killed)) == 3
    assert list((tmp_path / "out").iterdir()) == []


def test_one_file_needs_no_engine(capfd: Any) -> None:
    from ptxmotion.cli import main

    assert main(["opt", "a.ptx", "--engine=ray"]) == 2
    assert "--engine distributes several files" in capfd.readouterr().err


def test_without_ray_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path) -> None:
    from ptxmotion.cli import main

    monkeypatch.setitem(sys.modules, "ray", None)
    program(tmp_path, "a")
    assert main(["bench", "run", str(tmp_path), "--engine=ray"]) == 4
    assert "--engine=ray needs Ray: pip install 'ptxmotion[ray]'" in capfd.readouterr().err


def test_an_address_without_a_cluster_is_an_error(monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path) -> None:
    from ptxmotion.cli import main

    program(tmp_path, "a")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert main(["bench", "run", str(tmp_path), "--engine=ray"]) == 4
    assert "the Ray cluster cannot be used" in capfd.readouterr().err
    assert json.dumps(sorted(each.name for each in tmp_path.iterdir())) == '["a.py"]'
