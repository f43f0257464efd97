"""A memory access by a cohort: finds the objects at its addresses, checks the access, and counts it.

Computes: the pieces of an access (one for each object that it touches) with their offsets; findings; requests, sectors
and bank conflicts; the trace. Guarantees: a lane whose address is bad takes no part in the access. If the launch
continues, its load gives zero and its store does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from .memory import MemoryObject, Selector, selector, spread
from .options import Options
from .races import Conflict, races_of, shifted

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["Access", "Piece"]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(slots=True)
class Piece:
    """The part of an access that falls into one object.

    ``lanes`` are positions in the cohort; ``None`` means all lanes.
    """

    target: MemoryObject
    lanes: Array | None
    offsets: Array

    def selectors(self, width: int, count: int) -> list[Selector]:
        """The indices of the ``count`` elements of ``width`` bytes, in elements of this width."""
        first = selector(self.offsets >> np.int64(width.bit_length() - 1))
        return [shifted(first, index) for index in range(count)]


class Access:
    """The access of an instruction: ``width`` × ``count`` bytes in ``space``.

    ``reads`` and ``writes`` state what it does; an atomic operation does both. ``strong``: it does not race with
    another strong access. ``observes``: an atomic whose result the thread gets.
    """

    def __init__(
        self,
        instr: Instr,
        space: str,
        width: int,
        count: int,
        options: Options,
        *,
        reads: bool,
        writes: bool,
        strong: bool = False,
        observes: bool = False,
    ) -> None:
        self.instr = instr
        self.space = space
        self.width = width
        self.count = count
        self.nbytes = width * count
        self.options = options
        self.reads = reads
        self.writes = writes
        self.strong = strong
        self.observes = observes
        self.verb = "updates" if reads and writes else "writes" if writes else "reads"
        self.is_private = space == "local"

    # --- addresses -------------------------------------------------------------------------------------------------

    def pieces(self, c: Cohort, address: Array, lanes: Array | None) -> list[Piece]:
        """The pieces of the access at ``address`` (int64, one for each of ``lanes``, in the instruction's space)."""
        low_bits = self.nbytes - 1
        if low_bits and int(np.bitwise_or.reduce(address)) & low_bits:
            address, lanes = self._drop(
                c, address, lanes, (address & low_bits) != 0, "misaligned", f"a multiple of {self.nbytes}"
            )
            if not address.size:
                return []
        if self.space == "shared":
            return self._in_shared(c, address, lanes)
        if self.space == "local":
            return self._in_local(c, address, lanes)
        if self.space == "generic":
            return self._in_generic(c, address, lanes)
        return self._in_global(c, address, lanes)

    def _drop(
        self, c: Cohort, address: Array, lanes: Array | None, bad: Array, kind: str, reason: str
    ) -> tuple[Array, Array | None]:
        """Report the lanes that are ``bad``; the result is the access without them."""
        all_lanes = np.arange(c.n) if lanes is None else lanes
        address, bad = spread(address, all_lanes.size), spread(bad, all_lanes.size)
        bad_lanes = all_lanes[bad]
        first_address = int(address[bad][0])
        address_text = f"{first_address & 0xFFFF_FFFF_FFFF_FFFF:#x}"
        if kind == "misaligned":
            message = f"{self.verb} {self.nbytes} bytes of {self.space} memory at {address_text}, which is not {reason}"
        else:
            message = f"{self.verb} {self.nbytes} bytes at {address_text}, {reason}"
        c.batch.report(kind, self.instr, c, bad_lanes, message, first_address)
        skipped: list[int] = np.unique(address[bad]).tolist()
        c.batch.launch.findings.skip(kind, self.space, self.verb, skipped)
        return address[~bad], all_lanes[~bad]

    def _in_global(self, c: Cohort, address: Array, lanes: Array | None) -> list[Piece]:
        """The pieces of an access to global memory. Addresses outside of every object may be sparse memory."""
        space = c.batch.launch.space
        low, high = int(address.min()), int(address.max())
        target = space.at(low)
        if target is not None and high + self.nbytes <= target.base + target.nbytes:
            return self._allowed(c, [Piece(target, lanes, address - np.int64(target.base))])
        numbers = space.numbers(address)
        pieces: list[Piece] = []
        outside: Array = np.zeros(address.size, bool)
        distinct_numbers: list[int] = np.unique(numbers).tolist()
        for number in distinct_numbers:
            is_in_object: Array = numbers == number
            if number < 0:
                outside |= is_in_object
                continue
            target = space.objects[number]
            inside = is_in_object & (address + self.nbytes <= target.base + target.nbytes)
            outside |= is_in_object & ~inside
            if bool(inside.any()):
                all_lanes = np.arange(c.n) if lanes is None else lanes
                offsets = (
                    (address - np.int64(target.base))[inside] if address.size > 1 else address - np.int64(target.base)
                )
                piece_lanes = (
                    None if lanes is None and bool(inside.all()) else all_lanes[spread(inside, all_lanes.size)]
                )
                pieces.append(Piece(target, piece_lanes, offsets))
        if bool(outside.any()):
            pieces += self._in_sparse(c, address, lanes, outside)
        return self._allowed(c, pieces)

    def _in_sparse(self, c: Cohort, address: Array, lanes: Array | None, outside: Array) -> list[Piece]:
        """The piece of an access to sparse memory. ``outside`` marks the addresses that are outside of every object."""
        space = c.batch.launch.space
        mapped = outside & space.is_sparse(address)
        unmapped = outside & ~mapped
        if bool(unmapped.any()):
            self._drop(c, address, lanes, unmapped, "out-of-bounds", self._outside(c, int(address[unmapped][0])))
        if space.sparse is None or not bool(mapped.any()):
            return []
        if bool(mapped.all()):
            mapped_addresses, mapped_lanes = address, lanes
        else:
            all_lanes = np.arange(c.n) if lanes is None else lanes
            mapped_addresses = address[mapped]
            mapped_lanes = all_lanes[spread(mapped, all_lanes.size)]
        offsets, missing = space.sparse.offsets(mapped_addresses, self.instr)
        if missing is not None:
            reason = f"beyond the {space.sparse.limit} pages that a run may touch"
            _, remaining_lanes = self._drop(c, mapped_addresses, mapped_lanes, missing, "out-of-bounds", reason)
            offsets, mapped_lanes = offsets[~missing], remaining_lanes
        return [Piece(space.sparse.target, mapped_lanes, offsets)] if offsets.size else []

    def _outside(self, c: Cohort, address: int) -> str:
        """Describes an address outside of every object by its distance from the nearest one."""
        near = c.batch.launch.space.nearest(address)
        if near is None:
            return "where nothing is allocated"
        if address >= near.base + near.nbytes:
            return f"{address - near.base - near.nbytes} bytes behind the end of {near.name} ({near.nbytes} bytes)"
        if address >= near.base:
            return f"across the end of {near.name} ({near.nbytes} bytes)"
        return f"{near.base - address} bytes before {near.name} ({near.nbytes} bytes)"

    def _allowed(self, c: Cohort, pieces: list[Piece]) -> list[Piece]:
        """The pieces without those that write read-only memory, which are reported."""
        if not self.writes:
            return pieces
        allowed: list[Piece] = []
        for piece in pieces:
            if piece.target.is_read_only:
                lanes = np.arange(c.n) if piece.lanes is None else piece.lanes
                message = f"{self.verb} {piece.target.name}, which is in {piece.target.space} memory"
                c.batch.report("read-only", self.instr, c, lanes, message)
                skipped: list[int] = np.unique(piece.offsets).tolist()
                c.batch.launch.findings.skip("read-only", piece.target.name, self.verb, skipped)
            else:
                allowed.append(piece)
        return allowed

    def _in_shared(self, c: Cohort, address: Array, lanes: Array | None) -> list[Piece]:
        batch = c.batch
        owner = batch.shared_owner
        low, end = int(address.min()), int(address.max()) + self.nbytes
        size = owner.size
        # The bytes of a variable are adjacent. If both ends are in the same variable, then every access is.
        is_good = low >= 0 and end <= size and bool(owner[low] != 0) and bool(owner[low] == owner[end - 1])
        if not is_good:
            inside = (address >= 0) & (address + self.nbytes <= size)
            first = np.where(inside, address, 0)
            last = np.minimum(first + (self.nbytes - 1), size - 1)
            bad = ~(inside & (owner[first] != 0) & (owner[first] == owner[last]))
            if bool(bad.any()):
                message = f"outside of the variables in shared memory ({batch.total_shared} bytes)"
                address, lanes = self._drop(c, address, lanes, bad, "out-of-bounds", message)
                if not address.size:
                    return []
        blocks = c.blocks if lanes is None else c.blocks[lanes]
        return [Piece(batch.shared, lanes, blocks * np.int64(batch.shared_stride) + address)]

    def _in_local(self, c: Cohort, address: Array, lanes: Array | None) -> list[Piece]:
        batch = c.batch
        top = batch.frame_top(c)
        if lanes is not None and not isinstance(top, int):
            top = top[lanes]
        bad = (address < 0) | (address + self.nbytes > top)
        if bool(bad.any()):
            message = "outside of the thread's stack frame"
            address, lanes = self._drop(c, address, lanes, bad, "out-of-bounds", message)
            if not address.size:
                return []
        bad = self._leaves_variable(c, address, lanes)
        if bad is not None:
            message = "outside of the variables of the function in local memory"
            address, lanes = self._drop(c, address, lanes, bad, "out-of-bounds", message)
            if not address.size:
                return []
        threads = c.threads if lanes is None else c.threads[lanes]
        return [Piece(batch.local, lanes, threads * np.int64(batch.local_stride) + address)]

    def _leaves_variable(self, c: Cohort, address: Array, lanes: Array | None) -> Array | None:
        """Which addresses in the frame of the function that executes the access are not inside one variable of it.

        `None` if all are. Addresses in frames of callers are not examined. All are below the end of the frame.
        """
        owner = c.batch.image.codes[c.function].function.frame.owners
        if owner is None:
            return None
        base = c.batch.frame_base(c)
        offset = address - (base if lanes is None or base.size == 1 else base[lanes])
        own = np.maximum(offset, 0)
        bad = (offset >= 0) & ((owner[own] == 0) | (owner[own] != owner[own + (self.nbytes - 1)]))
        return bad if bool(bad.any()) else None

    def _in_generic(self, c: Cohort, address: Array, lanes: Array | None) -> list[Piece]:
        windows = c.batch.launch.space.windows
        low, high = int(address.min()), int(address.max())
        for start, pieces_in in ((windows.shared, self._in_shared), (windows.local, self._in_local)):
            if start <= low and high < start + windows.size:
                return pieces_in(c, address - np.int64(start), lanes)
        end = max(windows.shared, windows.local) + windows.size
        if low >= end or high < min(windows.shared, windows.local):
            return self._in_global(c, address, lanes)
        all_lanes = np.arange(c.n) if lanes is None else lanes
        address = spread(address, all_lanes.size)
        in_shared = (address >= windows.shared) & (address < windows.shared + windows.size)
        in_local = (address >= windows.local) & (address < windows.local + windows.size)
        pieces: list[Piece] = []
        for is_in_window, start, pieces_in in (
            (in_shared, windows.shared, self._in_shared),
            (in_local, windows.local, self._in_local),
            (~in_shared & ~in_local, 0, self._in_global),
        ):
            if bool(is_in_window.any()):
                pieces += pieces_in(c, address[is_in_window] - np.int64(start), all_lanes[is_in_window])
        return pieces

    # --- checks and counts -----------------------------------------------------------------------------------------

    def check(self, c: Cohort, piece: Piece, *, reads: bool = True, races: bool = True) -> None:
        """Check an access that stores nothing or is atomic. ``reads``: report bytes that were never written. ``races``:
        report races, and record the access for the accesses after it. Does nothing in a launch without checks."""
        if not self.options.checks:
            return
        selectors = piece.selectors(self.width, self.count)
        if reads:
            self.check_read(c, piece, selectors)
        if races and self.is_raceable(piece):
            locations = self.check_races(c, piece, None, selectors)
            self.note_access(c, piece, None, selectors, locations)

    def check_read(self, c: Cohort, piece: Piece, selectors: list[Selector]) -> None:
        """Report lanes that read bytes that were never written."""
        for index in selectors:
            bad = piece.target.unwritten(index, self.width)
            if bad is not None:
                lanes = (
                    _lanes_of(c, piece)[spread(bad, piece.offsets.shape[0])] if bad.size > 1 else _lanes_of(c, piece)
                )
                message = f"reads {self.width} bytes of {piece.target.name} that were never written"
                c.batch.report("uninitialised-memory", self.instr, c, lanes, message)
                return

    def is_raceable(self, piece: Piece) -> bool:
        """Whether other threads may touch the object while the kernel runs."""
        return not piece.target.is_read_only and piece.target.space in ("global", "shared", "heap")

    def check_races(self, c: Cohort, piece: Piece, value: Array | None, selectors: list[Selector]) -> list[Selector]:
        """Report races with earlier accesses. The result is the locations of the access, for `note_access`.

        ``value``: what will be stored. If it equals what the other thread stored, the race is only a note.
        """
        races = races_of(piece.target)
        if self.width == 4 and races.shift == 2 and piece.offsets.shape[0] > 1:
            locations = selectors
        else:
            locations = races.selectors(
                spread(piece.offsets, c.n if piece.lanes is None else piece.lanes.size), self.nbytes
            )
        for conflict in races.check(c, piece.lanes, locations, writes=self.writes, strong=self.strong):
            self._report_race(c, piece, conflict, self._is_same(conflict, piece, value, selectors))
        return locations

    def note_access(
        self, c: Cohort, piece: Piece, value: Array | None, selectors: list[Selector], locations: list[Selector]
    ) -> None:
        """Record the access, and report races between its own lanes. Call it after the store."""
        conflict = races_of(piece.target).note(
            c, piece.lanes, locations, writes=self.writes, strong=self.strong, observes=self.observes
        )
        if conflict is not None:
            self._report_race(c, piece, conflict, self._is_same(conflict, piece, value, selectors))

    def _is_same(self, conflict: Conflict, piece: Piece, value: Array | None, selectors: list[Selector]) -> bool:
        """Whether both threads of a race between plain writes store the same value."""
        if value is None or conflict.what != "write" or len(selectors) != 1 or self.strong:
            return False
        data = piece.target.load(selectors[0], self.width)
        count = max(data.shape[0], value.shape[0], int(conflict.lanes.max()) + 1)
        same = spread(data, count) == spread(value, count)
        return bool(same[conflict.lanes].all())

    def _report_race(self, c: Cohort, piece: Piece, conflict: Conflict, is_same: bool) -> None:
        lanes = _lanes_of(c, piece)[conflict.lanes]
        other = int(conflict.others[0])
        verb = {"write": "wrote", "read": "read", "strong write": "wrote atomically", "strong read": "read strongly"}
        place = c.batch.place(other)
        offsets = spread(piece.offsets, c.n if piece.lanes is None else len(piece.lanes))
        offset = int(offsets[conflict.lanes[0]])
        if piece.target is c.batch.shared:
            offset %= c.batch.shared_stride
        message = (
            f"{self.verb} {self.nbytes} bytes of {piece.target.name} at offset {offset}, which {place} "
            f"{verb[conflict.what]}, and nothing orders the two accesses"
        )
        kind, severity = ("same-value-race", "note") if is_same else ("race", "error")
        c.batch.report(
            kind, self.instr, c, lanes, message, offset, other=other, severity=severity, detail=conflict.what
        )

    def tally(self, c: Cohort, pieces: list[Piece]) -> None:
        """Count requests, sectors and bank conflicts, and add to the trace, as far as the launch wants them."""
        if not self.options.counts and not self.options.trace:
            return
        launch = c.batch.launch
        for piece in pieces:
            space = piece.target.space
            if self.options.counts:
                self._count_piece(c, piece, space)
            if launch.trace is not None:
                lanes = _lanes_of(c, piece)
                offsets = spread(piece.offsets, lanes.size)
                if space == "shared":
                    address = offsets % c.batch.shared_stride
                elif space == "local":
                    address = offsets % c.batch.local_stride
                else:
                    address = offsets + piece.target.base
                threads = c.threads[lanes] % c.batch.block_size
                blocks = c.blocks[lanes] + c.batch.first_block
                line = c.batch.image.loaded.line(self.instr.pos)
                launch.trace.add(line, blocks, threads, address, self.nbytes, write=self.writes, space=space)

    def _count_piece(self, c: Cohort, piece: Piece, space: str) -> None:
        counts = c.batch.launch.counts
        if space in ("global", "heap"):
            requests, sectors = self._sectors(c, piece)
            if self.writes:
                counts.global_store_requests += requests
                counts.global_store_sectors += sectors
            else:
                counts.global_load_requests += requests
                counts.global_load_sectors += sectors
        elif space == "shared":
            requests, conflicts = self._bank_conflicts(c, piece)
            counts.shared_requests += requests
            counts.shared_bank_conflicts += conflicts
        elif space == "local":
            counts.local_requests += _distinct(c.rows if piece.lanes is None else c.rows[piece.lanes])

    def _sectors(self, c: Cohort, piece: Piece) -> tuple[int, int]:
        """The number of requests, and of distinct 32-byte sectors over all requests."""
        if piece.offsets.shape[0] == 1 and c.n > 1 and piece.lanes is None:
            return c.ids.size, c.ids.size
        rows = c.rows if piece.lanes is None else c.rows[piece.lanes]
        keys = (rows << np.int64(40)) | (spread(piece.offsets, rows.size) >> np.int64(5))
        requests = c.ids.size if piece.lanes is None else _distinct(rows)
        return requests, _distinct_of(keys)

    def _bank_conflicts(self, c: Cohort, piece: Piece) -> tuple[int, int]:
        """The number of requests, and of passes beyond the first of each request."""
        word = piece.offsets >> np.int64(2)
        words = max(self.nbytes // 4, 1)
        if piece.lanes is None and c.uniform_rows:
            # Passes depend only on the distances between lanes, which are often the same in all warps.
            table = word.reshape(-1, 32)
            distance = table - table[:, :1]
            if bool((distance == distance[0]).all()):
                lanes = np.arange(32, dtype=np.uint32)
                shifted_up = distance[0] - distance[0].min()
                return c.ids.size, c.ids.size * _extra_passes(np.zeros(32, np.int64), lanes, shifted_up, words)
        rows = c.rows if piece.lanes is None else c.rows[piece.lanes]
        lanes = c.column("lane") if piece.lanes is None else c.column("lane")[piece.lanes]
        requests = c.ids.size if piece.lanes is None else _distinct(rows)
        return requests, _extra_passes(rows, lanes, word, words)


def _extra_passes(rows: Array, lanes: Array, word: Array, words: int) -> int:
    """Passes beyond the first for accesses of ``words`` words. A bank needs one pass for each distinct word in it."""
    group = rows
    if words > 1:
        groups = min(words, 4)
        group = rows * groups + lanes // np.uint32(32 // groups)
    keys = np.concatenate([(group << np.int64(36)) | (word + index) for index in range(words)])
    if not bool((keys[1:] >= keys[:-1]).all()):
        keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    bank = (keys >> np.int64(36)) * 32 + (keys & 31)
    passes = np.bincount(bank, minlength=(int(keys[-1] >> 36) + 1) * 32).reshape(-1, 32).max(axis=1)
    return int(np.maximum(passes - 1, 0).sum())


def _lanes_of(c: Cohort, piece: Piece) -> Array:
    return np.arange(c.n) if piece.lanes is None else piece.lanes


def _distinct(ascending: Array) -> int:
    """How many different numbers an ascending array has."""
    return int((ascending[1:] != ascending[:-1]).sum()) + 1 if ascending.size else 0


def _distinct_of(keys: Array) -> int:
    if keys.size > 1 and not bool((keys[1:] >= keys[:-1]).all()):
        keys = np.sort(keys)
    return _distinct(keys)
