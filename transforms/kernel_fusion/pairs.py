"""Decides for each pair of launches whether to fuse it, and builds the fused kernel.

The functions that decide and build (`fusibility`, `fused_kernel`) and the benefit model are arguments. Results are
cached by the two launches' sites, so transforming a program again builds nothing twice.
Guarantees: each refusal becomes a remark with a reason id. A pair for which `Refusal` is raised has no effect on the
program.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from math import inf, prod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from ...dsl.functions import Param
from ...dsl.host_cfg import HostCfg
from ...dsl.host_nodes import Expression, Launch, Node
from ...dsl.kernel import PtxSource
from ...dsl.types import SCALARS
from ..remarks import Remark
from .host_sites import Refusal, Sites
from .kernel_code import AnyKernel, KernelCode, KernelCodes
from .launch_effects import KernelMemory
from .launch_site import Extents, Fusibility, LaunchSite, text_of
from .module_merge import CannotFuse

if TYPE_CHECKING:
    from ...ptx import Module

__all__ = ["Benefit", "Estimate", "FusedCode", "FusedPair", "Fuser", "Pairs", "Resident", "mentions_max"]

PASS = "fuse"
#: Prefix of the names in `FusedCode.parameters` that are extents of a grid.
_GRID_EXTENT = "%nctaid."


class FusedCode(Protocol):
    """The result of ``build``. ``parameters`` has one entry for each parameter of the fused kernel: the kernel (0
    first, 1 second), and the name of its parameter or of an extent of its grid (``%nctaid.x``). ``site`` is the launch
    of the fused kernel."""

    @property
    def module(self) -> Module:
        """The module with the fused kernel."""
        ...

    @property
    def name(self) -> str:
        """The name of the fused kernel."""
        ...

    @property
    def parameters(self) -> Collection[tuple[int, str]]:
        """Where the argument of each parameter comes from."""
        ...

    @property
    def site(self) -> LaunchSite:
        """The launch of the fused kernel."""
        ...

    @property
    def remarks(self) -> Collection[str]:
        """What was done between the bodies, for remarks."""
        ...


class Fuser(Protocol):
    """Decides whether two launches may be fused, and builds the fused kernel."""

    def decide(self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool) -> Fusibility:
        """Whether the launches may be fused, and what is needed between their bodies. ``assume_independent``: the user
        promises that they touch no common bytes; ``may_check``: a check at run time is possible."""
        ...

    def build(
        self, first: LaunchSite, second: LaunchSite, fusibility: Fusibility, *, name: str, dead_buffers: frozenset[str]
    ) -> FusedCode:
        """The fused kernel, called ``name``. ``dead_buffers`` are allocations that nobody reads after it."""
        ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that one run of a fusion saves and costs, by estimation. ``text`` explains the numbers."""

    saved: float
    lost: float
    text: str

    @property
    def is_worth_it(self) -> bool:
        """Whether the fusion saves more than it costs."""
        return self.saved > self.lost


_CodePair: TypeAlias = "tuple[KernelCode, KernelCode]"
SiteTriple: TypeAlias = "tuple[LaunchSite, LaunchSite, LaunchSite]"

#: Estimates a fusion. Arguments: the first kernel, the second kernel, the fused kernel, the launches of these three,
#: and the fusibility.
Benefit = Callable[[KernelCode, KernelCode, KernelCode, SiteTriple, Fusibility], Estimate]

#: The number of blocks of a kernel that run at the same time on the GPU. Arguments: the kernel, threads per block,
#: bytes of dynamic shared memory. None if it is not known.
Resident = Callable[[KernelCode, int, int], "int | None"]


@dataclass(frozen=True, eq=False)
class FusedPair:
    """A fused kernel with its two parts. How it is launched follows from the launches of the parts."""

    code: KernelCode
    site: LaunchSite
    remarks: tuple[str, ...]
    parameters: tuple[tuple[int, str], ...]
    parts: tuple[KernelCode, KernelCode]
    sites: tuple[LaunchSite, LaunchSite]
    fusibility: Fusibility
    estimate: Estimate | None

    @property
    def kernel(self) -> AnyKernel:
        """The fused kernel."""
        return self.code.kernel

    def launch(self, first: Launch, second: Launch, text: str) -> Launch:
        """The launch that replaces both. ``text`` is the kernel's name in the host program."""
        both = (first, second)
        args = tuple(self._argument(both[origin], origin, name) for origin, name in self.parameters)
        grid = self._extents(self.site.grid, "grid", both)
        block = self._extents(self.site.block, "block", both)
        shared = self._shared(both)
        return Launch(self.kernel, text, grid, block, args, shared, self.site.cooperative, place=first.place)

    def _argument(self, launch: Launch, origin: int, name: str) -> Expression:
        if name.startswith(_GRID_EXTENT):
            return Expression(str(self.sites[origin].grid["xyz".index(name.removeprefix(_GRID_EXTENT))]))
        return launch.args[_position(self.parts[origin], name)]

    def _extents(self, extents: Extents, attribute: str, launches: tuple[Launch, Launch]) -> Expression:
        """The expression of the launch that already has these extents, otherwise a new expression."""
        for launch, site in zip(launches, self.sites, strict=True):
            if getattr(site, attribute) == extents:
                return getattr(launch, attribute)
        return Expression(f"({', '.join(map(str, extents))})")

    def _shared(self, launches: tuple[Launch, Launch]) -> Expression | None:
        for launch, site in zip(launches, self.sites, strict=True):
            if site.shared == self.site.shared:
                return launch.shared
        return Expression(str(self.site.shared))


class Pairs:
    """Decides and builds pairs, and collects remarks.

    ``independent`` holds pairs of kernel names for which the user promises that no block of the second kernel depends
    on another block of the first. Without ``benefit``, every legal pair is fused. Without ``resident``, no cooperative
    launches and so no grid barriers are made. ``taken`` are names that fused kernels must not have. Without
    ``each_saves``, a fusion that costs time is allowed, too, unless it is not possible at all.
    """

    def __init__(
        self,
        codes: KernelCodes,
        fuser: Fuser,
        independent: Collection[frozenset[str]] = (),
        benefit: Benefit | None = None,
        resident: Resident | None = None,
        taken: Collection[str] = (),
        *,
        each_saves: bool = True,
    ) -> None:
        self.each_saves = each_saves
        self.codes, self.fuser, self.benefit, self.resident = codes, fuser, benefit, resident
        self.independent = frozenset(independent)
        #: By (names of the kernels, message): each refusal and each fusion once.
        self.remarks: dict[tuple[str, str], Remark] = {}
        #: By key of `remarks`: the two kernels of each reported fusion.
        self._reported: dict[tuple[str, str], tuple[KernelCode, KernelCode]] = {}
        #: By the kernels and everything that their sites say: the fused pair, or why there is none.
        self._results: dict[Hashable, FusedPair | Refusal] = {}
        self._names = set(taken)

    def fused(self, first: Launch, second: Launch, at: Node, cfg: HostCfg, sites: Sites) -> FusedPair | None:
        """The fused pair if both launches were at ``at``. None if they are not fused; a remark says why."""
        codes = self.codes.of(first.kernel), self.codes.of(second.kernel)
        try:
            both = sites.pair(first, second, at, cfg, codes)
            pair = self._decided(codes, both)
            if mentions_max(pair.site) and not sites.knows_max:
                raise Refusal(
                    "grid-unknown", "the larger grid needs max(), but the program uses that name for something else"
                )
            return pair
        except Refusal as why:
            self._remark("Missed", first, second, str(why), why.reason)
            return None

    def without_stores(self, pair: FusedPair, dead: frozenset[str]) -> FusedPair:
        """The pair without its stores to the allocations ``dead``, which nothing reads afterwards. It is the same pair
        if these stores cannot be removed."""
        key = (pair.code, dead)
        if key not in self._results:
            name = self._name(pair.parts)
            made = self.fuser.build(*pair.sites, pair.fusibility, name=name, dead_buffers=dead)
            changed = made.module.kernel(name)
            if sum(1 for _ in changed.instructions()) < sum(1 for _ in pair.code.entry.instructions()):
                self._names.add(name)
                code = self._code(made, pair.parts, pair.sites)
                parameters = tuple(made.parameters)
                pair = replace(pair, code=code, site=made.site, remarks=tuple(made.remarks), parameters=parameters)
            self._results[key] = pair
        result = self._results[key]
        assert isinstance(result, FusedPair)
        return result

    def report_fusion(self, first: Launch, second: Launch, pair: FusedPair, phase: str) -> None:
        """Add a remark for a fusion."""
        between = {"thread": "nothing between them", "block": "a block barrier between them"}
        kind = between.get(pair.fusibility.kind, "a grid barrier between them")
        details = "; ".join((*pair.fusibility.reasons, *pair.remarks))
        estimate = f"; {pair.estimate.text}" if pair.estimate is not None else ""
        message = f"fused as {pair.kernel.name} ({phase}), {kind}{': ' if details else ''}{details}{estimate}"
        self._reported[self._remark("Passed", first, second, message, pair.fusibility.kind)] = pair.parts

    def withdraw_others(self, final: Iterable[FusedPair], why: str, reason: str) -> None:
        """Turn the remarks about fusions that only rejected attempts made into refusals. ``final`` are the fusions of
        the final program; the parts of these may be fused kernels themselves."""
        parts_of = {pair.code: pair.parts for pair in self._results.values() if isinstance(pair, FusedPair)}
        waiting = [pair.parts for pair in final]
        valid: set[_CodePair] = set()
        while waiting:
            parts = waiting.pop()
            if parts not in valid:
                valid.add(parts)
                waiting += [parts_of[code] for code in parts if code in parts_of]
        for key, parts in self._reported.items():
            if parts not in valid:
                fused = self.remarks.pop(key)
                self.remarks[key[0], why] = replace(fused, kind="Missed", name="NotFused", message=why, reason=reason)

    def report_dead_stores(self, pair: FusedPair, dead: list[str]) -> None:
        """Add a remark that a fused kernel leaves out stores to the allocations ``dead``."""
        message = f"{pair.kernel.name} does not store to {', '.join(dead)}, which nothing reads afterwards"
        both = "+".join(part.kernel.name for part in pair.parts)
        self.remarks.setdefault((both, message), Remark("Passed", PASS, "DeadStores", both, message))

    def _remark(self, kind: str, first: Launch, second: Launch, message: str, reason: str) -> tuple[str, str]:
        both = f"{first.kernel.name}+{second.kernel.name}"
        place = second.place or first.place
        where = (place.file, place.line, place.column) if place is not None else ("", 0, 0)
        name = "Fused" if kind == "Passed" else "NotFused"
        self.remarks.setdefault((both, message), Remark(kind, PASS, name, both, message, *where, reason=reason))
        return both, message

    def _decided(self, codes: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]) -> FusedPair:
        key = (*codes, *((s.grid, s.block, s.shared, tuple(s.arguments.items()), s.cooperative) for s in sites))
        if key not in self._results:
            try:
                self._results[key] = self._built(codes, sites)
            except Refusal as why:
                self._results[key] = why
        result = self._results[key]
        if isinstance(result, Refusal):
            raise result
        return result

    def _built(self, codes: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]) -> FusedPair:
        promised = frozenset(code.kernel.name for code in codes) in self.independent
        fusibility = self.fuser.decide(*sites, assume_independent=promised, may_check=True)
        if not _may_hold(fusibility.checks):
            fusibility = self.fuser.decide(*sites, assume_independent=promised, may_check=False)
        why = "; ".join(fusibility.reasons) or "no reason given"
        if fusibility.kind == "grid" and self.resident is None:
            raise Refusal("grid-wide", why)
        if fusibility.kind not in ("thread", "block", "grid"):
            raise Refusal("not-fusible", why)
        name = self._name(codes)
        try:
            made = self.fuser.build(*sites, fusibility, name=name, dead_buffers=frozenset())
        except CannotFuse as why:
            raise Refusal("cannot-build", str(why)) from why
        code = self._code(made, codes, sites)
        triple = (*sites, made.site)
        if made.site.cooperative:
            fusibility, triple = self._resident(codes, code, triple, fusibility)
        estimate = None if self.benefit is None else self.benefit(*codes, code, triple, fusibility)
        if estimate is not None and not (estimate.is_worth_it if self.each_saves else estimate.lost < inf):
            if fusibility.kind == "grid":
                raise Refusal("grid-wide", f"a grid barrier costs more than the fusion saves ({estimate.text}); {why}")
            raise Refusal("no-benefit", estimate.text)
        self._names.add(name)
        return FusedPair(
            code, made.site, tuple(made.remarks), tuple(made.parameters), codes, sites, fusibility, estimate
        )

    def _resident(
        self, codes: _CodePair, code: KernelCode, sites: SiteTriple, fusibility: Fusibility
    ) -> tuple[Fusibility, SiteTriple]:
        """The fusibility and the sites for a cooperative launch.

        If the number of blocks depends on the host, the fusibility gets a check: all blocks run at the same time, and
        they are so few that the fusion saves time. The sites get the largest grid that passes the check. Raises
        `Refusal`.
        """
        why = f"; {'; '.join(fusibility.reasons)}" if fusibility.kind == "grid" else ""
        site = sites[2]
        if self.resident is None:
            raise Refusal("not-resident", f"cooperative launches are not enabled{why}")
        if not isinstance(site.shared, int) or not all(isinstance(extent, int) for extent in site.block):
            raise Refusal(
                "not-resident", f"the number of blocks that run at the same time depends on the block's shape{why}"
            )
        most = self.resident(code, prod(cast("tuple[int, ...]", site.block)), site.shared)
        if most is None:
            raise Refusal("not-resident", f"the number of blocks that run at the same time is not known{why}")
        if all(isinstance(extent, int) for extent in site.grid):
            blocks = prod(cast("tuple[int, ...]", site.grid))
            if blocks > most:
                raise Refusal(
                    "not-resident", f"{blocks} blocks wait for each other, but only {most} run at the same time{why}"
                )
            return fusibility, sites

        def with_blocks(count: int) -> SiteTriple:
            one, other, both = (replace(each, grid=(count, 1, 1)) for each in sites)
            return one, other, both

        if self.benefit is not None and fusibility.kind == "grid":
            benefit = self.benefit

            def loses(count: int) -> bool:
                return not benefit(*codes, code, with_blocks(count), fusibility).is_worth_it

            most = bisect(range(1, most + 1), 0, key=loses)
            if most == 0:
                return fusibility, with_blocks(1)
        check = f"{' * '.join(text_of(extent) for extent in site.grid if extent != 1)} <= {most}"
        checks = (*fusibility.checks, check)
        if not _may_hold(checks):
            raise Refusal("not-resident", f"for usual sizes not all blocks run at the same time ({check}){why}")
        return replace(fusibility, checks=checks), with_blocks(most)

    def _name(self, codes: tuple[KernelCode, KernelCode]) -> str:
        """A free name such as ``fused_scale_add``. A number is appended if that name is taken."""
        name = "fused_" + "_".join(code.kernel.name.removeprefix("fused_") for code in codes)
        chosen, number = name, 1
        while chosen in self._names:
            number += 1
            chosen = f"{name}_{number}"
        return chosen

    def _code(
        self, made: FusedCode, parts: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]
    ) -> KernelCode:
        from ...ptx import print_module

        text = print_module(made.module)
        kernel: AnyKernel = PtxSource(text, made.name, _typed(made, parts))
        return self.codes.add(kernel, text, _joined(made, parts, sites), made.site.counters)


def mentions_max(site: LaunchSite) -> bool:
    """Whether the grid or the shared memory of the launch is computed by ``max``."""
    return any("max" in Expression(str(extent)).names for extent in (*site.grid, site.shared))


def _position(part: KernelCode, name: str) -> int:
    return next(at for at, param in enumerate(part.entry.params or []) if param.name == name)


def _typed(made: FusedCode, parts: tuple[KernelCode, KernelCode]) -> list[Param] | None:
    """The parameters as the sources of both kernels declare them. None if one of the sources declares none."""
    params: list[Param] = []
    for number, (origin, name) in enumerate(made.parameters):
        declared = parts[origin].kernel.params
        if name.startswith(_GRID_EXTENT):
            params.append(Param(f"p{number}", SCALARS["u32"]))
            continue
        if declared is None:
            return None
        params.append(Param(f"p{number}", declared[_position(parts[origin], name)].type))
    return params


def _joined(
    made: FusedCode, parts: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]
) -> KernelMemory:
    """The memory that both parts access, by the fused kernel's parameters. One parameter may serve both parts."""
    reads, writes = set[int](), set[int]()
    for number, (origin, name) in enumerate(made.parameters):
        if name.startswith(_GRID_EXTENT):
            continue
        passed = sites[origin].arguments.get(name)
        for part, site in zip(parts, sites, strict=True):
            for at, param in enumerate(part.entry.params or []):
                if site.arguments.get(param.name) == passed:
                    reads |= {number} if at in part.memory.reads else set()
                    writes |= {number} if at in part.memory.writes else set()
    return KernelMemory(frozenset(reads), frozenset(writes), any(part.memory.is_unknown for part in parts))


#: Values that `_may_hold` tries for host variables.
_SIZES = (64, 256, 1000, 1024, 4096)


def _may_hold(checks: tuple[str, ...]) -> bool:
    """Whether some usual sizes pass all checks at the same time. Otherwise the fused kernel would almost never run."""
    if not checks:
        return True
    test = Expression(" and ".join(f"({check})" for check in checks))
    functions: dict[str, Any] = {"__builtins__": {}, "max": max, "min": min}
    names = sorted(test.names - set(functions))
    samples = [dict.fromkeys(names, size) for size in _SIZES]
    samples += [dict(zip(names, sizes, strict=True)) for sizes in islice(product(_SIZES, repeat=len(names)), 625)]
    for values in samples:
        try:
            if eval(test.code, functions, values):
                return True
        except (ArithmeticError, TypeError, NameError, AttributeError):
            return False
    return False
