# ruff: noqa: B002, B007, F821, F841, SIM201 - the kernels are data
# pyright: reportUnusedVariable=false
"""The CUDA C++ that is generated from kernels in Python."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import (
    Array,
    DslError,
    addr,
    array,
    atomic_add,
    atomic_max,
    ballot_sync,
    blockDim,
    blockIdx,
    clz,
    const_ptr,
    device,
    dtype_of,
    dynamic_shared,
    f32,
    f64,
    float4,
    i8,
    i32,
    i64,
    kernel,
    local,
    pointer_cast,
    popc,
    pow,
    ptr,
    restrict,
    shared,
    shfl_down_sync,
    sqrt,
    struct,
    syncthreads,
    threadIdx,
    u8,
    u32,
    u64,
    unroll,
    volatile,
)
from ptxmotion.dsl.types import BOOL, F32, F64, I8, I32, I64, U8, U32, U64, usual

BLOCK = 16
HALF = np.float32(0.5)


@struct
class Node:
    key: i32
    weight: f32
    kids: Array[i32] = array(i32, 4)


@device
def clamp(x: i32, low: i32, high: i32) -> i32:
    return min(max(x, low), high)


@device(inline=False)
def factorial(n: i32) -> i32:
    if n < 2:
        return 1
    return n * factorial(n - 1)


@kernel
def plain(n: i32) -> None:
    assert n > 0


def body(made: Any) -> list[str]:
    """The lines of the body of the kernel, without the indentation of the first level."""
    lines = made.cuda.splitlines()
    at = max(i for i, line in enumerate(lines) if "__global__" in line)
    return [line[4:] for line in lines[at + 1 : -1]]


def test_a_kernel_becomes_readable_cuda() -> None:
    @kernel(max_threads=BLOCK)
    def smooth(n: i32, x: const_ptr[f32], y: restrict[ptr[f32]]) -> None:
        """A docstring generates no code."""
        tile = shared(f32, BLOCK + 2)
        i: i32 = blockIdx.x * blockDim.x + threadIdx.x
        if i >= n:
            return
        tile[threadIdx.x + 1] = x[i]
        syncthreads()
        total: f32 = 0.0
        for k in range(3):
            total += tile[threadIdx.x + k] * 0.5
        y[i] = total / 3.0 if 0 < i < n - 1 else x[i]

    assert smooth.cuda == (
        'extern "C" __global__ void __launch_bounds__(16) '
        "smooth(int n, const float *x, float *__restrict__ y) {\n"
        "    __shared__ float tile[18];\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i >= n) {\n"
        "        return;\n"
        "    }\n"
        "    tile[threadIdx.x + 1] = x[i];\n"
        "    __syncthreads();\n"
        "    float total = 0.0f;\n"
        "    for (int k = 0; k < 3; ++k) {\n"
        "        total += tile[threadIdx.x + k] * 0.5f;\n"
        "    }\n"
        "    y[i] = (0 < i && i < n - 1) ? total / 3.0f : x[i];\n"
        "}\n"
    )


def test_types_mix_as_in_c() -> None:
    assert usual(I32, U32) is U32
    assert usual(U32, I64) is I64
    assert usual(I64, U64) is U64
    assert usual(I8, U8) is I32
    assert usual(BOOL, BOOL) is I32
    assert usual(U64, F32) is F32
    assert usual(F32, F64) is F64


def test_locals_get_the_c_type_of_their_value() -> None:
    @kernel
    def k(a: i8, b: u32, c: u64, x: f32, y: f64) -> None:
        p = a + a
        q = a + b
        r = b + c
        s = x * y
        t = x * 2
        u = a < b
        v = 1 << b
        w = ~a
        z = 0xFFFFFFFF
        big = 3000000000
        h = HALF * x
        print_types: i64 = p
        d = threadIdx.x

    declared = [line.split("=")[0].strip() for line in body(k)]
    assert declared == [
        "int p",
        "unsigned int q",
        "unsigned long long r",
        "double s",
        "float t",
        "bool u",
        "int v",
        "int w",
        "unsigned int z",
        "long long big",
        "float h",
        "long long print_types",
        "unsigned int d",
    ]


def test_a_float_literal_takes_the_type_of_the_other_operand() -> None:
    @kernel
    def k(x: f32, y: f64, p: ptr[f32], q: ptr[f64], n: i32) -> None:
        p[0] = 1.5
        q[0] = 1.5
        p[1] = x + 1.0 / 3.0
        q[1] = (1.0 if n > 0 else 2.0) * y
        p[2] = max(x, 0.0)
        p[3] = -2.5 * x
        p[4] = f32(n) * 1e-5
        p[5] += 0.5

    assert body(k) == [
        "p[0] = 1.5f;",
        "q[0] = 1.5;",
        "p[1] = x + 0.3333333333333333f;",
        "q[1] = (n > 0 ? 1.0 : 2.0) * y;",
        "p[2] = fmaxf(x, 0.0f);",
        "p[3] = -2.5f * x;",
        "p[4] = (float)n * 1e-5f;",
        "p[5] += 0.5f;",
    ]


def test_locals_have_python_scope() -> None:
    @kernel
    def k(n: i32, p: ptr[i32]) -> None:
        while n > 0:
            if n == 3:
                late = 1
            elif n == 2:
                late = 2
            else:
                inner = n
                p[2] = inner
                late = inner + 1
            p[0] = late
            fresh = n
            p[1] = fresh
            n -= 1
        if n:
            both = 1
        else:
            both = 2
        p[3] = both

    assert body(k) == [
        "int late;",
        "while (n > 0) {",
        "    if (n == 3) {",
        "        late = 1;",
        "    } else if (n == 2) {",
        "        late = 2;",
        "    } else {",
        "        int inner = n;",
        "        p[2] = inner;",
        "        late = inner + 1;",
        "    }",
        "    p[0] = late;",
        "    int fresh = n;",
        "    p[1] = fresh;",
        "    n -= 1;",
        "}",
        "int both;",
        "if (n) {",
        "    both = 1;",
        "} else {",
        "    both = 2;",
        "}",
        "p[3] = both;",
    ]


def test_loop_bounds_are_evaluated_once() -> None:
    @kernel
    def k(n: i32, p: ptr[i32], step: u32) -> None:
        for i in range(n):
            p[i] = i
        for i in range(p[0]):
            p[i] = 0
        for i in range(n - 1, -1, -1):
            p[i] = i
        for i in range(0, n, step):
            n -= 1
        for i in unroll(range(4)):
            p[i] = i
        for i in unroll(range(n), 2):
            p[i] = i

    heads = [line for line in body(k) if "for" in line or "const" in line or "#" in line]
    assert heads == [
        "for (int i = 0; i < n; ++i) {",
        "const int i_stop = p[0];",
        "for (int i = 0; i < i_stop; ++i) {",
        "for (int i = n - 1; i > -1; --i) {",
        "const int i_stop_ = n;",
        "for (int i = 0; i < i_stop_; i += step) {",
        "#pragma unroll",
        "for (int i = 0; i < 4; ++i) {",
        "#pragma unroll 2",
        "for (int i = 0; i < n; ++i) {",
    ]


def test_constants_are_template_parameters() -> None:
    @kernel
    def k(p: ptr[i32]) -> None:
        if BLOCK == 16:
            p[0] = BLOCK // 3
        else:
            p[0] = undefined_where_not_taken  # type: ignore[name-defined]

    assert body(k) == ["p[0] = 16 / 3;"]
    other = k.with_constants(BLOCK=16 + 0)
    assert other.name == "k_BLOCK16" and "k_BLOCK16(int *p)" in other.cuda
    with pytest.raises(DslError, match="uses no constant SIZE"):
        k.with_constants(SIZE=3)


def test_structs_arrays_and_pointers() -> None:
    @kernel
    def k(nodes: ptr[Node], q: const_ptr[float4], raw: ptr[ptr[f32]], v: volatile[ptr[i32]]) -> None:
        grid = shared(i32, 4, 4)
        mine = local(f32, 3)
        more = dynamic_shared(f32)
        tail = pointer_cast(i32, more + 8)
        one = nodes[1]
        one.kids[2] = grid[threadIdx.y, threadIdx.x]
        nodes[0].key = tail[0] + one.key
        mine[0] = q[0].w
        raw[0][1] = mine[0]
        pair = float4(1.0, 2.0, mine[0], q[0].x)
        raw[1][0] = pair.y
        v[0] = 1
        atomic_max(addr(nodes[0].key), 3)

    text = k.cuda
    assert "struct Node {\n    int key;\n    float weight;\n    int kids[4];\n};" in text
    assert "k(Node *nodes, const float4 *q, float **raw, volatile int *v)" in text
    assert body(k)[:6] == [
        "__shared__ int grid[4][4];",
        "float mine[3];",
        "extern __shared__ float more[];",
        "int *tail = (int *)(more + 8);",
        "Node one = nodes[1];",
        "one.kids[2] = grid[threadIdx.y][threadIdx.x];",
    ]
    assert "float4 pair = make_float4(1.0f, 2.0f, mine[0], q[0].x);" in body(k)
    assert "atomicMax(&nodes[0].key, 3);" in body(k)
    assert dtype_of(Node).itemsize == 24 and dtype_of(float4).itemsize == 16


def test_calls_use_the_overload_of_their_types() -> None:
    @kernel
    def k(a: i32, b: u32, c: u64, x: f32, y: f64, p: ptr[f32], q: ptr[i64]) -> None:
        p[0] = sqrt(x)
        p[1] = f32(sqrt(y))
        p[2] = min(a, b)
        p[3] = abs(x)
        p[4] = clz(c) + popc(b)
        q[0] = atomic_add(q, 5)
        p[5] = shfl_down_sync(0xFFFFFFFF, x, 1)
        p[6] = ballot_sync(0xFFFFFFFF, a > 3)
        p[7] = clamp(a, 0, 7) + factorial(3)

    assert body(k) == [
        "p[0] = sqrtf(x);",
        "p[1] = (float)sqrt(y);",
        "p[2] = min((unsigned int)a, b);",
        "p[3] = fabsf(x);",
        "p[4] = __clzll(c) + __popc(b);",
        "q[0] = (long long)atomicAdd((unsigned long long *)q, 5ULL);",
        "p[5] = __shfl_down_sync(0xFFFFFFFFu, x, 1);",
        "p[6] = __ballot_sync(0xFFFFFFFFu, a > 3);",
        "p[7] = clamp(a, 0, 7) + factorial(3);",
    ]
    assert "static __device__ __noinline__ int factorial(int n);" in k.cuda


TENTH = np.float32(0.1)


def test_constants_are_folded_as_their_types_say() -> None:
    @kernel
    def k(p: ptr[f32]) -> None:
        if TENTH == 0.1:
            p[0] = 1.0
        if -1 // u32(2) == 0:
            p[1] = 1.0
        x = TENTH * 0.5

    assert body(k) == [
        "p[0] = 1.0f;",
        "if (-1 / 2u == 0) {",
        "    p[1] = 1.0f;",
        "}",
        "float x = 0.10000000149011612f * 0.5f;",
    ]


WEIGHTS = np.array([[0.25, 0.5], [-1.0, 2.0]], np.float32)


def test_a_captured_array_is_a_table_in_constant_memory() -> None:
    @kernel
    def k(i: i32, p: ptr[f32]) -> None:
        p[0] = WEIGHTS[i, 1]
        p[1] = WEIGHTS[1, 0] + WEIGHTS[0, i]

    assert k.cuda.startswith("__constant__ const float WEIGHTS_table[2][2] = {0.25f, 0.5f, -1.0f, 2.0f};\n\n")
    assert body(k) == ["p[0] = WEIGHTS_table[i][1];", "p[1] = WEIGHTS_table[1][0] + WEIGHTS_table[0][i];"]


def test_a_pointer_into_a_restrict_buffer_is_not_restrict() -> None:
    @kernel
    def k(p: restrict[ptr[f32]], n: i32) -> None:
        row = p + n
        row[0] = pow(row[1], 2)

    assert body(k) == ["float *row = p + n;", "row[0] = powf(row[1], 2.0f);"]


def test_reserved_cpp_names_are_changed() -> None:
    @kernel
    def k(new: i32, p: ptr[i32]) -> None:
        sqrtf = new
        p[0] = sqrtf

    assert body(k) == ["int sqrtf_ = new_;", "p[0] = sqrtf_;"]


def test_words_cannot_be_called_outside_kernels() -> None:
    with pytest.raises(DslError, match="inside a @kernel"):
        syncthreads()
    with pytest.raises(DslError, match="inside a @kernel"):
        _ = threadIdx.x
    with pytest.raises(DslError, match="only kernels can call it"):
        clamp(1, 2, 3)
    with pytest.raises(DslError, match="may only be used in a @program"):
        plain[1, 1](1)


def test_invalid_structs_are_refused() -> None:
    with pytest.raises(DslError, match="field a has a default"):

        @struct
        class Bad:
            a: i32 = 3

    with pytest.raises(DslError, match="'int' is not a type for device code"):

        @struct
        class Worse:
            a: int


@pytest.fixture(scope="module")
def host_compiler() -> str:
    found = shutil.which("g++") or shutil.which("c++")
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def test_arithmetic_is_that_of_c(host_compiler: str, tmp_path: Path) -> None:
    """The generated code, compiled for the host, computes the same as NumPy with the same widths."""

    @kernel
    def k(a: i32, b: i32, u: u32, c: u8, out: ptr[i64]) -> None:
        out[0] = a // b
        out[1] = a % b
        out[2] = a - u
        out[3] = c + c
        out[4] = a >> 1
        out[5] = u >> 1
        out[6] = (a + 3 & 7) | 8 ^ a
        out[7] = a - (b - a)
        out[8] = -(-a)
        out[9] = 1 if a < u else 0
        out[10] = 1 if not a == b and (a > 0 or b > 0) else 0
        x, y = a, b
        x, y = y, x
        out[11] = x - y
        out[12] = a * (b + 2) % 5
        total = 0
        for i in range(10, 0, -3):
            if i == 4:
                continue
            total += i
        out[13] = total
        n = 0
        while True:
            n += 1
            if n > 6:
                break
        out[14] = n
        out[15] = i32(f32(7) / 2.0)
        out[16] = u8(300 + a)

    text = k.cuda.replace("__global__ ", "")
    source = tmp_path / "k.cpp"
    source.write_text(text)
    library = tmp_path / "k.so"
    subprocess.run([host_compiler, "-shared", "-fPIC", "-fwrapv", "-o", library, source], check=True)
    out = (ctypes.c_longlong * 17)()
    a, b, u, c = -7, 2, 5, 200
    function = ctypes.CDLL(str(library)).k
    function(ctypes.c_int(a), ctypes.c_int(b), ctypes.c_uint(u), ctypes.c_ubyte(c), out)
    assert list(out) == [
        -3,
        -1,
        (a - u) % 2**32,
        400,
        -4,
        2,
        (-4 & 7) | (8 ^ -7),
        -16,
        -7,
        0,
        1,
        9,
        -28 + 25,
        18,
        7,
        3,
        (300 - 7) % 256,
    ]


def test_generated_lines_refer_to_python_lines() -> None:
    @kernel
    def k(n: i32, p: ptr[i32]) -> None:
        a = n

        p[0] = a  # the expected line

    text = k.cuda_with_lines.splitlines()
    store = text.index("    p[0] = a;")
    assert text[0] == f'#line {k.source.line_of(k.source.tree)} "{__file__}"'
    number = int(text[store - 1].removeprefix("#line "))
    assert Path(__file__).read_text().splitlines()[number - 1].endswith("# the expected line")
