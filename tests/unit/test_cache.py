"""The cache on disk: it returns only what was written to it, whatever files its folder contains."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from ptxmotion import cache as cache_module
from ptxmotion.cache import Cache, cache_folder, file_identity, source_digest, usage
from ptxmotion.cli import main
from ptxmotion.python_child import child_environment, python_command
from ptxmotion.toolchain.tools import find_tool

ROOT = Path(__file__).parents[2]


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_put_comes_back_under_its_own_key_only(tmp_path: Path) -> None:
    one, other = Cache("one", tmp_path), Cache("other", tmp_path)
    one.put(b"body\0\n", "a", "bc")
    assert one.get("a", "bc") == one.get(b"a", b"bc") == b"body\0\n"
    for key in (("ab", "c"), ("abc",), ("a", "bc", ""), ("", "a", "bc")):
        assert one.get(*key) is None
    assert other.get("a", "bc") is None
    one.put(b"", "a", "bc")
    assert one.get("a", "bc") == b"" and len(entries(tmp_path)) == 1


@pytest.mark.parametrize(
    "damage", ["short", "long", "empty", "folder", "full folder", "pipe", "link", "socket", "moved"]
)
def test_damage_counts_as_nothing_and_is_mended(tmp_path: Path, damage: str) -> None:
    cache = Cache("one", tmp_path / "cache")
    cache.put(b"body", "a")
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    entry.unlink()
    match damage:
        case "folder" | "full folder":
            entry.mkdir()
            if damage == "full folder":
                (entry / "file").write_text("")
        case "pipe":
            os.mkfifo(entry)
        case "link":
            (tmp_path / "elsewhere").write_bytes(whole)
            entry.symlink_to(tmp_path / "elsewhere")
        case "socket":
            os.mknod(entry, 0o140600)
        case "moved":  # the entry has another key
            cache.put(b"other", "b")
            entries(tmp_path / "cache")[0].rename(entry)
        case _:
            entry.write_bytes({"short": whole[:-1], "long": whole + b"!", "empty": b""}[damage])
    assert cache.get("a") is None
    cache.put(b"body", "a")
    assert cache.get("a") == (None if damage == "full folder" else b"body")


def test_a_folder_that_cannot_be_used_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", Path("/dev/full"), Path("/proc/nothing"), None):
        cache = Cache("one", folder)
        cache.put(b"body", "a")
        assert cache.get("a") is None


def test_a_full_disk_leaves_no_scraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    cache = Cache("one", tmp_path)
    cache.put(b"old", "a")
    monkeypatch.setattr("os.replace", no_room)
    cache.put(b"new", "a")
    assert cache.get("a") == b"old" and len(entries(tmp_path)) == 1


def test_the_least_recently_used_entries_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "LIMIT", 3000 * 4)
    monkeypatch.setattr(cache_module, "_SHARES", 4)
    monkeypatch.setattr(cache_module, "_hash", lambda key: "00" + "".join(key))  # pyright: ignore
    cache = Cache("one", tmp_path)
    for number, name in enumerate("abc"):
        cache.put(b"x" * 800, name)
        os.utime(tmp_path / "one" / "00" / name, (number + 1, number + 1))
    assert cache.get("a") is not None  # used again
    cache.put(b"x" * 800, "d")
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]
    cache.put(b"x" * 5000, "e")
    assert [name for name in "abcde" if cache.get(name)] == ["e"]


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", "/own")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("PTXMOTION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/ptxmotion")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ptxmotion"
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # pyright: ignore
    assert cache_folder() is None and usage().problem.startswith("there is no home folder")


def test_the_command_works_without_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("PTXMOTION_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # pyright: ignore
    source = tmp_path / "in.ptx"
    source.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n")
    assert main(["opt", str(source)]) == 0
    assert main(["doctor"]) == 0
    assert "note  cache" in capfd.readouterr().out


def test_doctor_says_where_it_is_and_how_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    Cache("one", tmp_path).put(b"x" * (1 << 20), "a")
    Cache("two", tmp_path).put(b"", "a")
    assert main(["doctor"]) == 0
    assert f"{tmp_path}, 2 files, 1.0 MiB" in capfd.readouterr().out
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "file" / "below"))
    assert main(["doctor"]) == 0
    assert f"{tmp_path / 'file'} cannot be written to" in capfd.readouterr().out


WRITER = """
from pathlib import Path
from ptxmotion.cache import Cache
cache = Cache("one", Path(sys.argv[1]))
for turn in range(int(sys.argv[2])):
    cache.put(sys.argv[3].encode() * 200_000, "a")
    print(turn, flush=True)
"""


def writer(path: Path, turns: int, letter: str) -> subprocess.Popen[str]:
    command = python_command(WRITER, str(path), str(turns), letter)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())


def test_two_processes_share_an_entry_and_one_may_be_killed(tmp_path: Path) -> None:
    cache = Cache("one", tmp_path)
    endless, other = writer(tmp_path, 1_000_000, "a"), writer(tmp_path, 50, "b")
    seen: set[bytes] = set()
    while other.poll() is None:
        body = cache.get("a")
        if body is not None:
            assert body in (b"a" * 200_000, b"b" * 200_000)
            seen.add(body[:1])
    assert endless.stdout is not None
    endless.stdout.readline()
    endless.send_signal(signal.SIGKILL)
    endless.wait()
    assert seen
    assert cache.get("a") in (b"a" * 200_000, b"b" * 200_000)


# --- what keys are made of


def test_a_replaced_program_has_another_identity(tmp_path: Path) -> None:
    """The identity differs even if the path, the version, the size and the modification time are the same."""
    path = tmp_path / "tool"
    shutil.copy2(find_tool("ptxas").path, path)
    first, times = file_identity(path), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    os.utime(path, ns=times)
    assert file_identity(path) != first
    shutil.copy2(path, tmp_path / "other")
    second = file_identity(path)
    (tmp_path / "other").replace(path)
    assert file_identity(path) != second


def test_editing_or_moving_any_source_file_changes_the_digest(tmp_path: Path) -> None:
    """For each folder of the package whose sources are in a key, including its subfolders."""
    for folder in ("analysis", "ptx", "transforms", "harness", "cli"):
        copy = tmp_path / folder
        shutil.copytree(ROOT / folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
        first = source_digest(tmp_path, [folder])
        assert first == source_digest(ROOT, [folder])
        for path in sorted(copy.rglob("*.py")):
            text = path.read_bytes()
            path.write_bytes(text + b"#")
            assert source_digest(tmp_path, [folder]) != first, path
            path.write_bytes(text)
            moved = path.rename(path.with_name("moved_" + path.name))
            assert source_digest(tmp_path, [folder]) != first, path
            moved.rename(path)
        assert source_digest(tmp_path, [folder]) == first
        shutil.rmtree(copy)


def test_the_digest_of_the_root_is_of_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = source_digest(tmp_path, ["."])
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.py").write_text("1")
    assert source_digest(tmp_path, ["."]) == first
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    assert source_digest(tmp_path, ["."]) != first
