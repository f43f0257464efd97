"""`ptxmotion run` with a driver that records what it is given (`fake_loading_driver.c`).

Each way by which code is loaded, what is left as it is, and what happens when something fails.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from injection_builds import (
    Ran,
    built_injection,
    compile_c,
    compiler,
    kept_folder,
    program_on_path,
    run_injected,
)
from motion import DIVISION_AGAIN
from nvcc_builds import NVCC, needs_nvcc, path_of
from ptxmotion.cli import main
from ptxmotion.injection.library import NoLibrary, environment, find_library
from ptxmotion.injection.summary import summary_of
from ptxmotion.python_child import child_environment
from ptxmotion.toolchain.cubin import kernel_registers
from ptxmotion.toolchain.fatbin import DeviceImage, device_images

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent

needs_ptxas = pytest.mark.skipif(not path_of("ptxas"), reason="no ptxas")
pytestmark = needs_ptxas

#: Without the gate, the division of `DIVISION_AGAIN` moves for sure.
CHANGES = {"PTXMOTION_FLAGS": "-O2 --gate=off"}

FUNCTIONS = (
    *("cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData"),
    *("cuLibraryLoadFromFile", "cuLinkAddData_v2", "cuLinkAddFile_v2"),
)
WAYS = [
    *(("linked", name) for name in FUNCTIONS),
    *(("dlsym", name) for name in (*FUNCTIONS, "nvJitLinkAddData", "__nvJitLinkAddData_13_0")),
    *(("getproc", name) for name in FUNCTIONS),
    *((how, "cuModuleLoadData") for how in ("default", "getproc-twice", "old-getproc")),
    ("getproc-twice", "cuLibraryLoadData"),
]

#: The function that gets optimized code in place of one that reads a file.
WITH_DATA = {
    "cuModuleLoad": "cuModuleLoadData",
    "cuLibraryLoadFromFile": "cuLibraryLoadData",
    "cuLinkAddFile": "cuLinkAddData",
}

CUDA = """
__device__ int counter;
extern "C" __global__ void choose(int *out, const int *in, int n, int d) {
    int i = threadIdx.x;
    int a = 0;
    if (in[i] > n) a = in[i + 1] / d; else atomicAdd(&counter, 1);
    __syncthreads();
    out[i] = a + in[i + 1] / d;
}
extern "C" __global__ void fill(float *out, float value) { out[threadIdx.x] = value; }
"""


@functools.cache
def built() -> Path:
    """A folder with the driver, and the programs `load_code` and `load_unlinked`."""
    folder = kept_folder("ptxmotion-fake-cuda-")
    for name in ("libcuda.so.1", "libnvJitLink.so.13", "libnvrtc.so.13"):
        compile_c(folder / name, "-shared", "-fPIC", f"-Wl,-soname,{name}", HERE / "fake_loading_driver.c")
    compile_c(folder / "load_code", HERE / "load_code.c", f"-L{folder}", "-l:libcuda.so.1", "-ldl")
    compile_c(folder / "load_unlinked", "-DNOT_LINKED", HERE / "load_code.c", "-ldl")
    return folder


def variables(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    (folder / "loaded").mkdir(exist_ok=True)
    own = {"LD_LIBRARY_PATH": str(built()), "FAKE_CUDA_OUT": str(folder / "loaded")}
    return {**own, **CHANGES, **settings}


def load(folder: Path, how: str, function: str, path: Path, *words: str, **settings: str) -> Ran:
    """Load a file in a program under `ptxmotion run`."""
    program = built() / ("load_unlinked" if how == "default-unlinked" else "load_code")
    command = [program, how.removesuffix("-unlinked"), function, path, *words]
    return run_injected(folder, command, variables(folder, settings))


def recorded(folder: Path) -> list[tuple[str, bytes]]:
    """(function, code) of what the driver got; of PTX, without the zero at its end."""
    files = sorted((folder / "loaded").iterdir())
    return [(path.name.partition(".")[2], _without_zero(path.read_bytes())) for path in files]


def _without_zero(code: bytes) -> bytes:
    return code if code[:4] == b"\x50\xed\x55\xba" else code.rstrip(b"\0")


@pytest.fixture
def ptx(tmp_path: Path) -> Path:
    path = tmp_path / "a.ptx"
    path.write_text(DIVISION_AGAIN)
    return path


# --- the ways ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "function"), WAYS)
def test_ptx_is_replaced(how: str, function: str, ptx: Path, tmp_path: Path) -> None:
    ran = load(tmp_path, how, function, ptx)
    assert (ran.status, ran.output) == (0, "status 0\n"), ran.errors
    ((got, code),) = recorded(tmp_path)
    plain = function.removesuffix("_v2").removeprefix("__")
    assert got == WITH_DATA.get(plain, plain)
    assert b".entry k(" in code
    assert (ptx.read_bytes().count(b"div.s32"), code.count(b"div.s32")) == (2, 1)
    assert ran.changed == 1 and not ran.left
    way = "nvJitLink" if "JitLink" in function else plain
    assert [each["way"] for each in ran.summary["loaded"]] == [way]


def test_the_driver_of_cuda_python(ptx: Path, tmp_path: Path) -> None:
    """A program in Python that others have written."""
    pytest.importorskip("cuda.bindings.driver")
    code = (
        "import sys\nfrom cuda.bindings import driver\n"
        "print(int(driver.cuInit(0)[0]), int(driver.cuModuleLoadData(open(sys.argv[1], 'rb').read() + bytes(1))[0]))"
    )
    ran = run_injected(tmp_path, [sys.executable, "-c", code, ptx], variables(tmp_path, {}))
    assert (ran.status, ran.output) == (0, "0 0\n"), ran.errors
    assert ran.changed == 1


def test_code_that_nvrtc_compiled_is_reported_with_advice(ptx: Path, tmp_path: Path) -> None:
    """It is named, with what to do."""
    ran = load(tmp_path, "dlsym", "nvrtcGetCUBIN", ptx)
    assert ran.status == 0 and ran.left == {("NVRTC", "it compiled to machine code"): 1}
    text = summary_of(['{"way": "NVRTC", "left": "it compiled to machine code"}']).text()
    assert "CUPY_COMPILE_WITH_PTX=1" in text


def test_a_program_that_runs_ptxas(ptx: Path, tmp_path: Path) -> None:
    """As Triton does."""
    path = program_on_path(tmp_path, "ptxmotion-ptxas", "ptxas")
    command = f'test -n "$TRITON_CACHE_DIR" && "$TRITON_PTXAS_PATH" -arch=sm_90 {ptx} -o {tmp_path / "a.cubin"}'
    ran = run_injected(tmp_path, ["sh", "-c", command], {**variables(tmp_path, {}), "PATH": path})
    assert ran.status == 0, ran.errors
    assert ran.summary["loaded"] == [{"way": "ptxas", "ptx": 1, "kernels": 1, "changed": 1}]
    assert set(kernel_registers((tmp_path / "a.cubin").read_bytes())) == {"k"}


# --- fatbins ----------------------------------------------------------------------------------------------------------


def fatbin(folder: Path, *options: str) -> Path:
    (folder / "a.cu").write_text(CUDA)
    subprocess.run([NVCC, "-fatbin", "a.cu", "-o", "a.fatbin", *options], cwd=folder, check=True)
    return folder / "a.fatbin"


def images(code: bytes) -> dict[str, DeviceImage]:
    """(kind and target) → image."""
    return {f"{image.kind} {image.target}": image for image in device_images(code)}


BOTH = ("-gencode", "arch=compute_90,code=[sm_90,compute_90]")
OLDER = ("-gencode", "arch=compute_80,code=[sm_80,compute_80]")


@needs_nvcc
@pytest.mark.parametrize(
    ("how", "function", "words"),
    [
        ("getproc", "cuLibraryLoadData", ["wrapped"]),
        ("getproc", "cuModuleLoadFatBinary", ["wrapped"]),
        ("dlsym", "cuModuleLoadData", []),
        ("linked", "cuModuleLoad", []),
    ],
)
def test_machine_code_beside_ptx_is_replaced(how: str, function: str, words: Sequence[str], tmp_path: Path) -> None:
    path = fatbin(tmp_path, *BOTH, *OLDER, "-maxrregcount", "40")
    ran = load(tmp_path, how, function, path, *words)
    assert ran.status == 0, ran.errors
    ((_, code),) = recorded(tmp_path)
    before, after = images(path.read_bytes()), images(code)
    assert list(before) == list(after)
    changed = [name for name in before if before[name].content() != after[name].content()]
    assert sorted(changed) == ["cubin sm_90", "ptx sm_90"]
    new, old = after["cubin sm_90"].content(), before["cubin sm_90"].content()
    assert set(kernel_registers(new)) == set(kernel_registers(old)) == {"choose", "fill"}
    assert after["ptx sm_90"].options == "-maxrregcount=40"
    from ptxmotion.toolchain.tools import assemble

    text = after["ptx sm_90"].content().decode()
    assert assemble(text, "sm_90", flags=("-maxrregcount=40",), verbose=True).cubin == new
    assert (ran.changed, ran.summary["loaded"][0]["kernels"]) == (1, 2)


@needs_nvcc
@pytest.mark.parametrize(
    ("options", "settings", "reason"),
    [
        (("-gencode", "arch=compute_90,code=sm_90"), {}, "machine code without PTX"),
        (("-gencode", "arch=compute_120,code=[sm_120,compute_120]"), {}, "PTX for newer devices"),
        (
            ("-gencode", "arch=compute_80,code=compute_80", "-gencode", "arch=compute_90,code=sm_90"),
            {},
            "the PTX is for another target than the machine code",
        ),
        (BOTH, {"FAKE_CUDA_VERSION": "12080"}, "the driver is for CUDA 12.8, and ptxas is of 13.0"),
        (BOTH, {"FAKE_CUDA_TARGETS": ""}, "machine code without PTX|PTX for newer devices|the driver names no device"),
        ((*BOTH, "-G"), {}, "it is for a debugger"),
    ],
)
def test_fatbins_that_stay(options: Sequence[str], settings: dict[str, str], reason: str, tmp_path: Path) -> None:
    if "13.0 " in reason and "13.0" not in str(subprocess.run([path_of("ptxas"), "--version"], capture_output=True)):
        pytest.skip("another ptxas")
    path = fatbin(tmp_path, *options)
    ran = load(tmp_path, "getproc", "cuLibraryLoadData", path, "wrapped", **settings)
    assert ran.status == 0
    assert [code for _, code in recorded(tmp_path)] == [path.read_bytes()]
    ((_, found),) = ran.left
    assert re.fullmatch(reason, found)


@needs_nvcc
def test_ptx_that_the_driver_compiles(tmp_path: Path) -> None:
    """There is no machine code for the device."""
    path = fatbin(tmp_path, *OLDER)
    ran = load(tmp_path, "getproc", "cuLibraryLoadData", path, "wrapped")
    ((_, code),) = recorded(tmp_path)
    before, after = images(path.read_bytes()), images(code)
    assert before["cubin sm_80"].content() == after["cubin sm_80"].content()
    assert before["ptx sm_80"].content() != after["ptx sm_80"].content()
    assert ran.changed == 1


@needs_nvcc
def test_devices_of_two_kinds(tmp_path: Path) -> None:
    path = fatbin(tmp_path, *BOTH, *OLDER)
    ran = load(tmp_path, "dlsym", "cuLibraryLoadData", path, FAKE_CUDA_TARGETS="90,86")
    ((_, code),) = recorded(tmp_path)
    before, after = images(path.read_bytes()), images(code)
    assert all(before[name].content() != after[name].content() for name in before)
    assert ran.changed == 2


@needs_nvcc
def test_a_kernel_that_no_rewrite_improves(tmp_path: Path) -> None:
    """Then the machine code of nvcc stays, byte by byte."""
    path = fatbin(tmp_path, *BOTH)
    load(tmp_path, "dlsym", "cuLibraryLoadData", path, PTXMOTION_SKIP="choose")
    assert [code for _, code in recorded(tmp_path)] == [path.read_bytes()]


# --- settings and the summary -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{"PTXMOTION_SKIP": "^k$"}, {"PTXMOTION_ONLY": "other"}, {"PTXMOTION_FLAGS": "-O0"}]
)
def test_kernels_are_selected(settings: dict[str, str], ptx: Path, tmp_path: Path) -> None:
    ran = load(tmp_path, "dlsym", "cuModuleLoadData", ptx, **settings)
    assert recorded(tmp_path) == [("cuModuleLoadData", ptx.read_bytes())]
    assert ran.summary["loaded"] == [{"way": "cuModuleLoadData", "ptx": 1, "kernels": 1, "changed": 0}]


def test_the_summary_and_the_log(ptx: Path, tmp_path: Path) -> None:
    """Without --json the summary is on stderr. A second run reads the cache."""
    for number in range(2):
        log = tmp_path / "log"
        settings = variables(tmp_path, {"PTXMOTION_CACHE": str(tmp_path / "cache"), "PTXMOTION_LOG": str(log)})
        code = (
            "import sys; from ptxmotion.injection import library; library.find_library = lambda: sys.argv[1]\n"
            "from ptxmotion.cli import main; sys.exit(main(['run', *sys.argv[2:]]))"
        )
        words = [built_injection(), built() / "load_code", "dlsym", "cuModuleLoadData", ptx]
        env = {**child_environment(), **settings}
        done = subprocess.run([sys.executable, "-c", code, *words], env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "status 0\n")
        assert done.stderr == (
            "ptxmotion: 1 PTX file loaded: 1 of 1 kernel changed\n"
            "  cuModuleLoadData: 1 PTX file, 1 of 1 kernel changed\n"
            "  changed: k\n"
        )
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        assert [each["cached"] for each in entries] == [False, True][: number + 1]


def test_the_options_of_the_driver_reach_the_gate(tmp_path: Path) -> None:
    from ptxmotion.injection.images import answer_to
    from ptxmotion.injection.protocol import PTX, Request

    seen: list[tuple[str | None, tuple[str, ...]]] = []

    def flags(text: str) -> object:
        raise AssertionError(text)

    from ptxmotion.compiler import build_step

    class Step(build_step.BuildStep):
        def optimized(self, given: bytes, parse_flags: object) -> dict[str, object]:
            seen.extend(self.runs)
            return {"text": None, "kernels": [], "changed": [], "remarks": [], "warnings": []}

    from ptxmotion.injection import images as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BuildStep", Step)
        for text, target in ((".target sm_90a", "sm_90a"), (".target sm_80", "sm_90"), (".target sm_100a", "sm_90")):
            code = f".version 8.0\n{text}\n".encode()
            answer_to(Request(PTX, "cuModuleLoadDataEx", code, (90,), 13000, 40, 2), flags)  # pyright: ignore
            assert seen.pop() == (target, ("-maxrregcount=40", "-O2"))


def test_the_environment_of_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LD_PRELOAD", "TRITON_PTXAS_PATH", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", program_on_path(tmp_path, "ptxmotion-ptxas", "ptxas"))
    found = environment("/a.so", "/run")
    assert found["LD_PRELOAD"] == "/a.so" and found["PTXMOTION_RUN"] == "/run"
    assert found["TRITON_PTXAS_PATH"] == found["TRITON_PTXAS_BLACKWELL_PATH"]
    assert os.path.basename(found["TRITON_PTXAS_PATH"]) == "ptxmotion-ptxas"
    assert "CUDA_FORCE_PTX_JIT" not in found
    monkeypatch.setenv("PTXMOTION_FLAGS", "-O1")
    assert environment("/a.so", "/run")["TRITON_CACHE_DIR"] != found["TRITON_CACHE_DIR"]
    monkeypatch.setenv("LD_PRELOAD", "/b.so")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/mine")
    found = environment("/a.so", "/run")
    assert found["LD_PRELOAD"] == "/a.so:/b.so" and "TRITON_CACHE_DIR" not in found
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/ptxas")
    assert not [name for name in environment("/a.so", "/run") if name.startswith("T")]


# --- the program is not disturbed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"PTXMOTION_FLAGS": "-O9"}, "PTXMOTION_FLAGS: argument -O: invalid choice"),
        ({"PTXMOTION_ONLY": "("}, "is not a regular expression"),
        ({"PTXMOTION_SECONDS": "0.000001"}, "it took longer than 1e-06 s"),
        ({"PTXMOTION_PTXAS": "/no/ptxas", "PTXMOTION_FLAGS": "-O3"}, "/no/ptxas"),
    ],
)
def test_what_fails_is_left(settings: dict[str, str], reason: str, ptx: Path, tmp_path: Path) -> None:
    ran = load(tmp_path, "dlsym", "cuModuleLoadData", ptx, **settings)
    assert (ran.status, ran.output) == (0, "status 0\n")
    assert recorded(tmp_path) == [("cuModuleLoadData", ptx.read_bytes())]
    warnings = [each["message"] for each in ran.summary["warnings"]]
    assert any(reason in text for text in (*warnings, *(why for _, why in ran.left)))


def test_ptx_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.ptx"
    path.write_text(DIVISION_AGAIN.replace("ret;", "no such thing"))
    ran = load(tmp_path, "dlsym", "cuModuleLoadData", path)
    assert recorded(tmp_path) == [("cuModuleLoadData", path.read_bytes())] and ran.status == 0
    assert len(ran.left) == 1


@pytest.mark.parametrize("function", ["cuModuleLoadData", "cuLibraryLoadFromFile", "cuLinkAddData_v2"])
def test_a_driver_that_refuses_the_code(function: str, ptx: Path, tmp_path: Path) -> None:
    """It gets the code of the program then."""
    ran = load(tmp_path, "dlsym", function, ptx, FAKE_CUDA_REFUSES="%m_b32_0")  # a register that a pass has added
    plain = function.removesuffix("_v2")
    assert (ran.status, ran.output) == (0, "status 0\n")
    refused, own = recorded(tmp_path)
    assert b"%m_b32_0" in refused[1] and b"%m_b32_0" not in own[1]
    assert own == (plain, os.fsencode(ptx) if "File" in function else ptx.read_bytes())
    assert (plain, "the driver refuses the optimized code") in ran.left


@pytest.mark.parametrize("folder", ["", "/no/such/folder", "here"])
def test_without_the_other_process(folder: str, ptx: Path, tmp_path: Path) -> None:
    """No variable, no folder, and a folder where nobody listens."""
    place = str(tmp_path) if folder == "here" else folder
    (tmp_path / "log").touch()
    settings = {**os.environ, **variables(tmp_path, {}), "LD_PRELOAD": str(built_injection()), "PTXMOTION_RUN": place}
    command = [built() / "load_code", "linked", "cuModuleLoadData", ptx]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "status 0\n", "")
    assert recorded(tmp_path) == [("cuModuleLoadData", ptx.read_bytes())]
    assert ("cannot be reached" in (tmp_path / "log").read_text()) == (folder == "here")


def test_a_path_that_the_dynamic_linker_cannot_read(ptx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder: with a name"
    folder.mkdir()
    shutil.copy(built_injection(), folder / "inject.so")
    monkeypatch.setattr("injection_builds.built_injection", lambda: folder / "inject.so")
    ran = load(tmp_path, "dlsym", "cuModuleLoadData", ptx)
    assert (ran.status, ran.errors, ran.changed) == (0, "", 1)


def test_a_symbol_that_nobody_has(ptx: Path, tmp_path: Path) -> None:
    """Without the driver, dlsym finds nothing, although this library has a function of that name."""
    ran = load(tmp_path, "default-unlinked", "cuModuleLoadData", ptx)
    assert ran.status == 2 and "the function is not found" in ran.errors


def test_the_next_symbol(tmp_path: Path) -> None:
    """dlsym with RTLD_NEXT depends on the library that calls it."""
    wrap, program = tmp_path / "wrap.c", tmp_path / "program.c"
    wrap.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\nint puts(const char *text) {\n"
        '    printf("wrapped ");\n    return ((int (*)(const char *))dlsym(RTLD_NEXT, "puts"))(text);\n}\n'
    )
    program.write_text('#include <stdio.h>\nint main(void) { return puts("text") < 0; }\n')
    compile_c(tmp_path / "libwrap.so", "-shared", "-fPIC", wrap, "-ldl")
    compile_c(tmp_path / "program", "-fno-builtin", program, tmp_path / "libwrap.so")
    ran = run_injected(tmp_path, ["./program"], {"LD_LIBRARY_PATH": str(tmp_path)})
    assert (ran.status, ran.output) == (0, "wrapped text\n")


def test_the_arguments_of_the_program(tmp_path: Path) -> None:
    """They are not options of `ptxmotion run`, whatever they look like."""
    words = ["--json", "x", "--help", "--remarks", "-O3", "--", "opt", "--passes", "-O3", ""]
    ran = run_injected(tmp_path, [sys.executable, "-c", "import sys; print(sys.argv[1:])", *words], {})
    assert (ran.status, ran.output) == (0, f"{words}\n")


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -TERM $$", 143), ("cat; exit 0", 0)])
def test_the_exit_status(script: str, status: int, tmp_path: Path) -> None:
    ran = run_injected(tmp_path, ["sh", "-c", script], {})
    assert ran.status == status
    assert ran.summary["loaded"] == []


def test_signals_reach_the_program(tmp_path: Path) -> None:
    """SIGTERM is passed on, and the summary is written when the program has ended."""
    settings = {**child_environment(), "PTXMOTION_CACHE": str(tmp_path / "cache")}
    code = (
        "import sys; from ptxmotion.injection import library; library.find_library = lambda: sys.argv[1]\n"
        "from ptxmotion.cli import main; sys.exit(main(['run', *sys.argv[2:]]))"
    )
    script = f"trap 'echo ended; exit 5' TERM; touch {tmp_path / 'started'}; while :; do sleep 0.05; done"
    command = [sys.executable, "-c", code, str(built_injection()), "sh", "-c", script]
    running = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "started").exists():
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    output, errors = running.communicate(timeout=60)
    assert (running.returncode, output) == (5, "ended\n")
    assert errors == (
        "ptxmotion: 0 PTX files loaded: 0 of 0 kernels changed\n"
        "  no code was seen: none was loaded (is there a GPU?), or it was loaded in an unknown way\n"
    )


def test_no_place_for_the_socket(ptx: Path, tmp_path: Path) -> None:
    """A folder for temporary files whose name is too long for a socket is not used. The program runs in any case."""
    long = tmp_path / ("long" * 20)
    long.mkdir()
    assert load(tmp_path, "dlsym", "cuModuleLoadData", ptx, TMPDIR=str(long)).changed == 1
    code = (
        "import sys, tempfile\nfrom ptxmotion.injection import library, server\n"
        "library.find_library = lambda: sys.argv[1]\n"
        "def fail(folder):\n    raise OSError(28, 'No space left on device')\n"
        "server.listening = fail\n"
        "from ptxmotion.cli import main\nsys.exit(main(['run', 'sh', '-c', 'echo ran; exit 3']))"
    )
    command = [sys.executable, "-c", code, str(built_injection())]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment())
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert done.stderr == ("ptxmotion: warning: sh runs without the optimizer: [Errno 28] No space left on device\n")


def test_an_optimizer_that_ends(ptx: Path, tmp_path: Path) -> None:
    """An error in the process that answers, before it answers: the program goes on, and waits for nothing."""
    code = (
        "import sys\nfrom ptxmotion.injection import library, server\n"
        "library.find_library = lambda: sys.argv[1]\n"
        "def fail():\n    raise ImportError('no optimizer')\n"
        "server._import_optimizer = fail\n"
        "from ptxmotion.cli import main\nsys.exit(main(['run', *sys.argv[2:]]))"
    )
    words = ["sh", "-c", f"sleep 1; {built() / 'load_code'} dlsym cuModuleLoadData {ptx}"]
    command = [sys.executable, "-c", code, str(built_injection()), *words]
    environment = {**child_environment(), **variables(tmp_path, {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (0, "status 0\n")
    assert recorded(tmp_path) == [("cuModuleLoadData", ptx.read_bytes())]
    assert "ptxmotion run: ImportError: no optimizer" in done.stderr and "cannot be reached" in done.stderr


def test_damaged_code_does_no_harm(tmp_path: Path) -> None:
    """Random changes of fatbins, under the sanitizers of the compiler: of addresses and of undefined behaviour. Nothing
    outside of the code is read; what seems to be PTX would be sent."""
    source = random.Random(3)
    code = small_fatbin(DIVISION_AGAIN.encode()) + b"\0" * 8
    cases = [b"", b"\x50\xed\x55\xba", DIVISION_AGAIN.encode(), code]
    for _ in range(3000):
        changed = bytearray(code[: source.choice((len(code), len(code), source.randrange(len(code))))])
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(min(len(changed), 96)) if changed else 0
            changed[at : at + 1] = bytes([source.choice((0, 1, 8, 255, source.randrange(256)))])
        cases.append(bytes(changed))
    (tmp_path / "cases").write_bytes(b"".join(struct.pack("<I", len(case)) + case for case in cases))
    (tmp_path / "log").touch()
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover=all"]
    words = [*flags, "-rdynamic", "-I", ROOT / "injection", HERE / "damaged_code.c", ROOT / "injection/inject_code.c"]
    if subprocess.run([compiler(), *words, "-o", tmp_path / "program", "-ldl"], capture_output=True).returncode:
        pytest.skip("the compiler has no sanitizers")
    done = subprocess.run([tmp_path / "program", tmp_path, tmp_path / "cases"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{len(cases)}\n"), done.stderr[-4000:]
    entries = Counter(json.loads(line)["left"] for line in (tmp_path / "log").read_text().splitlines())
    assert entries.total() == len(cases)
    assert entries["ptxmotion run cannot be reached"] > 100 and entries["a fatbin that is cut short"] > 100


def small_fatbin(text: bytes) -> bytes:
    """A fatbin with one image of PTX for sm_90."""
    padded = text + bytes(8 - len(text) % 8)
    image = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(padded), 0, 0, 8, 0, 90, 0, 0, 0x11, 0, 0) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(image)) + image


def test_many_processes_and_threads(ptx: Path, tmp_path: Path) -> None:
    command = " & ".join([f"{built() / 'load_code'} dlsym cuModuleLoadData {ptx}"] * 6)
    out = 'FAKE_CUDA_OUT=$(mktemp -d "$FAKE_CUDA_OUT/XXXXXX")'
    ran = run_injected(tmp_path, ["sh", "-c", f"export {out}; {command} & wait"], variables(tmp_path, {}))
    assert ran.output == "status 0\n" * 6
    assert ran.changed == 6


def test_what_cannot_be_run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_injected(tmp_path, ["/no/such/program"], {}).status == 127
    monkeypatch.setattr("ptxmotion.injection.library.__file__", str(tmp_path / "library.py"))
    with pytest.raises(NoLibrary, match="install a C compiler"):
        find_library()
    assert main(["run", "true"]) == 4
    assert "the library for `ptxmotion run` was not built" in capfd.readouterr().err
    path = tmp_path / "_inject.so"
    shutil.copy(built_injection(), path)
    assert find_library() == str(path)


def test_bisect_reads_the_log_of_a_program(ptx: Path, tmp_path: Path) -> None:
    """`bisect` reads the log of programs that run so, too."""
    line = json.dumps({"way": "cuModuleLoadData", "left": "machine code without PTX"})
    from ptxmotion.cli.bisect import Trials

    log = tmp_path / "log"
    found = Trials(["sh", "-c", f"echo '{line}' >> $PTXMOTION_LOG"], str(log), is_shown=False).run("a test", "-O3")
    assert found.entries == [] and not found.fails


def test_the_tests_leave_no_folders(tmp_path: Path) -> None:
    code = "import injection_builds; print(injection_builds.kept_folder('ptxmotion-inject-'))"
    settings = {**child_environment(), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, env=settings, capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path)), done.stderr
    assert list(tmp_path.iterdir()) == []
