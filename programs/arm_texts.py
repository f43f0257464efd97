"""The PTX of the arms of a run, kept in the cache on disk, so that a report can show the code of a result file.

A result file has only the hash of an arm's modules. The key of an entry is this hash, so a report shows exactly the
code that was measured, or none.

Guarantees: a recalled text has the requested hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..cache import Cache, cache_folder
from ..harness.results import hashes

__all__ = ["recall_arm", "remember_arm"]


def remember_arm(modules: Mapping[str, str]) -> None:
    """Keep the PTX of the modules of an arm."""
    Cache("arm", cache_folder()).put(json.dumps(dict(modules)).encode(), _hash(modules))


def recall_arm(ptx_sha256: str) -> dict[str, str] | None:
    """The PTX of the modules with this hash; None if the cache does not have them."""
    body = Cache("arm", cache_folder()).get(ptx_sha256)
    if body is None:
        return None
    found: Any = json.loads(body)
    modules = {str(name): str(text) for name, text in found.items()}
    return modules if _hash(modules) == ptx_sha256 else None


def _hash(modules: Mapping[str, str]) -> str:
    return hashes({name: text.encode("utf-8", "surrogateescape") for name, text in modules.items()})
