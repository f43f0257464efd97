"""The messages between `ptxmotion_inject.c` and `ptxmotion run`, which go through a socket.

A request is a head and the code; the reply is a head and other code. The reply without code means that the program's
own code is to be used. The structures `request_head` and `reply_head` of the C library have the same layout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["FATBIN", "PTX", "BadRequest", "Request", "packed_reply", "read_request"]

#: The kinds of code.
PTX, FATBIN = 1, 2

_MAGIC = b"PTXMRUN1"
_MOST_DEVICES = 8
_REQUEST = struct.Struct(f"<8s32s4II{_MOST_DEVICES}I4xQ")
_REPLY = struct.Struct("<8sQ")


class BadRequest(ValueError):
    """The bytes are no request."""


@dataclass(frozen=True)
class Request:
    """Code that a program loads.

    ``way`` is the function by which it is loaded. ``targets`` are those of the devices, as in 90, that of the current
    device first. ``driver_version`` is as in 13000. ``max_registers`` (0: no limit) and ``level`` (0 to 4) are options
    of the driver's compiler.
    """

    kind: int
    way: str
    code: bytes
    targets: tuple[int, ...]
    driver_version: int
    max_registers: int = 0
    level: int = 4


def read_request(stream: BinaryIO) -> Request:
    """Raises `BadRequest`, `OSError`."""
    head = stream.read(_REQUEST.size)
    if len(head) < _REQUEST.size or head[:8] != _MAGIC:
        raise BadRequest("it is no request")
    _, way, kind, registers, level, driver, count, *targets, size = _REQUEST.unpack(head)
    code = stream.read(size)
    if len(code) != size or count > _MOST_DEVICES:
        raise BadRequest("the request is cut short")
    name = way.rstrip(b"\0").decode("ascii", "replace")
    return Request(kind, name, code, tuple(targets[:count]), driver, registers, level)


def packed_reply(code: bytes) -> bytes:
    """A reply with ``code``; with none if it is empty."""
    return _REPLY.pack(_MAGIC, len(code)) + code
