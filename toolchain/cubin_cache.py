"""What ptxas made of a module, kept on disk: arms come back in other runs, and other processes load them.

Requires: ptxas. Guarantees: equal text and target give the bytes and the log that this very ptxas gave (`cache`).
Refuses: what ptxas refuses raises `PtxasError` each time.
"""

from __future__ import annotations

from pathlib import Path

from ..cache import Cache, cache_folder
from .tools import Assembled, assemble, find_tool, target_of

__all__ = ["assemble_kept"]


def assemble_kept(ptx: str, arch: str, folder: Path | None = None) -> Assembled:
    """`toolchain.assemble` with ptxas's own figures in the log, from the cache where it is there.

    ``folder`` is that of the cache, by default the user's. ``seconds`` of what was kept are 0.
    """
    tool = find_tool("ptxas")
    cache = Cache("cubin", folder or cache_folder())
    key = tool.identity, arch, ptx
    body = cache.get(*key)
    if body is not None:
        log, cubin = _parts(body)
        own = target_of(ptx)
        return Assembled(cubin, log, 0.0, arch, own if own != arch else "")
    made = assemble(ptx, arch, verbose=True, tool=tool)
    log = made.log.encode("utf-8", "surrogateescape")
    cache.put(b"%d\n%s%s" % (len(log), log, made.cubin), *key)
    return made


def _parts(body: bytes) -> tuple[str, bytes]:
    """Log and cubin of an entry."""
    length, _, rest = body.partition(b"\n")
    end = int(length)
    return rest[:end].decode("utf-8", "surrogateescape"), rest[end:]
