"""Launches of small kernels for the tests of fusion. A test gives a body in PTX; this module adds the rest of the
kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ptxmotion.emulator import Emulator, Finding
from ptxmotion.ptx import parse, print_module
from ptxmotion.transforms.kernel_fusion.fused_kernel import FusedKernel
from ptxmotion.transforms.kernel_fusion.launch_site import Argument, Buffer, Extent, Extents, LaunchSite, Scalar

__all__ = ["contents", "kernel_text", "launch", "run_fused", "run_one_by_one"]

_HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"

#: The beginning of each body: pointers in %a and %b, %n, the global index in %i, and its address in both buffers in %p
#: and %q.
_PROLOGUE = """
    ld.param.u64 %a, [{name}_a];
    ld.param.u64 %b, [{name}_b];
    ld.param.u32 %n, [{name}_n];
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    mov.u32 %t, %tid.x;
    mov.u32 %c, %ctaid.x;
    mov.u32 %w, %ntid.x;
    mad.lo.s32 %i, %c, %w, %t;
    mul.wide.s32 %x, %i, 4;
    add.s64 %p, %a, %x;
    add.s64 %q, %b, %x;
"""


def kernel_text(name: str, body: str, *, head: str = "", directives: str = "", declarations: str = "") -> str:
    """A module with one kernel. ``head`` precedes it."""
    return (
        f"{_HEAD}{head}\n.visible .entry {name}(.param .u64 {name}_a, .param .u64 {name}_b, .param .u32 {name}_n)\n"
        f"{directives}\n{{\n.reg .pred %z<4>;\n.reg .b32 %r<8>, %n, %t, %c, %w, %i, %f<8>;\n"
        f".reg .b64 %a, %b, %p, %q, %x, %d<8>;\n{declarations}{_PROLOGUE.format(name=name)}{body}\nret;\n}}\n"
    )


def launch(
    body: str,
    *,
    name: str = "k",
    a: Argument | str = "a",
    b: Argument | str = "b",
    n: Argument | Extent = 48,
    grid: Extent | Extents = 3,
    block: Extent | Extents = 16,
    shared: Extent = 0,
    **parts: str,
) -> LaunchSite:
    """A launch of the kernel with that body."""
    module = parse(kernel_text(name, body, **parts))
    given: list[Argument] = [
        Buffer(a) if isinstance(a, str) else a,
        Buffer(b) if isinstance(b, str) else b,
        n if isinstance(n, Buffer | Scalar) else Scalar(n),
    ]
    kernel = module.kernel(name)
    names = [param.name for param in kernel.params or ()]
    return LaunchSite(kernel, module, _three(grid), _three(block), shared, dict(zip(names, given, strict=True)))


def _three(extents: Extent | Extents) -> Extents:
    return extents if isinstance(extents, tuple) else (extents, 1, 1)


class _Memory:
    def __init__(self) -> None:
        self.emulator = Emulator(budget=200_000)
        self.buffers: dict[str, Any] = {}
        for seed, name in enumerate("abcd"):
            found = self.emulator.space().allocate(name, "global", 4096)
            found.fill_from(np.random.default_rng(seed).integers(0, 48, 1024, np.uint32).view(np.uint8))
            found.written = None
            self.buffers[name] = found

    def run(self, site: LaunchSite, schedule: str, seed: int) -> list[Finding]:
        loaded = self.emulator.load(parse(print_module(site.module)))
        values: list[bytes] = []
        for param in site.kernel.params or ():
            argument = site.arguments[param.name]
            value = (
                self.buffers[argument.name].base + int(argument.offset)
                if isinstance(argument, Buffer)
                else int(argument.value or 0)
            )
            values.append(value.to_bytes(param.bytes, "little"))
        grid, block = ([int(each) for each in extents] for extents in (site.grid, site.block))
        from ptxmotion.emulator.options import Options

        return loaded.launch_bytes(
            loaded.entry(site.kernel.name),
            grid,
            block,
            values,
            int(site.shared),
            Options(checks=True, counts=False, fine=schedule == "random"),
            schedule=schedule,
            seed=seed,
            keep_going=True,
        ).findings


def contents(memory: _Memory) -> dict[str, npt.NDArray[Any]]:
    """The contents of the buffers as 32-bit words."""
    return {name: found.bytes.view(np.uint32).copy() for name, found in memory.buffers.items()}


def run_one_by_one(*sites: LaunchSite) -> dict[str, npt.NDArray[Any]]:
    """The contents of the buffers after the launches."""
    memory = _Memory()
    for site in sites:
        assert memory.run(site, "order", 0) == []
    return contents(memory)


def run_fused(fused: FusedKernel, *, seed: int = -1) -> dict[str, npt.NDArray[Any]]:
    """The contents of the buffers after the fused launch, in order or with a random schedule. The emulator must find
    nothing."""
    memory = _Memory()
    found = memory.run(fused.site, "order" if seed < 0 else "random", max(seed, 0))
    assert found == [], found[:3]
    return contents(memory)
