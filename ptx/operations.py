"""What an opcode is: the values of three columns of the opcode table (`ops.py`).

Analyses and transforms decide by these classes, not by names of opcodes. So a new opcode is one row of the table. A row
that does not fill a column has the value ``UNKNOWN``, and everything that reads the column then expects the worst.

Requires: nothing; this module imports nothing of ours. Reference: PTX ISA 9.0, chapter 9.7.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "ADDRESS_CONVERSIONS",
    "ATOMICS",
    "BRANCHES",
    "BARRIERS",
    "CONVERSIONS",
    "COPIES",
    "EXITS",
    "LOADS",
    "PLAIN_ACCESSES",
    "Operation",
    "Pointers",
    "Touches",
]


class Operation(StrEnum):
    """What an instruction computes or does.

    A row that only computes a value may stay ``UNKNOWN``; then no analysis knows anything of the value. A row that has
    effects must name its operation.
    """

    UNKNOWN = "unknown"
    # Integer arithmetic modulo 2^bits of the row's type.
    SUM = "sum"
    DIFFERENCE = "difference"
    NEGATION = "negation"
    PRODUCT = "product"  #: the low half
    WIDE_PRODUCT = "wide product"  #: all bits of the product of two extended factors
    PRODUCT_SUM = "product sum"  #: the low half of a product, and an addend
    WIDE_PRODUCT_SUM = "wide product sum"
    QUOTIENT = "quotient"
    REMAINDER = "remainder"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    MAGNITUDE = "magnitude"  #: the absolute value; of the least number, that number
    # Operations on bits.
    AND = "and"
    OR = "or"
    XOR = "xor"
    NOT = "not"
    SHIFT_LEFT = "shift left"
    SHIFT_RIGHT = "shift right"
    BIT_FIELD = "bit field"  #: some bits of a word, extended to the width of the type
    # Copies, conversions and choices.
    COPY = "copy"  #: all bits of one operand; with a brace list on one side, packs or unpacks a word
    VECTOR_COPY = "vector copy"  #: a ``mov`` of a vector, element by element
    CONVERSION = "conversion"  #: from one value to another type
    PACKED_CONVERSION = "packed conversion"  #: from several values to one word, or with random bits for rounding
    TO_GENERIC = "to generic address"
    FROM_GENERIC = "from generic address"
    COMPARISON = "comparison"  #: to predicates
    SELECTION = "selection"  #: one of two operands, by a predicate
    FLOAT_NEGATION = "float negation"
    VIDEO = "video"  #: selects bytes or halves of its operands, which may be written ``%r1.b0``
    # Memory.
    LOAD = "load"
    UNIFORM_LOAD = "uniform load"  #: ``ldu``: nobody writes the memory while the grid runs
    STORE = "store"
    ATOMIC = "atomic"  #: reads, changes and writes one place, and returns the old value
    REDUCTION = "reduction"  #: an atomic without a result
    ASYNC_ACCESS = "asynchronous access"  #: accesses and copies that complete later
    BULK_STORE = "bulk store"
    MULTIMEM = "multimem access"  #: accesses the memory of several devices
    PREFETCH = "prefetch"  #: a hint to the caches
    DISCARD = "discard"  #: destroys what the memory holds
    TEXTURE = "texture or surface access"
    TENSOR_MAP = "tensor map access"
    STACK = "stack pointer"
    ALLOCATION = "stack allocation"
    # Control flow.
    BRANCH = "branch"
    INDEXED_BRANCH = "indexed branch"
    CALL = "call"
    RETURN = "return"
    EXIT = "exit"
    TRAP = "trap"
    GRID_DEPENDENCY = "grid dependency"  #: waits for, or releases, another grid
    REGISTER_BUDGET = "register budget"
    MONITORING = "monitoring"  #: breakpoints, delays, events of the performance monitor
    # Operations of several threads together.
    BARRIER = "barrier"  #: a barrier of the threads of a block
    WARP_BARRIER = "warp barrier"
    CLUSTER_BARRIER = "cluster barrier"
    FENCE = "fence"
    VOTE = "vote"  #: a value computed from a value of each lane that takes part
    SHUFFLE = "shuffle"
    ELECTION = "election"  #: chooses one lane
    BARRIER_OBJECT = "barrier object"  #: an operation on an ``mbarrier`` in shared memory
    CLUSTER_MAP = "cluster map"  #: from an address to that in the shared memory of another block of the cluster
    CLUSTER_LAUNCH = "cluster launch"
    # Matrices, by all lanes of a warp.
    MATRIX = "matrix"
    MATRIX_LOAD = "matrix load"
    MATRIX_STORE = "matrix store"
    ASYNC_MATRIX = "asynchronous matrix"


class Pointers(StrEnum):
    """What the results may point into, by what the sources point into (`analysis/memory/points_to.py`)."""

    UNKNOWN = "unknown"  #: into any object
    NOTHING = "nothing"  #: the result contains no part of an address: a predicate, a set of lanes
    NUMBER = "number"  #: a number made of the sources, which nobody uses as an address
    ANY_SOURCE = "any source"  #: into what one of the sources points into: copies, selections, permutations of bits
    OTHER_LANE = "other lane"  #: into what the first source of another lane points into
    SUM = "sum"  #: an address and an integer, in any order
    DIFFERENCE = "difference"  #: an address and an integer; of two addresses, a number
    PRODUCT_SUM = "product sum"  #: the product of the first two sources is a number; the third may be an address
    MASK = "mask"  #: an address and a mask; with a small mask, a number
    UNION = "union"  #: an address and further bits
    CONVERSION = "conversion"  #: an address of the same width or wider, else a number
    LOADED = "loaded"  #: the value comes from memory
    ALLOCATED = "allocated"  #: the address of a new object


class Touches(StrEnum):
    """Which memory the instruction reads or writes (`analysis/memory/touched_memory.py`). Only rows that have the
    effect ``READ`` or ``WRITE`` fill it."""

    UNKNOWN = "unknown"  #: any memory
    NOTHING = "nothing"  #: none: the effects only keep the order of other accesses
    ADDRESS = "address"  #: the object at the only address
    SHARED = "shared"  #: the object at the only address, in shared memory even where the mnemonic does not name it
    BARRIER_OBJECT = "barrier object"  #: reads and writes the object at the first address, in shared memory
    SHARED_COPY = "shared copy"  #: writes shared memory at the first address, reads global memory at the second one


#: Accesses to one place: an address, and as many bytes as the type and the vector have.
PLAIN_ACCESSES = frozenset(
    [Operation.LOAD, Operation.UNIFORM_LOAD, Operation.STORE, Operation.ATOMIC, Operation.REDUCTION]
)
LOADS = frozenset([Operation.LOAD, Operation.UNIFORM_LOAD])
ATOMICS = frozenset([Operation.ATOMIC, Operation.REDUCTION])
COPIES = frozenset([Operation.COPY, Operation.VECTOR_COPY])
CONVERSIONS = frozenset([Operation.CONVERSION, Operation.PACKED_CONVERSION])
ADDRESS_CONVERSIONS = frozenset([Operation.TO_GENERIC, Operation.FROM_GENERIC])
#: Barriers that threads of several warps wait at.
BARRIERS = frozenset([Operation.BARRIER, Operation.CLUSTER_BARRIER])
#: Terminators that name labels.
BRANCHES = frozenset([Operation.BRANCH, Operation.INDEXED_BRANCH])
#: Terminators after which the thread leaves the function.
EXITS = frozenset([Operation.RETURN, Operation.EXIT, Operation.TRAP])
