"""The judges that the gate can use: ptxas, or the static model where there is no ptxas.

`toolchain.ptxas_judge` takes PTX text and returns the figures of its machine code. `transforms.gate` takes kernels and
starts no programs. This module connects them.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cost import Figures
    from .ptx import Kernel, Module
    from .toolchain.ptxas_judge import PtxasJudge
    from .transforms.gate.judge import Judge

__all__ = ["Assembled", "judge_of"]

#: The most characters of PTX that `Assembled.prepare` gives to one run of ptxas. A start takes as long as about 3,000,
#: and larger kernels may take too long together.
_MOST_TOGETHER = 100_000


class Assembled:
    """A judge that prints a module and passes it to `PtxasJudge`.

    ``most_warps``: a multiprocessor has at most so many warps at a time in the launches that are judged, even if more
    would fit.

    `float_code` assembles entries one by one. ptxas makes the same code of an entry without calls, whichever other
    entries the module has. So `figures` reads the figures of these entries from the same cubins, and assembles only the
    others. A module that declares a function of another module is an exception: if an entry calls one of them, all of
    the module is assembled as relocatable code, which may need other registers.

    For the same reason an entry is not assembled again if its text was judged before, with other entries and the same
    variables. This holds for modules that have only entries without calls. `prepare` assembles such entries of several
    modules in one run of ptxas, under new names.
    """

    name = "ptxas"

    def __init__(
        self,
        judge: PtxasJudge,
        most_warps: float = math.inf,
        judged: dict[bytes, Figures] | None = None,
    ) -> None:
        self._judge = judge
        self._most_warps = most_warps
        self.times = judge.times
        #: By `_keys_of` the figures of an entry.
        self._judged = {} if judged is None else judged
        #: The names of entries without calls that `float_code` has assembled alone.
        self._alone: set[str] = set()

    def for_small_launches(self, most_warps: float) -> Assembled:
        """See `JudgesSmallLaunches`."""
        return Assembled(self._judge, most_warps, self._judged)

    def figures(self, module: Module) -> dict[str, Figures]:
        """The figures of each entry by name. Raises `Refused` where ptxas fails."""
        from .ptx import print_module
        from .toolchain.tools import ToolchainError
        from .transforms.gate.judge import Refused
        from .transforms.gate.search import without_entries

        try:
            figures = self._figures_alone(module)
            keys = _keys_of(module)
            figures = {name: self._judged[key] for name, key in keys.items() if key in self._judged} | figures
            rest = without_entries(module, figures.keys())
            if not figures or any(not kernel.is_declaration for kernel in rest.kernels):
                assembled = self._judge.figures(print_module(rest))
                self._judged |= {keys[name]: each for name, each in assembled.items() if name in keys}
                figures |= assembled
        except ToolchainError as error:
            raise Refused(" ".join(str(error).split())[:200]) from error
        if missing := [kernel.name for kernel in module.entries if kernel.name not in figures]:
            raise Refused(f"ptxas made no code of {', '.join(missing)}")
        if self._most_warps == math.inf:
            return figures
        # For small launches, loads are hoisted. This makes the shortest ways through loops longer. Latencies count.
        few, unknown = self._most_warps, {"quickest": None, "weight_in_loops": None}
        return {name: replace(each, warps=min(each.warps, few), **unknown) for name, each in figures.items()}

    def prepare(self, *modules: Module) -> None:
        """See `JudgesTogether`. What ptxas refuses is left to `figures`, which says why."""
        from .ptx import print_module
        from .toolchain.tools import ToolchainError

        frame = _without_kernels(modules[0])
        taken = {name for module in modules for item in module.items for name in _names_of(item)}
        keys: dict[str, bytes] = {}
        together: dict[bytes, Kernel] = {}
        for module in modules:
            if print_module(_without_kernels(module)) != print_module(frame):
                continue
            for name, key in _keys_of(module).items():
                if key not in self._judged and key not in together and name not in self._alone:
                    numbers = range(len(taken) + 1)
                    copy = replace(module.kernel(name))
                    copy.name = next(new for each in numbers if (new := f"{name}_{each}") not in taken)
                    taken.add(copy.name)
                    keys[copy.name], together[key] = key, copy
        if len(together) < 2:
            return
        text = print_module(replace(frame, items=[*frame.items, *together.values()]))
        if len(text) <= _MOST_TOGETHER:
            with suppress(ToolchainError):
                self._judged |= {keys[name]: each for name, each in self._judge.figures(text).items()}

    def _figures_alone(self, module: Module) -> dict[str, Figures]:
        """The figures of the entries of ``module`` that have been assembled alone, and are the same as then. Raises
        `ToolchainError`."""
        from .ptx import Kernel, print_module
        from .transforms.gate.search import module_of

        figures: dict[str, Figures] = {}
        defined = {kernel.name for kernel in module.kernels}
        if any(isinstance(item, Kernel) and item.name not in defined for item in module.items):
            return figures
        for kernel in module.entries:
            if kernel.name in self._alone:
                known = self._judge.known_figures(print_module(module_of(module, [kernel])))
                if known is not None and kernel.name in known:
                    figures[kernel.name] = known[kernel.name]
        return figures

    def float_code(self, module: Module) -> dict[str, list[frozenset[str]]]:
        """See `ReadsFloatCode`. Raises `Refused` where ptxas fails."""
        from .ptx.printer import print_with_lines
        from .toolchain.tools import ToolchainError
        from .transforms.gate.judge import Refused

        text, lines = print_with_lines(module)
        try:
            kinds = self._judge.float_lines(text)
        except ToolchainError as error:
            raise Refused(" ".join(str(error).split())[:200]) from error
        entries = module.entries
        if len(entries) == 1 and not any(instr.form.is_call for instr in entries[0].instructions()):
            self._alone.add(entries[0].name)
        return {
            kernel.name: [kinds[kernel.name].get(line, frozenset()) for line in lines[kernel.name]]
            for kernel in entries
        }

    def recall(self, key: str) -> Any:
        """The value that an earlier run recorded under ``key``; `None` where there is none."""
        from .toolchain.tools import ToolchainError

        try:
            return self._judge.recall(self._key(key))
        except (ToolchainError, OSError):  # the version of ptxas cannot be read; the next call of `figures` reports it
            return None

    def remember(self, key: str, value: Any) -> None:
        """Record ``value`` under ``key`` for later runs."""
        from .toolchain.tools import ToolchainError

        with suppress(ToolchainError, OSError):
            self._judge.remember(self._key(key), value)

    def _key(self, key: str) -> str:
        """A key of a record with what the figures depend on besides ptxas."""
        return key if math.isinf(self._most_warps) else f"at most {self._most_warps:g} warps\0{key}"


def _names_of(item: object) -> list[str]:
    """The name of a variable, or those of a kernel and of its parameters. ptxas 13.0 ends with an error if an entry and
    a parameter of another one have the same name."""
    from .ptx import Kernel, Variable

    if isinstance(item, Kernel):
        return [item.name, *(param.name for param in item.params or ())]
    return [item.name] if isinstance(item, Variable) else []


def _keys_of(module: Module) -> dict[str, bytes]:
    """By entry of ``module`` a hash of its text and that of the module without entries. Empty if the machine code of an
    entry may depend on other entries or on functions."""
    from hashlib import sha256

    from .ptx import Kernel, print_kernel, print_module

    kernels = [item for item in module.items if isinstance(item, Kernel)]
    if not all(each.is_entry and not each.is_declaration for each in kernels):
        return {}
    if any(instr.form.is_call or instr.form.is_opaque for each in kernels for instr in each.instructions()):
        return {}
    before = sha256(print_module(_without_kernels(module)).encode("utf-8", "surrogateescape") + b"\0")
    keys: dict[str, bytes] = {}
    for each in kernels:
        key = before.copy()
        key.update(print_kernel(each).encode("utf-8", "surrogateescape"))
        keys[each.name] = key.digest()
    return keys


def _without_kernels(module: Module) -> Module:
    from .ptx import Kernel

    return replace(module, items=[item for item in module.items if not isinstance(item, Kernel)])


def judge_of(
    choice: str,
    arch: str | None = None,
    seconds: float | None = None,
    *,
    options: Sequence[str] = (),
    version: str = "",
) -> tuple[Judge | None, list[str]]:
    """The judge that ``choice`` names, and warnings for the user.

    ``choice`` is ``ptxas``, ``static``, ``off`` (no judge), or ``auto``: ptxas where it is found, else the static
    model with a warning. ``arch`` overrides the module's target; ``seconds`` is the limit of one run of ptxas, and
    ``options`` are given to it. ``version`` is the module's version of PTX, which ptxas must be able to read.
    Raises `ToolMissing` for ``ptxas`` where it is not found, `ValueError` for another choice.
    """
    if choice == "off":
        return None, []
    from .toolchain.ptxas_judge import SECONDS, PtxasJudge
    from .toolchain.tools import ToolMissing, find_ptxas
    from .transforms.gate.static_judge import StaticJudge

    if choice == "static":
        return StaticJudge(), []
    if choice not in ("auto", "ptxas"):
        raise ValueError(f"there is no gate '{choice}'; there are auto, ptxas, static and off")
    try:
        ptxas = find_ptxas(f".version {version}")
        judge = PtxasJudge(arch, seconds=SECONDS if seconds is None else seconds, options=options, tool=ptxas)
        return Assembled(judge), []
    except ToolMissing as error:
        if choice == "ptxas":
            raise
        model = "the gate goes by accesses to memory and long operations"
        warning = f"ptxas is not found ({error.reason}), so {model}; remedy: {error.install}"
        return StaticJudge(), [warning]
