"""`ptxmotion extract`: the PTX and the cubins in executables, libraries, objects, archives and fatbins."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .outcome import BAD_INPUT, FINE, CommandError, say, usage_error, warn

if TYPE_CHECKING:
    from ..toolchain.fatbin import DeviceImage

EPILOG = """\
Without -o, it lists the images. Names of kernels are those of the source; registers are those of cubins.

examples:
  ptxmotion extract program
  ptxmotion extract libkernels.so --images
  ptxmotion extract program -o images/ --kind ptx --optimize
"""

_KINDS = ("ptx", "cubin", "lto")
_SUFFIXES = {"ptx": ".ptx", "cubin": ".cubin", "lto": ".ltoir"}

#: The name of a version of a kernel (`versions/entries.py`).
_VERSION = re.compile(r"(?P<kernel>.+)__ptxmotion_(?P<number>\d+)(?:_[0-9a-f]+)*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `extract`."""
    from .argument_types import regex

    kinds = "executables, shared objects, objects, archives, fatbins, cubins"
    parser.add_argument("files", nargs="+", metavar="FILE", help=kinds)
    parser.add_argument("-o", dest="output", metavar="DIR", help="write each image to a file in this folder")
    parser.add_argument("--kind", choices=_KINDS, help="only images of this kind")
    parser.add_argument("--arch", metavar="SM", help="only images for this target, as in sm_90")
    parser.add_argument("--kernel", type=regex, metavar="REGEX", help="only images with a kernel whose name matches")
    parser.add_argument(
        "--images", action="store_true", default=None, help="list only the images, which decompresses none of them"
    )
    parser.add_argument(
        "--optimize",
        action="store_true",
        default=None,
        help="write NAME.opt.ptx for each PTX image that changes; with the options of ptxas that the image contains",
    )
    parser.add_argument("--json", action="store_true", default=None, help="print the list as JSON")


@dataclass
class Listed:
    """One image of a file: its number there, and its kernels, name → registers (`None` where they are not known)."""

    file: str
    number: int
    image: DeviceImage
    kernels: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of a file for the content."""
        stem = os.path.basename(self.file).split(".")[0] or "image"
        target = f".{self.image.target}" if self.image.target else ""
        return f"{stem}.{self.number}{target}{_SUFFIXES.get(self.image.kind, '.bin')}"


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    if arguments.optimize and not arguments.output:
        usage_error("--optimize writes files: name a folder with -o")
    if arguments.images and arguments.kernel:
        usage_error("--images reads no names of kernels, so --kernel cannot select among them")
    found = [each for path in arguments.files for each in _images_of(path, arguments)]
    _refuse_equal_names(found, arguments.output)
    code = FINE
    if arguments.output:
        os.makedirs(arguments.output, exist_ok=True)
        code = max((_write(each, arguments) for each in found), default=FINE)
    if arguments.json:
        print(json.dumps({"schema_version": 1, "images": [_to_json(each) for each in found]}, indent=2))
    else:
        _print(found, with_kernels=not arguments.images)
    return max([code, *(BAD_INPUT for each in found if each.problem)])


def _images_of(path: str, arguments: argparse.Namespace) -> list[Listed]:
    """The images of a file that the arguments select. Raises `CommandError`."""
    from ..toolchain.fatbin import FatbinError, device_images, opened

    try:
        images = device_images(opened(path))
    except FatbinError as error:
        raise CommandError(BAD_INPUT, f"{path}: error: {error}") from None
    if not images:
        warn(f"{path}: there is no device code")
    listed: list[Listed] = []
    for number, image in enumerate(images, 1):
        if image.kind != (arguments.kind or image.kind) or image.target != (arguments.arch or image.target):
            continue
        each = Listed(path, number, image)
        if not arguments.images:
            _read_kernels(each)
        if arguments.kernel is None or any(map(arguments.kernel.search, map(_source_name, each.kernels))):
            listed.append(each)
    return listed


def _read_kernels(each: Listed) -> None:
    """Find the kernels of an image. What is wrong with it becomes its ``problem``."""
    from ..toolchain.cubin import CubinError, kernel_registers
    from ..toolchain.fatbin import FatbinError

    try:
        if each.image.kind == "cubin":
            each.kernels = dict(kernel_registers(each.image.content()))
        elif each.image.kind == "ptx":
            each.kernels = dict.fromkeys(_entries(each.image.content().decode("utf-8", "surrogateescape")))
    except (FatbinError, CubinError) as error:
        each.problem = str(error)


def _entries(ptx: str) -> list[str]:
    return re.findall(r"^[^/\n]*\.entry\s+([\w$%.]+)", ptx, re.MULTILINE)


def _source_name(name: str) -> str:
    """The name of a kernel in the source, and the number of the version that a contract has added.

    >>> _source_name("_Z4axpyPfi__ptxmotion_2_080c8d41a792a95e")
    'axpy(float*, int) (version 2)'
    """
    from ..toolchain.demangle import demangled

    match = _VERSION.fullmatch(name)
    return demangled(name) if match is None else f"{demangled(match['kernel'])} (version {match['number']})"


def _refuse_equal_names(found: list[Listed], output: str | None) -> None:
    names: dict[str, str] = {}
    for each in found if output else []:
        if names.setdefault(each.name, each.file) != each.file:
            usage_error(f"'{names[each.name]}' and '{each.file}' both give a file '{each.name}'")


def _write(each: Listed, arguments: argparse.Namespace) -> int:
    """Write the content of an image, and the optimized PTX; the exit code."""
    from ..toolchain.fatbin import FatbinError
    from .files import Outputs

    try:
        content = each.image.content()
    except FatbinError as error:
        warn(f"{each.file}: {each.name} is not written: {error}")
        return FINE if each.image.kind == "lto" else BAD_INPUT
    outputs = Outputs()
    outputs.add(os.path.join(arguments.output, each.name), content)
    code = FINE
    if arguments.optimize and each.image.kind == "ptx":
        from .outcome import guarded

        code = guarded(["extract", each.file], lambda _: _optimize(each, content, arguments.output, outputs))
    outputs.commit()
    return code


def _optimize(each: Listed, content: bytes, folder: str, outputs: Any) -> int:
    """Add the optimized PTX to the outputs, and print how many kernels changed."""
    from ..driver import Policy, optimize
    from .files import parse_bytes

    target = each.image.target
    policy = Policy(arch=target or None, ptxas_options=tuple(each.image.options.split()))
    result = optimize(parse_bytes(content, each.name), "O3", policy)
    for warning in result.warnings:
        warn(f"{each.name}: {warning}")
    of_all = f"of {len(result.module.kernels)} kernels changed"
    if result.changed:
        name = each.name.removesuffix(".ptx") + ".opt.ptx"
        outputs.add(os.path.join(folder, name), result.text)
        say(f"{each.name}: {len(result.changed)} {of_all}: {name}")
    else:
        say(f"{each.name}: 0 {of_all}, so there is no optimized file")
    return FINE


def _to_json(each: Listed) -> dict[str, Any]:
    image = each.image
    return {
        "file": each.file,
        "member": image.member,
        "name": each.name,
        "kind": image.kind,
        "target": image.target,
        "source": image.source,
        "ptxas_options": image.options,
        "linked": image.is_linked,
        "compression": image.compression,
        "bytes": image.size,
        "stored_bytes": image.end - image.start,
        "kernels": [
            {"name": name, "demangled": _source_name(name), "registers": registers}
            for name, registers in each.kernels.items()
        ],
        "problem": each.problem,
    }


def _print(found: list[Listed], *, with_kernels: bool) -> None:
    from .tables import print_table

    rows: list[tuple[str | int | None, ...]] = []
    for each in found:
        image = each.image
        origin = "".join((f"{image.member}: " if image.member else "", image.source))
        linked = "" if image.is_linked else "not linked"
        rows.append((each.name, image.target, image.size, image.compression, linked, None, each.problem or origin))
        if with_kernels:
            rows += [("", "", None, "", "", count, f"  {_source_name(name)}") for name, count in each.kernels.items()]
    # The names are in the last column: those of templates may have thousands of characters, and are not padded there.
    print_table(("image", "target", "bytes", "compression", "state", "registers", "source and kernels"), rows)
    kinds = Counter(each.image.kind for each in found)
    sys.stdout.write(f"{', '.join(f'{number} {kind}' for kind, number in kinds.items()) or 'no images'}\n")
