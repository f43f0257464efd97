"""The notation in which the opcode table is written, and the decoding of a mnemonic by it.

A row reads as in the PTX manual: ``ld{.sem}{.scope}{.space}{.cop}.type d, [a]``. In its mnemonic part

- ``{.x}`` may be left out, ``.x`` may not;
- where ``x`` is a key of `SLOTS` any of that slot's words fits, otherwise ``x`` stands for itself;
- ``.name=x`` files the word of slot ``x`` under ``name`` (``.dtype=type``);
- ``.(a|b|c)`` takes one of the words and files it under ``mode``;
- ``{.*}`` takes any further words: the family is known, its details are not modelled. They are filed under ``*`` in
  the order in which they stand.

In its operand part, names ``d p q r`` are results, all others are read; ``d+`` is read and written; ``[a]`` is an
address and ``[d]`` an address that is written; ``{…}`` may be left out; ``x|y`` is a pair whose second may be absent
where it is braced; ``…`` (three dots) allows any further operands. ``x:t`` gives the operand the type ``t``: a slot
of the row, a type name, ``wide`` (twice as wide as ``type``), ``any``, ``vec`` (a vector of anything), ``label``,
``name`` (a symbol); ``*`` behind it says that ``.vec`` applies. Without ``:t`` it has the row's ``type``.

Guarantees: decoding accepts modifiers in any order, as ptxas does; a `Form` keeps the spelling it was decoded from.
Refuses: a mnemonic that no row matches; the caller then keeps the instruction as an opaque one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from .operations import Operation, Pointers, Touches
from .types import TYPES, ScalarType

__all__ = ["SLOTS", "STRONG", "SYNCHRONIZING", "Effect", "Form", "Op", "OperandSpec", "decode_with"]


class Effect:
    """What an instruction does beside computing its results, as bits of an ``int``."""

    READ = 1  #: reads memory
    WRITE = 2  #: writes memory
    TRAP = 4  #: may fault, as a load from a bad address does
    CONTROL = 8  #: may leave the straight line
    BARRIER = 16  #: orders memory accesses of this thread against those of others
    CROSS_LANE = 32  #: its meaning depends on which lanes execute it together; pinned to its place
    ORDERED = 64  #: a strong, volatile or atomic access: never moved, merged or removed
    CARRY_IN = 128  #: reads the hidden carry flag
    CARRY_OUT = 256  #: writes the hidden carry flag
    ASYNC = 512  #: reads or writes memory or registers later, until it is waited for
    STATE = 1024  #: changes or observes the state of the thread or machine (stack, register budget, timers)
    REGISTERS_LATER = 2048  #: reads or writes its register operands later: none may be touched until it is waited for
    GRID = 4096  #: may wait for another grid: what is read-only for the rest of the kernel may have changed behind it
    ALL = 8191
    #: Nothing but read-only memory crosses it, and control goes on.
    FENCED = ALL & ~(CONTROL | CARRY_IN | CARRY_OUT | REGISTERS_LATER | GRID)


_INT = "u16 s16 u32 s32 u64 s64"
_BITS = "b8 b16 b32 b64 b128"
_FLOAT = "f16 f16x2 bf16 bf16x2 f32 f32x2 f64"
_MEM = "b8 b16 b32 b64 b128 u8 s8 u16 s16 u32 s32 u64 s64 f16 f16x2 bf16 bf16x2 f32 f64"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Slots that are filed under ``type``: they differ only in the words that they allow.
_TYPE_SLOTS = frozenset(["type", "itype", "ftype", "bits", "mtype"])

#: The words that may stand in each slot of a mnemonic.
SLOTS: dict[str, frozenset[str]] = {
    "type": frozenset(TYPES),
    "itype": _words(_INT + " u16x2 s16x2"),
    "ftype": _words(_FLOAT),
    "bits": _words(_BITS + " pred"),
    "mtype": _words(_MEM + " f32x2"),
    "rnd": _words("rn rz rm rp rna rs rni rzi rmi rpi"),
    "cmp": _words("eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"),
    "bool": _words("and or xor"),
    "sem": _words("weak volatile relaxed acquire release acq_rel sc"),
    "scope": _words("cta cluster gpu sys"),
    "space": _words("const global local param shared shared::cta shared::cluster param::entry param::func"),
    "cop": _words("ca cg cs lu cv wb wt"),
    "evict": _words(
        "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate "
        "evict_normal evict_unchanged evict_first evict_last no_allocate"
    ),
    "l2evict": _words("L2::evict_last L2::evict_normal L2::evict_first"),
    "hint": _words("L2::cache_hint"),
    "prefetch": _words("L2::64B L2::128B L2::256B"),
    "vec": _words("v2 v4 v8"),
    "atomop": _words("and or xor add inc dec min max exch cas"),
    "level": _words("cta gl sys"),
    "geom": _words("1d 2d 3d a1d a2d cube acube 2dms a2dms"),
    "clamp": _words("trap clamp zero"),
}


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a row. ``role`` is ``def``, ``use``, ``inout`` or ``addr``; ``pair`` is the second of ``d|p``."""

    name: str
    role: str
    type: str = "type"
    optional: bool = False
    vec: bool = False
    pair: OperandSpec | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """One element of a row's mnemonic: a slot when ``words`` has several entries, else a literal."""

    name: str
    words: frozenset[str]
    optional: bool
    literal: bool


@dataclass(frozen=True, eq=False)
class Op:
    """A row of the opcode table: everything that is known of one opcode.

    The notation is parsed when a mnemonic first asks for it, so that importing the table costs next to nothing.
    """

    pattern: str
    semantics: str = ""  #: name of the emulator's function; empty where the emulator refuses the opcode
    operation: Operation = Operation.UNKNOWN
    pointers: Pointers = Pointers.UNKNOWN
    touches: Touches = Touches.UNKNOWN
    types: str = ""  #: words that restrict the slot filed as ``type``
    effects: int = 0
    commutes: bool = False
    divergence: str = "propagate"  #: ``source``, ``propagate`` or ``uniform``
    cost: int = 1  #: rough issue slots plus exposed latency, 0 for a copy
    relaxed: bool = False  #: a data register may be wider than the type, as for ``ld``, ``st`` and ``cvt``
    approximate: bool = False  #: the manual gives an error bound instead of a value
    #: What it is to contraction (`analysis/values/contraction.py`), as long as it has no rounding modifier: ``product``
    #: or ``sum``; ``through`` where ptxas may see a product behind it.
    contraction: str = ""

    @cached_property
    def base(self) -> str:
        """The word before the first dot, such as ``mul``."""
        return re.split(r"[.{ ]", self.pattern, maxsplit=1)[0]

    @cached_property
    def name(self) -> str:
        """The base with the words that are always there, such as ``mul.wide``."""
        literals = [piece.name for piece in self.pieces if piece.literal and not piece.optional]
        return ".".join([self.base, *literals])

    @cached_property
    def pieces(self) -> tuple[_Piece, ...]:
        mnemonic = self.pattern.partition(" ")[0]
        return _parse_mnemonic(mnemonic[len(self.base) :], _words(self.types) if self.types else None)

    @cached_property
    def wildcard(self) -> bool:
        """Whether further words are accepted that are not modelled."""
        return ".*" in self.pattern.partition(" ")[0]

    @cached_property
    def operands(self) -> tuple[OperandSpec, ...]:
        return _parse_operands(self.pattern.partition(" ")[2])

    @cached_property
    def variadic(self) -> bool:
        """Whether further operands are accepted that are not modelled."""
        return "..." in self.pattern.partition(" ")[2]


def _parse_mnemonic(text: str, types: frozenset[str] | None) -> tuple[_Piece, ...]:
    pieces: list[_Piece] = []
    for match in re.finditer(r"(\{)?\.(?:\(([^)]*)\)|([\w:=]+))\}?", text):
        optional, choice, word = match.group(1) is not None, match.group(2), match.group(3)
        if choice is not None:
            pieces.append(_Piece("mode", _words(choice.replace("|", " ")), optional, literal=False))
            continue
        name, _, slot = word.partition("=")
        slot = slot or name
        if slot in SLOTS:
            filed = "type" if name in _TYPE_SLOTS else name
            words = types if filed == "type" and types is not None else SLOTS[slot]
            pieces.append(_Piece(filed, words, optional, literal=False))
        else:
            pieces.append(_Piece(word, frozenset([word]), optional, literal=True))
    return tuple(pieces)


_OPERAND = re.compile(r"(\[)?([A-Za-z]\w*)(\+)?(?::(\w+))?(\*)?\]?")


def _parse_operand(text: str, *, optional: bool) -> OperandSpec:
    first, bar, second = text.replace("{|", "|").partition("|")
    match = _OPERAND.match(first)
    assert match, text
    bracket, name, plus, kind, star = match.groups()
    is_result = name in ("d", "p", "q", "r")
    role = "addr" if bracket else "inout" if plus else "def" if is_result else "use"
    pair = _parse_operand(second.rstrip("}"), optional=True) if bar else None
    return OperandSpec(name, role, kind or ("any" if bracket else "type"), optional, star is not None, pair)


def _parse_operands(text: str) -> tuple[OperandSpec, ...]:
    specs: list[OperandSpec] = []
    depth = 0
    for part in text.replace(" ", "").split(","):
        # "a{" opens a group that starts behind this operand; "{|p}" belongs to the operand itself.
        body = re.sub(r"\{\|([\w:]+)\}", r"|\1", part)
        name = body.strip("{}")
        if name and name != "...":
            specs.append(_parse_operand(name, optional=depth > 0 or body.startswith("{")))
        depth += body.count("{") - body.count("}")
    return tuple(specs)


@dataclass(eq=False, slots=True)
class Form:
    """A mnemonic as it was spelled, decoded: its row, the words in the row's slots, its effects.

    Forms are shared: one per spelling, so they compare by identity. A form of an unknown opcode is *opaque*: it has
    every effect and all of its register operands count as read and written.
    """

    text: str
    op: Op
    mods: dict[str, str]
    flags: frozenset[str]
    type: ScalarType | None
    effects: int
    dst_count: int
    is_opaque: bool = False
    inout: bool = False  #: the results are read as well
    lanes: int = 1  #: elements of a vector access, from ``.v2``, ``.v4``, ``.v8``
    specs: tuple[OperandSpec, ...] = field(default=())
    #: The row's operation; ``UNKNOWN`` for an opaque form.
    operation: Operation = field(init=False)
    is_call: bool = field(init=False)
    #: Whether a block ends with it. Of an opaque form that is not known.
    is_terminator: bool = field(init=False)
    #: The state space of the access, without sub-space; ``generic`` where none is named.
    space: str = field(init=False)
    #: The number of the first operand that is read; behind it all are.
    first_read: int = field(init=False)

    def __post_init__(self) -> None:
        self.space = self.mods.get("space", "generic").partition("::")[0]
        self.operation = self.op.operation
        self.is_terminator = self.effects & Effect.CONTROL != 0 and not self.is_opaque
        self.is_call = self.op.operation is Operation.CALL
        self.first_read = 0 if self.inout else 1 if self.is_call else self.dst_count

    @property
    def name(self) -> str:
        """The row's name, such as ``mul.wide`` or ``ld``."""
        return self.op.name

    def scalar(self, slot: str) -> ScalarType | None:
        """The type that the row's ``slot`` has in this form."""
        word = self.mods.get(slot)
        return TYPES.get(word) if word is not None else None

    def operand_type(self, spec: OperandSpec) -> ScalarType | None:
        """The type that this form gives to the operand of ``spec``; ``None`` where the row leaves it open.

        >>> from .decoding import decode
        >>> form = decode("mul.wide.s32")
        >>> form.operand_type(form.specs[0]).name
        's64'
        """
        name = spec.type
        if name == "type":
            return self.type
        if name == "wide":
            return TYPES[f"{self.type.kind}{2 * self.type.bits}"] if self.type is not None else None
        return TYPES.get(name) or self.scalar(name)

    def __repr__(self) -> str:
        return f"Form({self.text})"


def decode_with(op: Op, text: str, words: list[str]) -> Form | None:
    """The form that ``text`` has under row ``op``, or ``None`` when its words do not fit."""
    pieces = op.pieces
    taken = [False] * len(pieces)
    mods: dict[str, str] = {}
    flags: list[str] = []
    further: list[str] = []
    for word in words:
        for index, piece in enumerate(pieces):
            if not taken[index] and word in piece.words:
                taken[index] = True
                if piece.literal:
                    flags.append(word)
                else:
                    mods[piece.name] = word
                break
        else:
            if not op.wildcard:
                return None
            flags.append(word)
            further.append(word)
    if further:  # their order may matter, as that of types does: `vadd.s32.u32.s32`
        mods["*"] = ".".join(further)
    if not all(done or piece.optional for done, piece in zip(taken, pieces, strict=True)):
        return None
    dst_count = 0
    for spec in op.operands:
        if spec.role not in ("def", "inout"):
            break
        dst_count += 1
    return Form(
        text=text,
        op=op,
        mods=mods,
        flags=frozenset(flags),
        type=TYPES.get(mods.get("type", mods.get("dtype", ""))),
        effects=op.effects | _effects_of_modifiers(words),
        dst_count=dst_count,
        inout=any(spec.role == "inout" for spec in op.operands),
        lanes=int(mods["vec"][1:]) if "vec" in mods else 1,
        specs=op.operands,
    )


#: Words that order memory accesses wherever they stand, in rows that do not model them as well.
#: ``.lu`` reads for the last time: what it has read may be gone for a second read.
STRONG = frozenset(["volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio", "cv", "lu"])
#: Those of them by which a thread may learn that another one has written, or let it know.
SYNCHRONIZING = frozenset(["acquire", "release", "acq_rel", "sc"])


def _effects_of_modifiers(words: list[str]) -> int:
    effects = 0
    for word in words:
        if word in STRONG:
            effects |= Effect.ORDERED
        if word in SYNCHRONIZING:
            effects |= Effect.BARRIER
        elif word == "cc":
            effects |= Effect.CARRY_OUT
        elif word == "aligned":
            effects |= Effect.CROSS_LANE
    return effects
