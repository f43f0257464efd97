"""`earlyloads` on single loops: what moves, where it moves to, and what stays."""

import pytest
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.ptx import parse, print_module
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import run_passes

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.extern .func ends();
.visible .entry k(.param .u64 px, .param .u64 py, .param .u32 pn)
{
  .reg .u64 %x, %y, %s, %a<4>;
  .reg .u32 %n, %i, %t, %q, %v<4>;
  .reg .pred %p, %first, %again;
  .reg .u8 %b;
  .shared .align 4 .b8 tile[128];
  ld.param.u64 %x, [px];
  ld.param.u64 %y, [py];
  ld.param.u32 %n, [pn];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %s, %t, 4;
  add.u64 %x, %x, %s;
  setp.lt.u32 %first, %t, 4;
  mov.u32 %i, 0;
LOOP:
"""
TAIL = """
LATCH:
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %n;
  @%p bra LOOP;
DONE:
  st.global.u32 [%y], %v1;
  ret;
}
"""
ADDRESS = "mul.wide.u32 %a0, %i, 128; add.u64 %a0, %x, %a0;"
LOAD = "ld.global.u32 %v0, [%a0+4];"
COUNT = "add.u32 %q, %q, 1; setp.lt.u32 %again, %q, 2;"
SHARE = "st.shared.u32 [tile], %v0; bar.sync 0; ld.shared.u32 %v1, [tile+8]; bar.sync 0;"
ARM = f"{ADDRESS} @!%first bra OVER; ld.global.nc.u32 %v0, [%a0+4]; OVER:"
BRANCH = "@%first bra NEXT; add.u32 %q, %q, 1; NEXT:"
RESTRICT = Promise(everything=True)


def moved(body: str, passes: str = "earlyloads", promise: Promise = RESTRICT) -> list[str]:
    """The lines of the kernel after the pass that mention a new register of a load, without their indentation."""
    module = parse(HEAD + body + TAIL)
    run_passes(module, passes_of(passes), promise=promise)
    return [line.strip() for line in print_module(module).splitlines() if "%e_u" in line and ".reg" not in line]


def test_a_load_moves_into_the_iteration_before() -> None:
    first, copy, zero, again = moved(f"{ADDRESS} {LOAD} {SHARE}")
    assert first.startswith("ld.global.u32 %e_u32_0, [")  # in front of the loop
    assert copy == "mov.b32 %v0, %e_u32_0;" and zero == "mov.b32 %e_u32_0, 0;"
    assert again.startswith("@%e_pred_0 ld.global.u32 %e_u32_0, [")


def test_the_load_of_the_next_iteration_precedes_the_last_barrier() -> None:
    module = parse(HEAD + f"{ADDRESS} {LOAD} {SHARE}" + TAIL)
    run_passes(module, passes_of("earlyloads:distance=7"), promise=RESTRICT)
    lines = [line.strip() for line in print_module(module).splitlines()]
    barriers = [n for n, line in enumerate(lines) if line.startswith("bar.sync")]
    load = next(n for n, line in enumerate(lines) if line.startswith("@%e_pred_0 ld.global"))
    assert barriers[0] < load < barriers[1]


def test_a_load_moves_inside_an_iteration() -> None:
    load = "@!%first bra OVER; ld.global.u32 %v0, [%a0]; OVER:"
    lines = moved(f"{ADDRESS} bra.uni NEXT; NEXT: {SHARE} {load}", "earlyloads:distance=1")
    assert lines[0] == "mov.b32 %e_u32_0, 0;" and lines[1].startswith("@%first ld.global.u32 %e_u32_0, [")
    assert lines[2:] == ["mov.b32 %v0, %e_u32_0;"]


def test_a_load_under_a_condition_of_the_next_iteration() -> None:
    load = f"setp.lt.u32 %again, %i, 7; @!%again bra OVER; {LOAD} OVER:"
    lines = moved(f"{ADDRESS} {load} {SHARE}")
    loads = [line for line in lines if "ld.global" in line]
    assert len(loads) == 2 and all(line.startswith("@%e_pred_") for line in loads)


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("no barrier", f"{ADDRESS} {LOAD} mov.u32 %v1, %v0;"),
        ("a directive is no barrier", f'.pragma "nounroll"; {ADDRESS} {LOAD} mov.u32 %v1, %v0;'),
        ("a return", f"{ADDRESS} {LOAD} {SHARE} setp.eq.u32 %again, %i, 5; @%again ret;"),
        ("an exit of the loop", f"{ADDRESS} {LOAD} {SHARE} setp.eq.u32 %again, %i, 5; @%again bra DONE;"),
        ("not in each iteration", f"{ADDRESS} setp.eq.u32 %again, %v1, 5; @%again bra LATCH; {LOAD} {SHARE}"),
        ("the address is loaded", f"ld.shared.u32 %q, [tile]; mad.wide.u32 %a0, %q, 4, %x; {LOAD} {SHARE}"),
        ("the same in all iterations", f"ld.global.u32 %v0, [%x]; {SHARE}"),
        ("guarded", f"{ADDRESS} @%first {LOAD} {SHARE}"),
        ("volatile", f"{ADDRESS} ld.volatile.global.u32 %v0, [%a0]; {SHARE}"),
        ("a vector", f"{ADDRESS} ld.global.v2.u32 {{%v0, %v2}}, [%a0]; {SHARE}"),
        ("written", f"{ADDRESS} {LOAD} {SHARE} st.global.u32 [%a0], %v1;"),
        ("a fence", f"{ADDRESS} {LOAD} {SHARE} fence.acq_rel.gpu;"),
        ("a cache policy", f"{ADDRESS} ld.global.L2::cache_hint.u32 %v0, [%a0+4], %x; {SHARE}"),
        ("a register of 8 bits", f"{ADDRESS} ld.global.u8 %b, [%a0]; cvt.u32.u8 %v0, %b; {SHARE}"),
        ("a call in the header", f"call ends, (); {BRANCH} {ADDRESS} ld.global.nc.u32 %v0, [%a0]; {SHARE}"),
        ("an arm behind a call", f"call ends, (); {ARM} {SHARE}"),
        ("another grid writes", f"griddepcontrol.wait; {ADDRESS} ld.global.nc.u32 %v0, [%a0]; {SHARE}"),
        ("a wait in the header", f"griddepcontrol.wait; {BRANCH} {ADDRESS} ld.global.nc.u32 %v0, [%a0]; {SHARE}"),
        ("a wait in the loop", f"{ADDRESS} ld.global.nc.u32 %v0, [%a0]; {SHARE} {BRANCH} griddepcontrol.wait;"),
        ("an inner loop", f"{ADDRESS} mov.u32 %q, 0; IN: {LOAD} {COUNT} @%again bra IN; {SHARE}"),
    ],
)
def test_loads_that_stay_behind_the_barrier(why: str, body: str) -> None:
    assert moved(body) == [], why


def test_buffers_that_may_overlap() -> None:
    body = f"{ADDRESS} {LOAD} {SHARE} st.global.u32 [%y], %v1;"
    assert moved(body) and not moved(body, promise=CONSERVATIVE)


def test_the_edge_into_the_loop_is_split() -> None:
    head = HEAD.replace("LOOP:", "setp.eq.u32 %p, %n, 0; @%p bra DONE;\nLOOP:")
    module = parse(head + f"{ADDRESS} {LOAD} {SHARE}" + TAIL)
    run_passes(module, passes_of("earlyloads"), promise=RESTRICT)
    lines = [line.strip() for line in print_module(module).splitlines()]
    branch, first = lines.index("@%p bra DONE;"), next(n for n, line in enumerate(lines) if "%e_u32_0, [" in line)
    assert branch < first < lines.index("LOOP:")


def test_the_distance_is_checked() -> None:
    with pytest.raises(Exception, match="at least 1"):
        passes_of("earlyloads:distance=0")
