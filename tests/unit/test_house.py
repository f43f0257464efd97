"""Rules of CONTRIBUTING that a program can check: packages, imports between folders, modules that a start loads."""

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: For each folder the folders that it may import. `suites` may import what a program needs, `programs` everything but
#: `cli`, and `cli` everything. The root is the public API.
MAY_SEE = {
    "ptx": set[str](),
    "analysis": {"ptx"},
    "transforms": {"ptx", "analysis", "dsl"},
    "versions": {"ptx", "analysis", "transforms"},
    "dsl": {"ptx"},
    "dsl.image": {"ptx", "dsl", "emulator", "toolchain", "harness", "runtime"},
    "emulator": {"ptx"},
    "toolchain": {"ptx"},
    "harness": {"ptx", "emulator", "toolchain"},
    "compiler": {"", "ptx", "toolchain"},
    "integrations": {"", "toolchain"},
    "injection": {"", "ptx", "toolchain", "compiler"},
    "runtime": {"ptx", "emulator", "toolchain", "harness"},
    "suites": {"", "ptx", "analysis", "transforms", "dsl", "dsl.image", "emulator", "toolchain", "harness"},
    "programs": {
        *("", "ptx", "analysis", "transforms", "versions", "dsl", "dsl.image", "emulator", "toolchain", "harness"),
        *("runtime", "suites"),
    },
    "cli": {
        *("", "ptx", "analysis", "transforms", "dsl", "dsl.image", "emulator", "toolchain", "harness", "runtime"),
        *("suites", "programs", "compiler", "injection"),
    },
    "__main__": {"cli"},
    "": {"ptx", "analysis", "transforms", "versions", "dsl", "emulator", "toolchain", "harness"},
}

#: Modules of the root, and a folder, that import nothing of the project. Every folder may import them.
LEAVES = {"arch", "cache", "contract", "cost", "graphs", "python_child", "spelling", "work_times"}

#: Folders without import cycles even if imports for annotations count.
FREE_OF_TYPING_CIRCLES = ("dsl", "suites", "transforms.kernel_fusion")

#: Packages that only the verbs that need them may load.
HEAVY = {"PIL", "numpy", "networkx", "cuda", "rich", "matplotlib", "scipy", "jsonschema", "hypothesis"}

#: Folders of scripts and tests, which are not shipped.
NOT_PACKAGED = {"tests", "typings", "build", "bench", "demo", "docs", "tools"}

#: The largest number of lines of a file, and of a function without the functions in it. The programs of the suites are
#: translations, whose kernels have the length of the CUDA kernels.
LONGEST, LONGEST_FUNCTION = 600, 60


def settings() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def packaged() -> list[str]:
    names = settings()["packages"]
    assert isinstance(names, list)
    return [str(name) for name in names]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def folder_of(package: str) -> Path:
    return ROOT.joinpath(*package.split(".")[1:])


@functools.cache
def modules() -> tuple[tuple[str, Path], ...]:
    """The dotted name below `ptxmotion`, and the file, of every packaged module."""
    return tuple(_modules())


def _modules() -> Iterator[tuple[str, Path]]:
    for package in packaged():
        for path in sorted(folder_of(package).glob("*.py")):
            parts = (*package.split(".")[1:], *(() if path.stem == "__init__" else (path.stem,)))
            yield ".".join(parts), path


def room_of(module: str) -> str:
    """The top folder of a module, or a folder in it that has a row of its own.

    A module of the root belongs to the root, unless it is a leaf."""
    top, *rest = module.split(".")
    if rest and f"{top}.{rest[0]}" in MAY_SEE:
        return f"{top}.{rest[0]}"
    return top if top in MAY_SEE or top in LEAVES else ""


def imports(module: str, path: Path, *, for_typing: bool = True) -> Iterator[tuple[str, bool]]:
    """Each module of the package that a module imports, and whether it is imported while the module is loaded.

    ``for_typing``: imports under `if TYPE_CHECKING` are among them.
    """
    return ((target, at_load) for target, at_load, is_typing in imported(module, path) if for_typing or not is_typing)


@functools.cache
def imported(module: str, path: Path) -> tuple[tuple[str, bool, bool], ...]:
    """Each module that a module imports: its name, whether it is imported while the module is loaded, and whether only
    for annotations. No test changes a file."""
    return tuple(_imported(module, path))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file of the package."""
    return ast.parse(path.read_text(), str(path))


def _imported(module: str, path: Path) -> Iterator[tuple[str, bool, bool]]:
    known = {name for name, _ in modules()}
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    tree = tree_of(path)
    at_load = {id(node) for statement in tree.body for node in walk_at_load(statement)}
    typing = {id(node) for part in ast.walk(tree) if is_for_typing(part) for node in ast.walk(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [part for part in package[: len(package) - node.level + 1] if part]
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                yield (whole if whole in known else ".".join(base)), id(node) in at_load, id(node) in typing


def walk_at_load(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is loaded: no function's body, nothing under `if TYPE_CHECKING`."""
    yield node
    if not is_for_typing(node) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from walk_at_load(child)


def is_for_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def test_every_folder_with_code_is_packaged() -> None:
    folders = {path.parent for path in ROOT.glob("**/*.py") if not is_hidden(path)}
    inside = {folder for folder in folders if not NOT_PACKAGED & set(folder.relative_to(ROOT).parts)}
    assert inside == {folder_of(name) for name in packaged()}
    assert all((folder / "__init__.py").is_file() for folder in inside)
    assert len(packaged()) == len(set(packaged()))


def is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts)


def test_the_root_is_the_package() -> None:
    assert settings()["package-dir"] == {"ptxmotion": "."}
    link = ROOT / "typings" / "ptxmotion"
    assert link.is_symlink() and os.readlink(link) == ".."


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: str(value) or "ptxmotion")
def test_folders_import_only_what_their_row_allows(module: str, path: Path) -> None:
    room = room_of(module)
    for target, _ in imports(module, path):
        seen = room_of(target)
        allowed = set[str]() if room in LEAVES else MAY_SEE[room] | LEAVES
        assert seen == room or seen in allowed, f"{module} may not import {target}"
    assert not re.search(r"^\s*(import ptxmotion|from ptxmotion)", path.read_text(), re.MULTILINE), (
        "inside the package, import relatively"
    )


def test_no_cycles_of_imports_at_load_time() -> None:
    """No module imports, while it is loaded, a module that imports it."""
    check_acyclic({name: {t for t, at_load in imports(name, path) if at_load} for name, path in modules()})


def test_no_cycles_through_late_imports() -> None:
    """The same for imports inside functions. Imports for annotations are left out, since they never run."""
    graph = {name: {target for target, _ in imports(name, path, for_typing=False)} for name, path in modules()}
    assert "analysis.memory.alias" in graph["analysis.manager"], "late imports are seen"
    check_acyclic(graph)


@pytest.mark.parametrize("folder", FREE_OF_TYPING_CIRCLES)
def test_no_cycles_with_imports_for_annotations(folder: str) -> None:
    """Imports under ``TYPE_CHECKING`` count, too."""
    inside = {name: path for name, path in modules() if name == folder or name.startswith(f"{folder}.")}
    assert inside
    check_acyclic({name: {t for t, _ in imports(name, path) if t in inside} for name, path in inside.items()})


def check_acyclic(graph: Mapping[str, Set[str]]) -> None:
    """Fails with a circle of the graph, where it has one. An import of the module itself does not count."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path[path.index(name) :], name))
        if name not in done:
            for target in sorted(graph.get(name, set()) - {name}):
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


#: The folders in which no circle of imports is allowed, even one through a late import or one for annotations only.
#: "" stands for the modules of the root.
NO_CIRCLES = {"cli", "programs", "harness", ""}


def test_no_cycles_of_any_imports_in_some_folders() -> None:
    """In some folders no module imports itself indirectly, wherever in a file the imports are."""
    graph = {name: {target for target, _ in imports(name, path) if target != name} for name, path in modules()}
    circles = [circle for circle in strong_components(graph) if len(circle) > 1]
    wrong = [circle for circle in circles if any(room_of(module) in NO_CIRCLES for module in circle)]
    assert not wrong, "\n".join(", ".join(sorted(circle)) for circle in wrong)


def test_strongly_connected_components_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str]()}
    assert sorted(map(sorted, strong_components(graph))) == [["a", "b", "c"], ["d"], ["e"]]


def strong_components(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components: modules that import each other, directly or not."""
    reached = {name: reachable(graph, name) for name in graph}
    components: dict[str, set[str]] = {}
    for name in graph:
        if name not in components:
            component = {name} | {each for each in reached[name] if name in reached.get(each, ())}
            components |= dict.fromkeys(component, component)
    return list({id(each): each for each in components.values()}.values())


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules that a path of one or more imports leads to."""
    seen: set[str] = set()
    pending = list(graph.get(start, ()))
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += graph.get(name, ())
    return seen


STARTS = [
    *("", "ptx", "analysis", "transforms", "contract", "dsl", "dsl.image", "toolchain", "harness", "runtime"),
    *("programs", "compiler", "injection", "integrations", "cli"),
]


@pytest.mark.parametrize("module", STARTS)
def test_a_start_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, ptxmotion{'.' * bool(module)}{module}; print(*sorted(sys.modules))"
    # -S: a site-packages folder may load modules by itself when Python starts. The link serves as installation.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "typings"), *sys.path])}
    done = subprocess.run([sys.executable, "-Sc", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(done.stdout.split())


def test_opt_loads_nothing_that_it_does_not_need() -> None:
    file = ROOT / "tests" / "ptx" / "lcm_diamond.ptx"
    command = ["opt", str(file), "-o", os.devnull, "-O3", "--gate=off", "--no-config"]
    program = f"import sys; from ptxmotion.cli import main; assert main({command}) == 0; print(*sorted(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "typings")}
    done = subprocess.run([sys.executable, "-Sc", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert not (HEAVY | {"pathlib", "json", "subprocess", "hashlib", "tomllib"}) & set(done.stdout.split())


def test_names_and_lengths() -> None:
    for module, path in modules():
        stem = module.split(".")[-1]
        assert stem not in {"utils", "util", "helpers", "helper", "common", "misc"}, path
        # A benchmark has the name that its suite gives it, as rodinia's srad_v1 and srad_v2.
        assert module.startswith("suites.") or not re.fullmatch(r".*_v?\d+", stem), f"{path}: a number is no name"
        assert not stem.endswith("_test"), f"{path}: pytest collects it"
        assert stem != "manager" or module == "analysis.manager", path
        length = len(path.read_text().splitlines())
        assert length <= LONGEST, f"{path} is longer than {LONGEST} lines"


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The name and the number of lines of each function, without the functions and classes in it."""

    def lines(node: ast.AST) -> int:
        return getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0) + 1

    def statements(node: ast.AST) -> Iterator[ast.AST]:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from getattr(node, name, ())

    def nested(node: ast.AST) -> int:
        inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        return sum(lines(each) if isinstance(each, inner) else nested(each) for each in statements(node))

    waiting = list(statements(tree))
    while waiting:
        node = waiting.pop()
        waiting += statements(node)
        if isinstance(node, ast.FunctionDef):
            yield node.name, lines(node) - nested(node)


def test_functions_are_short() -> None:
    paths = [path for module, path in modules() if not module.startswith("suites.")]
    own = [(path, *each) for path in paths for each in functions(tree_of(path))]
    assert len(own) > 4000
    assert [each for each in own if each[2] > LONGEST_FUNCTION] == []


def test_the_lines_of_a_function_are_its_own() -> None:
    text = "def outer():\n    def inner():\n        pass\n\n    if 1:\n        return inner\n"
    assert sorted(functions(ast.parse(text))) == [("inner", 2), ("outer", 4)]


def public_definitions(path: Path) -> list[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes of a file that its ``__all__`` names."""
    body, names = tree_of(path).body, set[object]()
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names]


def test_public_functions_and_classes_have_docstrings() -> None:
    paths = [path for module, path in modules() if not module.startswith("suites.")]
    public = [(path, node) for path in paths for node in public_definitions(path)]
    assert len(public) > 1000
    overloads = ("overload", "typing.overload")
    undescribed = [
        f"{path}: {node.name}"
        for path, node in public
        if not ast.get_docstring(node) and not any(ast.unparse(each) in overloads for each in node.decorator_list)
    ]
    assert undescribed == []


@pytest.mark.parametrize("module", [name for name, path in modules() if "    >>> " in path.read_text()])
def test_examples_in_docstrings_run(module: str) -> None:
    import doctest
    import importlib

    loaded = importlib.import_module(f"ptxmotion.{module}" if module else "ptxmotion")
    assert doctest.testmod(loaded).failed == 0
