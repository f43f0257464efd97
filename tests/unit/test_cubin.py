"""Reading cubins, compared with the figures of ptxas and the output of nvdisasm."""

import dataclasses
import functools
import json
import re
import struct

import pytest
from ptxmotion.arch import ARCHITECTURES
from ptxmotion.toolchain import machine_code
from ptxmotion.toolchain.cubin import CubinError, KernelCode, read_cubin
from ptxmotion.toolchain.machine_ops import KINDS, kinds, names
from ptxmotion.toolchain.ptxas_log import PtxasFigures, ptxas_figures
from ptxmotion.toolchain.tools import Assembled, assemble, assemble_whole_or_relocatable, compile_cuda, disassemble

SLOW = pytest.mark.slow
ARCHS = [pytest.param(arch, marks=SLOW) for arch in ("sm_75", "sm_80", "sm_100", "sm_120")] + ["sm_90a"]

MIXED = """
__device__ __noinline__ float inner(float x, int n) {
    float s = 0;
    for (int i = 0; i < n; i++) s += sinf(x * i);
    return s;
}
__device__ int counter;
__constant__ double table[9];
extern "C" __global__ void __launch_bounds__(256) mixed(float *a, double *d, int n) {
    __shared__ float s[64];
    extern __shared__ float dyn[];
    float local[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 32; j++) local[j] = a[i + j];
    s[threadIdx.x & 63] = a[i];
    dyn[threadIdx.x] = local[n & 31];
    __syncthreads();
    float x = 0;
    for (int j = 0; j < n; j++) {
        x += a[j] * s[j & 31] + dyn[j];
        if (x > 7) atomicAdd(&counter, 1);
    }
    if (i < n) x += __shfl_sync(~0u, x, 3);
    a[i] = x + inner(x, n) + rsqrtf(x) / d[3];
    d[i] = d[i] * table[n & 7] + x;
}
extern "C" __global__ void tiny(int *p) { *p = 1; }
"""

NESTED = """
.version 8.0
.target sm_75
.address_size 64
.visible .entry nested(.param .u64 a, .param .u32 n) {
  .reg .pred %p<5>; .reg .b32 %r<9>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [a];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, 0;
OUTER:
  ld.volatile.global.u32 %r3, [%rd1];
  mov.u32 %r4, 0;
  .pragma "nounroll";
INNER:
  atom.global.add.u32 %r5, [%rd1+64], %r4;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, %r3;
  @%p1 bra INNER;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, %r1;
  @%p2 bra OUTER;
  st.global.u32 [%rd1+8], %r2;
  ret;
}
"""

SWITCH = """
.version 8.0
.target sm_75
.address_size 64
.visible .entry switch(.param .u64 a, .param .u32 n) {
  .reg .b32 %r<9>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [a];
  ld.param.u32 %r1, [n];
table: .branchtargets L0, L1, L2, L3;
TOP:
  brx.idx %r1, table;
L0: st.global.u32 [%rd1], 1; bra END;
L1: bar.sync 3; st.global.u32 [%rd1], 2; bra END;
L2: membar.gl; st.global.u32 [%rd1], 3; bra END;
L3: ld.volatile.global.u32 %r1, [%rd1+16]; bra TOP;
END:
  ret;
}
"""


@functools.cache
def built(arch: str, *flags: str) -> Assembled:
    ptx = compile_cuda(MIXED, arch, flags=["-G"] if "-g" in flags else [])
    return assemble(ptx, arch, flags=flags, verbose=True)


def only(ptx: str, arch: str = "sm_90a") -> KernelCode:
    (kernel,) = read_cubin(assemble(ptx, arch).cubin).values()
    return kernel


@pytest.mark.parametrize("arch", ARCHS)
def test_resources_are_those_that_ptxas_prints(arch: str) -> None:
    done = built(arch)
    kernels, figures = read_cubin(done.cubin), ptxas_figures(done.log)
    assert sorted(kernels) == ["mixed", "tiny"]
    for name, kernel in kernels.items():
        expected = figures[name]
        assert (kernel.registers, kernel.shared_bytes) == (expected.registers, expected.shared_bytes)
        assert (kernel.frame_bytes, kernel.barriers) == (expected.frame_bytes, expected.barriers)
        assert kernel.sm == int(re.findall(r"\d+", arch)[0])
    assert (kernels["mixed"].max_threads, kernels["tiny"].max_threads) == (256, None)
    assert (kernels["mixed"].param_bytes, kernels["tiny"].param_bytes) == (20, 8)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_name_and_every_target_is_nvdisasms(arch: str) -> None:
    cubin = built(arch).cubin
    sm = int(re.findall(r"\d+", arch)[0])
    called, seen = names(sm), 0
    for text in re.split(r"(?m)^//-+ (?=\.text\.)", disassemble(cubin))[1:]:
        labels, branches = read_text(text)
        code = section(cubin, text.split()[0])
        for offset, (mnemonic, label) in branches.items():
            low, high = struct.unpack_from("<QQ", code, offset)
            assert called[low & 0x1FF] == mnemonic, f"{mnemonic} is {low & 0x1FF:#05x}"
            if label in labels and mnemonic in ("BRA", "CALL"):
                assert machine_code._target(offset // 16, low, high, sm) == labels[label] // 16
            if label in labels and mnemonic == "BSSY":
                assert machine_code._reconvergence(offset // 16, low) == labels[label] // 16
            seen += 1
    assert seen > 200


def read_text(text: str) -> tuple[dict[str, int], dict[int, tuple[str, str]]]:
    """Offsets of labels, and mnemonic and label operand by offset, of one section as nvdisasm prints it."""
    labels: dict[str, int] = {}
    instructions: dict[int, tuple[str, str]] = {}
    waiting: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if found := re.match(r"(\S+):$", line):
            waiting.append(found[1])
        elif found := re.match(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(\w+)[^`]*(?:`\(([^)]*)\))?", line):
            offset = int(found[1], 16)
            labels.update(dict.fromkeys(waiting, offset))
            waiting.clear()
            instructions[offset] = (found[2], found[3] or "")
    return labels, instructions


def section(cubin: bytes, name: str) -> bytes:
    from ptxmotion.toolchain import cubin as module

    return module.Image(cubin).data(name)


def test_counts_by_class() -> None:
    kernels = read_cubin(built("sm_90a").cubin)
    mixed = kernels["mixed"]
    assert mixed.unknown_instructions == 0
    assert set(mixed.by_kind) <= set(KINDS)
    assert sum(mixed.by_kind.values()) == mixed.instructions
    assert mixed.by_kind["barrier"] == mixed.by_kind["shuffle"] == 1
    assert mixed.by_kind["store_local"] > 0 and mixed.by_kind["special"] > 0 and mixed.by_kind["fp64"] > 0
    assert mixed.local_accesses == mixed.by_kind["store_local"] + mixed.by_kind["load_local"]
    assert mixed.in_loops["load_shared"] > 0 and "barrier" not in mixed.in_loops
    tiny = kernels["tiny"]
    assert tiny.by_kind["store_global"] == tiny.by_kind["exit"] == 1
    assert "nop" not in tiny.by_kind and "branch" not in tiny.by_kind, "padding was counted"
    assert (tiny.loops, tiny.in_loops, tiny.local_accesses) == (0, {}, 0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120"])
def test_a_loop_in_a_loop(arch: str) -> None:
    nested = only(NESTED, arch)
    assert nested.loops == 2
    assert [depth.get("atomic", 0) for depth in nested.by_depth] == [0, 0, 1]
    assert [depth.get("load_global", 0) for depth in nested.by_depth] == [0, 1, 0]
    assert [depth.get("store_global", 0) for depth in nested.by_depth] == [1, 0, 0]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120"])
def test_a_loop_through_an_indirect_branch(arch: str) -> None:
    switch = only(SWITCH, arch)
    assert switch.loops == 1
    assert switch.in_loops["load_global"] == 1
    assert not {"barrier", "store_global", "fence"} & set(switch.in_loops)
    assert switch.barriers == 4


def test_slow_paths_after_the_kernel_are_not_a_loop() -> None:
    """For an operation of the whole warp, ptxas branches to code after the kernel and back."""
    ptx = compile_cuda(
        'extern "C" __global__ void k(float *a, int n) {'
        "  int i = threadIdx.x; if (i < n) a[i] = __shfl_sync(~0u, a[i], 3); __syncwarp();"
        "  for (int j = 0; j < n; j++) if (a[j] > i) { __syncwarp(); a[j] += 1; } }"
    )
    assert "BRA.DIV" in disassemble(assemble(ptx).cubin)
    kernel = only(ptx)
    assert kernel.in_loops["load_global"] > 0
    assert kernel.by_kind["shuffle"] > 0 and "shuffle" not in kernel.in_loops


def test_a_function_counts_where_it_is_called_from() -> None:
    source = (
        "__device__ __noinline__ int f(int x) { return __popc(x) * x; }"
        'extern "C" __global__ void k(int *a, int n) { %s a[n] += f(a[0]); }'
    )
    outside, inside = (only(compile_cuda(source % loop)) for loop in ("", "for (; n > a[1]; n--)"))
    assert "integer" in outside.by_kind and outside.in_loops == {}
    assert inside.in_loops["integer"] >= 2 and inside.in_loops["call"] == 2


def test_debug_code_calls_functions_in_sections_of_their_own() -> None:
    kernels = read_cubin(built("sm_90a", "-g").cubin)
    assert any("inner" in name for name in kernels["mixed"].calls)
    assert kernels["mixed"].instructions > read_cubin(built("sm_90a").cubin)["mixed"].instructions
    assert kernels["mixed"].unknown_instructions == 0


def test_spills_are_read_from_the_log() -> None:
    sums = "".join(f"float v{i} = a[i * {i}]; " for i in range(40))
    source = f'extern "C" __global__ void k(float *a, int i) {{ {sums} __syncthreads();' + "".join(
        f"a[i + {i}] = v{i} * v{(i * 7) % 40};" for i in range(40)
    )
    ptx = compile_cuda(source + "}")
    tight, free = (assemble(ptx, flags=flags, verbose=True) for flags in (["-maxrregcount=24"], []))
    assert ptxas_figures(tight.log)["k"].spill_store_bytes > 0 == ptxas_figures(free.log)["k"].spill_store_bytes
    assert read_cubin(tight.cubin)["k"].local_accesses > 0 == read_cubin(free.cubin)["k"].local_accesses


def test_a_log_of_another_version_is_read_as_far_as_it_goes() -> None:
    log = """ptxas info    : Function properties for f
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads, 3 bytes of something new
ptxas info    : Compiling entry function 'k' for 'sm_999'
ptxas info    : Used 12 registers, 384 bytes cmem[0]
ptxas info    : what is this"""
    assert ptxas_figures(log) == {
        "f": PtxasFigures(16, 12, 8),
        "k": PtxasFigures(registers=12, shared_bytes=0, barriers=0),
    }


def test_same_code_whatever_the_names() -> None:
    plain = only(NESTED)
    assert plain.is_same_code(only(NESTED.replace("%r", "%other").replace("INNER", "LOOP")))
    assert plain.is_same_code(only(NESTED.replace("nested", "renamed")))
    assert not plain.is_same_code(only(NESTED.replace("add.u32 %r4, %r4, 1", "add.u32 %r4, %r4, 2")))
    assert not plain.is_same_code(only(NESTED + "\n", "sm_80"))


def test_constants_are_part_of_the_code() -> None:
    source = '__constant__ int t[2] = {1, %d}; extern "C" __global__ void k(int *a) { *a = t[a[1]]; }'
    one, other = (only(compile_cuda(source % last)) for last in (2, 3))
    assert one.code_sha256 == other.code_sha256
    assert not one.is_same_code(other)


def test_attributes_that_a_launch_must_meet() -> None:
    kernel = only(
        ".version 8.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k() .reqntid 64, 2 .reqnctapercluster 2 .explicitcluster { bar.sync 5, 64; ret; }"
    )
    assert (kernel.required_threads, kernel.cluster_blocks, kernel.barriers) == (128, 2, 6)


def test_figures_of_a_kernel_are_written_as_json() -> None:
    kernel = only(NESTED)
    document = json.loads(json.dumps(kernel.to_json()))
    assert document["instructions"] == kernel.instructions
    assert document["in_loops"] == kernel.in_loops
    assert {field.name for field in dataclasses.fields(kernel)} <= set(document)


@pytest.mark.parametrize("data", [b"", b"no ELF", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(60)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(CubinError):
        read_cubin(data)


def test_a_damaged_cubin_is_refused_or_read_but_never_crashes() -> None:
    cubin = assemble(NESTED).cubin
    damaged = [cubin[:length] for length in range(0, len(cubin), 97)]
    damaged += [cubin[:at] + b"\xff" + cubin[at + 1 :] for at in range(0, len(cubin), 7)]
    refused = 0
    for data in damaged:
        try:
            read_cubin(data)
        except CubinError:
            refused += 1
    assert refused > len(cubin) // 97 // 2


def test_an_elf_file_of_another_machine_is_refused() -> None:
    cubin = bytearray(assemble(NESTED).cubin)
    cubin[18:20] = (62).to_bytes(2, "little")
    with pytest.raises(CubinError, match="an ELF file for machine 62, not for CUDA"):
        read_cubin(bytes(cubin))


def test_the_table_gives_each_number_one_name() -> None:
    for sm in ARCHITECTURES:
        assert set(names(sm)) == set(kinds(sm))
        assert max(names(sm)) < 512
    assert len(KINDS) == len(set(KINDS))
    rows = [(number, sm) for _, number, *span, _ in machine_rows() for sm in range(span[0], min(span[1], 130) + 1)]
    assert len(rows) == len(set(rows))


def machine_rows() -> tuple[tuple[str, int, int, int, str], ...]:
    from ptxmotion.toolchain import machine_ops

    return machine_ops._rows()


def test_a_relocatable_cubin_whose_variables_are_larger_than_the_file() -> None:
    """In relocatable cubins, sections of uninitialised memory have kinds of their own, without bytes in the file."""
    source = """
    __device__ float big[1 << 20];
    extern __device__ float outside(float);
    extern "C" __global__ void k(float *p, int n) {
        __shared__ float s[10000];
        s[threadIdx.x] = p[threadIdx.x];
        __syncthreads();
        big[n] = outside(s[n]);
    }
    """
    ptx = compile_cuda(source, "sm_90", flags=("-rdc=true",))
    cubin = assemble_whole_or_relocatable(ptx, "sm_90").cubin
    kernel = read_cubin(cubin)["k"]
    assert kernel.shared_bytes == 40000
    assert len(cubin) < 40000


def test_rare_cases_of_a_division_are_counted_as_called() -> None:
    """ptxas calls them. They are a part of the counts of the kernel."""
    for operator, is_called in (("/", True), ("*", False)):
        source = f'extern "C" __global__ void divide(float *a) {{ a[0] = a[1] {operator} a[2]; }}'
        (code,) = read_cubin(assemble(compile_cuda(source, "sm_90"), "sm_90").cubin).values()
        called = sum(sum(each.values()) for each in code.called)
        assert (called > 50) == is_called and called < code.instructions
        for kinds_of, rare in zip(code.by_depth, code.called, strict=True):
            assert all(kinds_of[kind] >= count for kind, count in rare.items())
