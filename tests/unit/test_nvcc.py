"""`ptxmotion nvcc`: what it builds is what nvcc builds, and kernels are optimized.

The tests compile with the real nvcc. They compare files byte by byte, except for the process numbers in the names of
nvcc's temporary files.
"""

import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from motion import DIVISION_AGAIN
from nvcc_builds import NVCC, environment, needs_nvcc, ours, plain, whole_toolkit
from ptxmotion.compiler import launch, toolkit_view
from ptxmotion.compiler.dry_run import assemblies_of, is_same_file, steps_of
from ptxmotion.python_child import module_command, python_command

pytestmark = needs_nvcc

#: The options that change a kernel of `SOURCE`: without the gate, a division moves.
CHANGES = "-O2 --gate=off"

SOURCE = """\
#include "other.h"
__device__ int counter;
namespace app {
__global__ void choose(int *out, const int *in, int n, int d) {
    int i = threadIdx.x;
    int a = 0;
    if (in[i] > n) a = in[i + 1] / d; else atomicAdd(&counter, 1);
    __syncthreads();
    out[i] = a + in[i + 1] / d;
}
template <typename T> __global__ void fill(T *out, T value) { out[threadIdx.x] = twice(value); }
}
int main() {
    app::choose<<<1, 32>>>(nullptr, nullptr, 1, 2);
    app::fill<<<1, 32>>>((float *)nullptr, 1.0f);
    return 0;
}
"""

HEADER = "template <typename T> __device__ T twice(T value) { return value + value; }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.cu").write_text(SOURCE)
    (tmp_path / "other.h").write_text(HEADER)
    return tmp_path


@functools.cache
def plain_ptx() -> bytes:
    """The PTX that nvcc makes of the file in `folder` for sm_90."""
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        (own / "a.cu").write_text(SOURCE)
        (own / "other.h").write_text(HEADER)
        assert plain(own, "-ptx", "-arch=sm_90", "a.cu").returncode == 0
        return (own / "a.ptx").read_bytes()


def outputs(folder: Path) -> dict[str, bytes]:
    """Path → content, without process numbers, of each file below the folder, except for the cache and what only has a
    name while nvcc runs."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "cache"]
    names = {_unnumbered(str(path.relative_to(folder)).encode()).decode(): path for path in files}
    return {name: _unnumbered(path.read_bytes()) for name, path in names.items()}


def _unnumbered(data: bytes) -> bytes:
    return re.sub(rb"tmpxft_[0-9a-f]{8}", b"tmpxft_", data)


MODES: dict[str, Sequence[str]] = {
    "object": ("-arch=sm_90", "-c", "a.cu", "-o", "a.o"),
    "relocatable": ("-arch=sm_90", "-rdc=true", "-c", "a.cu"),
    "targets": (
        *("-gencode", "arch=compute_80,code=[sm_80,sm_86,compute_80]"),
        *("-gencode", "arch=compute_90,code=sm_90", "-t", "3", "-c", "a.cu"),
    ),
    "ptx": ("-ptx", "-arch=sm_90", "a.cu"),
    "cubin": (
        *("-cubin", "-arch=sm_90", "-lineinfo", "-maxrregcount", "40"),
        *("-Xptxas", "-O2,-v", "a.cu", "-o", "x y.cubin"),
    ),
    "fatbin": ("-fatbin", "-gencode=arch=compute_90,code=[sm_90,compute_90]", "a.cu"),
    # Not an object: the order of strings in debug information of the host depends on names of temporary files.
    "debug": ("-G", "-arch=sm_90", "-cubin", "a.cu"),
    "executable": ("-arch=sm_90", "a.cu", "-o", "program"),
    "kept": ("-arch=sm_90", "--keep", "--keep-dir", "kept", "-c", "a.cu"),
    "options file": ("--options-file", "options", "-cubin", "a.cu"),
    "dependencies": ("-arch=sm_90", "-MD", "-MF", "a.d", "-c", "a.cu"),
    "only dependencies": ("-arch=sm_90", "-M", "a.cu"),
    "preprocessor": ("-arch=sm_90", "-E", "a.cu"),
    "link-time": ("-arch=sm_90", "-dlto", "-dc", "a.cu"),
    "version": ("--version",),
    "dry run": ("--dryrun", "-arch=sm_90", "-cubin", "a.cu"),
    "as CUDA": ("-arch=sm_90", "-x", "cu", "-cubin", "copy.cpp"),
    "host file": ("-c", "host.cpp"),
    "library": ("-arch=sm_90", "-lib", "a.cu", "-o", "liba.a"),
    "native": ("-arch=native", "-cubin", "a.cu"),
    "two files": ("-arch=sm_90", "-dc", "a.cu", "copy.cu"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_with_no_passes_it_is_nvcc(mode: str, tmp_path: Path) -> None:
    """The same files, messages and exit status. `-O0` runs no pass, so kernels are compiled as they are. What nvcc
    refuses is in `test_nvcc_failures`."""
    results: list[tuple[int, str, str, dict[str, bytes]]] = []
    nvcc = whole_toolkit(tmp_path / "toolkit")
    for arm in ("nvcc", "ours"):
        folder = tmp_path / arm / "work"
        (folder / "kept").mkdir(parents=True)
        (folder / "a.cu").write_text(SOURCE)
        (folder / "copy.cu").write_text(SOURCE.replace("main", "other_main").replace("choose", "select"))
        (folder / "copy.cpp").write_text(SOURCE)
        (folder / "host.cpp").write_text("int main() { return 0; }\n")
        (folder / "other.h").write_text(HEADER)
        (folder / "options").write_text("-arch=sm_90 -Xptxas -v")
        for path in folder.iterdir():
            os.utime(path, (1_700_000_000, 1_700_000_000))  # debug information contains the time of a source
        # The same path for both, because objects contain it.
        place = tmp_path / "work"
        shutil.rmtree(place, ignore_errors=True)
        folder.rename(place)
        if arm == "nvcc":
            run = plain(place, *MODES[mode], nvcc=nvcc)
        else:
            run = ours(place, *MODES[mode], PTXMOTION_FLAGS="-O0", PTXMOTION_NVCC=nvcc)
        results.append((run.returncode, _messages(run.stdout), _messages(run.stderr), outputs(place)))
    (code, out, err, files), (our_code, our_out, our_err, our_files) = results
    if mode == "link-time":
        note, _, our_err = our_err.partition("\n")
        assert note.startswith("ptxmotion: note: with -dlto")
    assert (our_code, our_out, our_err) == (code, out, err)
    assert list(our_files) == list(files)
    assert [name for name in files if files[name] != our_files[name]] == []


def _messages(text: str) -> str:
    """Messages without process numbers and times; of a dry run, without the folders that the view replaces."""
    text = _unnumbered(text.encode()).decode()
    text = re.sub(r"Compile time = [\d.]+ ms", "Compile time", text)
    return re.sub(r"^#\$ (_HERE_|_THERE_|CICC_PATH|PATH)=.*$", r"#$ \1", text, flags=re.MULTILINE)


def test_a_build_optimizes_its_kernels(folder: Path) -> None:
    done = ours(folder, "-ptx", "-arch=sm_90", "a.cu", PTXMOTION_FLAGS=CHANGES, PTXMOTION_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    assert "a.cu (compute_90): 1 of 2 kernels changed" in done.stderr
    assert "app::choose(int*, int const*, int, int)" in done.stderr
    after = (folder / "a.ptx").read_text()
    plain(folder, "-ptx", "-arch=sm_90", "a.cu")
    before = (folder / "a.ptx").read_text()
    assert before != after
    again = ours(folder, "-ptx", "-arch=sm_90", "a.cu", PTXMOTION_FLAGS=CHANGES, PTXMOTION_VERBOSE="1")
    assert ", from the cache" in again.stderr and (folder / "a.ptx").read_text() == after


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"ONLY": "choose"}, 1),
        ({"ONLY": r"^app::choose\(int\*"}, 1),
        ({"ONLY": "fill"}, 0),
        ({"SKIP": "_ZN3app6choose"}, 0),
        ({"SKIP": "fill"}, 1),
        ({"ONLY": "app", "SKIP": "choose"}, 0),
        ({"FLAGS": "-O0"}, 0),
        ({"FLAGS": CHANGES + " --bisect-limit=0"}, 0),
    ],
)
def test_kernels_are_selected(folder: Path, settings: dict[str, str], changed: int) -> None:
    named = {"PTXMOTION_FLAGS": CHANGES, **{f"PTXMOTION_{name}": value for name, value in settings.items()}}
    log = folder / "cache" / "log"
    log.parent.mkdir()
    assert ours(folder, "-ptx", "-arch=sm_90", "a.cu", **named, PTXMOTION_LOG=str(log)).returncode == 0
    (entry,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(entry["changed"]) == changed and len(entry["kernels"]) == 2
    assert entry["source"] == "a.cu" and entry["cached"] is False
    assert bool(entry["rewrites"]) == bool(changed)


def test_the_executable_has_the_changed_kernel(folder: Path) -> None:
    """Both the machine code and the PTX of an object are those of the optimized kernel."""
    arguments = ("-gencode=arch=compute_90,code=[sm_90,compute_90]", "-fatbin", "a.cu", "-no-compress")
    assert ours(folder, *arguments, "-o", "new.fatbin", PTXMOTION_FLAGS=CHANGES).returncode == 0
    assert plain(folder, *arguments, "-o", "old.fatbin").returncode == 0
    new, old = (folder / "new.fatbin").read_bytes(), (folder / "old.fatbin").read_bytes()
    assert new != old
    assert ours(folder, "-ptx", "-arch=compute_90", "a.cu", PTXMOTION_FLAGS=CHANGES).returncode == 0
    body = (folder / "a.ptx").read_text().partition("{\n")[2]
    stored = "\n".join(line.strip() for line in body.splitlines()[:30]).encode()  # fatbinary removes indentation
    assert stored in new and stored not in old


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"PTXMOTION_FLAGS": "-O9"}, "PTXMOTION_FLAGS: argument -O: invalid choice"),
        ({"PTXMOTION_FLAGS": "-O2 --emit=cubin"}, "PTXMOTION_FLAGS: --emit is not possible in a build"),
        ({"PTXMOTION_FLAGS": "-O2 a.ptx"}, "PTXMOTION_FLAGS: a file is not possible in a build"),
        ({"PTXMOTION_FLAGS": "'"}, "PTXMOTION_FLAGS: No closing quotation"),
        ({"PTXMOTION_FLAGS": "--passes=no-such-pass"}, "no-such-pass"),
        ({"PTXMOTION_ONLY": "("}, "PTXMOTION_ONLY: '(' is not a regular expression"),
        ({"PTXMOTION_SECONDS": "0.000001"}, "it took longer than 1e-06 s"),
        ({"PTXMOTION_SECONDS": "many"}, "PTXMOTION_SECONDS: 'many' is not a number"),
    ],
)
def test_what_fails_is_passed_through_with_one_warning(folder: Path, settings: dict[str, str], problem: str) -> None:
    done = ours(folder, "-ptx", "-arch=sm_90", "a.cu", **settings)
    assert done.returncode == 0
    assert done.stderr.startswith("ptxmotion: warning: a.cu: compiled without the optimizer: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert (folder / "a.ptx").read_bytes() == plain_ptx()


def test_a_log_that_cannot_be_written(folder: Path) -> None:
    done = ours(folder, "-ptx", "-arch=sm_90", "a.cu", PTXMOTION_LOG="/no/such/folder/log")
    assert done.returncode == 0
    assert done.stderr == "ptxmotion: warning: PTXMOTION_LOG: /no/such/folder/log: No such file or directory\n"


def test_many_runs_of_ptxas_fit_into_a_variable() -> None:
    """Linux allows 128 KiB for a variable. Without the names of files, equal runs are one."""
    few = [["a.ptx", "sm_90", ["-v"]]]
    assert json.loads(launch.encoded(few)) == few
    many = [[f"{'long' * 20}{n}.ptx", f"sm_{80 + n % 2}", ["-v"]] for n in range(2000)]
    assert json.loads(launch.encoded(many)) == [["", "sm_80", ["-v"]], ["", "sm_81", ["-v"]]]


def test_a_ptxas_that_refuses_the_result(folder: Path) -> None:
    """The gate is off, and every run of ptxas for the optimizer fails. The build runs another ptxas."""
    refusing = folder / "ptxas"
    version = 'case "$*" in *version*) echo "V13.0.1"; exit 0;; esac'
    refusing.write_text(f"#!/bin/sh\n{version}\necho 'error: no' >&2; exit 1\n")
    refusing.chmod(0o755)
    done = ours(folder, "-cubin", "-arch=sm_90", "a.cu", PTXMOTION_FLAGS=CHANGES, PTXMOTION_PTXAS=str(refusing))
    assert done.returncode == 0 and "ptxas refuses the optimized PTX" in done.stderr
    ours_cubin = (folder / "a.cubin").read_bytes()
    plain(folder, "-cubin", "-arch=sm_90", "a.cu")
    assert (folder / "a.cubin").read_bytes() == ours_cubin


def test_an_optimizer_that_dies(folder: Path) -> None:
    """The step that optimizes is replaced by a program that is killed, and by one that does not exist."""
    assert ours(folder, "-cubin", "-arch=sm_90", "a.cu", PTXMOTION_FLAGS="-O0").returncode == 0
    expected = (folder / "a.cubin").read_bytes()
    (script,) = (folder / "cache" / "toolkits").glob("*/steps/*/cicc")
    text = script.read_text()
    for python in ("/bin/sh -c 'kill -9 $$' #", "/no/such/python #"):
        script.write_text(re.sub(r"^'\S*/python[\d.]*' .*?^' \"\$@\"$", python, text, flags=re.MULTILINE | re.DOTALL))
        assert script.read_text() != text
        assert ours(folder, "-cubin", "-arch=sm_90", "a.cu").returncode == 0
        assert (folder / "a.cubin").read_bytes() == expected


@pytest.mark.parametrize("how", ["read-only", "a file", "damaged"])
def test_a_cache_that_does_not_work(folder: Path, how: str) -> None:
    cache = folder / "cache"
    temporary = folder / "temporary"
    temporary.mkdir()
    if how == "a file":
        cache.write_text("")
    elif how == "read-only":
        cache.mkdir(mode=0o500)
        if os.access(cache, os.W_OK):  # the user is root
            cache.rmdir()
            cache.symlink_to("/proc/self")
    else:
        assert ours(folder, "-ptx", "-arch=sm_90", "a.cu", PTXMOTION_FLAGS=CHANGES).returncode == 0
        for entry in (cache / "nvcc").rglob("*"):
            if entry.is_file():
                entry.write_bytes(b"{}")
    settings = {"PTXMOTION_FLAGS": CHANGES, "PTXMOTION_VERBOSE": "1", "TMPDIR": str(temporary)}
    done = ours(folder, "-ptx", "-arch=sm_90", "a.cu", **settings)
    assert done.returncode == 0 and "1 of 2 kernels changed" in done.stderr and "warning" not in done.stderr
    assert all(path.name.startswith("ptxmotion-nvcc-") for path in temporary.iterdir())


def test_a_toolkit_without_a_view_is_run_as_it_is(folder: Path) -> None:
    """A script that adds arguments is not replaced by the nvcc that it runs; one that adds nothing is."""
    scripts = {
        "adds": f'#!/bin/sh\nexec {NVCC} -DX=1 "$@"\n',
        "runs": f'#!/bin/sh\nexec {NVCC} "$@"\n',
        "asks": f'#!/bin/sh\ntest -n "$HOME"\nexec "{NVCC}" "$@"\n',
    }
    for name, text in scripts.items():
        script = folder / name
        script.write_text(text)
        script.chmod(0o755)
        settings = {"PTXMOTION_NVCC": str(script), "PTXMOTION_VERBOSE": "1"}
        done = ours(folder, "-cubin", "-arch=sm_90", "a.cu", **settings)
        assert done.returncode == 0
        expected = "runs without the optimizer: it is a script" if name == "adds" else "a.cu (sm_90): 0 of 2 kernels"
        assert expected in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("-arch=sm_90", "-c", "a.cu"), ("--version",)])
def test_a_script_that_runs_this_program_again(folder: Path, arguments: Sequence[str]) -> None:
    """It would never end."""
    script = folder / "nvcc"
    script.write_text(f'#!/bin/sh\nX=1\nexec {shlex.join(module_command("nvcc"))} "$@"\n')
    script.chmod(0o755)
    done = ours(folder, *arguments, PTXMOTION_NVCC=str(script))
    assert done.returncode == 4 and f"{script} runs ptxmotion-nvcc again" in done.stderr


LIBRARIES_OF_A_TOOLKIT = """\
TOP              = $(_HERE_)/..
CICC_PATH        = $(TOP)/nvvm/bin
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs" "-L$(TOP)/lib$(_TARGET_SIZE_)"
"""


@pytest.mark.parametrize(
    ("existing", "profile", "is_missing"),
    [
        (["lib/libcudart_static.a"], LIBRARIES_OF_A_TOOLKIT, True),
        (["lib/libcudart_static.a", "lib64/libcudart_static.a"], LIBRARIES_OF_A_TOOLKIT, False),
        (["lib/libcudart_static.a", "lib64/stubs/libcuda.so"], LIBRARIES_OF_A_TOOLKIT, False),
        (["lib/other"], LIBRARIES_OF_A_TOOLKIT, False),
        (["lib/libcudart_static.a"], "TOP = $(_HERE_)/..\n", False),
        (["lib/libcudart_static.a"], 'LIBRARIES =+ "-L$(UNKNOWN)/lib64"\n', False),
        (["lib/libcudart_static.a"], None, False),
    ],
)
def test_the_folder_of_libraries_is_added_only_where_none_is_found(
    tmp_path: Path, existing: list[str], profile: str | None, is_missing: bool
) -> None:
    for name in ("bin/nvcc", "nvvm/bin/cicc", *existing):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o700)
    if profile is not None:
        (tmp_path / "bin" / "nvcc.profile").write_text(profile)
    found = toolkit_view.missing_libraries(str(tmp_path / "bin"))
    assert found == (str(tmp_path / "lib") if is_missing else None)
    if profile == LIBRARIES_OF_A_TOOLKIT:
        text = (Path(toolkit_view.toolkit_view(str(tmp_path / "bin" / "nvcc"))).parent / "nvcc.profile").read_text()
        assert text.count("-L") == 2 + is_missing
        assert (f'lib$(_TARGET_SIZE_)" "-L{tmp_path}/lib"\n' in text) == is_missing


@pytest.mark.slow
def test_it_links_without_the_folder_of_libraries(folder: Path) -> None:
    """Also where kernels are linked with those of the CUDA library for launches in kernels, and in one command."""
    (folder / "b.cu").write_text(
        "__global__ void child(int *p) { *p = 1; }\n"
        "__global__ void parent(int *p) { child<<<1, 1>>>(p); }\n"
        "int main() { parent<<<1, 1>>>(nullptr); return 0; }\n"
    )
    for arguments in (
        ("-arch=sm_90", "a.cu", "-o", "one"),
        ("-arch=sm_90", "-rdc=true", "-c", "b.cu", "-o", "b.o"),
        ("-arch=sm_90", "b.o", "-o", "two"),
    ):
        done = ours(folder, *arguments)
        assert done.returncode == 0, done.stderr
    assert (folder / "one").exists() and (folder / "two").exists()
    appended = ours(folder, "b.o", "-o", "three", NVCC_APPEND_FLAGS="-arch=sm_90")
    assert appended.returncode == 0, appended.stderr


def test_a_view_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    made = Path(toolkit_view.toolkit_view(NVCC))
    assert made.is_symlink() and os.stat(made.parents[2]).st_mode & 0o077 == 0
    profile = made.parent / "nvcc.profile"
    assert "$(_HERE_)/../steps/CICC_PATH" in profile.read_text()
    profile.unlink()
    assert Path(toolkit_view.toolkit_view(NVCC)) == made and profile.exists()
    assert len(list(made.parents[2].iterdir())) == 1
    made.parents[2].chmod(0o777)  # everybody may write there, so it is not used
    monkeypatch.setenv("TMPDIR", str(tmp_path / "other"))
    other = Path(toolkit_view.toolkit_view(NVCC))
    assert other != made and other.is_relative_to(tmp_path / "other")


def test_a_toolkit_without_a_known_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nvcc.profile").write_text("TOP = $(_HERE_)/..\n")
    with pytest.raises(toolkit_view.NoView, match="does not name the folder of cicc"):
        toolkit_view.toolkit_view(str(tmp_path / "nvcc"))
    (tmp_path / "nvcc.profile").write_text("CICC_PATH = $(OTHER)/bin\n")
    with pytest.raises(toolkit_view.NoView, match="does not define OTHER"):
        toolkit_view.toolkit_view(str(tmp_path / "nvcc"))
    with pytest.raises(toolkit_view.NoView, match="No such file"):
        toolkit_view.toolkit_view(str(tmp_path / "absent" / "nvcc"))


@pytest.mark.slow
def test_parallel_builds_share_a_cache(folder: Path) -> None:
    """Eight builds at once, over an empty cache, give the same file."""
    command = module_command("nvcc", "-ptx", "-arch=sm_90", "a.cu", "-o")
    settings = environment(folder, {"PTXMOTION_FLAGS": CHANGES})
    running = [subprocess.Popen([*command, f"{n}.ptx"], cwd=folder, env=settings) for n in range(8)]
    assert [each.wait() for each in running] == [0] * 8
    assert len({(folder / f"{n}.ptx").read_bytes() for n in range(8)}) == 1
    assert not list(folder.glob("*.tmp"))
    assert len(list((folder / "cache" / "toolkits").iterdir())) == 1


def test_an_interrupted_build_leaves_nothing(folder: Path) -> None:
    """The process group gets SIGINT while the optimizer runs."""
    temporary = folder / "temporary"
    temporary.mkdir()
    slow = folder / "ptxas"
    slow.write_text(f"#!/bin/sh\ntouch {folder}/started\nsleep 30\n")
    slow.chmod(0o755)
    settings = {"PTXMOTION_PTXAS": str(slow), "TMPDIR": str(temporary), "PTXMOTION_FLAGS": "-O2 --gate=ptxas"}
    command = module_command("nvcc", "-cubin", "-arch=sm_90", "a.cu")
    child = subprocess.Popen(command, cwd=folder, env=environment(folder, settings), start_new_session=True)
    for _ in range(200):
        if (folder / "started").exists():
            break
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    assert child.wait(timeout=20) != 0
    assert not (folder / "a.cubin").exists()
    assert [path.name for path in temporary.iterdir() if path.name.endswith(".tmp")] == []


def test_a_missing_nvcc_is_reported(folder: Path) -> None:
    done = ours(folder, "-c", "a.cu", PTXMOTION_NVCC="/no/such/nvcc")
    assert done.returncode == 4 and "PTXMOTION_NVCC=/no/such/nvcc is no executable" in done.stderr


def test_the_nvcc_of_the_path_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PTXMOTION_NVCC", raising=False)
    (tmp_path / "nvcc").symlink_to("ptxmotion-nvcc")  # this program itself is not taken
    (tmp_path / "ptxmotion-nvcc").write_text("")
    (tmp_path / "ptxmotion-nvcc").chmod(0o755)
    own = tmp_path / "own"
    own.mkdir()
    (own / "nvcc").write_text("")
    (own / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{own}")
    assert launch.find_nvcc() == str(own / "nvcc")


def test_options_of_ptxas_are_found() -> None:
    """As nvcc prints them, also with steps in parallel, whose output goes to files."""
    output = """\
#$ _HERE_=/usr/bin
#$ TOP="a b
#$ "$CICC_PATH/cicc" --c++17 "/tmp/tmpxft_00a1_00000000-8_a b.ii" -o "/tmp/tmpxft_00a1_00000000-7_a b.ptx"
#$ ptxas -arch=sm_80 -m64 -v -dlcm=cg --compile-only -maxrregcount=32 "/tmp/tmpxft_00a1_00000000-7_a b.ptx" > log 2>err
#$ ptxas --gpu-name sm_86 --def-load-cache ca "/tmp/tmpxft_00a1_00000000-7_a b.ptx"  -o "y"
#$ ptxas -arch=sm_90 "mine.ptx" -o "z"
"""
    found = assemblies_of(steps_of(output))
    assert [(each.target, each.options) for each in found] == [
        ("sm_80", ("-dlcm=cg", "--compile-only", "-maxrregcount=32")),
        ("sm_86", ("--def-load-cache", "ca")),
    ]
    assert is_same_file(found[0].ptx, "/tmp/tmpxft_ffff0001_00000000-7_a b.ptx")
    assert not is_same_file(found[0].ptx, "/tmp/tmpxft_ffff0001_00000000-6_a b.ptx")


# --- ptxmotion-ptxas


def test_ptxas_optimizes_its_input(folder: Path) -> None:
    """As Triton runs it. The cubin is that of the optimized PTX, and messages name the file that was given."""
    ptxas = Path(NVCC).parent / "ptxas"
    (folder / "a.ptx").write_text(DIVISION_AGAIN)
    settings = {"PTXMOTION_PTXAS": str(ptxas), "PTXMOTION_VERBOSE": "1", "PTXMOTION_FLAGS": "-O1"}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = python_command("import sys\nfrom ptxmotion.cli.ptxas import main\nsys.exit(main())", *arguments)
        environ = environment(folder, {**settings, **more})
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environ)

    done = run("-v", "--gpu-name=sm_90", "a.ptx", "-o", "new.cubin")
    assert done.returncode == 0 and "a.ptx (sm_90): 1 of 1 kernels changed" in done.stderr, done.stderr
    assert "ptxas info" in done.stderr and "ptxmotion-" not in done.stderr
    assert run("--gpu-name=sm_90", "a.ptx", "-o", "old.cubin", PTXMOTION_FLAGS="-O0").returncode == 0
    subprocess.run([ptxas, "--gpu-name=sm_90", "a.ptx", "-o", "plain.cubin"], cwd=folder, check=True)
    new, old, plain_one = ((folder / f"{name}.cubin").read_bytes() for name in ("new", "old", "plain"))
    assert old == plain_one != new
    assert "release" in run("--version").stdout
    (folder / "bad.ptx").write_text("this is no PTX")
    failed = run("--gpu-name=sm_90", "bad.ptx", "-o", "bad.cubin")
    assert failed.returncode != 0 and "ptxas fatal" in failed.stderr and not (folder / "bad.cubin").exists()
