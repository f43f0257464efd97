"""What ptxas made of a module, kept on disk: arms come back in other runs, and other processes load them.

Requires: ptxas. Guarantees: equal text, target and version of ptxas give the bytes and the log that ptxas gave; a
damaged entry is made anew; entries are written whole, so that processes may share them; a folder that cannot be
written costs time only.
Refuses: what ptxas refuses raises `PtxasError` each time.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .kept_entries import cache_folder, read_entry, write_entry
from .toolchain import Assembled, assemble, find_tool, target_of

__all__ = ["assemble_kept"]


def assemble_kept(ptx: str, arch: str, folder: Path | None = None) -> Assembled:
    """`toolchain.assemble` with ptxas's own figures in the log, from the cache where it is there.

    ``folder`` is where it is kept, by default in the cache of this package. ``seconds`` of what was kept are 0.
    """
    tool = find_tool("ptxas")
    identity = f"{tool.version}\0{arch}\0{ptx}".encode("utf-8", "surrogateescape")
    path = (folder or cache_folder() / "cubin") / hashlib.sha256(identity).hexdigest()
    known = _read(path)
    if known is not None:
        own = target_of(ptx)
        return Assembled(known[1], known[0], 0.0, arch, own if own != arch else "")
    made = assemble(ptx, arch, verbose=True, tool=tool)
    _write(path, made)
    return made


def _read(path: Path) -> tuple[str, bytes] | None:
    """Log and cubin; None where they are not there, or damaged."""
    body = read_entry(path)
    if body is None:
        return None
    length, _, rest = body.partition(b"\n")
    end = int(length)
    return rest[:end].decode("utf-8", "surrogateescape"), rest[end:]


def _write(path: Path, made: Assembled) -> None:
    log = made.log.encode("utf-8", "surrogateescape")
    write_entry(path, b"%d\n%s%s" % (len(log), log, made.cubin))
