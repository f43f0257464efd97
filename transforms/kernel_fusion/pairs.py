"""Whether two launches may be fused, should be, and what they become: each pair is decided and built once.

The parts are handed in: ``decide`` and ``build`` (`fusibility`, `fused_kernel`), and the benefit. What was decided is
kept by the two sites, so that a program may be transformed again without building anything twice.
Guarantees: a refusal is a remark with a reason id; what raises `Refusal` leaves nothing behind.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod
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
#: What `FusedCode.parameters` calls an extent of a grid begins so.
_GRID_EXTENT = "%nctaid."


class FusedCode(Protocol):
    """What ``build`` gives. ``parameters`` name, in the order of the fused kernel's, a parameter of the first (0) or
    second (1) kernel, or an extent of its grid (``%nctaid.x``). ``site`` is the launch of the fused kernel."""

    @property
    def module(self) -> Module: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Collection[tuple[int, str]]: ...
    @property
    def site(self) -> LaunchSite: ...
    @property
    def remarks(self) -> Collection[str]: ...


class Fuser(Protocol):
    """Decides and builds."""

    def decide(
        self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool
    ) -> Fusibility: ...

    def build(
        self, first: LaunchSite, second: LaunchSite, fusibility: Fusibility, *, name: str, dead_buffers: frozenset[str]
    ) -> FusedCode: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that a fusion is expected to save and to cost each time, and how that was found."""

    saved: float
    lost: float
    text: str

    @property
    def is_worth_it(self) -> bool:
        return self.saved > self.lost


_Two: TypeAlias = "tuple[KernelCode, KernelCode]"
Sites3: TypeAlias = "tuple[LaunchSite, LaunchSite, LaunchSite]"

#: Estimates a fusion from the parts, the whole, and the launches of these three.
Benefit = Callable[[KernelCode, KernelCode, KernelCode, Sites3, Fusibility], Estimate]

#: How many blocks of a kernel, of so many threads and bytes of dynamic shared memory, the GPU runs at the same time.
Resident = Callable[[KernelCode, int, int], "int | None"]


@dataclass(frozen=True, eq=False)
class FusedPair:
    """A fused kernel: how it is launched follows from the launches of its parts."""

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
        return self.code.kernel

    def launch(self, first: Launch, second: Launch, text: str) -> Launch:
        """The launch that takes the place of both; ``text`` is what the program calls the kernel."""
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

    def _extents(self, wanted: Extents, what: str, launches: tuple[Launch, Launch]) -> Expression:
        """As one of the launches has it written, where that is the same."""
        for launch, site in zip(launches, self.sites, strict=True):
            if getattr(site, what) == wanted:
                return getattr(launch, what)
        return Expression(f"({', '.join(map(str, wanted))})")

    def _shared(self, launches: tuple[Launch, Launch]) -> Expression | None:
        for launch, site in zip(launches, self.sites, strict=True):
            if site.shared == self.site.shared:
                return launch.shared
        return Expression(str(self.site.shared))


class Pairs:
    """Every pair that was asked for. ``independent`` are pairs of kernel names of which the user promises that no block
    of the second needs what another block of the first does; ``benefit`` of None fuses whatever may be fused;
    ``resident`` of None makes no cooperative launches, and so no barriers of the grid; ``taken`` are no names for fused
    kernels."""

    def __init__(
        self,
        codes: KernelCodes,
        fuser: Fuser,
        independent: Collection[frozenset[str]] = (),
        benefit: Benefit | None = None,
        resident: Resident | None = None,
        taken: Collection[str] = (),
    ) -> None:
        self.codes, self.fuser, self.benefit, self.resident = codes, fuser, benefit, resident
        self.independent = frozenset(independent)
        #: What was refused and what was fused, once each.
        self.remarks: dict[tuple[str, str], Remark] = {}
        self._told: dict[tuple[str, str], tuple[KernelCode, KernelCode]] = {}
        self._known: dict[Hashable, FusedPair | Refusal] = {}
        self._names = set(taken)

    def fused(self, first: Launch, second: Launch, at: Node, cfg: HostCfg, sites: Sites) -> FusedPair | None:
        """What the two become where ``at`` stands; None where they stay two, with a remark that says why."""
        codes = self.codes.of(first.kernel), self.codes.of(second.kernel)
        try:
            both = sites.pair(first, second, at, cfg, codes)
            pair = self._decided(codes, both)
            if mentions_max(pair.site) and not sites.knows_max:
                raise Refusal("grid-unknown", "the larger grid would be found by max(), which is another name here")
            return pair
        except Refusal as why:
            self._say("Missed", first, second, str(why), why.reason)
            return None

    def without_stores(self, pair: FusedPair, dead: frozenset[str]) -> FusedPair:
        """The pair without its stores to the allocations ``dead``, which nobody reads afterwards; the same pair where
        it has to store them."""
        key = (pair.code, dead)
        if key not in self._known:
            name = self._name(pair.parts)
            made = self.fuser.build(*pair.sites, pair.fusibility, name=name, dead_buffers=dead)
            changed = made.module.kernel(name)
            if sum(1 for _ in changed.instructions()) < sum(1 for _ in pair.code.entry.instructions()):
                self._names.add(name)
                code = self._code(made, pair.parts, pair.sites)
                kept = tuple(made.parameters)
                pair = replace(pair, code=code, site=made.site, remarks=tuple(made.remarks), parameters=kept)
            self._known[key] = pair
        found = self._known[key]
        assert isinstance(found, FusedPair)
        return found

    def tell(self, first: Launch, second: Launch, pair: FusedPair, phase: str) -> None:
        """Remark that a fusion was made."""
        needs = {"thread": "nothing between them", "block": "a block's barrier between them"}
        kind = needs.get(pair.fusibility.kind, "a barrier of the grid between them")
        said = "; ".join((*pair.fusibility.reasons, *pair.remarks))
        estimate = f"; {pair.estimate.text}" if pair.estimate is not None else ""
        message = f"fused as {pair.kernel.name} ({phase}), {kind}{': ' if said else ''}{said}{estimate}"
        self._told[self._say("Passed", first, second, message, pair.fusibility.kind)] = pair.parts

    def take_back(self, kept: Iterable[FusedPair]) -> None:
        """Take back what was told of fusions that an attempt made which was not the best: ``kept`` are those that the
        program has in the end, of two kernels of which each may be fused itself."""
        parts_of = {pair.code: pair.parts for pair in self._known.values() if isinstance(pair, FusedPair)}
        waiting = [pair.parts for pair in kept]
        true: set[tuple[KernelCode, KernelCode]] = set()
        while waiting:
            parts = waiting.pop()
            if parts not in true:
                true.add(parts)
                waiting += [parts_of[code] for code in parts if code in parts_of]
        for key, parts in self._told.items():
            if parts not in true:
                why = "fused, it would leave more launches elsewhere"
                told = replace(self.remarks.pop(key), kind="Missed", name="NotFused", message=why, reason="less-fused")
                self.remarks[key[0], why] = told

    def tell_stores(self, pair: FusedPair, dead: list[str]) -> None:
        """Remark that a fused kernel does not store what nobody reads."""
        message = f"{pair.kernel.name} does not store to {', '.join(dead)}, which nobody reads afterwards"
        both = "+".join(part.kernel.name for part in pair.parts)
        self.remarks.setdefault((both, message), Remark("Passed", PASS, "DeadStores", both, message))

    def _say(self, kind: str, first: Launch, second: Launch, message: str, reason: str) -> tuple[str, str]:
        both = f"{first.kernel.name}+{second.kernel.name}"
        place = second.place or first.place
        where = (place.file, place.line, place.column) if place is not None else ("", 0, 0)
        name = "Fused" if kind == "Passed" else "NotFused"
        self.remarks.setdefault((both, message), Remark(kind, PASS, name, both, message, *where, reason=reason))
        return both, message

    def _decided(self, codes: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]) -> FusedPair:
        key = (*codes, *((s.grid, s.block, s.shared, tuple(s.arguments.items()), s.cooperative) for s in sites))
        if key not in self._known:
            try:
                self._known[key] = self._built(codes, sites)
            except Refusal as why:
                self._known[key] = why
        found = self._known[key]
        if isinstance(found, Refusal):
            raise found
        return found

    def _built(self, codes: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]) -> FusedPair:
        promised = frozenset(code.kernel.name for code in codes) in self.independent
        fusibility = self.fuser.decide(*sites, assume_independent=promised, may_check=True)
        if not _may_hold(fusibility.checks):
            fusibility = self.fuser.decide(*sites, assume_independent=promised, may_check=False)
        why = "; ".join(fusibility.reasons) or "no reason is given"
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
        judged = (*sites, made.site)
        if made.site.cooperative:
            fusibility, judged = self._resident(codes, code, judged, fusibility)
        estimate = None if self.benefit is None else self.benefit(*codes, code, judged, fusibility)
        if estimate is not None and not estimate.is_worth_it:
            if fusibility.kind == "grid":
                raise Refusal("grid-wide", f"a barrier of the grid does not pay ({estimate.text}); {why}")
            raise Refusal("no-benefit", estimate.text)
        self._names.add(name)
        return FusedPair(
            code, made.site, tuple(made.remarks), tuple(made.parameters), codes, sites, fusibility, estimate
        )

    def _resident(
        self, codes: _Two, code: KernelCode, sites: Sites3, fusibility: Fusibility
    ) -> tuple[Fusibility, Sites3]:
        """With a check that all blocks run at the same time, where that depends on the host, and that there are so few
        that it pays; and the launches with as many blocks as pass the check. Raises `Refusal`."""
        why = f"; {'; '.join(fusibility.reasons)}" if fusibility.kind == "grid" else ""
        site = sites[2]
        if self.resident is None:
            raise Refusal("not-resident", f"cooperative launches are not to be made{why}")
        if not isinstance(site.shared, int) or not all(isinstance(extent, int) for extent in site.block):
            raise Refusal("not-resident", f"how many blocks run at the same time depends on the block's shape{why}")
        most = self.resident(code, prod(cast("tuple[int, ...]", site.block)), site.shared)
        if most is None:
            raise Refusal("not-resident", f"how many blocks run at the same time is not known{why}")
        if all(isinstance(extent, int) for extent in site.grid):
            blocks = prod(cast("tuple[int, ...]", site.grid))
            if blocks > most:
                raise Refusal("not-resident", f"{blocks} blocks wait for each other, and {most} run at a time{why}")
            return fusibility, sites

        def with_blocks(count: int) -> Sites3:
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
            raise Refusal("not-resident", f"hardly ever do all blocks run at the same time ({check}){why}")
        return replace(fusibility, checks=checks), with_blocks(most)

    def _name(self, codes: tuple[KernelCode, KernelCode]) -> str:
        """Such as ``fused_scale_add``; a number follows where that is taken."""
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
    """Whether the launch needs ``max`` to say its grid or its shared memory."""
    return any("max" in Expression(str(extent)).names for extent in (*site.grid, site.shared))


def _position(part: KernelCode, name: str) -> int:
    return next(at for at, param in enumerate(part.entry.params or []) if param.name == name)


def _typed(made: FusedCode, parts: tuple[KernelCode, KernelCode]) -> list[Param] | None:
    """The parameters as the sources of both kernels declare them; None where one does not."""
    found: list[Param] = []
    for number, (origin, name) in enumerate(made.parameters):
        declared = parts[origin].kernel.params
        if name.startswith(_GRID_EXTENT):
            found.append(Param(f"p{number}", SCALARS["u32"]))
            continue
        if declared is None:
            return None
        found.append(Param(f"p{number}", declared[_position(parts[origin], name)].type))
    return found


def _joined(
    made: FusedCode, parts: tuple[KernelCode, KernelCode], sites: tuple[LaunchSite, LaunchSite]
) -> KernelMemory:
    """What both parts touch, by the fused kernel's parameters. One that is passed the same may serve both parts."""
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


#: Sizes that host quantities are tried with.
_SIZES = (64, 256, 1000, 1024, 4096)


def _may_hold(checks: tuple[str, ...]) -> bool:
    """Whether some ordinary sizes pass all checks at once; otherwise the fused kernel would hardly ever be launched."""
    if not checks:
        return True
    test = Expression(" and ".join(f"({check})" for check in checks))
    functions: dict[str, Any] = {"__builtins__": {}, "max": max, "min": min}
    names = sorted(test.names - set(functions))
    several = [dict.fromkeys(names, size) for size in _SIZES]
    several += [dict(zip(names, sizes, strict=True)) for sizes in islice(product(_SIZES, repeat=len(names)), 625)]
    for given in several:
        try:
            if eval(test.code, functions, given):
                return True
        except (ArithmeticError, TypeError, NameError, AttributeError):
            return False
    return False
