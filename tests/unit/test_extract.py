"""`ptxmotion extract`: it finds what cuobjdump finds, in every container and with every compression."""

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from motion import DIVISION_AGAIN
from nvcc_builds import CUOBJDUMP, LIBRARIES, NVCC, needs_nvcc
from ptxmotion.cli import main
from ptxmotion.cli.tables import print_table
from ptxmotion.toolchain.demangle import demangled
from ptxmotion.toolchain.fatbin import FatbinError, device_images, opened, with_contents

FIRST = """\
extern __device__ int twice(int);
namespace app { template <typename T> __global__ void fill(T *out, T value) { out[threadIdx.x] = twice(value); } }
void launch(int *p) { app::fill<<<1, 32>>>(p, 1); }
__global__ void copy(int *out, const int *in) { out[threadIdx.x] = in[threadIdx.x]; }
int main() { return 0; }
"""

SECOND = "__device__ int twice(int value) { return 2 * value; }\n__global__ void other(int *p) { *p = twice(*p); }\n"

TARGETS = ("-gencode=arch=compute_90a,code=[sm_90a,compute_90a]", "-gencode=arch=compute_80,code=sm_80")


def nvcc(folder: Path, *arguments: str) -> None:
    done = subprocess.run([NVCC, *arguments, LIBRARIES], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def cuobjdump(folder: Path, file: str, *arguments: str) -> str:
    done = subprocess.run([CUOBJDUMP, "-all", *arguments, file], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an object, an executable, a shared object, an archive, and fatbins of all compressions."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "first.cu").write_text(FIRST)
    (folder / "second.cu").write_text(SECOND)
    (folder / "lone.cu").write_text(FIRST.replace("extern __device__ int twice(int);", SECOND))
    nvcc(folder, *TARGETS, "-rdc=true", "-Xcompiler=-fPIC", "-lineinfo", "-Xptxas=-O2", "-c", "first.cu", "second.cu")
    nvcc(folder, *TARGETS, "-rdc=true", "first.o", "second.o", "-o", "program")
    nvcc(folder, *TARGETS, "-lib", "first.o", "second.o", "-o", "libboth.a")
    nvcc(folder, *TARGETS, "-Xcompiler=-fPIC", "-shared", "lone.cu", "-o", "libshared.so")
    for mode in ("default", "size", "speed", "balance", "none"):
        nvcc(folder, *TARGETS, "-fatbin", f"-compress-mode={mode}", "lone.cu", "-o", f"{mode}.fatbin")
    nvcc(folder, "-cubin", "-arch=sm_90", "lone.cu", "-o", "lone.cubin")
    return folder


CONTAINERS = ("first.o", "program", "libshared.so", "libboth.a", *(f"{m}.fatbin" for m in ("default", "size", "speed")))


def extracted(folder: Path, file: str, out: Path) -> tuple[list[bytes], list[bytes]]:
    """The PTX and the cubins that `extract` writes, in order."""
    assert main(["extract", "--no-config", str(folder / file), "-o", str(out)]) == 0

    def number(path: Path) -> int:
        return int(path.name.split(".")[1])

    ptx, cubins = ([path.read_bytes() for path in sorted(out.glob(f"*.{k}"), key=number)] for k in ("ptx", "cubin"))
    return ptx, cubins


@needs_nvcc
@pytest.mark.parametrize("file", [*CONTAINERS, "balance.fatbin", "none.fatbin"])
def test_contents_are_those_of_cuobjdump(built: Path, file: str, tmp_path: Path) -> None:
    """cuobjdump may give several images the same name, so the listings are compared, and the extracted files."""
    ptx, cubins = extracted(built, file, tmp_path / "ours")
    listing = cuobjdump(built, file, "-lelf", "-lptx")
    assert (len(ptx), len(cubins)) == (listing.count("PTX file"), listing.count("ELF file"))
    assert len(ptx) and len(cubins)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for option in ("-xptx", "-xelf"):
        cuobjdump(theirs, str(built / file), option, "all")
    files = {path.read_bytes() for path in theirs.iterdir()}
    assert files and {text.strip() for text in files} <= {text.strip() for text in (*ptx, *cubins)}
    if len(files) == len(ptx) + len(cubins):  # no two images had the same name
        assert {text.strip() for text in files} == {text.strip() for text in (*ptx, *cubins)}


@needs_nvcc
def test_kernels_registers_and_targets(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for file in CONTAINERS:
        assert main(["extract", "--no-config", "--json", str(built / file)]) == 0
        images: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["images"]
        usage = cuobjdump(built, file, "-res-usage")
        theirs = sorted(re.findall(r"Function (\w+):\s*\n\s*REG:(\d+)", usage))
        cubins = [each for each in images if each["kind"] == "cubin"]
        kernels = [(kernel["name"], str(kernel["registers"])) for each in cubins for kernel in each["kernels"]]
        functions = {name for name, _ in theirs}
        assert kernels and {name for name, _ in kernels} <= functions
        for name, registers in set(kernels):
            assert (name, registers) in theirs
        assert {each["target"] for each in images} == {"sm_80", "sm_90a"}
        texts = {kernel["demangled"] for each in images if each["kind"] == "ptx" for kernel in each["kernels"]}
        assert "void app::fill<int>(int*, int)" in texts and "copy(int*, int const*)" in texts


@needs_nvcc
def test_options_sources_members_and_compressions(built: Path) -> None:
    program = device_images(opened(str(built / "program")))
    unlinked = [image for image in program if not image.is_linked]
    assert {image.source for image in unlinked} == {"first.cu", "second.cu"}
    assert {image.options for image in unlinked if image.kind == "ptx"} == {"-O2 --compile-only --generate-line-info"}
    assert {image.kind for image in program if image.is_linked} == {"cubin"}
    members = {image.member for image in device_images(opened(str(built / "libboth.a")))}
    assert len(members) == 2 and all(member.endswith(".o") for member in members)
    used = {
        mode: {image.compression for image in device_images(opened(str(built / f"{mode}.fatbin")))}
        for mode in ("size", "speed", "none")
    }
    assert "zstd" in used["size"] and "lz4" in used["speed"] and used["none"] == {""}
    (cubin,) = device_images(opened(str(built / "lone.cubin")))
    assert (cubin.kind, cubin.target) == ("cubin", "sm_90")


@needs_nvcc
def test_images_are_selected_by_kind_target_and_kernel(
    built: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def listed(*options: str) -> list[str]:
        assert main(["extract", "--no-config", "--json", str(built / "first.o"), *options]) == 0
        return [each["name"] for each in json.loads(capfd.readouterr().out)["images"]]

    assert listed() == ["first.1.sm_90a.cubin", "first.2.sm_90a.ptx", "first.3.sm_80.cubin"]
    assert listed("--kind=ptx") == ["first.2.sm_90a.ptx"]
    assert listed("--arch=sm_80") == ["first.3.sm_80.cubin"]
    assert listed("--kernel=app::fill<int>") == listed() and listed("--kernel=absent") == []
    assert listed("--images") == listed()


def fatbin(content: bytes, flags: int = 0x11, *, size: int | None = None, packed: int = 0) -> bytes:
    """A fatbin with one PTX image, written by hand."""
    padded = content + b"\0" * (-len(content) % 8)
    length = len(padded) if size is None else size
    head = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, length, packed, 0, 0, 9, 90, 0, 0, flags, 0, 100)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64 + len(padded)) + head + padded


@needs_nvcc
def test_optimized_ptx_is_written_beside(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`extract` writes the same as `opt -O3`; for PTX that does not change, it prints a message."""
    unchanged = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n"
    (tmp_path / "a.fatbin").write_bytes(fatbin(DIVISION_AGAIN.encode()) + fatbin(unchanged.encode()))
    out = tmp_path / "out"
    assert main(["extract", "--no-config", str(tmp_path / "a.fatbin"), "-o", str(out), "--optimize"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["a.1.sm_90.opt.ptx", "a.1.sm_90.ptx", "a.2.sm_90.ptx"]
    assert capfd.readouterr().err.splitlines() == [
        "a.1.sm_90.ptx: 1 of 1 kernels changed: a.1.sm_90.opt.ptx",
        "a.2.sm_90.ptx: 0 of 1 kernels changed, so there is no optimized file",
    ]
    assert main(["opt", "--no-config", "-O3", str(out / "a.1.sm_90.ptx"), "-o", str(tmp_path / "b.ptx")]) == 0
    assert (out / "a.1.sm_90.opt.ptx").read_bytes() == (tmp_path / "b.ptx").read_bytes()


def test_containers_that_are_written_by_hand() -> None:
    text = b".version 9.0\n.target sm_90\n"
    (image,) = device_images(fatbin(text))
    assert (image.kind, image.target, image.content()) == ("ptx", "sm_90", text)
    assert device_images(fatbin(text) + b"\0" * 24 + fatbin(b"x"))[1].content() == b"x"
    member = b"name/           0           0     0     644     %-10d`\n" % len(fatbin(text))
    assert device_images(b"!<arch>\n" + member + fatbin(text))[0].member == "name"


@needs_nvcc
@pytest.mark.parametrize("mode", ["default", "size", "speed", "none"])
def test_images_of_a_container_are_replaced(mode: str, built: Path) -> None:
    """The images that are replaced have other contents, and nothing else changes."""
    data = (built / f"{mode}.fatbin").read_bytes()
    assert with_contents(data, {}) == data
    images = device_images(data)
    contents = {index: image.content() + b"// more" for index, image in enumerate(images) if image.kind == "ptx"}
    contents[0] = b"\x7fELF" + bytes(13)
    after = device_images(with_contents(data, contents))
    assert len(after) == len(images) == 3 and len(contents) == 2
    for index, (old, new) in enumerate(zip(images, after, strict=True)):
        assert new.content().rstrip(b"\0") == contents.get(index, old.content()).rstrip(b"\0")
        assert (new.kind, new.target, new.options, new.source) == (old.kind, old.target, old.options, old.source)
        assert new.compression == ("" if index in contents else old.compression)


@pytest.mark.parametrize("data", [b"", b"text" * 8, fatbin(b"x") + b"x", fatbin(b"x", size=1 << 40)])
def test_other_contents_of_no_fatbin(data: bytes) -> None:
    with pytest.raises(FatbinError):
        with_contents(data, {0: b"x"})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it is no ELF file"),
        (b"text", "it is no ELF file"),
        (b"\x7fELF", "it is damaged"),
        (b"\x7fELF\x01\x01" + bytes(60), "not of 64 bits"),
        (b"!<arch>\n" + b"x" * 60, "the archive is damaged"),
        (b"!<arch>\nname/           0           0     0     644     999       `\n", "cut short"),
        (fatbin(b"x", size=1 << 40), "the fatbin is damaged"),
    ],
)
def test_damaged_containers_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(FatbinError, match=problem):
        device_images(data)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [(0x8011, "an image is damaged"), (0x2011, "an image is damaged"), (0x1011, "unknown"), (0x18011, "encoded")],
)
def test_damaged_images_are_refused(flags: int, problem: str) -> None:
    (image,) = device_images(fatbin(b"this is not compressed", flags, packed=20))
    with pytest.raises(FatbinError, match=problem):
        image.content()


def test_files_without_device_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    python = shutil.which("sh")
    assert python and main(["extract", "--no-config", python]) == 0
    assert "there is no device code" in capfd.readouterr().err
    (tmp_path / "a").write_text("text")
    assert main(["extract", "--no-config", str(tmp_path / "a")]) == 3
    assert "it is no ELF file, archive, fatbin or cubin" in capfd.readouterr().err
    assert main(["extract", "--no-config", str(tmp_path / "missing")]) == 3
    assert main(["extract", "--no-config", python, "--optimize"]) == 2


def test_names_are_demangled() -> None:
    assert demangled("_ZN3app4fillIiEEvPT_S1_") == "void app::fill<int>(int*, int)"
    assert demangled("_Z") == "_Z" and demangled("kernel") == "kernel"


def test_long_names_do_not_widen_other_rows(capfd: pytest.CaptureFixture[str]) -> None:
    """A library may have a kernel whose name has thousands of characters, beside many with short names."""
    print_table(("registers", "kernel"), [(8, "short"), (None, "long" * 1000)])
    assert [len(line) for line in capfd.readouterr().out.splitlines()] == [17, 16, 4011]
