"""Records calls as a CUDA graph whose edges are given, and not those of the order of the calls.

Before each call the driver is told which nodes the next node waits for.

Requires: each call puts one node on the stream of the backend, or nothing. Refuses: `DeviceFailed` for every error of
the driver. Reference: CUDA Driver API 13.0, cuStreamUpdateCaptureDependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cuda import CudaBackend

__all__ = ["graph_with_edges"]


def graph_with_edges(
    backend: CudaBackend, calls: Sequence[Callable[[], object]], sources: Sequence[Sequence[int]]
) -> Any:
    """The graph of some calls. ``sources`` has for each of them the calls that it waits for, which come before it."""
    driver = backend.driver
    stream = driver.CUstream(int(backend.stream.handle))
    flag = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES

    def wait_for(nodes: Sequence[int]) -> None:
        made = [driver.CUgraphNode(node) for node in nodes]
        backend.call("cuStreamUpdateCaptureDependencies", stream, made, None, len(made), int(flag))

    def last() -> tuple[int, ...]:
        """The nodes that the next node waits for."""
        _, _, _, nodes, *_ = backend.call("cuStreamGetCaptureInfo", stream)
        return tuple(int(node) for node in nodes)

    def body() -> None:
        #: By call: its node, or what it waits for if it has made none.
        nodes: list[tuple[int, ...]] = []
        for call, before in zip(calls, sources, strict=True):
            wait_for(tuple(dict.fromkeys(node for other in before for node in nodes[other])))
            call()
            nodes.append(last())
        wait_for(tuple(dict.fromkeys(node for each in nodes for node in each)))

    return backend.graph(body)
