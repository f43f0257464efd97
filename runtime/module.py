"""Modules with a contract: loading, and launches of kernels by name.

Guarantees: a launch computes what the kernel itself would compute. If the contract cannot be used (it is damaged, or of
another module, or does not fit the module), `load` warns, and launches are those of the kernels themselves.
Refuses: with ``strict``, such a contract by `ContractError`. `PtxError` for PTX that is not valid.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..contract import Contract, ContractError, Extent, KernelContract, Parameter, Version
from ..contract import load as load_contract
from ..contract.wording import condition_words
from ..ptx import Module as PtxModule
from ..ptx import parse
from ..ptx.verify import verify
from ..spelling import did_you_mean
from .arguments import Packed, Packer, split
from .choice import Choice, Flag, Request, Triple
from .matching import mismatches, parameters_of

if TYPE_CHECKING:
    from .cuda_device import CudaDevice, CudaModule
    from .emulated_device import EmulatedDevice, EmulatedModule
    from .statistics import Statistics

__all__ = ["ContractWarning", "Decision", "Kernel", "LaunchOptions", "Module", "load"]

_COOPERATIVE, _CLUSTER = 2, 4


class ContractWarning(UserWarning):
    """A contract is not used, and why."""


def load(
    source: str | bytes | os.PathLike[str],
    contract: Contract | str | os.PathLike[str] | None = None,
    *,
    device: CudaDevice | EmulatedDevice | None = None,
    strict: bool = False,
    is_same_module: bool = False,
    allow_capture: bool = False,
    mapped_once: bool = False,
) -> Module:
    """Load PTX or a cubin, with its contract.

    ``source``: PTX as text, a cubin as bytes, or the path of a file with either. ``contract``: a `Contract`, or the
    path of one. ``device``: by default the GPU of the current context; `EmulatedDevice()` needs no GPU.

    ``strict``: raise `ContractError` for a contract that cannot be used, instead of a warning. ``is_same_module``: a
    cubin was assembled from the PTX of the contract; without this promise a cubin is launched without its contract.
    ``allow_capture``: versions may be put into graphs, see `PTXMOTION_CAPTURE` in docs/contracts.md.
    ``mapped_once``: no memory of the program is mapped at two addresses. If the contract is tuned for the device, what
    was measured there decides which versions are preferred.
    """
    flags = (Flag.CAPTURE if allow_capture else Flag(0)) | (Flag.MAPPED_ONCE if mapped_once else Flag(0))
    text, cubin = _read(source)
    if device is None:
        from .cuda_device import CudaDevice

        device = CudaDevice()
    found: Contract | None = None
    module = None if text is None else _parsed(text)
    if contract is not None:
        try:
            found = contract if isinstance(contract, Contract) else load_contract(os.fspath(contract))
            _check_fit(found, text, module, is_same_module)
        except ContractError as error:
            if strict:
                raise
            found = None
            place = f"{error.place}: " if error.place else ""
            warnings.warn(f"{place}{error}; the kernels themselves are launched", ContractWarning, stacklevel=2)
    return Module(_load_on(device, text, module, cubin, found), found, flags)


def _read(source: str | bytes | os.PathLike[str]) -> tuple[str | None, bytes]:
    """PTX text, or None and a cubin."""
    if isinstance(source, str) and ("\n" in source or ".version" in source):
        return source, b""
    if isinstance(source, bytes):
        data = source
    else:
        with open(source, "rb") as file:
            data = file.read()
    if data.startswith(b"\x7fELF"):
        return None, data
    return data.decode("utf-8", "surrogateescape"), b""


def _parsed(text: str) -> PtxModule:
    module = parse(text)
    verify(module)
    return module


def _check_fit(contract: Contract, text: str | None, module: PtxModule | None, is_same_module: bool) -> None:
    """Raise `ContractError` if the contract is not that of the module."""
    contract.check()
    if text is None or module is None:
        if not is_same_module:
            raise ContractError("whether a cubin is the module of the contract is not known (is_same_module=True)")
        return
    if not contract.matches(text):
        raise ContractError("the contract is of another module: the SHA-256 of the PTX differs")
    fault = next(mismatches(contract, module), None)
    if fault is not None:
        raise ContractError(fault)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A module on a device, and the contract of each kernel; that of a kernel without one has only the kernel."""

    module: CudaModule | EmulatedModule
    kernels: Mapping[str, KernelContract]


def _load_on(
    device: CudaDevice | EmulatedDevice,
    text: str | None,
    module: PtxModule | None,
    cubin: bytes,
    contract: Contract | None,
) -> _Loaded:
    from .emulated_device import EmulatedDevice

    kernels = dict(contract.tuned_for(device.machine).kernels) if contract is not None else {}
    versions = {version.entry for kernel in kernels.values() for version in kernel.versions}
    if isinstance(device, EmulatedDevice):
        if module is None:
            raise TypeError("the emulator runs PTX, not a cubin")
        kernels |= _plain(module, versions)
        return _Loaded(device.load(module, list(kernels.values())), kernels)
    if text is not None and module is not None:
        from ..harness.arm_code import arch_on
        from ..toolchain.cubin_cache import assemble_kept

        cubin = assemble_kept(text, arch_on(text, device.sm)).cubin
        kernels |= _plain(module, versions)
    loaded = device.load(cubin)
    for entry in loaded.entries:
        if entry not in kernels and entry not in versions:
            parameters = tuple(_unnamed(index, *where) for index, where in enumerate(loaded.sizes(entry)))
            kernels[entry] = KernelContract(entry, parameters, (Version(entry),))
    kernels = {name: kernel for name, kernel in kernels.items() if name in loaded.entries}
    loaded.bind(list(kernels.values()))
    return _Loaded(loaded, kernels)


def _plain(module: PtxModule, others: set[str]) -> dict[str, KernelContract]:
    """Contracts without versions, for the entries that are not in ``others``."""
    found: dict[str, KernelContract] = {}
    for entry in module.entries:
        parameters = parameters_of(entry)
        if entry.name not in others and parameters is not None:
            found[entry.name] = KernelContract(entry.name, parameters, (Version(entry.name),))
    return found


def _unnamed(index: int, offset: int, size: int) -> Parameter:
    """A parameter of a cubin, of which only place and size are known."""
    return Parameter(f"param_{index}", offset, size, f"b{8 * size}" if size in (1, 2, 4, 8) else "b8")


class Module:
    """A loaded module: ``module["axpy"]`` is a kernel. ``contract`` is None if there is none that can be used."""

    def __init__(self, loaded: _Loaded, contract: Contract | None, flags: Flag) -> None:
        self.contract = contract
        self._kernels = {name: Kernel(loaded.module, kernel, flags) for name, kernel in loaded.kernels.items()}

    def __getitem__(self, name: str) -> Kernel:
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def report(self) -> str:
        """How the launches of all kernels went, as text."""
        return "\n".join(str(kernel.statistics) for kernel in self._kernels.values())


class LaunchOptions(TypedDict, total=False):
    """The options of a launch.

    ``shared``: bytes of dynamic shared memory. ``stream``: a stream of cuda.core, PyTorch, CuPy or Numba, or its
    handle; by default the default stream. ``extents`` maps the number of a pointer argument to [begin, end): the caller
    promises that the kernel accesses nothing outside of it through this pointer. ``cooperative``, ``cluster``: as for
    CUDA. ``flags``: further `Flag`s.
    """

    shared: int
    stream: Any
    extents: Mapping[int, tuple[int, int]]
    cooperative: bool
    cluster: int | Sequence[int]
    flags: Flag


_OPTIONS = frozenset(LaunchOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Decision:
    """Which entry a launch would take, and why those before it are not taken: the entry and a reason in words."""

    entry: str
    refused: tuple[tuple[str, str], ...]


class Kernel:
    """A kernel of a module. It is launched by its own name and with its own arguments, whatever version is taken."""

    def __init__(self, module: CudaModule | EmulatedModule, contract: KernelContract, flags: Flag) -> None:
        self._module, self._flags = module, flags
        self._packer = Packer(contract.name, contract.parameters)
        self.contract = contract

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self.contract.name

    def launch(
        self, grid: int | Sequence[int], block: int | Sequence[int], *arguments: Any, **options: Unpack[LaunchOptions]
    ) -> None:
        """Launch the kernel, in the first version whose conditions hold and that is expected to be faster.

        An argument is an array, an integer, a float, a NumPy scalar, bytes or a ctypes structure. Raises `TypeError`,
        `OverflowError`, `IndexError` for an extent of a parameter that does not exist, and what the device raises.
        """
        device = self._module.begin()
        try:
            packed = self._packer(arguments, device.pointer)
            if options:
                device.launch(self.contract, self._request(packed, grid, block, options))
            else:
                device.launch_packed(self.contract, packed, _three(grid), _three(block), self._flags)
        finally:
            device.end()

    def decide(
        self, grid: int | Sequence[int], block: int | Sequence[int], *arguments: Any, **options: Unpack[LaunchOptions]
    ) -> Decision:
        """The version that `launch` would take. Launches and counts nothing."""
        device = self._module.begin()
        try:
            request = self._request(self._packer(arguments, device.pointer), grid, block, options)
            return self._decision(device.choose(self.contract, request))
        finally:
            device.end()

    def _decision(self, choice: Choice) -> Decision:
        refused: list[tuple[str, str]] = []
        versions = self.contract.versions
        for version, reason, failed in zip(versions, choice.reasons[:-1], choice.failed[:-1], strict=False):
            words = reason.words
            if failed is not None:
                words += f": {condition_words(version.requires[failed], self.contract.parameters)}"
            refused.append((version.entry, words))
        return Decision(versions[choice.version].entry, tuple(refused))

    def _request(
        self, packed: Packed, grid: int | Sequence[int], block: int | Sequence[int], options: LaunchOptions
    ) -> Request:
        if unknown := sorted(options.keys() - _OPTIONS):
            raise TypeError(f"{self.name}: a launch has no option {unknown[0]!r}{did_you_mean(unknown[0], _OPTIONS)}")
        for index, (begin, end) in options.get("extents", {}).items():
            if not 0 <= index < len(self.contract.parameters):
                raise IndexError(f"{self.name} has no parameter {index}, for which an extent is given")
            packed.extents[index] = Extent(begin, end)
        attributes: list[tuple[int, bytes]] = []
        if options.get("cooperative"):
            attributes.append((_COOPERATIVE, (1).to_bytes(4, "little")))
        if "cluster" in options:
            sizes = _three(options["cluster"])
            attributes.append((_CLUSTER, b"".join(each.to_bytes(4, "little") for each in sizes)))
        return Request(
            split(self.contract.parameters, packed.block),
            _three(grid),
            _three(block),
            _size(options.get("shared", 0)),
            self._module.stream_of(options.get("stream")),
            tuple(attributes),
            packed.extents,
            self._flags | options.get("flags", Flag(0)),
        )

    @property
    def statistics(self) -> Statistics:
        """How often each version was taken, and why the others were not."""
        return self._module.statistics(self.contract)

    def set_attribute(self, name: str, value: int) -> None:
        """Set an attribute of the function, such as `MAX_DYNAMIC_SHARED_SIZE_BYTES`, also for the versions."""
        self._module.set_attribute(self.contract, name, value)

    def attributes_changed(self) -> None:
        """To be called after attributes of the kernel were set through the driver, so that versions get them, too."""
        self._module.attributes_changed(self.contract)


def _size(value: int) -> int:
    """A number of bytes or of threads. Raises `TypeError` and `OverflowError`."""
    size = operator.index(value)
    if not 0 <= size < 1 << 32:
        raise OverflowError(f"{size} is no size")
    return size


def _three(size: int | Sequence[int]) -> Triple:
    if isinstance(size, int) and 0 <= size < 1 << 32:
        return size, 1, 1
    parts = tuple(map(operator.index, size if isinstance(size, Iterable) else [size]))
    if not 1 <= len(parts) <= 3:
        raise TypeError(f"a grid or a block has one to three sizes, not {len(parts)}")
    x, y, z = (*parts, 1, 1)[:3]
    if min(x, y, z) < 0 or max(x, y, z) >= 1 << 32:
        raise OverflowError(f"{parts} is no size of a grid or a block")
    return x, y, z
