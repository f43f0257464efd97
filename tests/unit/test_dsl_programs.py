"""Host programs in Python: the graph, accesses of nodes, edits, printing, running."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import (
    DslError,
    allocate,
    const_ptr,
    copy,
    f32,
    fill,
    free,
    host,
    i32,
    kernel,
    program,
    program_from_text,
    ptr,
    ptx_source,
    read,
    write,
    zeros,
)
from ptxmotion.dsl.backend import Backend
from ptxmotion.dsl.host_cfg import Effects
from ptxmotion.dsl.host_nodes import Allocate, Assign, Branch, CopyIn, Expression, HostCall, Launch, LoopInit, Read
from ptxmotion.dsl.host_printer import module
from ptxmotion.dsl.host_program import HostProgram

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
STEP = 2


def entry(name: str, *params: str) -> str:
    inside = ", ".join(f".param .{type} {name}_{at}" for at, type in enumerate(params))
    return f"{HEAD}.visible .entry {name}({inside})\n{{\n  ret;\n}}\n"


# `Machine` executes these kernels in Python.
increment = ptx_source(entry("increment", "u64", "u32", "u32"), params=[ptr[i32], i32, i32])
halve = ptx_source(entry("halve", "u64", "u64", "u32"))


@kernel
def produce(n: i32, x: const_ptr[f32], y: ptr[f32]) -> None:
    for i in range(n):
        y[i] = x[i]


class Memory:
    def __init__(self, nbytes: int) -> None:
        self.bytes = bytearray(b"\xcd" * nbytes)
        self.is_free = False

    @property
    def nbytes(self) -> int:
        return len(self.bytes)

    def ints(self) -> Any:
        return np.frombuffer(self.bytes, np.int32)


class LoadedText:
    def __init__(self, text: str) -> None:
        self.text = text

    def kernel(self, name: str, /) -> str:
        assert name in self.text
        return name


class Machine:
    """A backend whose kernels are written in Python."""

    name = "machine"

    def __init__(self) -> None:
        self.buffers: list[Memory] = []
        self.launches: list[tuple[str, Any, Any, int]] = []

    def load(self, ptx: str, /) -> LoadedText:
        return LoadedText(ptx)

    def allocate(self, nbytes: int, /) -> Memory:
        self.buffers.append(Memory(nbytes))
        return self.buffers[-1]

    def free(self, buffer: Memory, /) -> None:
        assert not buffer.is_free
        buffer.is_free = True

    def write(self, buffer: Memory, array: Any, /, offset: int = 0) -> None:
        raw = array.tobytes()
        assert offset + len(raw) <= buffer.nbytes
        buffer.bytes[offset : offset + len(raw)] = raw

    def read(self, buffer: Memory, dtype: Any, count: int, /, offset: int = 0) -> Any:
        return np.frombuffer(bytes(buffer.bytes), dtype, count, offset)

    def fill(self, buffer: Memory, byte: int, /) -> None:
        buffer.bytes[:] = bytes([byte]) * buffer.nbytes

    def launch(self, kernel: str, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        self.launches.append((kernel, grid, block, shared))
        if kernel == "increment":
            data, n, by = args
            data.ints()[: int(n)] += by
        else:
            data, flag, n = args
            data.ints()[: int(n)] //= 2
            flag.ints()[0] = int(data.ints()[: int(n)].max())

    def synchronize(self) -> None:
        pass


machine_is_a_backend: type[Backend] = Machine


def total(values: Any, limit: int) -> int:
    return int(values[:limit].sum())


@program
def rounds(data: host[i32], report: host[i32], n: i32) -> None:
    """Halve until nothing is left."""
    buffer = allocate(i32, n)
    flag = allocate(i32, 1)
    spare = allocate(i32, n)
    copy(buffer, data[:n])
    fill(flag, 0)
    count = 0
    left = 1
    while left > 0:
        if count % STEP == 0:
            increment[(n + 31) // 32, 32](buffer, n, 0)
        else:
            write(flag, 0, 0)
        halve[(1, 2), (8, 2, 2), 64](buffer, flag, n)
        left = read(flag)
        count += 1
        if count > 40:
            break
    for i in range(1, 3):
        increment[1, 32](buffer, n, i)
    copy(spare[1:n], buffer[1:n])
    copy(spare[:1], buffer[:1])
    copy(data, spare)
    kept = zeros(i32, 4)
    copy(kept, spare[: len(kept)])
    sum_of_kept = total(kept, 2)
    report[0] = count
    report[1] = sum_of_kept
    free(spare)


def data_of_rounds() -> dict[str, Any]:
    return {"data": np.array([5, 9, 2, 1, 7], np.int32), "report": np.zeros(2, np.int32), "n": 5}


class Around:
    """A backend that wraps another one, like the check of promises. Other methods are those of the wrapped backend."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class CopyingMachine(Machine):
    copies = 0

    def copy(self, target: Memory, source: Memory, nbytes: int, to: int, since: int, /) -> None:
        self.copies += 1
        target.bytes[to : to + nbytes] = source.bytes[since : since + nbytes]


def test_a_wrapped_backend_copies_between_its_buffers() -> None:
    """Since Python 3.12, ``isinstance`` with a protocol does not call ``__getattr__``."""
    alone, inside = CopyingMachine(), CopyingMachine()
    backends: list[Any] = [alone, Around(inside)]
    for machine, backend in zip((alone, inside), backends, strict=True):
        assert rounds.run(backend, **data_of_rounds())["data"].tolist() == [3] * 5
        assert machine.copies == 2


def test_a_program_runs_on_any_backend() -> None:
    machine = Machine()
    given = data_of_rounds()
    found = rounds.run(machine, **given)
    assert found["data"].tolist() == [3] * 5
    assert found["report"].tolist() == [4, 6]
    assert given["data"].tolist() == [5, 9, 2, 1, 7]
    assert all(buffer.is_free for buffer in machine.buffers)
    assert [name for name, *_ in machine.launches] == ["increment", "halve", "halve"] * 2 + ["increment"] * 2
    assert machine.launches[1][1:] == ((1, 2, 1), (8, 2, 2), 64)
    assert machine.launches[0][1:] == ((1, 1, 1), (32, 1, 1), 0)
    assert rounds.host.outputs == ("data", "report")


def test_a_loaded_program_runs_again_with_the_same_result() -> None:
    loaded = rounds.load(Machine(), lambda kernel: kernel.ptx())
    first, second = loaded.run(data_of_rounds()), loaded.run(data_of_rounds())
    assert first["data"].tolist() == second["data"].tolist()


def test_a_program_prints_as_it_was_written() -> None:
    text = rounds.to_python()
    again = program_from_text(text, globals())
    assert again.to_python() == text
    assert "    copy(spare[1:n], buffer[1:n])\n" in text
    assert "        halve[(n + 31)" not in text
    assert '    """Halve until nothing is left."""\n' in text
    assert shape(again) == shape(rounds.host)
    from ptxmotion.dsl.run import Loaded

    assert Loaded(again, Machine(), lambda k: k.ptx()).run(data_of_rounds())["report"].tolist() == [4, 6]


def shape(made: HostProgram) -> list[tuple[str, str, str]]:
    return [(str(edge.source), edge.kind, str(edge.target)) for edge in made.cfg().edges]


@program
def swapped(x: host[f32], n: i32) -> None:
    a = allocate(f32, n)
    b = allocate(f32, n)
    c = allocate(f32, n)
    copy(a, x)
    for _ in range(n):
        produce[1, 1](n, a, b)
        produce[1, 1](n, c, c)
        a, b = b, a
    copy(x, a)


def test_swapped_handles_point_to_different_buffers() -> None:
    graph = swapped.cfg()
    first, second = graph.launches()
    assert graph.access(first).reads == {"a", "b"} and graph.access(first).writes == {"a", "b"}
    assert len(graph.bindings(first)) == 2
    assert all(dict(binding)["a"] != dict(binding)["b"] for binding in graph.bindings(first))
    swap = next(node for node in graph.nodes if isinstance(node, Assign))
    assert graph.is_modification(swap, first) and not graph.is_modification(swap, second)
    assert not graph.is_modification(first, second) and not graph.is_modification(second, first)
    upload = next(node for node in graph.nodes if isinstance(node, CopyIn))
    assert graph.is_modification(upload, first) and not graph.is_modification(upload, second)
    allocation = next(node for node in graph.nodes if isinstance(node, Allocate) and node.target == "c")
    assert graph.is_modification(allocation, second)
    head = next(node for node in graph.nodes if isinstance(node, LoopInit))
    assert not graph.is_modification(head, first)


def test_effects_can_be_given() -> None:
    nothing = Effects(frozenset(), frozenset())
    graph = swapped.cfg(lambda launch: nothing)
    assert graph.access(graph.launches()[0]).writes == frozenset()
    unknown = rounds.cfg()
    launch = unknown.launches()[0]
    assert unknown.access(launch).reads == unknown.access(launch).writes == {"buffer"}


def test_the_graph_has_the_edges_of_the_source() -> None:
    graph = rounds.cfg()
    tests = [node for node in graph.nodes if isinstance(node, Branch)]
    loop, parity, limit = tests
    assert [edge.kind for edge in graph.succs(loop)] == ["true", "false"]
    assert graph.succs(loop)[0].target is parity
    joined = graph.succs(parity)[0].target
    assert isinstance(joined, Launch) and [e.kind for e in graph.succs(limit)] == ["true", "false"]
    leaves, back = graph.succs(limit)
    assert back.target is loop and leaves.target is graph.succs(loop)[1].target
    order = graph.reverse_postorder()
    assert order[0] is graph.entry and len(order) == len(graph.nodes) and set(order) == set(graph.nodes)
    read_node = next(node for node in graph.nodes if isinstance(node, Read))
    assert graph.access(read_node).reads == {"flag"} and read_node.defines == {"left"}
    called = next(node for node in graph.nodes if isinstance(node, HostCall))
    assert called.defines == {"sum_of_kept", "kept"}


def mark(text: str) -> Assign:
    return Assign((Expression("mark"),), (Expression(text),))


def inserted(on: str, kind: str) -> list[str]:
    """The lines of `rounds` after an insertion on the edge ``kind`` of the first node whose text is ``on``."""
    made, _ = rounds.host.clone()
    graph = made.cfg()
    edge = next(e for e in graph.edges if str(e.source).startswith(on) and e.kind == kind)
    made.insert_on_edge(edge, [mark("7")])
    new = made.cfg()
    marked = next(node for node in new.nodes if str(node) == "mark = 7")
    assert [e.target for e in new.succs(marked)] == [edge.target]
    assert [(e.source, e.kind) for e in new.preds(marked)] == [(edge.source, kind)]
    text = made.to_python()
    again = program_from_text(text, globals())
    assert shape(again) == shape(made)
    assert "mark" not in rounds.to_python()
    return [line.strip() for line in text.splitlines()]


def test_every_edge_has_a_position_in_the_text() -> None:
    lines = inserted("left > 0?", "false")
    at = lines.index("mark = 7")
    assert lines[at - 1] == "else:" and lines[at + 1].startswith("for i in")
    lines = inserted("count > 40?", "true")
    assert lines[lines.index("mark = 7") + 1] == "break"
    lines = inserted("count > 40?", "false")
    assert lines[lines.index("mark = 7") - 1] == "else:"
    lines = inserted("count % STEP == 0?", "true")
    assert lines[lines.index("mark = 7") - 1] == "if count % STEP == 0:"
    lines = inserted("next i?", "false")
    assert lines[lines.index("mark = 7") + 1].startswith("copy(spare[1:n]")
    for edge in rounds.cfg().edges:
        if not isinstance(edge.source, LoopInit):
            inserted(str(edge.source), edge.kind)


def test_edits_keep_the_program_valid() -> None:
    made, copies = rounds.host.clone()
    old = rounds.cfg().launches()[0]
    launch = copies[old]
    assert isinstance(launch, Launch)
    edge = made.cfg().edges[0]
    made.insert_before(launch, [mark("1")])
    with pytest.raises(DslError, match="older version"):
        made.insert_on_edge(edge, [mark("2")])
    made.insert_after(launch, [mark("3")])
    lines = [line.strip() for line in made.to_python().splitlines()]
    at = lines.index(str(launch))
    assert lines[at - 1] == "mark = 1" and lines[at + 1] == "mark = 3"
    made.remove(launch)
    assert str(launch) not in made.to_python()
    loop = next(node for node in made.nodes() if isinstance(node, Branch))
    with pytest.raises(DslError, match="decides about control flow"):
        made.remove(loop)
    with pytest.raises(DslError, match="is not in the program"):
        made.remove(launch)
    made.insert_before(loop, [mark("4")])
    assert made.to_python().count("mark = 4") == 2  # before the loop, and on its back edge
    name = made.bind("increment", ptx_source(entry("fused", "u64")))
    assert name == "increment_1" and made.namespace[name].name == "fused"
    again = made.version
    made.replace(made.nodes()[0], [])
    assert made.version == again + 1
    assert old in rounds.host.nodes()


def test_the_bounds_of_a_for_are_not_changed(tmp_path: Path) -> None:
    made, _ = rounds.host.clone()
    graph = made.cfg()
    edge = next(e for e in swapped.cfg().edges if isinstance(e.source, LoopInit))
    with pytest.raises(DslError, match="older version"):
        made.insert_on_edge(edge, [])
    other, _ = swapped.host.clone()
    edge = next(e for e in other.cfg().edges if isinstance(e.source, LoopInit))
    with pytest.raises(DslError, match="would change the bounds"):
        other.insert_on_edge(edge, [Assign((Expression("n"),), (Expression("3"),))])
    assert graph is made.cfg()


def test_a_printed_module_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = {**rounds.host.namespace}
    made = program_from_text(rounds.to_python().replace("total(kept, 2)", "int(kept[0] + kept[1])"), namespace)
    (tmp_path / "a.ptx").write_text(increment.ptx())
    (tmp_path / "b.ptx").write_text(halve.ptx())
    text = module(made, {"increment": "a.ptx", "halve": "b.ptx"})
    assert "STEP = 2\n" in text and "from ptxmotion.dsl import" in text
    file = tmp_path / "alone.py"
    file.write_text(text)
    import importlib.util

    spec = importlib.util.spec_from_file_location("alone", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert loaded.rounds.run(Machine(), **data_of_rounds())["report"].tolist() == [4, 6]
    with pytest.raises(DslError, match=r"kernel halve has no \.ptx file"):
        module(made, {"increment": "a.ptx"})


def refused(body: str, message: str) -> None:
    lines = ["def p(x: host[f32], n: i32) -> None:", "    a = allocate(f32, n)", "    b = allocate(f32, n)"]
    text = "\n".join([*lines, *("    " + line for line in body.splitlines())]) + "\n"
    with pytest.raises(DslError, match=message) as caught:
        program_from_text(text, globals(), "p.py")
    place = caught.value.place
    assert place is not None and place.file == "p.py" and place.line >= 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("c = a[0]", "a is a device buffer: it can be used only in copies"),
        ("if a:\n    pass", "a is a device buffer"),
        ("y = x", "x is a host array, which cannot have a second name"),
        ("a = 3", "a is a buffer and cannot become a scalar"),
        ("n = a", "n is a scalar and cannot become a buffer"),
        ("produce[1, 1](n, a)", "produce takes 3 arguments, not 2"),
        ("produce[1, 1](a, a, b)", "argument n of produce must be i32"),
        ("produce[1, 1](n, a, n)", r"argument y of produce must be ptr\[f32\]"),
        ("produce[1](n, a, b)", r"a launch is kernel\[grid, block\]"),
        ('produce[1, "cooperative"](n, a, b)', r"a launch is kernel\[grid, block\]"),
        ('produce["cooperative", 1, 1, 1](n, a, b)', r"\"cooperative\" may be the last element"),
        ("produce(n, a, b)", "launch it as produce"),
        ("total[1, 1](n)", "total is not a kernel"),
        ("produce[0, 1](n, a, b)", "each extent of a grid is at least 1"),
        ("produce[1, (32, 0)](n, a, b)", "each extent of a block is at least 1"),
        ("produce[1, (64, 32)](n, a, b)", "a block has at most 1024 threads"),
        ("produce[1, (1, 1, 1, 1)](n, a, b)", "a block is an integer or a tuple of up to three integers"),
        ("produce[1.5, 1](n, a, b)", "a grid is an integer or a tuple"),
        ('produce[1, "many"](n, a, b)', "a block is an integer or a tuple"),
        ("s = total(a, 3)", "a is a device buffer"),
        ("s = 1 + total(x, 3)", "a call cannot be part of an expression"),
        ("rounds(x, x, n)", "a program cannot call programs"),
        ("s = unknown(x)", "unknown is not defined"),
        ("s = later\nlater = 2", "later is used before it is assigned"),
        ("s = [1, 2]", "a host program cannot contain this syntax"),
        ("with n:\n    pass", "cannot contain `with`"),
        ("return n", "a program cannot return a value"),
        ("for v in x:\n    pass", r"loops over range\(...\) only"),
        ("copy(x, x)", "one side of copy"),
        ("copy(a[::2], x)", "use a slice"),
        ("copy(a, n)", "copy\\(\\) takes device buffers and host arrays"),
        ("a[0] = 1.0", "use write"),
        ("fill(a)", "fill.. takes 2 arguments"),
        ("read(a, 0)", "write `name = read"),
        ("x += 1", "x is a host array|is a array"),
        ("m, n = 3", "1 values for 2 targets"),
        ("c, d = allocate(f32, n), allocate(f32, d)", "a value mentions a target"),
    ],
)
def test_code_that_a_program_cannot_contain(body: str, message: str) -> None:
    refused(body, message)


def failing(body: str, message: str, **given: Any) -> None:
    text = "def p(x: host[i32], n: i32) -> None:\n    a = allocate(i32, n)\n" + "".join(
        f"    {line}\n" for line in body.splitlines()
    )
    made = program_from_text(text, globals(), "p.py")
    machine = Machine()
    from ptxmotion.dsl.run import Loaded

    with pytest.raises(DslError, match=message) as caught:
        Loaded(made, machine, lambda k: k.ptx()).run({"x": np.zeros(4, np.int32), "n": 4, **given})
    assert caught.value.place is not None and caught.value.place.line >= 3
    assert all(buffer.is_free for buffer in machine.buffers)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("copy(a, x[1:])", "has 3 elements, but the device side has 4"),
        ("copy(a[2:9], x)", r"\[2:9\], but a has 4 elements"),
        ("v = read(a, 4)", "a has 4 elements, but no element 4"),
        ("write(a, -1, 0)", "element -1"),
        ("write(a, 0, 2 ** 40)", "does not fit i32"),
        ("write(a, 0, 0.5)", "the value is 0.5, but i32 is expected"),
        ("free(a)\ncopy(x, a)", "a was freed"),
        ("fill(a, 256)", "256 is not between 0 and 255"),
        ("increment[n - 4, 1](a, n, 1)", "the grid is 0"),
        ('increment[1, 1, "together"](a, n, 1)', "is 'together', but must be an integer"),
        ('increment[1, 1, "cooperative"](a, n, 1)', "machine does not support cooperative launches"),
        ("increment[1, (1, 1) * 2](a, n, 1)", "the block is"),
        ("increment[1, 1](a, n, 2 ** 31)", "does not fit i32"),
        ("increment[1, 1](a, n, 0.5)", "is 0.5, but i32 is expected"),
        ("m = n // (n - 4)", "ZeroDivisionError"),
        ("if n > 5:\n    m = 1\nk = m", "name 'm' is not defined"),
        ("b = allocate(f32, 4)\ncopy(b, x)", "not a contiguous array of float32"),
        ("c = allocate(f32, n)\nincrement[1, 1](c, n, 1)", r"buffer of f32, but ptr\[i32\] is expected"),
        ("b = allocate(i32, 2)\ncopy(b, a)", "has 4 i32, but b has 2 i32"),
    ],
)
def test_run_time_errors_name_their_line(body: str, message: str) -> None:
    failing(body, message)


def test_arguments_are_checked_before_the_run() -> None:
    machine = Machine()
    given = data_of_rounds()
    with pytest.raises(DslError, match="missing or unknown: m"):
        rounds.run(machine, **given, m=3)
    with pytest.raises(DslError, match="missing or unknown: n"):
        rounds.run(machine, data=given["data"], report=given["report"])
    with pytest.raises(DslError, match="parameter data must be an array of int32, not float64"):
        rounds.run(machine, **{**given, "data": np.zeros(5)})
    with pytest.raises(DslError, match="parameter data must be C-contiguous"):
        rounds.run(machine, **{**given, "data": np.zeros(10, np.int32)[::2]})
    with pytest.raises(DslError, match=r"parameter n is 1\.5, but i32 is expected"):
        rounds.run(machine, **{**given, "n": 1.5})
    with pytest.raises(DslError, match="does not fit i32"):
        rounds.run(machine, **{**given, "n": 2**31})
    assert not machine.buffers
    with pytest.raises(DslError, match=r"call rounds\.run"):
        rounds(given["data"], given["report"], 5)


def test_declared_parameters_must_fit_the_ptx() -> None:
    wrong = ptx_source(entry("wrong", "u64", "u32"), params=[ptr[i32], f32, i32])
    made = program_from_text(
        "def p(n: i32) -> None:\n    a = allocate(i32, n)\n    w[1, 1](a, 1.0, n)\n", {**globals(), "w": wrong}
    )
    from ptxmotion.dsl.run import Loaded

    with pytest.raises(DslError, match=r"wrong\(ptr\[i32\], f32, i32\) does not fit its PTX"):
        Loaded(made, Machine(), lambda k: k.ptx())


def test_cooperative_launches_are_printed_and_launched() -> None:
    """They print as they were written, and call the method of the backend, also if it is wrapped."""
    from ptxmotion.dsl.run import Loaded
    from ptxmotion.harness.alias_check import AliasGuard
    from ptxmotion.harness.workload import Recorder

    class Together(Machine):
        def cooperative(self, kernel: str, /) -> str:
            self.together.append(kernel)
            return kernel

        def __init__(self) -> None:
            super().__init__()
            self.together: list[str] = []

    text = (
        "@program\ndef p(x: host[i32], n: i32) -> None:\n    a = allocate(i32, n)\n    copy(a, x)\n"
        '    increment[1, 1, "cooperative"](a, n, 1)\n    increment[n, (1, 1), 8 * n, "cooperative"](a, n, 1)\n'
        "    increment[1, 1](a, n, 1)\n    copy(x, a)\n"
    )
    made = program_from_text(text, globals(), "p.py")
    assert made.to_python() == text
    first, second, third = (node for node in made.nodes() if isinstance(node, Launch))
    assert first.cooperative and first.shared is None and second.cooperative and not third.cooperative
    assert second.shared == Expression("8 * n") and made.clone()[0].to_python() == text
    machine = Together()
    recorder = Recorder(AliasGuard(machine, {}), digests=False)
    found = Loaded(made, recorder, lambda k: k.ptx()).run({"x": np.zeros(4, np.int32), "n": 4})
    assert found["x"].tolist() == [3, 3, 3, 3] and machine.together == ["increment", "increment"]
    assert [launch.cooperative for launch in recorder.recording.launches] == [True, True, False]
    assert [launch[3] for launch in machine.launches] == [0, 32, 0]
