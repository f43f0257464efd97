"""nvcc accepts every function of the table, for every type of it, with the type that the table states."""

import importlib.util
from pathlib import Path

import pytest
from ptxmotion.dsl.intrinsics import INTRINSICS, Intrinsic
from ptxmotion.dsl.types import Void
from ptxmotion.suites.runner import compiler
from ptxmotion.toolchain.tools import ToolMissing

TYPES = ("i32", "u32", "i64", "u64", "f32", "f64")


def calls(row: Intrinsic) -> list[str]:
    """Statements that use every spelling of a row. ``v_…`` are values, ``p_…`` pointers, both by type."""
    match row.rule:
        case "math" | "test":
            result = "v_bool" if row.rule == "test" else "v_{0}"
            return [
                f"{result.format(type)} = {row.name}({', '.join([f'v_{type}'] * row.arity[0])})"
                for type, _ in row.spellings
            ]
        case "atomic":
            values = row.arity[0] - 1
            return [
                f"v_{type} = {row.name}({', '.join([f'p_{type}', *[f'v_{type}'] * values])})"
                for type, _ in row.spellings
            ]
        case "shuffle":
            return [
                f"v_{type} = {row.name}(0xFFFFFFFF, v_{type}, 1{width})"
                for type, _ in row.spellings
                for width in ("", ", 16")
            ]
        case _:
            made: list[str] = []
            for overload in row.overloads:
                call = f"{row.name}({', '.join(f'v_{param}' for param in overload.params)})"
                made.append(call if isinstance(overload.result, Void) else f"v_{overload.result} = {call}")
            return made


def test_nvcc_accepts_every_row(tmp_path: Path) -> None:
    try:
        nvcc = compiler(cache=tmp_path)
    except ToolMissing as why:
        pytest.skip(str(why))
    statements = [line for row in INTRINSICS.values() for line in calls(row)]
    assert len(statements) > 150
    params = ", ".join(f"p_{type}: ptr[{type}]" for type in TYPES)
    lines = ["from ptxmotion.dsl import *", "@kernel", f"def every({params}) -> None:"]
    lines += [f"    v_{type} = p_{type}[0]" for type in TYPES]
    lines += ["    v_bool = v_i32 > 0"]
    for at, statement in enumerate(statements):
        target = statement.partition(" = ")[0] if " = " in statement else ""
        lines.append(f"    {statement}")
        if target == "v_bool":
            lines.append(f"    p_i32[{at}] = v_bool")
        elif target:
            lines.append(f"    p_{target[2:]}[{at}] = {target}")
    file = tmp_path / "every.py"
    file.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("every", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "every.py" in module.every.ptx(nvcc)
