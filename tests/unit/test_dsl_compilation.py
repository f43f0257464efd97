"""Compilation of kernels to PTX: nvcc, the cache, errors with their Python line; kernels from CUDA C++ and from PTX."""

import os
import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest
from ptxmotion.dsl import DslError, Nvcc, blockIdx, const_ptr, cuda_source, f32, host, i32, kernel, ptr, ptx_source, u8
from ptxmotion.dsl.functions import signature_of
from ptxmotion.ptx import PtxError, parse
from ptxmotion.toolchain.tools import ToolFailed, ToolMissing, compile_cuda, find_tool


@kernel
def scale(n: i32, a: f32, x: const_ptr[f32], y: ptr[f32]) -> None:
    i: i32 = blockIdx.x
    if i < n:
        y[i] = a * x[i]


EMPTY = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {name}()\n{{\n  ret;\n}}\n"


class Counting:
    """A compiler that counts its calls and returns ``text`` or raises ``why``."""

    def __init__(self, text: str = EMPTY.format(name="k"), why: Exception | None = None) -> None:
        self.calls = 0
        self.text = text
        self.why = why
        self.source = ""
        self.flags: tuple[str, ...] = ()

    def __call__(self, source: str, arch: str, *, flags: Sequence[str]) -> str:
        self.calls += 1
        self.source, self.flags = source, tuple(flags)
        if self.why is not None:
            raise self.why
        return self.text


@pytest.fixture(scope="module")
def nvcc(tmp_path_factory: pytest.TempPathFactory) -> Nvcc:
    try:
        tool = find_tool("nvcc")
    except ToolMissing as why:
        pytest.skip(str(why))
    return Nvcc(compile_cuda, tool.version, cache=tmp_path_factory.mktemp("cache"))


def test_nvcc_compiles_with_python_lines(nvcc: Nvcc) -> None:
    made = scale.ptx(nvcc)
    module = parse(made)
    (entry,) = module.entries
    assert entry.name == "scale" == scale.entry(made)
    assert [param.bytes for param in entry.params or []] == [4, 4, 8, 8]
    assert __file__ in module.files.values()
    stores = [i for i in entry.instructions() if i.form.text.startswith("st.global")]
    (store,) = stores
    assert store.loc is not None
    file, line, _ = store.loc.file_line_column
    assert module.files[file] == __file__
    assert Path(__file__).read_text().splitlines()[line - 1].strip() == "y[i] = a * x[i]"


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_cache_is_used_for_equal_content_only(tmp_path: Path) -> None:
    compiler = Counting()
    kept = Nvcc(compiler, "13.0", cache=tmp_path)
    first = kept.ptx("a")
    assert kept.ptx("a") == first and compiler.calls == 1
    assert compiler.flags == ("-lineinfo",)
    kept.ptx("b")
    Nvcc(compiler, "13.1", cache=tmp_path).ptx("a")
    Nvcc(compiler, "13.0", arch="sm_100a", cache=tmp_path).ptx("a")
    Nvcc(compiler, "13.0", flags=("-use_fast_math",), cache=tmp_path).ptx("a")
    Nvcc(compiler, "13.0", line_info=False, cache=tmp_path).ptx("a")
    assert compiler.calls == 6 and compiler.flags == ()
    assert len(entries(tmp_path)) == 6
    Nvcc(compiler, "13.0", cache=None).ptx("a")
    assert compiler.calls == 7


def test_a_failed_compilation_is_not_cached(tmp_path: Path) -> None:
    compiler = Counting(why=ToolFailed("nvcc", 1, "nvcc fatal : nothing works"))
    with pytest.raises(DslError, match="nvcc fatal : nothing works"):
        Nvcc(compiler, "13.0", cache=tmp_path).ptx("a")
    assert not (tmp_path / "ptx").exists()


def test_a_missing_nvcc_passes_with_its_install_line() -> None:
    compiler = Counting(why=ToolMissing("nvcc", "no wheel", "pip install it"))
    with pytest.raises(ToolMissing, match="pip install it"):
        scale.ptx(Nvcc(compiler, "13.0", cache=None))
    with pytest.raises(DslError, match="pass a compiler"):
        scale.ptx()


BROKEN = """
extern "C" __global__ void broken(int *p)
{
    p[0] = undeclared;
}
"""


def test_an_error_of_nvcc_names_its_line(nvcc: Nvcc, tmp_path: Path) -> None:
    with pytest.raises(DslError, match='identifier "undeclared" is undefined') as caught:
        cuda_source(BROKEN).ptx(nvcc)
    assert caught.value.place is not None
    assert caught.value.place.file == __file__
    assert caught.value.place.text == "    p[0] = undeclared;"
    file = tmp_path / "broken.cu"
    file.write_text(BROKEN)
    with pytest.raises(DslError) as caught:
        cuda_source(file).ptx(nvcc)
    assert str(caught.value).startswith(f"{file}:4:5: error: nvcc: ")


def test_an_error_of_nvcc_in_a_python_kernel_names_the_python_line(nvcc: Nvcc) -> None:
    @kernel(max_threads=4096)
    def wide(p: ptr[i32]) -> None:
        p[0] = 1

    log = f'{__file__}({wide.source.line_of(wide.source.tree.body[0])}): error: expected a ";"\n'
    with pytest.raises(DslError) as caught:
        wide.ptx(Nvcc(Counting(why=ToolFailed("nvcc", 1, log)), "13.0", cache=None))
    assert caught.value.place is not None and caught.value.place.text.strip() == "p[0] = 1"
    assert caught.value.message == 'nvcc: expected a ";"'


MANGLED = """
template <typename T> __device__ T twice(T x) { return x + x; }
__global__ void first(float *x) { x[0] = twice(x[0]); }
namespace inner { __global__ void second(float *x, int n) { x[n] = 1; } }
"""


def test_cuda_kernels_are_found_by_their_names(nvcc: Nvcc, tmp_path: Path) -> None:
    first = cuda_source(MANGLED, "first", params=[ptr[f32]])
    assert first.entry(first.ptx(nvcc)) == "_Z5firstPf"
    assert first.params is not None and str(first.params[0].type) == "ptr[f32]"
    second = cuda_source(MANGLED, name="second")
    assert second.entry(second.ptx(nvcc)) == "_ZN5inner6secondEPfi"
    with pytest.raises(DslError, match="2 __global__ functions"):
        cuda_source(MANGLED)
    with pytest.raises(DslError, match="0 entries that match 'third'; its entries are"):
        cuda_source(MANGLED, "third").ptx(nvcc)
    (tmp_path / "part.cuh").write_text('extern "C" __global__ void part() {}\n')
    whole = tmp_path / "whole.cu"
    whole.write_text('#include "part.cuh"\n')
    assert cuda_source(str(whole), "part").ptx(nvcc).count(".entry") == 1


def test_a_ptx_kernel_is_found_by_its_name(tmp_path: Path) -> None:
    text = EMPTY.format(name="_Z4zeroPfi")
    assert ptx_source(text).name == "_Z4zeroPfi"
    zero = ptx_source(text, "zero")
    assert zero.name == "zero" and zero.entry(zero.ptx()) == "_Z4zeroPfi"
    file = tmp_path / "zero.ptx"
    file.write_text(text)
    assert ptx_source(file).ptx() == text == ptx_source(str(file)).ptx()
    with pytest.raises(DslError, match="0 entries that match 'one'"):
        ptx_source(text, "one")
    with pytest.raises(DslError, match="2 entries: choose one"):
        ptx_source(text + ".visible .entry other()\n{\n  ret;\n}\n")
    with pytest.raises(PtxError):
        ptx_source(".version 8.0\n.target sm_90\n.visible .entry k( {")
    with pytest.raises(FileNotFoundError):
        ptx_source(tmp_path / "none.ptx")


INCLUDING = '#include "value.h"\nextern "C" __global__ void k(int *p) { *p = VALUE; }\n'


def test_an_edited_header_is_compiled_again(nvcc: Nvcc, tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    (far / "sub").mkdir(parents=True)
    (far / "value.h").write_text('#include "sub/deep.h"\n')
    (far / "sub" / "deep.h").write_text("#define VALUE 31\n")
    calls = 0

    def counting(source: str, arch: str, *, flags: Sequence[str]) -> str:
        nonlocal calls
        calls += 1
        return nvcc.compile(source, arch, flags=flags)

    kept = Nvcc(counting, "13.0", flags=(f"-I{near}", "-I", str(far)), cache=tmp_path / "cache")
    first = kept.ptx(INCLUDING)
    assert kept.ptx(INCLUDING) == first and "31;" in first and calls == 1
    (far / "sub" / "deep.h").write_text("#define VALUE 32\n")
    assert "32;" in kept.ptx(INCLUDING) and "32;" in kept.ptx(INCLUDING) and calls == 2
    (near / "value.h").write_text("#define VALUE 33\n")  # the compiler finds this file before the other one
    assert "33;" in kept.ptx(INCLUDING) and "33;" in kept.ptx(INCLUDING) and calls == 3
    (near / "value.h").unlink()
    assert "32;" in kept.ptx(INCLUDING) and calls == 4
    (near / "value.h").write_text('#if __has_include("more.h")\n#define VALUE 34\n#else\n#define VALUE 35\n#endif\n')
    assert "35;" in kept.ptx(INCLUDING)
    (near / "more.h").write_text("")
    assert "34;" in kept.ptx(INCLUDING)


@pytest.mark.parametrize("flags", [(), ("-I/nowhere",), ("-include", "x.h"), ("--pre-include=x.h",)])
def test_a_source_that_may_include_is_not_cached_without_a_list_of_files(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """This happens with a compiler that does not support ``-MD``."""
    compiler = Counting()
    kept = Nvcc(compiler, "13.0", flags=flags, cache=tmp_path)
    source = "a" if flags else "%:inc\\\nlude <x.h>"
    for _ in range(2):
        kept.ptx(source)
    assert compiler.calls == 2 and not entries(tmp_path)


@pytest.mark.parametrize("damage", ["short", "empty", "folder", "pipe", "link", "binary"])
def test_an_invalid_cache_entry_is_ignored(tmp_path: Path, damage: str) -> None:
    compiler = Counting()
    kept = Nvcc(compiler, "13.0", cache=tmp_path / "cache")
    first = kept.ptx("a")
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    entry.unlink()
    match damage:
        case "folder":
            entry.mkdir()
        case "pipe":
            os.mkfifo(entry)
        case "link":
            (tmp_path / "elsewhere").write_bytes(whole)
            entry.symlink_to(tmp_path / "elsewhere")
        case _:
            entry.write_bytes({"short": whole[:-20], "empty": b"", "binary": bytes(range(256))}[damage])
    assert kept.ptx("a") == first and compiler.calls == 2
    assert kept.ptx("a") == first and compiler.calls == 2  # the damaged entry was replaced


#: Functions whose annotations mention types of what is around them, which have the names of others in the module.
HIDDEN = """
from ptxmotion.dsl import device, f32, host, i32, program, u8

Pixel, Number = f32, i32

def made_for(Pixel, constant):
    @device
    def chosen(a: Pixel, b: "Number") -> Pixel:
        return a + constant

    return chosen

def program_for(Pixel):
    @program
    def nothing(values: host[Pixel], n: Number):
        pass

    return nothing

class Types:
    Number = u8

    @device
    def inside(a: Number, b: Pixel) -> Number:
        return a
"""


def test_types_of_enclosing_functions_hide_those_of_the_module(tmp_path: Path) -> None:
    """Python does not capture what only annotations mention, but evaluates annotations where they stand."""
    file = tmp_path / "hidden_types.py"
    file.write_text(HIDDEN)
    made = runpy.run_path(str(file))
    chosen, inside = made["made_for"](u8, 1), made["Types"].inside
    for function, constants, types in (
        (chosen, {}, [u8, i32, u8]),
        (chosen, {"Pixel": i32}, [i32, i32, i32]),
        (inside, {}, [u8, f32, u8]),
    ):
        signature = signature_of(function.source(), function.scope(constants), function.name)
        assert [*(param.type for param in signature.params), signature.result] == types


def test_programs_do_not_take_a_type_of_the_module_for_one_of_a_function(tmp_path: Path) -> None:
    """A printed program is a text in which the names of the module are known, and no others."""
    file = tmp_path / "hidden_types.py"
    file.write_text(HIDDEN)
    made = runpy.run_path(str(file))
    assert [param.type for param in made["program_for"](f32).host.params] == [host[f32], i32]
    with pytest.raises(DslError, match=r"host\[Pixel\] is another type where the program is defined") as caught:
        _ = made["program_for"](u8).host
    assert caught.value.place is not None and "host[Pixel]" in caught.value.place.text
