"""The C library as a file: how it is found and built, and which bytes it accepts as a contract."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from fake_driver import ROOT, built_library
from ptxmotion.contract import Contract, Inside, KernelContract, Parameter, Range, Version
from ptxmotion.contract.bytecode import encode
from ptxmotion.runtime.library import Library, LibraryError, find_library
from test_launch_library import DISJOINT, contract_of, driver_of

GOOD = encode(contract_of(Version("k_1", (DISJOINT,))))


def test_the_library_that_was_built_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the module, under the name that the build gives it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    monkeypatch.setattr("ptxmotion.runtime.library.__file__", str(tmp_path / "library.py"))
    assert find_library() is None
    target = tmp_path / f"_launch{EXTENSION_SUFFIXES[0]}"
    source = ROOT / "runtime" / "ptxmotion_launch.c"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", target, "-ldl", "-lpthread"], check=True)
    assert isinstance(find_library(), Library)


def test_a_contract_is_not_bound_without_a_driver() -> None:
    """Without libcuda.so.1 a contract is not bound, and the message says why."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a driver")
    with pytest.raises(LibraryError, match=r"libcuda\.so\.1 or a function of it is missing"):
        built_library().bind(encode(contract_of()), 1)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no contract"),
        (GOOD[:40], "no contract"),
        (GOOD + b"\0", "no contract"),
        (b"PTXMCX" + GOOD[6:], "no contract"),
        (GOOD[:6] + b"\3\0" + GOOD[8:], "a version that this library does not read"),
    ],
)
def test_bytes_that_are_no_contract(raw: bytes, message: str) -> None:
    driver = driver_of()
    with pytest.raises(LibraryError, match=message):
        built_library().bind(raw, driver.MODULE, driver=driver.table())


def test_too_many_pointers() -> None:
    parameters = tuple(Parameter(f"p{index}", 8 * index, 8, "u64", pointer=True) for index in range(65))
    conditions = tuple(Inside(Range(index)) for index in range(65))
    contract = Contract("0" * 64, {"k": KernelContract("k", parameters, (Version("k_1", conditions), Version("k")))})
    driver = driver_of()
    with pytest.raises(LibraryError, match="more than 64 pointers"):
        built_library().bind(encode(contract), driver.MODULE, driver=driver.table())


def test_a_file_that_is_not_the_library(tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    path.write_bytes(b"no library")
    with pytest.raises(LibraryError, match="is not the launch library"):
        Library(path)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "a.c"
    source.write_text("int ptxmotion_abi_version(void) { return 999; }")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", tmp_path / "b.so"], check=True)
    with pytest.raises(LibraryError, match="has ABI version 999"):
        Library(tmp_path / "b.so")


def test_the_header_is_the_only_one_that_cxx_needs(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = tmp_path / "a.cpp"
    source.write_text('#include "ptxmotion_launch.h"\nint main() { return ptxmotion_abi_version() != 2; }\n')
    subprocess.run([compiler, "-Wall", "-Werror", "-fsyntax-only", "-I", ROOT / "runtime", source], check=True)


def test_damaged_bytes_do_no_harm(tmp_path: Path) -> None:
    """Random changes of contracts, under the sanitizers of the compiler: of addresses and of undefined behaviour."""
    import random_contracts
    from hypothesis import given, settings

    contracts: list[bytes] = []

    @settings(max_examples=60, database=None)
    @given(random_contracts.kernels | random_contracts.easy_kernels)
    def collect(kernel: KernelContract) -> None:
        contracts.append(encode(Contract("0" * 64, {"k": kernel})))

    collect()
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    program, cases = tmp_path / "program", tmp_path / "cases"
    sources = [ROOT / "tests" / "unit" / "damaged_contracts.c", ROOT / "runtime" / "ptxmotion_launch.c"]
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I", str(ROOT / "runtime")]
    done = subprocess.run([compiler, *flags, *sources, "-o", program, "-ldl", "-lpthread"], capture_output=True)
    if done.returncode:
        pytest.skip("the compiler has no sanitizers")
    source = random.Random(5)
    with cases.open("wb") as file:
        for raw in contracts:
            for number in range(60):
                changed = damaged(raw, source) if number else raw
                file.write(struct.pack("<I", len(changed)) + changed)
    done = subprocess.run([program, cases], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    good, _, every, *_ = done.stdout.split()
    assert len(contracts) <= int(good) < int(every) == 60 * len(contracts)


def damaged(raw: bytes, source: random.Random) -> bytes:
    """Some bytes changed, removed or repeated; the size in the head is right, so that more than it is read."""
    changed = bytearray(raw)
    for _ in range(source.choice((1, 1, 2, 5))):
        at = source.randrange(48, len(changed)) if len(changed) > 48 else 0
        match source.randrange(4):
            case 0:
                changed[at] = source.randrange(256)
            case 1:
                changed[at] ^= 1 << source.randrange(8)
            case 2:
                del changed[at : at + source.randrange(1, 9)]
            case _:
                changed[at:at] = changed[at : at + source.randrange(1, 30)]
    if source.randrange(10):
        changed[8:12] = struct.pack("<I", len(changed))
    return bytes(changed)
