"""`PTXMOTION_CONTRACT=1 ptxmotion nvcc`: what programs launch, with and without a version.

The programs are built and linked with the real nvcc, and run with the driver and the runtime of `fake_cuda.c`, which
print each launch: `driver` for a version, `runtime` for the kernel itself.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from nvcc_builds import LIBRARIES, environment, needs_nvcc, ours, plain
from ptxmotion import Policy, optimize
from ptxmotion.cli import main
from ptxmotion.compiler.launch_archive import launch_archive, link_options
from ptxmotion.contract.bytecode import BYTECODE_VERSION, MAGIC
from ptxmotion.contract.parsing import parse as parse_expression
from ptxmotion.programs.tuning import digest_name

pytestmark = [needs_nvcc, pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")]

#: A kernel that gets a version for disjoint buffers: its sum can stay in a register.
KERNEL = """
__global__ void sums(const float *a, float *y, int n) {
    for (int i = 0; i < n; ++i) y[threadIdx.x] += a[i] * a[i + 1];
}
"""

PROGRAM = """
#include <cstdio>
KERNEL
template <typename T> __global__ void fill(T *out, T value) { out[threadIdx.x] = value; }
int main() {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    float *a, *y;
    cudaMalloc(&a, 4096);
    cudaMalloc(&y, 4096);
    BODY
    return 0;
}
"""

TWO_LAUNCHES = "sums<<<2, 32>>>(a, y, 3); sums<<<1, 64>>>(a, a, 4); fill<<<1, 32>>>(y, 1.0f);"


def program(body: str, kernel: str = KERNEL) -> str:
    return PROGRAM.replace("KERNEL", kernel).replace("BODY", body)


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries: `libcuda.so.1`, `libcudart_static.a`, `libcudart.so`."""
    folder = tmp_path_factory.mktemp("fakes")
    source = str(Path(__file__).with_name("fake_cuda.c"))
    common = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", source]
    driver = ["-L.", "-l:libcuda.so.1", f"-Wl,-rpath,{folder}"]
    for command in (
        [*common, "-shared", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"],
        [*common, "-DRUNTIME", "-c", "-o", "runtime.o"],
        ["ar", "rcs", "libcudart_static.a", "runtime.o"],
        ["gcc", "-shared", "runtime.o", "-Wl,-soname,libcudart.so", *driver, "-o", "libcudart.so"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


class Build:
    """A build in a folder, with the fake libraries, and with the folder ``cache`` of the optimizer."""

    def __init__(self, folder: Path, fakes: Path, cache: Path) -> None:
        self.folder, self.fakes, self.cache = folder, fakes, cache
        self.link = [f"-L{fakes}", LIBRARIES, "-Xlinker", f"-rpath={fakes}", "-l:libcuda.so.1"]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def nvcc(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run `ptxmotion nvcc` for sm_90, or for the targets in the arguments."""
        target = () if any("-gencode" in each for each in arguments) else ("-arch=sm_90",)
        settings = {"PTXMOTION_CONTRACT": "1", "PTXMOTION_CACHE": str(self.cache), **settings}
        done = ours(self.folder, *target, "-no-compress", *arguments, **settings)
        assert done.returncode == 0, done.stderr
        return done

    def run(self, name: str = "program", **settings: str) -> list[str]:
        """What the program prints, with the digests in names of versions left out."""
        return self.outcome(name, **settings).stdout.splitlines()

    def outcome(self, name: str = "program", **settings: str) -> subprocess.CompletedProcess[str]:
        given = {"FAKE_PARAMETERS": "sums=8,8,4 fill=8,4", "LD_LIBRARY_PATH": str(self.folder), **settings}
        run = [str(self.folder / name)]
        done = subprocess.run(run, capture_output=True, text=True, env=environment(self.folder, given), timeout=60)
        assert done.returncode == 0, done.stderr
        for stream in ("stdout", "stderr"):
            setattr(done, stream, re.sub(r"(__ptxmotion_\d)\w*", r"\1", getattr(done, stream)))
        return done


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all tests: most of them build the same kernel, and link the same library."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def build(tmp_path: Path, fakes: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setenv("PTXMOTION_CACHE", str(cache))
    return Build(tmp_path, fakes, cache)


@pytest.fixture
def fresh_build(tmp_path: Path, fakes: Path) -> Build:
    """A build with an empty cache."""
    return Build(tmp_path, fakes, tmp_path / "cache")


def launched(lines: Sequence[str]) -> list[str]:
    """Who launched what, without the shapes: `driver sums__ptxmotion_1`."""
    short = [" ".join(line.split()[:2]) for line in lines if line.startswith(("driver", "runtime"))]
    return [re.sub(r"_Z\d+(\w+?)(PK|Pf|IfE)\w*?(__ptxmotion_\d|$)", r"\1\3", each) for each in short]


VERSION, SUMS, FILL = "driver sums__ptxmotion_1", "runtime sums", "runtime fill"
EXPECTED = [VERSION, SUMS, FILL]


@pytest.mark.parametrize("mode", [[], ["-cudart", "shared"], ["-rdc=true"], ["-O2", "-lineinfo", "-t", "2"]])
def test_ways_of_linking(build: Build, mode: list[str]) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    build.nvcc(*mode, "a.cu", "-o", "program", *build.link)
    lines = build.run()
    assert launched(lines) == EXPECTED
    first, second, _ = lines
    assert first.endswith("grid 2 1 1 block 32 1 1 shared 0 stream 0 attributes 0 argument 3")
    assert second.endswith("grid 1 1 1 block 64 1 1 shared 0 stream 0 attributes 0 argument 4")


def test_compiled_and_linked_apart(build: Build) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    build.nvcc("-c", "a.cu", "-o", "a.o")
    build.nvcc("a.o", "-o", "program", *build.link)
    assert launched(build.run()) == EXPECTED


def test_linked_by_another_program(build: Build) -> None:
    """Without the options the program launches its kernels, as with nvcc."""
    build.write("a.cu", program(TWO_LAUNCHES))
    build.nvcc("-dc", "a.cu", "-o", "a.o")
    build.nvcc("-dlink", "a.o", "-o", "linked.o")
    words = link_options(launch_archive(["g++"]))
    options = [f"-Wl,{each}" if each.startswith("--") else each for each in words]
    command = ["g++", "a.o", "linked.o", f"-L{build.fakes}", f"-Wl,-rpath,{build.fakes}", "-o", "program"]
    libraries = ["-lcudart_static", "-lcudadevrt", "-l:libcuda.so.1", LIBRARIES]
    for added, expected in (([], [SUMS, SUMS, FILL]), (options, EXPECTED)):
        done = subprocess.run([*command, *added, *libraries], cwd=build.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert launched(build.run()) == expected


@pytest.mark.parametrize("rdc", ["false", "true"])
def test_a_build_for_several_targets_launches_versions(build: Build, rdc: str) -> None:
    """The contract is that of the image that the driver loads: its versions have other names than those of the
    others."""
    build.write("a.cu", program(TWO_LAUNCHES))
    targets = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (80, 90)]
    build.nvcc(*targets, f"-rdc={rdc}", "-c", "a.cu")
    build.nvcc(*targets, "a.o", "-o", "program", *build.link)
    for sm in ("80", "90"):
        assert launched(build.run(FAKE_SM=sm)) == EXPECTED
    symbols = (build.folder / "program").read_bytes()
    assert len(set(re.findall(rb"sums\w+__ptxmotion_1_(\w+)", symbols))) == 2


def test_kernels_of_one_name(build: Build) -> None:
    """Static kernels of several files, of which one has other versions, and one has none."""
    static = KERNEL.replace("__global__", "static __global__")
    other = static.replace("a[i + 1]", "a[i + 2]")
    without = "static __global__ void sums(const float *a, float *y, int n) { y[n] = a[n]; }\n"
    body = "sums<<<1, 1>>>(a, y, {n}); sums<<<1, 1>>>(a, a, {n});"
    for number, kernel in enumerate((static, other, without), 1):
        build.write(f"{number}.cu", f"{kernel}\nvoid run{number}(float *a, float *y) {{ {body.format(n=number)} }}\n")
    calls = "void run1(float *, float *); void run2(float *, float *); void run3(float *, float *);"
    build.write("main.cu", calls + program("run1(a, y); run2(a, y); run3(a, y);", ""))
    build.nvcc("main.cu", "1.cu", "2.cu", "3.cu", "-o", "program", *build.link)
    lines = build.run()
    assert launched(lines) == [VERSION, SUMS, VERSION, SUMS, SUMS, SUMS]
    assert [line.split()[-1] for line in lines] == ["1", "1", "2", "2", "3", "3"]


def test_a_shared_object(build: Build) -> None:
    build.write("library.cu", KERNEL + "void run(float *a, float *y) { sums<<<1, 1>>>(a, y, 7); }\n")
    build.write("a.cu", "void run(float *, float *);" + program(TWO_LAUNCHES + "run(a, y);"))
    shared = ["-cudart", "shared"]
    build.nvcc(*shared, "-Xcompiler", "-fPIC", "-shared", "library.cu", "-o", "liblibrary.so", *build.link)
    build.nvcc(*shared, "a.cu", "-o", "program", "-L.", "-llibrary", *build.link)
    assert launched(build.run()) == [*EXPECTED, VERSION]


LAUNCHES = {
    "cudaLaunchKernel": "cudaLaunchKernel((const void *)sums, dim3(1), dim3(1), args, 8, stream);",
    "cudaLaunchCooperativeKernel": """
        cudaLaunchCooperativeKernel((const void *)sums, dim3(1), dim3(1), args, 8, stream);""",
    "cudaLaunchKernelExC": """
        cudaLaunchConfig_t config = {};
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributePriority;
        config.gridDim = 1; config.blockDim = 1; config.dynamicSmemBytes = 8; config.stream = stream;
        config.attrs = &attribute; config.numAttrs = 1;
        cudaLaunchKernelExC(&config, (const void *)sums, args);""",
    "<<<>>>": "sums<<<1, 1, 8, stream>>>(a, y, n);",
}


@pytest.mark.parametrize("stream", ["legacy", "per-thread"])
def test_functions_of_the_runtime(build: Build, stream: str) -> None:
    """The null stream is the one of the thread if the program is compiled so; another stream is passed on."""
    ways = " ".join(f"{{ {code} }}" for code in LAUNCHES.values())
    streams = "for (cudaStream_t stream : {cudaStream_t(0), cudaStream_t(77)})"
    build.write("a.cu", program(f"int n = 5; void *args[] = {{&a, &y, &n}}; {streams} {{ {ways} }}"))
    build.nvcc("-default-stream", stream, "a.cu", "-o", "program", *build.link)
    lines = build.run()
    assert launched(lines) == [VERSION] * 2 * len(LAUNCHES)
    numbers = (0 if stream == "legacy" else 2, 77)
    for line, (number, way) in zip(lines, [(n, way) for n in numbers for way in LAUNCHES], strict=True):
        attributes = int(way in ("cudaLaunchCooperativeKernel", "cudaLaunchKernelExC"))
        assert line.endswith(f"grid 1 1 1 block 1 1 1 shared 8 stream {number} attributes {attributes} argument 5")


def test_only_selected_kernels_have_versions(build: Build) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    for settings, expected in (({"PTXMOTION_SKIP": "^sums"}, SUMS), ({"PTXMOTION_ONLY": "sums"}, VERSION)):
        build.nvcc("a.cu", "-o", "program", *build.link, **settings)
        assert launched(build.run())[0] == expected


def test_settings_of_the_program(build: Build) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    build.nvcc("a.cu", "-o", "program", *build.link)
    assert launched(build.run(PTXMOTION_LAUNCH="original")) == [SUMS, SUMS, FILL]
    done = build.outcome(PTXMOTION_LAUNCH="statistics")
    assert done.stderr.splitlines() == [
        "ptxmotion: kernel _Z4sumsPKfPfi",
        "  _Z4sumsPKfPfi__ptxmotion_1: taken 1, a condition is false 1",
        "  _Z4sumsPKfPfi__ptxmotion_1: a condition is false 1",
        "  _Z4sumsPKfPfi__ptxmotion_2: a condition is false 1",
        "  _Z4sumsPKfPfi__ptxmotion_2: a condition is false 1",
        "  _Z4sumsPKfPfi: taken 1",
    ]
    assert "'no-such'" in build.outcome(PTXMOTION_LAUNCH="no-such").stderr


def test_what_passes_the_kernel_through(build: Build) -> None:
    """A captured stream; a version that the driver refuses; a thread without a context, in its first launch."""
    thread = "std::thread([&] { sums<<<1, 1>>>(a, y, 1); sums<<<1, 1>>>(a, y, 2); }).join();"
    captured = "sums<<<1, 1, 0, cudaStream_t(77)>>>(a, y, 1);"
    capture = f"cudaStreamBeginCapture(cudaStream_t(77), cudaStreamCaptureModeGlobal); {captured}"
    text = program(f"{capture} {thread} {TWO_LAUNCHES} {captured}")
    build.write("a.cu", "#include <thread>\n" + text)
    build.nvcc("a.cu", "-o", "program", *build.link)
    assert launched(build.run()) == [SUMS, SUMS, VERSION, *EXPECTED, SUMS]
    assert launched(build.run(FAKE_REFUSES="__ptxmotion_")) == [SUMS, SUMS, SUMS, SUMS, SUMS, FILL, SUMS]
    done = build.outcome(PTXMOTION_LAUNCH="statistics")
    assert "the kernel itself: no context was current 1" in done.stderr
    assert "the kernel itself: captured into a graph before a contract was bound 1" in done.stderr


def test_code_that_is_loaded_when_it_is_used(build: Build) -> None:
    """To load a version may wait for running kernels, so it is loaded only where the kernel itself is."""
    captured = "sums<<<1, 1, 0, cudaStream_t(77)>>>(a, y, 1)"
    before = {
        "": [VERSION],
        "cudaFuncAttributes found; cudaFuncGetAttributes(&found, sums)": [VERSION],
        "int blocks; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sums, 32, 0)": [VERSION],
        "cudaFuncSetCacheConfig(sums, cudaFuncCachePreferL1)": [VERSION],
        "cudaFunction_t handle; cudaGetFuncBySymbol(&handle, (const void *)sums)": [VERSION],
        f"cudaStreamBeginCapture(cudaStream_t(77), cudaStreamCaptureModeGlobal); {captured}": [SUMS, SUMS],
    }
    cases = " ".join(f"case {number}: {{ {code}; break; }}" for number, code in enumerate(before))
    body = f'switch (atoi(getenv("CASE"))) {{ {cases} }} sums<<<1, 1>>>(a, y, 1);'
    build.write("a.cu", "#include <cstdlib>\n" + program(body))
    build.nvcc("a.cu", "-o", "program", *build.link)
    for number, expected in enumerate(before.values()):
        assert launched(build.run(CASE=str(number), FAKE_LAZY="1")) == expected
        assert launched(build.run(CASE=str(number))) == [*expected[:-1], VERSION]
    done = build.outcome(CASE=str(len(before) - 1), FAKE_LAZY="1", PTXMOTION_LAUNCH="statistics")
    assert "its code was loaded before a contract could be bound 1" in done.stderr


def test_attributes_are_copied_again(build: Build) -> None:
    """Also where the program changes them between launches of one size."""
    sets = "cudaFuncSetAttribute(sums, cudaFuncAttributeMaxDynamicSharedMemorySize, {}); "
    launch = "sums<<<1, 1, 60000>>>(a, y, 1); "
    again = "cudaKernel_t kernel; cudaGetKernel(&kernel, sums); cudaKernelSetAttributeForDevice(kernel, "
    again += "cudaFuncAttributeMaxDynamicSharedMemorySize, 90000, 0); "
    body = sets.format(70000) + launch + sets.format(80000) + launch + sets.format(80000) + launch + again + launch
    build.write("a.cu", program(body))
    build.nvcc("a.cu", "-o", "program", *build.link)
    lines = build.run()
    assert [line.split()[-1] for line in lines if line.startswith("attribute")] == ["70000", "80000", "90000"]
    assert launched(lines) == [VERSION] * 4


def test_a_launch_before_main(build: Build) -> None:
    before = "float *memory() { float *found; cudaMalloc(&found, 64); return found; }\n"
    before += "struct Early { Early() { sums<<<1, 1>>>(memory(), memory(), 9); } };\n"
    build.write("early.cu", KERNEL + before + "void early() { static Early once; }\n")
    build.write("late.cpp", "void early();\nstruct Late { Late() { early(); } } late;\n")
    build.write("a.cu", program(TWO_LAUNCHES, KERNEL.replace("sums", "sums2")).replace("sums<", "sums2<"))
    build.nvcc("late.cpp", "early.cu", "a.cu", "-o", "program", *build.link)
    lines = [line for line in build.run() if "argument 9" in line]
    assert launched(lines) in ([VERSION], [])  # the order of constructors of different files is not defined


def test_many_threads_launch_first(build: Build) -> None:
    body = """std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) threads.emplace_back([=] {
        float *mine; cudaMalloc(&mine, 64);
        for (int j = 0; j < 50; ++j) sums<<<1, 1>>>(a, y, j);
    });
    for (auto &each : threads) each.join();"""
    build.write("a.cu", "#include <thread>\n#include <vector>\n" + program(body))
    build.nvcc("a.cu", "-o", "program", *build.link)
    lines = launched(build.run())
    assert len(lines) == 800 and set(lines) <= {VERSION, SUMS} and lines.count(VERSION) >= 400


@pytest.mark.parametrize("sanitizer", ["thread", "address"])
def test_threads_of_a_program_race_nowhere_in_the_library(build: Build, sanitizer: str) -> None:
    """Threads that launch, look up handles and set attributes at the same time; the library is compiled with the
    sanitizer."""
    body = """std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([=] {
        cudaKernel_t kernel;
        cudaGetKernel(&kernel, sums);
        for (int j = 0; j < 60; ++j) {
            sums<<<1, 1 + j % 40>>>(a, j % 3 ? y : a, j % 7);
            if (j % 10 == 0) cudaFuncSetAttribute(sums, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000 + i + j);
            const void *args[] = {&a, &y, &j};
            cudaLaunchKernel((const void *)sums, dim3(1), dim3(32), (void **)args, 0, 0);
        }
    });
    for (auto &each : threads) each.join();
    sums<<<1, 1>>>(a, y, 5);"""
    build.write("a.cu", "#include <thread>\n#include <vector>\n" + program(body))
    build.nvcc("-c", "a.cu")
    archive = launch_archive(["g++", f"-fsanitize={sanitizer}"])
    options = [word for each in link_options(archive) for word in ("-Xlinker", each)]
    sanitized = ["-Xcompiler", f"-fsanitize={sanitizer}"]
    done = plain(build.folder, "-arch=sm_90", *sanitized, "a.o", "-o", "program", *build.link, *options)
    assert done.returncode == 0, done.stderr
    settings = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "exitcode=66", "PTXMOTION_LAUNCH": "statistics"}
    outcome = build.outcome(**settings)
    lines = launched(outcome.stdout.splitlines())
    assert len(lines) == 961 and lines[-1] == VERSION and set(lines) == {VERSION, SUMS}
    # While a thread binds the contract, the launches of the others are those of the kernel itself.
    meanwhile = re.search(r"another thread was binding a contract (\d+)", outcome.stderr)
    taken = [int(each) for each in re.findall(r"taken (\d+)", outcome.stderr)]
    assert taken == [lines.count(VERSION), lines.count(SUMS) - int(meanwhile[1] if meanwhile else 0)]


def test_warnings_that_are_errors(build: Build) -> None:
    """What is added to the object passes the strictest options of the host compiler that nvcc's own part passes."""
    build.write("a.cu", program(TWO_LAUNCHES))
    strict = ["-Xcompiler", "-Wall,-Wextra,-Werror,-Wshadow"]
    assert plain(build.folder, "-arch=sm_90", *strict, "-c", "a.cu").returncode == 0
    build.nvcc(*strict, "-Xcompiler", "-ffunction-sections,-fdata-sections", "-c", "a.cu")
    build.nvcc("a.o", "-o", "program", "-Xlinker", "--gc-sections", *build.link)
    assert launched(build.run()) == EXPECTED


def test_a_file_with_declarations_of_the_device(build: Build) -> None:
    """cicc may write declarations into the file that hands over contracts, here of a variable of a header. The object
    must not contain them."""
    header = "template <class T> inline constexpr bool is_known = false;\n"
    header += "template <> inline constexpr bool is_known<int> = true;\n"
    build.write("a.cu", header + program(TWO_LAUNCHES))
    for target in ("compute_80", "compute_90"):
        build.nvcc("-keep", f"-gencode=arch={target},code=sm_{target[8:]}", "-c", "a.cu")
    assert "is_known" in _kept_by_nvcc(build)
    targets = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (80, 90)]
    build.nvcc(*targets, "a.cu", "-o", "program", *build.link)
    assert launched(build.run()) == EXPECTED


def test_an_optimizer_that_ends_early_for_one_target(fresh_build: Build) -> None:
    """The object includes what the steps of all targets have left. For one of them that is nothing."""
    fresh_build.write("a.cu", "template <class T> inline constexpr bool is_known = false;\n")
    fresh_build.nvcc("-c", "a.cu")
    (script,) = (fresh_build.folder / "cache" / "toolkits").glob("*/steps/*/cicc")
    text = script.read_text()
    script.write_text(text.replace("\nfi\n", '\nfi\ncase "$*" in *compute_80*) exit 0;; esac\n'))
    assert script.read_text() != text
    header = "template <class T> inline constexpr bool is_known = false;\n"
    header += "template <> inline constexpr bool is_known<int> = true;\n"
    fresh_build.write("a.cu", header + program(TWO_LAUNCHES))
    targets = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (80, 90)]
    fresh_build.nvcc(*targets, "a.cu", "-o", "program", *fresh_build.link)
    assert launched(fresh_build.run(FAKE_SM="90")) == EXPECTED
    assert launched(fresh_build.run(FAKE_SM="80")) == [SUMS, SUMS, FILL]


def _kept_by_nvcc(build: Build) -> str:
    """The device file that nvcc itself keeps."""
    assert plain(build.folder, "-arch=sm_90", "-keep", "-c", "a.cu").returncode == 0
    return (build.folder / "a.cudafe1.c").read_text()


def test_only_where_there_is_a_host_object(build: Build) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    build.nvcc("-ptx", "a.cu")
    build.nvcc("-cubin", "a.cu")
    assert "__ptxmotion" not in (build.folder / "a.ptx").read_text()
    assert b"__ptxmotion" not in (build.folder / "a.cubin").read_bytes()


def test_a_library_that_cannot_be_compiled(fresh_build: Build) -> None:
    """The program is linked as nvcc links it, after a warning."""
    fresh_build.write("a.cu", program(TWO_LAUNCHES))
    tools = fresh_build.folder / "tools"
    tools.mkdir()
    (tools / "ar").write_text("#!/bin/sh\nexit 1\n")
    (tools / "ar").chmod(0o755)
    done = fresh_build.nvcc("a.cu", "-o", "program", *fresh_build.link, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert "linked without checks at the launch" in done.stderr
    assert launched(fresh_build.run()) == [SUMS, SUMS, FILL]


def test_a_program_without_kernels_is_linked_as_before(build: Build) -> None:
    """nvcc as a linker of C++: no function of the runtime is pulled in."""
    build.write("a.cpp", "int main() { return 0; }\n")
    build.nvcc("a.cpp", "-o", "program", LIBRARIES)
    assert plain(build.folder, "a.cpp", "-o", "reference", LIBRARIES).returncode == 0
    sizes = [(build.folder / name).stat().st_size for name in ("program", "reference")]
    assert sizes[0] == sizes[1]


def test_a_program_with_damaged_contracts_launches_its_kernels(build: Build) -> None:
    """A program whose section is overwritten launches its kernels."""
    build.write("a.cu", program(TWO_LAUNCHES))
    build.nvcc("a.cu", "-o", "program", *build.link)
    data = (build.folder / "program").read_bytes()
    start = data.index(MAGIC + BYTECODE_VERSION.to_bytes(2, "little"))
    for offset, damage in ((0, b"XXXX"), (8, b"\xff\xff\xff\xff"), (48, b"\xff\xff"), (66, b"\xff" * 8)):
        at = start + offset
        (build.folder / "program").write_bytes(data[:at] + damage + data[at + len(damage) :])
        assert launched(build.run()) == [SUMS, SUMS, FILL]


def test_flags_that_exclude_contracts(fresh_build: Build) -> None:
    fresh_build.write("a.cu", program(TWO_LAUNCHES))
    done = fresh_build.nvcc("-c", "a.cu", PTXMOTION_FLAGS="-O3 --alias=restrict")
    assert "PTXMOTION_CONTRACT excludes --alias" in done.stderr


@pytest.mark.parametrize("value", ["yes", "no", "2", " 1"])
def test_a_setting_that_is_neither_on_nor_off(tmp_path: Path, value: str) -> None:
    done = ours(tmp_path, "-c", "a.cu", PTXMOTION_CONTRACT=value)
    assert done.returncode == 2
    assert done.stderr == f"ptxmotion: error: PTXMOTION_CONTRACT='{value}' must be 1 or 0\n"


# --- tuned contracts -------------------------------------------------------------------------------------------------


def tuned_folder(build: Build, prefer_when: str) -> Path:
    """A folder as `contract tune` writes it, for the PTX of ``a.cu``: its versions have a preference of their own."""
    done = plain(build.folder, "-arch=sm_90", "-ptx", "a.cu", "-o", "a.ptx")
    assert done.returncode == 0, done.stderr
    ptx = (build.folder / "a.ptx").read_text()
    result = optimize(ptx, "O3", Policy(contract=True, gate="static"))
    assert result.contract is not None
    kernels = {
        name: replace(
            kernel,
            versions=(
                *(replace(each, prefer_when=parse_expression(prefer_when)) for each in kernel.versions[:-1]),
                kernel.versions[-1],
            ),
        )
        for name, kernel in result.contract.kernels.items()
    }
    folder = build.folder / "tuned"
    folder.mkdir(exist_ok=True)
    name = digest_name("sums", ptx)
    (folder / f"{name}.ptx").write_text(result.text)
    (folder / f"{name}.contract.json").write_text(replace(result.contract, kernels=kernels).dumps())
    return folder


@pytest.mark.parametrize(("prefer_when", "expected"), [("1", EXPECTED), ("grid_x > 2", [SUMS, SUMS, FILL])])
def test_a_tuned_contract_takes_the_place_of_the_optimizer(build: Build, prefer_when: str, expected: list[str]) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    folder = tuned_folder(build, prefer_when)
    build.nvcc("a.cu", "-o", "program", *build.link, PTXMOTION_TUNED=str(folder))
    assert launched(build.run()) == expected


def test_other_modules_are_optimized_as_usual(build: Build) -> None:
    build.write("a.cu", program("sums<<<1, 32>>>(a, y, 3);"))
    folder = tuned_folder(build, "0")
    build.write("a.cu", program(TWO_LAUNCHES, KERNEL.replace("a[i + 1]", "a[i + 2]")))
    build.nvcc("a.cu", "-o", "program", *build.link, PTXMOTION_TUNED=str(folder))
    assert launched(build.run()) == EXPECTED


def test_a_damaged_tuned_module_leaves_the_build_as_it_is(build: Build) -> None:
    build.write("a.cu", program(TWO_LAUNCHES))
    folder = tuned_folder(build, "1")
    (module,) = folder.glob("*.ptx")
    module.write_text(module.read_text() + "\n")
    done = build.nvcc("a.cu", "-o", "program", *build.link, PTXMOTION_TUNED=str(folder))
    assert "the contract is of another module" in done.stderr
    assert launched(build.run()) == [SUMS, SUMS, FILL]


def test_a_tuned_folder_needs_checks_and_has_to_exist(tmp_path: Path) -> None:
    done = ours(tmp_path, "-c", "a.cu", PTXMOTION_TUNED=str(tmp_path))
    assert done.returncode == 2 and "PTXMOTION_TUNED needs PTXMOTION_CONTRACT=1" in done.stderr
    done = ours(tmp_path, "-c", "a.cu", PTXMOTION_CONTRACT="1", PTXMOTION_TUNED=str(tmp_path / "no"))
    assert done.returncode == 2 and "is not a folder" in done.stderr


def test_run_refuses_a_tuned_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_TUNED", str(tmp_path))
    assert main(["run", "true"]) == 2
