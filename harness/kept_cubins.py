"""What ptxas made of a module, kept on disk: arms come back in other runs, and other processes load them.

Requires: ptxas. Guarantees: equal text, target and version of ptxas give the bytes and the log that ptxas gave; a
damaged entry is made anew; entries are written whole, so that processes may share them; a folder that cannot be
written costs time only.
Refuses: what ptxas refuses raises `PtxasError` each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from .gate import cache_folder
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
    try:
        digest, _, rest = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        return None
    length, _, rest = rest.partition(b"\n")
    end = int(length)
    return rest[:end].decode("utf-8", "surrogateescape"), rest[end:]


def _write(path: Path, made: Assembled) -> None:
    log = made.log.encode("utf-8", "surrogateescape")
    body = b"%d\n%s%s" % (len(log), log, made.cubin)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time only
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
