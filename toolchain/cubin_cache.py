"""A cache on disk of the output of ptxas, for other runs and other processes that assemble the same text.

Requires: ptxas. Guarantees: for equal text, target and options, the cubin and the log are those that the same ptxas
gave (`cache`). Refuses: with `PtxasError`, a module that ptxas refuses. This is not cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..cache import Cache, cache_folder
from .tools import Assembled, assemble, find_tool, target_of

__all__ = ["assemble_kept"]


def assemble_kept(ptx: str, arch: str, folder: Path | None = None, flags: Sequence[str] = ()) -> Assembled:
    """`tools.assemble` with ptxas's figures in the log. The result is from the cache if possible.

    ``flags`` are further options of ptxas. ``folder`` is the folder of the cache, by default that of the user.
    ``seconds`` of a result from the cache is 0.
    """
    tool = find_tool("ptxas")
    cache = Cache("cubin", folder or cache_folder())
    key = tool.identity, arch, *flags, ptx
    body = cache.get(*key)
    if body is not None:
        log, cubin = _parts(body)
        own = target_of(ptx)
        return Assembled(cubin, log, 0.0, arch, own if own != arch else "")
    made = assemble(ptx, arch, verbose=True, tool=tool, flags=flags)
    log = made.log.encode("utf-8", "surrogateescape")
    cache.put(b"%d\n%s%s" % (len(log), log, made.cubin), *key)
    return made


def _parts(body: bytes) -> tuple[str, bytes]:
    """The log and the cubin in an entry of the cache."""
    length, _, rest = body.partition(b"\n")
    end = int(length)
    return rest[:end].decode("utf-8", "surrogateescape"), rest[end:]
