"""Matrices, mbarriers and bulk copies: compared with NumPy and the layouts of the manual, and with planted faults.

Here each form has its layout from PTX ISA 9.0, §9.7.14.5. The emulator has one rule for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptxmotion.emulator import Emulator, EmulatorFault, LaunchResult, UnsupportedInstruction

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
Array = npt.NDArray[Any]
Place = Callable[[int, int, int], tuple[int, int]]


def launch(
    body: str, args: dict[str, Array], threads: int = 32, grid: int = 1, budget: int = 200_000, **options: Any
) -> LaunchResult:
    """Run a kernel with one pointer ``%NAME`` for each array, for at most ``budget`` instructions."""
    params = ", ".join(f".param .u64 p_{name}" for name in args)
    loads = "".join(f".reg .b64 %{name}; ld.param.u64 %{name}, [p_{name}];\n" for name in args)
    text = f"{HEAD}.visible .entry k({params}) {{\n{loads}{body}\nret;\n}}\n"
    return Emulator(budget=budget).load(text).launch("k", grid, threads, list(args.values()), **options)


def kinds(result: LaunchResult) -> list[str]:
    return [finding.kind for finding in result.findings]


# --- mma -------------------------------------------------------------------------------------------------------------


def words_of(matrix: Array, place: Place, elements: int, per: int, bits: int) -> Array:
    """The fragments of ``matrix``: (registers, 32) words. ``place(i, g, t)`` is the row and column in the manual."""
    found = np.zeros((elements // per, 32), np.uint64)
    for lane in range(32):
        for i in range(elements):
            row, column = place(i, lane >> 2, lane % 4)
            found[i // per, lane] |= np.uint64(int(matrix[row, column]) & (1 << bits) - 1) << np.uint64(i % per * bits)
    return found


def c_16x8(i: int, g: int, t: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def c_8x8(i: int, g: int, t: int) -> tuple[int, int]:
    return g, t * 2 + i


LAYOUTS: dict[str, tuple[int, Place, int, Place, int, Place, int]] = {
    # mnemonic: bits of an element, then the place and number of elements of A, B and C
    "m8n8k16.row.col.s32.s8.s8.s32": (
        8,
        lambda i, g, t: (g, t * 4 + i),
        4,
        lambda i, g, t: (t * 4 + i, g),
        4,
        c_8x8,
        2,
    ),
    "m16n8k16.row.col.s32.u8.s8.s32": (
        8,
        lambda i, g, t: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        8,
        lambda i, g, t: (t * 4 + i, g),
        4,
        c_16x8,
        4,
    ),
    "m16n8k32.row.col.s32.s8.u8.s32": (
        8,
        lambda i, g, t: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
        16,
        lambda i, g, t: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
        8,
        c_16x8,
        4,
    ),
    "m16n8k64.row.col.satfinite.s32.s4.u4.s32": (
        4,
        lambda i, g, t: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (0 if i < 16 else 32)),
        32,
        lambda i, g, t: (t * 8 + (i & 7) + (0 if i < 8 else 32), g),
        16,
        c_16x8,
        4,
    ),
    "m16n8k128.row.col.s32.b1.b1.s32.xor.popc": (
        1,
        lambda i, g, t: (g if i < 32 else g + 8, t * 32 + (i & 31)),
        64,
        lambda i, g, t: (t * 32 + i, g),
        32,
        c_16x8,
        4,
    ),
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc": (
        1,
        lambda i, g, t: (g if i < 32 or 64 <= i < 96 else g + 8, t * 32 + (i & 31) + (0 if i < 64 else 128)),
        128,
        lambda i, g, t: (t * 32 + (i & 31) + (0 if i < 32 else 128), g),
        64,
        c_16x8,
        4,
    ),
    "m16n8k8.row.col.f32.f16.f16.f32": (
        16,
        lambda i, g, t: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        4,
        lambda i, g, t: (t * 2 + i, g),
        2,
        c_16x8,
        4,
    ),
    "m16n8k16.row.col.f32.bf16.bf16.f32": (
        16,
        lambda i, g, t: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
        8,
        lambda i, g, t: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
        4,
        c_16x8,
        4,
    ),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (
        32,
        lambda i, g, t: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        4,
        lambda i, g, t: (t if i == 0 else t + 4, g),
        2,
        c_16x8,
        4,
    ),
    "m8n8k4.row.col.f64.f64.f64.f64": (64, lambda i, g, t: (g, t), 1, lambda i, g, t: (t, g), 1, c_8x8, 2),
    "m16n8k8.row.col.f64.f64.f64.f64": (
        64,
        lambda i, g, t: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        4,
        lambda i, g, t: (t if i == 0 else t + 4, g),
        2,
        c_16x8,
        4,
    ),
    "m16n8k16.row.col.f64.f64.f64.f64": (
        64,
        lambda i, g, t: (g if i % 2 == 0 else g + 8, i * 2 + t if i % 2 == 0 else i * 2 - 2 + t),
        8,
        lambda i, g, t: (i * 4 + t, g),
        4,
        c_16x8,
        4,
    ),
}


def bits_of(values: Array, kind: str) -> Array:
    """Small integers as elements of type ``kind``."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    if kind == "bf16":
        return values.astype(np.float32).view(np.uint32) >> np.uint32(16)
    if kind in ("tf32", "f32"):
        return values.astype(np.float32).view(np.uint32)
    if kind == "f64":
        return values.astype(np.float64).view(np.uint64)
    return values.astype(np.int64)


def drawn(random: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    width = int(kind[1:]) if kind[0] in "sub" and kind != "bf16" else 0
    low, high = (
        (0, 1 << width) if kind[0] in "ub" and width else (-(1 << width - 1), 1 << width - 1) if width else (-8, 9)
    )
    return random.integers(low, high, shape)


@pytest.mark.parametrize("form", LAYOUTS)
def test_products_against_numpy(form: str) -> None:
    bits, place_a, count_a, place_b, count_b, place_c, count_c = LAYOUTS[form]
    shape, kind_a, kind_b, kind_c = (
        form.split(".")[0],
        *[w for w in form.split(".") if w[-1].isdigit() and w[0] != "m"][1:],
    )
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    random = np.random.default_rng(7)
    a, b, c = (drawn(random, kind, size) for kind, size in ((kind_a, (m, k)), (kind_b, (k, n)), ("s16", (m, n))))
    if "xor" in form:
        want = (a[:, :, None] ^ b[None]).sum(axis=1) + c
    else:
        want = a @ b + c
    width = 64 if bits == 64 else 32
    inputs = [
        words_of(bits_of(a, kind_a), place_a, count_a, width // bits, bits),
        words_of(bits_of(b, kind_b), place_b, count_b, width // bits, bits),
        words_of(bits_of(c, kind_c), place_c, count_c, 1, width),
    ]
    registers = [found.shape[0] for found in inputs]
    names = [[f"%{letter}{index}" for index in range(count)] for letter, count in zip("abc", registers, strict=True)]
    results = [f"%d{index}" for index in range(count_c)]
    body = [".reg .b32 %t; .reg .b64 %w, %at; mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 8;"]
    for group, pointer in zip(names, "xyz", strict=True):
        for index, name in enumerate(group):
            body.append(
                f".reg .b{width} {name}; add.u64 %at, %{pointer}, %w; ld.global.b{width} {name}, [%at+{256 * index}];"
            )
    body += [f".reg .b{width} {name};" for name in results]
    lists = ["{" + ", ".join(group) + "}" for group in (results, *names)]
    body.append(f"mma.sync.aligned.{form} {', '.join(lists)};")
    for index, name in enumerate(results):
        body.append(f"add.u64 %at, %out, %w; st.global.b{width} [%at+{256 * index}], {name};")
    out = np.zeros((count_c, 32), np.uint64)
    result = launch("\n".join(body), {"x": inputs[0], "y": inputs[1], "z": inputs[2], "out": out})
    assert kinds(result) == []
    assert np.array_equal(out, words_of(bits_of(want, kind_c), place_c, count_c, 1, width))


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%f,%f,%f,%f}, {%r,%r}, {%r,%r}, {%f,%f,%f,%f}, %r, 0;",
            "sparse",
        ),
        (
            "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r,%r,%r,%r}, {%r,%r}, {%r,%r}, {%r,%r,%r,%r};",
            "shape .m8n8k4 with an accumulator of .f16",
        ),
        ("wgmma.fence.sync.aligned;", "wgmma.fence"),
        ("wgmma.commit_group.sync.aligned;", "wgmma.commit_group"),
        (
            "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r], [%x, {%r}], [%r];",
            "tensor",
        ),
        ("cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%x, {%r}];", "tensor"),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%r], [%x], 16, [%r], %h;",
            "to several blocks",
        ),
        (
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r], [%r], 16, [%r];",
            "shared memory of the cluster",
        ),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x], [%r], 16;", "cp.reduce.async.bulk"),
        (
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
            "{%r,%r,%r,%r}, {%r,%r}, {%r,%r}, {%r,%r,%r,%r}, %r, 0;",
            "sparse",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0 "
            "{%f,%f,%f,%f}, {%r,%r,%r,%r}, {%r,%r}, {%f,%f,%f,%f}, %r, {0,0}, %r, {0,0};",
            ".kind::mxf8f6f4, which needs sm_100",
        ),
        ("tex.a2d.v4.f32.s32 {%f,%f,%f,%f}, [%x, {%r,%r,%r,%r}];", "(.a2d)"),
        ("tex.level.2d.v4.f32.f32 {%f,%f,%f,%f}, [%x, {%f,%f}], %f;", "(.level)"),
        ("tex.2d.v4.f32.f32 {%f,%f,%f,%f}, [%x, %x, {%f,%f}];", "(a sampler)"),
        ("tex.2d.v4.f32.f32 {%f,%f,%f,%f}, [%x, {%f,%f}], {%r,%r};", "(offsets or a comparison of depths)"),
        ("tld4.r.2d.v4.f32.f32 {%f,%f,%f,%f}, [%x, {%f,%f}];", "a texture or surface, which"),
        ("txq.normalized_coords.b32 %r, [%x];", "(.normalized_coords)"),
        ("sust.p.2d.v2.b32.zero [%x, {%r,%r}], {%r,%r};", "(.p)"),
        ("suld.b.a1d.b32.zero %r, [%x, {%r,%r}];", "(.a1d)"),
        ("sured.b.add.1d.u32.trap [%x, {%r}], %r;", "a texture or surface, which"),
        ("suq.array_size.b32 %r, [%x];", "(.array_size)"),
        ("wgmma.fence.sync.aligned;", "an asynchronous product of matrices"),
    ],
)
def test_what_is_not_executed_is_named(form: str, words: str) -> None:
    x = np.zeros(4, np.uint32)
    with pytest.raises(UnsupportedInstruction) as caught:
        launch(f".reg .f32 %f; .reg .b32 %r; .reg .b16 %h; {form}", {"x": x})
    assert words in str(caught.value)


def test_a_warp_that_is_not_complete_is_reported() -> None:
    body = """.reg .b32 %r; mov.u32 %r, %tid.x;
    mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%r, _}, {%r}, {%r}, {%r, %r}; st.global.u32 [%x], %r;"""
    assert "membermask" in kinds(
        launch(
            body.replace("{%r, _}", "{%r, %q}").replace(".reg .b32 %r;", ".reg .b32 %r, %q;"),
            {"x": np.zeros(1, np.uint32)},
            threads=20,
        )
    )


def test_lanes_that_arrive_separately_multiply_together() -> None:
    """The instruction waits for all lanes of the warp."""
    body = """.reg .b32 %r, %one, %q; .reg .pred %p; .reg .b64 %w; mov.u32 %r, %tid.x; mul.wide.u32 %w, %r, 4;
    add.u64 %x, %x, %w; setp.lt.u32 %p, %r, 9; mov.u32 %one, 0x01010101; mov.u32 %q, 0;
    @!%p bra M; add.u32 %q, %q, 0;
M:  mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%r, %q}, {%one}, {%one}, {%q, %q}; st.global.u32 [%x], %r;"""
    for schedule in ("order", "random", "warps"):
        x = np.zeros(64, np.uint32)
        assert kinds(launch(body, {"x": x}, threads=64, schedule=schedule)) == []
        assert x.tolist() == [16] * 64


# --- a tiled product -------------------------------------------------------------------------------------------------

#: One warp multiplies 16 × 16 K by 16 K × 8, in K steps. A bulk copy writes one of two buffers while `ldmatrix` reads
#: the other one.
TILED = """
    .shared .align 128 .b8 tiles[1536]; .shared .align 8 .b64 full[2];
    .reg .b32 %t, %i, %n, %buffer, %parity, %bar, %a_at, %b_at, %r<8>; .reg .f32 %c<4>; .reg .b64 %w, %s;
    .reg .pred %first, %p, %q;
    mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; ld.global.u32 %n, [%count];
    mov.u32 %bar, full;
    @%first mbarrier.init.shared.b64 [%bar], 1;
    @%first mbarrier.init.shared.b64 [%bar+8], 1;
    bar.sync 0;
    mov.f32 %c0, 0f00000000; mov.f32 %c1, %c0; mov.f32 %c2, %c0; mov.f32 %c3, %c0;
    mov.u32 %i, 0;
LOOP:
    and.b32 %buffer, %i, 1; shr.u32 %parity, %i, 1; and.b32 %parity, %parity, 1;
    mov.u32 %bar, full; mad.lo.u32 %bar, %buffer, 8, %bar;
    mov.u32 %a_at, tiles; mad.lo.u32 %a_at, %buffer, 768, %a_at; add.u32 %b_at, %a_at, 512;
    @!%first bra WAIT;
    mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 768;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a_at], [%a], 512, [%bar];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%b_at], [%b], 256, [%bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [%bar], %parity; @!%p bra WAIT;
    and.b32 %r6, %t, 15; shl.b32 %r6, %r6, 5; add.u32 %a_at, %a_at, %r6;
    shr.u32 %r6, %t, 4; shl.b32 %r6, %r6, 4; add.u32 %a_at, %a_at, %r6;
    and.b32 %r6, %t, 15; shl.b32 %r6, %r6, 4; add.u32 %b_at, %b_at, %r6;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%a_at];
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r4, %r5}, [%b_at];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%r0, %r1, %r2, %r3}, {%r4, %r5},
        {%c0, %c1, %c2, %c3};
    BARRIER
    add.u64 %a, %a, 512; add.u64 %b, %b, 256; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n; @%q bra LOOP;
    shr.u32 %r6, %t, 2; shl.b32 %r6, %r6, 3; and.b32 %r7, %t, 3; shl.b32 %r7, %r7, 1; add.u32 %r6, %r6, %r7;
    mul.wide.u32 %w, %r6, 4; add.u64 %d, %d, %w;
    st.global.v2.f32 [%d], {%c0, %c1}; st.global.v2.f32 [%d+256], {%c2, %c3};
"""


def tiled(text: str, count: int = 5, **options: Any) -> tuple[Array, Array, LaunchResult]:
    random = np.random.default_rng(3)
    a = random.integers(-8, 9, (count, 16, 16)).astype(np.float16)
    b = random.integers(-8, 9, (count, 16, 8)).astype(np.float16)
    d = np.zeros((16, 8), np.float32)
    result = launch(text, {"a": a, "b": b, "count": np.array([count], np.uint32), "d": d}, **options)
    return d, np.einsum("tik,tkj->ij", a.astype(np.float32), b.astype(np.float32)), result


@pytest.mark.parametrize("schedule", ["order", "random", "warps"])
def test_a_tiled_product(schedule: str) -> None:
    got, want, result = tiled(TILED.replace("BARRIER", "bar.sync 0;"), schedule=schedule)
    assert np.array_equal(got, want)
    assert kinds(result) == []


def test_reading_before_the_wait_is_found() -> None:
    text = TILED.replace("@!%p bra WAIT;", "").replace("mbarrier.try_wait.parity.shared.b64 %p, [%bar], %parity;", "")
    _, _, result = tiled(text.replace("BARRIER", "bar.sync 0;"), count=1)
    assert "uninitialised-memory" in kinds(result)


def test_refilling_a_buffer_that_others_still_read_is_found() -> None:
    """Without a barrier, the first thread may overwrite a buffer that others still read for an earlier step."""
    _, _, result = tiled(TILED.replace("BARRIER", ""))
    assert "race" in kinds(result)


# --- mbarriers -------------------------------------------------------------------------------------------------------

OWN = """
    .shared .align 8 .b64 bar; .shared .u32 box[64]; .reg .b32 %t, %v, %b, %at; .reg .b64 %w, %s; .reg .pred %p, %first;
    mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 4; add.u64 %x, %x, %w; setp.eq.u32 %first, %t, 0; mov.u32 %b, bar;
    mov.u32 %at, box; mad.lo.u32 %at, %t, 4, %at;
"""


@pytest.mark.parametrize("schedule", ["order", "random", "warps"])
def test_arrivals_publish_what_was_written(schedule: str) -> None:
    """The first warp writes data and arrives; the second waits and reads the data."""
    body = (
        OWN
        + """
    @%first mbarrier.init.shared.b64 [%b], 32; bar.sync 0;
    setp.ge.u32 %p, %t, 32; @%p bra WAIT;
    mul.lo.u32 %v, %t, 3; st.shared.u32 [%at], %v; mbarrier.arrive.shared.b64 %s, [%b]; bra END;
WAIT: mbarrier.test_wait.parity.shared.b64 %p, [%b], 0; @!%p bra WAIT;
    ld.shared.u32 %v, [%at+-128]; st.global.u32 [%x], %v;
END:"""
    )
    x = np.zeros(64, np.uint32)
    result = launch(body, {"x": x}, threads=64, schedule=schedule)
    assert x.tolist() == [0] * 32 + [3 * t for t in range(32)]
    assert kinds(result) == []


def test_a_wait_lets_other_threads_run() -> None:
    """Consumers that precede the producer in the text do not prevent it from running."""
    body = (
        OWN
        + """
    .shared .align 8 .b64 free; .reg .b32 %n, %parity, %f; mov.u32 %f, free; mov.u32 %n, 0;
    @%first mbarrier.init.shared.b64 [%b], 32; @%first mbarrier.init.shared.b64 [%f], 32; bar.sync 0;
    setp.ge.u32 %p, %t, 32; @%p bra PRODUCE;
CONSUME: and.b32 %parity, %n, 1;
FULL: mbarrier.try_wait.parity.shared.b64 %p, [%b], %parity; @!%p bra FULL;
    ld.shared.u32 %v, [%at+128]; mbarrier.arrive.shared.b64 %s, [%f];
    add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 50; @%p bra CONSUME;
    st.global.u32 [%x], %v; bra END;
PRODUCE: and.b32 %parity, %n, 1; xor.b32 %parity, %parity, 1;
FREE: mbarrier.try_wait.parity.shared.b64 %p, [%f], %parity; @!%p bra FREE;
    mad.lo.u32 %v, %n, 100, %t; st.shared.u32 [%at], %v; mbarrier.arrive.shared.b64 %s, [%b];
    add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 50; @%p bra PRODUCE;
END:"""
    )
    x = np.zeros(64, np.uint32)
    result = launch(body, {"x": x}, threads=64)
    assert x.tolist() == [4900 + t for t in range(32, 64)] + [0] * 32
    assert kinds(result) == []
    assert result.counts.warp_instructions < 50 * 60


def test_reading_without_waiting_is_a_race() -> None:
    body = (
        OWN
        + """
    @%first mbarrier.init.shared.b64 [%b], 32; bar.sync 0;
    setp.ge.u32 %p, %t, 32; @%p bra WAIT;
    mul.lo.u32 %v, %t, 3; st.shared.u32 [%at], %v; mbarrier.arrive.shared.b64 %s, [%b]; bra END;
WAIT: nanosleep.u32 100; ld.shared.u32 %v, [%at+-128]; st.global.u32 [%x], %v;
END:"""
    )
    for schedule in ("order", "random", "warps"):
        found = kinds(launch(body, {"x": np.zeros(64, np.uint32)}, threads=64, schedule=schedule))
        assert set(found) & {"race", "uninitialised-memory"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mbarrier.arrive.shared.b64 %s, [%b];", "never written"),
        ("st.shared.u64 [%b], 5; mbarrier.arrive.shared.b64 %s, [%b];", "not an initialised mbarrier"),
        ("mbarrier.init.shared.b64 [%b], 0;", "a count of 0"),
        ("mbarrier.init.shared.b64 [%b], 1; mbarrier.arrive.shared.b64 %s, [%b], 2;", "arrives 2 times, 1 are pending"),
        ("mbarrier.init.shared.b64 [%b], 1; mbarrier.arrive.noComplete.shared.b64 %s, [%b], 1;", "completes the phase"),
        (
            "mbarrier.init.shared.b64 [%b], 1; mbarrier.inval.shared.b64 [%b]; "
            "mbarrier.test_wait.parity.shared.b64 %p, [%b], 0;",
            "never written",
        ),
        ("mbarrier.init.shared.b64 [%b+4], 1;", "not a multiple of 8"),
    ],
)
def test_misuse_of_an_mbarrier_is_found(body: str, words: str) -> None:
    result = launch(OWN + body, {"x": np.zeros(1, np.uint32)}, threads=1, keep_going=True)
    assert any(words in finding.message for finding in result.findings), result.findings


def test_an_initialisation_that_others_do_not_wait_for_is_a_race() -> None:
    body = OWN + "@%first mbarrier.init.shared.b64 [%b], 64; mbarrier.arrive.shared.b64 %s, [%b];"
    assert "race" in kinds(launch(body, {"x": np.zeros(64, np.uint32)}, threads=64))


def test_waiting_for_what_never_comes_ends() -> None:
    body = (
        OWN
        + "@%first mbarrier.init.shared.b64 [%b], 2; bar.sync 0;\n"
        + ("W: mbarrier.try_wait.parity.shared.b64 %p, [%b], 0; @!%p bra W;")
    )
    with pytest.raises(EmulatorFault, match="endless"):
        launch(body, {"x": np.zeros(32, np.uint32)}, budget=5_000)


def test_copies_of_each_thread_arrive_at_an_mbarrier() -> None:
    for noinc, count in ((".noinc", 64), ("", 32)):
        body = (
            OWN
            + f"""
    @%first mbarrier.init.shared.b64 [%b], {count}; bar.sync 0;
    cp.async.ca.shared.global [%at], [%x], 4; cp.async.mbarrier.arrive{noinc}.shared.b64 [%b];
    mbarrier.arrive.shared.b64 %s, [%b];
WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%b], 0; @!%p bra WAIT;
    mov.u32 %at, box; sub.u32 %v, 31, %t; mad.lo.u32 %at, %v, 4, %at; ld.shared.u32 %v, [%at];
    add.u64 %out, %out, %w; st.global.u32 [%out], %v;"""
        )
        x, out = np.arange(100, 132, dtype=np.uint32), np.zeros(32, np.uint32)
        result = launch(body, {"x": x, "out": out})
        assert out.tolist() == x[::-1].tolist()
        assert kinds(result) == []


# --- bulk copies -----------------------------------------------------------------------------------------------------


def test_a_copy_to_global_memory_arrives_at_the_wait_or_the_end() -> None:
    for wait in ("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", "cp.async.bulk.commit_group;", ""):
        body = f""".shared .align 16 .b8 box[32]; .reg .b32 %r; mov.u32 %r, box;
    st.shared.v4.u32 [%r], {{1, 2, 3, 4}}; fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%x], [%r], 16; {wait}"""
        x = np.zeros(8, np.uint32)
        assert kinds(launch(body, {"x": x}, threads=1)) == []
        assert x.tolist() == [1, 2, 3, 4, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("target", "source", "size", "words"),
    [
        ("%r", "%x+4", "16", "its source"),
        ("%r+8", "%x", "16", "its destination"),
        ("%r", "%x", "24", "its size"),
        ("%r", "%x", "64", "the end of p_x"),
        ("%r+64", "%x", "16", "outside of the variables in shared memory"),
        ("%r", "%x", "128", "more than the 72 bytes"),
    ],
)
def test_bulk_copies_are_checked(target: str, source: str, size: str, words: str) -> None:
    body = f""".shared .align 16 .b8 box[64]; .shared .align 8 .b64 bar; .reg .b32 %r, %b;
    mov.u32 %r, box; mov.u32 %b, bar;
    mbarrier.init.shared.b64 [%b], 1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{target}], [{source}], {size}, [%b];"""
    with pytest.raises(EmulatorFault) as caught:
        launch(body, {"x": np.zeros(8, np.uint32)}, threads=1)
    assert words in str(caught.value)
