"""The hooks of `ptxmotion.integrations`, with modules of the test in place of CuPy, Numba and Triton.

Each has the functions that a hook replaces, which call each other as those of the library do. `tests/gpu` runs the
hooks with the libraries themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from motion import DIVISION_AGAIN
from nvcc_builds import path_of
from ptxmotion import Policy
from ptxmotion.integrations import cupy, numba, triton
from ptxmotion.integrations.hook import Hook, NotSupported
from ptxmotion.toolchain.cubin import kernel_registers

pytestmark = pytest.mark.skipif(not path_of("ptxas"), reason="no ptxas")

UNGATED = Policy(gate="off")
SOURCE = "some CUDA C++"

CUPY = """
calls = []
def _get_arch():
    return "90"
def _get_cupy_cache_key():
    return "key"
def _get_arch_for_options_for_nvrtc(arch=None):
    return f"-arch=sm_{arch or _get_arch()}", "cubin"
def _compile_using_nvrtc_no_warning(
    source, options=(), arch=None, filename="kern.cu", name_expressions=None, log_stream=None, cache_in_memory=False,
    jitify=None, method=None
):
    option, method = ("lto", method) if method else _get_arch_for_options_for_nvrtc(arch)
    calls.append(option)
    return (PTX.encode() if method == "ptx" else b"from NVRTC"), {"f<int>": "f"}
"""

NUMBA = """
class CUDACodeLibrary:
    def __init__(self, lto, files=()):
        self._lto, self._linking_files, self._max_registers = lto, set(files), 40
        self._ptx_cache, self._cubin_cache = {}, {}
    def _ensure_cc(self, cc):
        return cc or (9, 0, "a")
    def get_asm_strs(self, cc=None):
        return self._ptx_cache.setdefault(self._ensure_cc(cc), [PTX])
    def get_lto_ptx(self, cc=None):
        return PTX
    def get_cubin(self, cc=None):
        cc = self._ensure_cc(cc)
        inputs = "LTO-IR" if self._lto else self.get_asm_strs(cc=cc)
        if self.refuses(inputs):
            raise OSError("the linker refuses it")
        return self._cubin_cache.setdefault(cc, inputs)
    def refuses(self, inputs):
        return False
"""

TRITON = """
class CUDABackend:
    def hash(self):
        return "hash"
    def add_stages(self, stages, options):
        stages["ptx"] = lambda source, metadata: PTX
        stages["cubin"] = lambda source, metadata: source
        if knobs.runtime.add_stages_inspection_hook is not None:
            knobs.runtime.add_stages_inspection_hook(self, stages, options, "triton", 90)
"""


def module(name: str, text: str = "", **names: object) -> Any:
    """A module of the test, with the packages that contain it."""
    made = ModuleType(name)
    exec(text, made.__dict__)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


@pytest.fixture(autouse=True)
def own_modules(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    before = dict(sys.modules)
    for name in ("cupy", "cupy.cuda", "numba", "numba.cuda", "triton", "triton.backends", "triton.backends.nvidia"):
        module(name)
    for name in ("torch", "torch._inductor"):
        module(name)
    yield
    for name in set(sys.modules) - set(before):
        if name.partition(".")[0] in ("cupy", "numba", "triton", "torch"):
            del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def nvrtc() -> Any:
    module("cupy.cuda.runtime", driverGetVersion=lambda: 13000)
    return module("cupy.cuda.compiler", CUPY, PTX=DIVISION_AGAIN)


def test_kernels_of_cupy_are_optimized(nvrtc: Any) -> None:
    with cupy.enable("O2", UNGATED) as hook:
        code, mapping = nvrtc._compile_using_nvrtc_no_warning(SOURCE, ("--maxrregcount=40",))
        assert set(kernel_registers(code)) == {"k"} and mapping == {"f<int>": "f"}
        assert nvrtc.calls == ["-arch=compute_90"]
        assert hook.changed == hook.seen == ["k"]
        assert nvrtc._get_cupy_cache_key().startswith("key-ptxmotion-")
        text, _ = nvrtc._compile_using_nvrtc_no_warning(SOURCE, ("--device-c",), "90")
        assert text.count(b"div.s32") == 1, "PTX for CuPy's linker"
    assert nvrtc._compile_using_nvrtc_no_warning(SOURCE)[0] == b"from NVRTC"
    assert nvrtc._get_cupy_cache_key() == "key"


@pytest.mark.parametrize(("source", "named"), [("#include <cupy/carray.cuh>\n", {}), (SOURCE, {"method": "lto"})])
def test_what_the_hook_for_cupy_leaves_alone(nvrtc: Any, source: str, named: dict[str, str]) -> None:
    with cupy.enable("O2", UNGATED) as hook:
        code, _ = nvrtc._compile_using_nvrtc_no_warning(source, **named)
        assert code == b"from NVRTC" and not hook.seen and len(nvrtc.calls) == 1


def test_cupy_without_a_rewrite(nvrtc: Any) -> None:
    """NVRTC compiles the kernel again, to machine code."""
    with cupy.enable("none") as hook:
        assert nvrtc._compile_using_nvrtc_no_warning(SOURCE)[0] == b"from NVRTC"
        assert nvrtc.calls == ["-arch=compute_90", "-arch=sm_90"]
        assert hook.seen == ["k"] and not hook.changed


def test_cupy_with_an_older_driver(nvrtc: Any) -> None:
    sys.modules["cupy.cuda.runtime"].driverGetVersion = lambda: 12080  # pyright: ignore
    with cupy.enable("O2", UNGATED), pytest.warns(RuntimeWarning, match="the driver is older than ptxas"):
        assert nvrtc._compile_using_nvrtc_no_warning(SOURCE)[0] == b"from NVRTC"


def test_a_kernel_that_cannot_be_read(nvrtc: Any) -> None:
    nvrtc.PTX = "no PTX"
    with cupy.enable("O2", UNGATED), pytest.warns(RuntimeWarning, match="a kernel of CuPy is not optimized"):
        assert nvrtc._compile_using_nvrtc_no_warning(SOURCE)[0] == b"from NVRTC"


@pytest.mark.parametrize("is_lto", [True, False])
def test_kernels_of_numba_are_optimized(is_lto: bool) -> None:
    library = module("numba.cuda.codegen", NUMBA, PTX=DIVISION_AGAIN).CUDACodeLibrary(is_lto)
    with numba.enable("O2", UNGATED) as hook:
        (text,) = library.get_cubin()
        assert text.count("div.s32") == 1
        assert library.get_cubin() == [text], "from the cache of Numba"
        assert hook.changed == hook.seen == ["k"] and library._lto == is_lto


def test_numba_with_other_files() -> None:
    library = module("numba.cuda.codegen", NUMBA, PTX=DIVISION_AGAIN).CUDACodeLibrary(True, ["a.o"])
    with numba.enable("O2", UNGATED) as hook, pytest.warns(RuntimeWarning, match="lto=False lets it be optimized"):
        assert library.get_cubin() == "LTO-IR" and not hook.seen


@pytest.mark.parametrize("is_lto", [True, False])
def test_a_linker_that_refuses_the_ptx(is_lto: bool) -> None:
    library = module("numba.cuda.codegen", NUMBA, PTX=DIVISION_AGAIN).CUDACodeLibrary(is_lto)

    def refuses(inputs: object) -> bool:
        return inputs not in ("LTO-IR", [DIVISION_AGAIN])

    library.refuses = refuses
    with numba.enable("O2", UNGATED), pytest.warns(RuntimeWarning, match="the linker refuses it"):
        assert library.get_cubin() == ("LTO-IR" if is_lto else [DIVISION_AGAIN])
    assert library._lto == is_lto


@pytest.fixture
def backend() -> Any:
    runtime = ModuleType("runtime")
    runtime.add_stages_inspection_hook = None  # pyright: ignore
    knobs = module("triton.knobs", runtime=runtime)
    return module("triton.backends.nvidia.compiler", TRITON, PTX=DIVISION_AGAIN, knobs=knobs)


class Options:
    enable_fp_fusion = False
    ptx_options = "-maxrregcount=40"


def test_kernels_of_triton_are_optimized(backend: Any) -> None:
    stages: dict[str, Any] = {}
    with triton.enable("O2", UNGATED) as hook:
        made = backend.CUDABackend()
        assert made.hash().startswith("hash-ptxmotion-")
        first, second = backend.knobs.runtime.add_stages_inspection_hook()
        assert isinstance(first, str) and isinstance(second, str), "Triton adds them to texts"
        made.add_stages(stages, Options())
        assert stages["ptx"](None, {}).count("div.s32") == 1
        assert hook.changed == hook.seen == ["k"]
    assert made.hash() == "hash" and backend.knobs.runtime.add_stages_inspection_hook is None
    made.add_stages(stages, Options())
    assert stages["ptx"](None, {}) == DIVISION_AGAIN


def test_another_hook_of_triton(backend: Any) -> None:
    """It is called, too, and both are part of the key."""
    seen: list[int] = []

    def other(*arguments: object) -> tuple[str, str] | None:
        seen.append(len(arguments))
        return None if arguments else ("a", "b")

    setattr(backend.knobs.runtime, "add_stages_inspection_hook", other)  # noqa: B010, pyright would narrow the type
    with triton.enable("O2", UNGATED):
        first, second = backend.knobs.runtime.add_stages_inspection_hook()
        assert first.startswith("a-") and second.startswith("b-")
        backend.CUDABackend().add_stages({}, Options())
    assert seen == [0, 5] and backend.knobs.runtime.add_stages_inspection_hook is other


def test_kernels_of_torch_compile_are_optimized(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    config = module("torch._inductor.config", compile_threads=8)
    with triton.enable(torch_compile=True):
        assert config.compile_threads == 1
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].startswith("/mine/integrations/")
        assert os.environ["TRITON_CACHE_DIR"].startswith("/mine/integrations/")
    assert config.compile_threads == 8
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/mine" and "TRITON_CACHE_DIR" not in os.environ


def test_torch_is_not_installed(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook is not enabled then, so it can be enabled without torch."""
    monkeypatch.setitem(sys.modules, "torch", None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ImportError):
        triton.enable(torch_compile=True)
    assert backend.knobs.runtime.add_stages_inspection_hook is None
    with triton.enable():
        pass


def test_other_versions_of_the_libraries(nvrtc: Any) -> None:
    """What cannot be replaced is an error, and nothing stays replaced."""
    del nvrtc._get_cupy_cache_key
    option = nvrtc._get_arch_for_options_for_nvrtc
    with pytest.raises(NotSupported, match="this version of CuPy has no _get_cupy_cache_key"):
        cupy.enable()
    assert nvrtc._get_arch_for_options_for_nvrtc is option
    module("triton.knobs", runtime=ModuleType("runtime"))
    module("triton.backends.nvidia.compiler")
    with pytest.raises(NotSupported, match="no hook for stages"):
        triton.enable()


def test_one_hook_for_each_library(nvrtc: Any) -> None:
    with cupy.enable(), pytest.raises(RuntimeError, match="enabled already"):
        cupy.enable()
    with cupy.enable():
        pass


def test_the_digest_of_a_hook_depends_on_its_options() -> None:
    found: set[str] = set()
    for passes, policy in (("O2", None), ("O3", None), ("O3", UNGATED)):
        with Hook("a library of the test", passes, policy) as hook:
            found.add(hook.digest())
            assert hook.digest() in found
    assert len(found) == 3


@pytest.mark.parametrize(("hooks", "library"), [(cupy, "cupy"), (numba, "numba"), (triton, "triton")])
def test_a_missing_library(hooks: Any, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install it. A hook that could not be enabled is not enabled."""
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match=rf"pip install 'ptxmotion\[{library}\]'"):
            hooks.enable()
