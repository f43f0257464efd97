"""The notation of the opcode table, and the decoding of a mnemonic by a row.

A row is written as in the PTX manual: ``ld{.sem}{.scope}{.space}{.cop}.type d, [a]``. In the mnemonic

- ``{.x}`` is optional, ``.x`` is required;
- if ``x`` is a key of `SLOTS`, any word of that slot fits; otherwise ``x`` itself is the word;
- ``.name=x`` stores the word of slot ``x`` in ``mods[name]`` (``.dtype=type``);
- ``.(a|b|c)`` takes one of the words and stores it in ``mods["mode"]``;
- ``{.*}`` takes any further words, in their order, and stores them in ``mods["*"]``. It stands in rows whose modifiers
  are not modelled.

In the operands, ``d p q r`` are results, and all other names are read. ``d+`` is read and written. ``[a]`` is an
address, and ``[d]`` an address that is written. ``{…}`` is optional. ``x|y`` is a pair; in ``x{|y}`` the second operand
is optional. ``...`` allows any further operands. ``x:t`` gives an operand the type ``t``: a slot of the row, the name
of a type, ``wide`` (twice as wide as ``type``), ``any``, ``vec`` (a vector of anything), ``label``, or ``name`` (a
symbol). A ``*`` after it says that ``.vec`` applies. An operand without ``:t`` has the ``type`` of the row.

Guarantees: decoding accepts modifiers in any order, as ptxas does. A `Form` keeps the spelling of its mnemonic.
Refuses: a mnemonic that does not fit the row. If no row fits, the instruction is opaque.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from .operations import Operation, Pointers, Touches
from .types import TYPES, ScalarType

__all__ = ["SLOTS", "STRONG", "SYNCHRONIZING", "Effect", "Form", "Op", "OperandSpec", "decode_with"]


class Effect:
    """The effects of an instruction beside computing its results, as bits of an ``int``."""

    READ = 1  #: reads memory
    WRITE = 2  #: writes memory
    TRAP = 4  #: may fault, as a load from a bad address does
    CONTROL = 8  #: may transfer control
    BARRIER = 16  #: orders memory accesses of this thread against those of others
    CROSS_LANE = 32  #: depends on which lanes execute it together, so it must not move
    ORDERED = 64  #: a strong, volatile or atomic access: must not be moved, merged or removed
    CARRY_IN = 128  #: reads the hidden carry flag
    CARRY_OUT = 256  #: writes the hidden carry flag
    ASYNC = 512  #: reads or writes memory or registers later, until another instruction waits for it
    STATE = 1024  #: changes or observes the state of the thread or machine (stack, register budget, timers)
    REGISTERS_LATER = 2048  #: reads or writes its registers later; until another instruction waits, no one may use them
    GRID = 4096  #: may wait for another grid, which may have changed memory that this kernel only reads
    ALL = 8191
    #: All effects on memory: only a read of constant memory may move across it. Control continues after it.
    FENCED = ALL & ~(CONTROL | CARRY_IN | CARRY_OUT | REGISTERS_LATER | GRID)


_INT = "u16 s16 u32 s32 u64 s64"
_BITS = "b8 b16 b32 b64 b128"
_FLOAT = "f16 f16x2 bf16 bf16x2 f32 f32x2 f64"
_MEM = "b8 b16 b32 b64 b128 u8 s8 u16 s16 u32 s32 u64 s64 f16 f16x2 bf16 bf16x2 f32 f64"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Slots whose word is stored in ``mods["type"]``. They differ only in their words.
_TYPE_SLOTS = frozenset(["type", "itype", "ftype", "bits", "mtype"])

#: SLOTS[name]: the words of a slot.
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
    "word": _words("u32 s32"),
    "secop": _words("add min max"),
}


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a row. ``role`` is ``def``, ``use``, ``inout`` or ``addr``. ``pair`` is the second operand of
    ``d|p``."""

    name: str
    role: str
    type: str = "type"
    optional: bool = False
    vec: bool = False
    pair: OperandSpec | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """One modifier in the mnemonic of a row: a slot or, if ``literal``, one word."""

    name: str
    words: frozenset[str]
    optional: bool
    literal: bool


@dataclass(frozen=True, eq=False)
class Op:
    """A row of the opcode table: the description of one form of an opcode.

    The notation is parsed when a mnemonic is first decoded by the row, so that importing the table is fast.
    """

    pattern: str
    semantics: str = ""  #: the name of the emulator's function; empty if the emulator refuses the opcode
    operation: Operation = Operation.UNKNOWN
    pointers: Pointers = Pointers.UNKNOWN
    touches: Touches = Touches.UNKNOWN
    types: str = ""  #: the only words that ``type`` may have; empty for all words of its slot
    effects: int = 0
    commutes: bool = False
    divergence: str = "propagate"  #: ``source``, ``propagate`` or ``uniform``
    cost: int = 1  #: the weight in code motion: issue slots plus exposed latency, roughly; 0 for a copy
    relaxed: bool = False  #: registers for data may be wider than the type, as for ``ld``, ``st`` and ``cvt``
    approximate: bool = False  #: the manual gives an error bound instead of a value
    #: Its role in contraction (`analysis/values/contraction.py`) if it has no rounding modifier: ``product``, ``sum``,
    #: or ``through`` if ptxas may see a product through it.
    contraction: str = ""
    #: Whether ptxas makes a block of its own of it, so that products and sums before and after it are not contracted:
    #: ``always``, ``64 bits`` if its type has 64 bits, ``unless aligned``, or empty (`analysis/values/contraction.py`).
    splits: str = ""

    @cached_property
    def base(self) -> str:
        """The word before the first dot, such as ``mul``."""
        return re.split(r"[.{ ]", self.pattern, maxsplit=1)[0]

    @cached_property
    def name(self) -> str:
        """The base with the required words, such as ``mul.wide``."""
        literals = [piece.name for piece in self.pieces if piece.literal and not piece.optional]
        return ".".join([self.base, *literals])

    @cached_property
    def pieces(self) -> tuple[_Piece, ...]:
        """The parts of the mnemonic behind its base."""
        mnemonic = self.pattern.partition(" ")[0]
        return _parse_mnemonic(mnemonic[len(self.base) :], _words(self.types) if self.types else None)

    @cached_property
    def wildcard(self) -> bool:
        """Whether the mnemonic may have further words, which are not modelled."""
        return ".*" in self.pattern.partition(" ")[0]

    @cached_property
    def operands(self) -> tuple[OperandSpec, ...]:
        """The operands, in the order of the text."""
        return _parse_operands(self.pattern.partition(" ")[2])

    @cached_property
    def variadic(self) -> bool:
        """Whether the instruction may have further operands, which are not modelled."""
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
        # "a{" opens an optional group after this operand. "{|p}" is a part of this operand.
        body = re.sub(r"\{\|([\w:]+)\}", r"|\1", part)
        name = body.strip("{}")
        if name and name != "...":
            specs.append(_parse_operand(name, optional=depth > 0 or body.startswith("{")))
        depth += body.count("{") - body.count("}")
    return tuple(specs)


@dataclass(eq=False, slots=True)
class Form:
    """A decoded mnemonic: its spelling, its row, the words in the row's slots, its effects.

    There is one form for each spelling, so forms compare by identity. The form of an unknown opcode is *opaque*: it has
    every effect, and it may read and write each of its registers.
    """

    text: str
    op: Op
    mods: dict[str, str]
    flags: frozenset[str]
    type: ScalarType | None
    effects: int
    dst_count: int
    is_opaque: bool = False
    inout: bool = False  #: the results are also read
    lanes: int = 1  #: elements of a vector access, from ``.v2``, ``.v4``, ``.v8``
    specs: tuple[OperandSpec, ...] = field(default=())
    #: The row's operation; ``UNKNOWN`` for an opaque form.
    operation: Operation = field(init=False)
    is_call: bool = field(init=False)
    #: Whether a block ends with it; false if it is opaque, since that is not known.
    is_terminator: bool = field(init=False)
    #: The state space of the access, without sub-space; ``generic`` if the mnemonic names none.
    space: str = field(init=False)
    #: The number of the first operand that is read. All later operands are read, too.
    first_read: int = field(init=False)

    def __post_init__(self) -> None:
        self.space = self.mods.get("space", "generic").partition("::")[0]
        self.operation = self.op.operation
        self.is_terminator = self.effects & Effect.CONTROL != 0 and not self.is_opaque
        self.is_call = self.op.operation is Operation.CALL
        self.first_read = 0 if self.inout else 1 if self.is_call else self.dst_count

    @property
    def name(self) -> str:
        """The name of the row, such as ``mul.wide`` or ``ld``."""
        return self.op.name

    def scalar(self, slot: str) -> ScalarType | None:
        """The type in the ``slot`` of the row, or ``None``."""
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
    """Decode ``text`` by row ``op``; ``None`` if the words do not fit. ``words`` are those after the base."""
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
    if further:  # their order may matter, as in `vadd.s32.u32.s32`
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


#: Modifiers that order memory accesses in every row, also where the row does not model them.
#: ``.lu`` is the last use of a cache line, so a second read may find other data.
STRONG = frozenset(["volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio", "cv", "lu"])
#: Those of them by which threads synchronize: one thread may see that another one has written.
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
