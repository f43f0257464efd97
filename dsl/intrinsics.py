"""CUDA's functions for kernels, one line each. The translator takes the types of calls from these rows.

A row has one of these rules:

- ``math``: floating arguments of one type, f32 or f64, with a C name for each; the result has the same type.
- ``test``: like ``math``, with a ``bool`` result.
- ``fixed``: overloads with given types; the first overload that every argument fits without narrowing is used.
- ``atomic``: a pointer, and values of its target type; the result is the old value.
- ``shuffle``: a mask, a value of any 32- or 64-bit type, integers; the result has the value's type.

Reference: CUDA C++ Programming Guide 13.0, §10.6 (barriers), §10.14 (atomics), §10.19–10.22 (warp functions); CUDA Math
API 13.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import DslError
from .language import Array, ptr
from .types import F32, F64, I32, I64, U32, U64, VOID, Scalar, Void

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Overload:
    """One C function: parameter types, result type, name."""

    params: tuple[Scalar, ...]
    result: Scalar | Void
    cuda: str


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A row. ``arity`` is the least and greatest number of arguments. ``spellings`` gives the C name for each type, for
    rules other than ``fixed``. ``last`` are arguments that the C function has at the end. ``of_threads``: what it does
    depends on which threads execute it together, or when."""

    name: str
    rule: str
    arity: tuple[int, int]
    spellings: tuple[tuple[Scalar, str], ...] = ()
    overloads: tuple[Overload, ...] = ()
    last: tuple[str, ...] = ()
    of_threads: bool = False

    def spelling(self, type: Scalar) -> str | None:
        """The name of the function in C++ for arguments of ``type``; None if it takes none of them."""
        return dict(self.spellings).get(type)

    def __call__(self, *_: object) -> Any:
        raise DslError(f"{self.name}() may only be used inside a @kernel or @device function")


#: Every row by its name.
INTRINSICS: dict[str, Intrinsic] = {}


def _row(row: Intrinsic) -> Any:
    INTRINSICS[row.name] = row
    return row


def _floats(name: str, single: str, double: str | None, arity: int, rule: str = "math") -> Any:
    spellings = ((F32, single),) + (((F64, double),) if double else ())
    return _row(Intrinsic(name, rule, (arity, arity), spellings))


def _math1(name: str, single: str | None = None, double: str | None = None) -> Callable[[float], float]:
    return _floats(name, single or f"{name}f", double or name, 1)


def _math2(name: str) -> Callable[[float, float], float]:
    return _floats(name, f"{name}f", name, 2)


def _fast1(name: str, cuda: str) -> Callable[[float], float]:
    return _floats(name, cuda, None, 1)


def _test(name: str) -> Callable[[float], bool]:
    return _floats(name, name, name, 1, "test")


def _fixed(name: str, *overloads: Overload, of_threads: bool = False) -> Any:
    counts = [len(overload.params) for overload in overloads]
    return _row(Intrinsic(name, "fixed", (min(counts), max(counts)), overloads=overloads, of_threads=of_threads))


def _bits(name: str, narrow: str, wide: str, result: Scalar | None = None) -> Callable[[int], int]:
    return _fixed(name, Overload((U32,), result or U32, narrow), Overload((U64,), result or U64, wide))


def _convert(name: str, source: Scalar, result: Scalar, cuda: str) -> Any:
    return _fixed(name, Overload((source,), result, cuda))


def _void(name: str, cuda: str) -> Callable[[], None]:
    return _fixed(name, Overload((), VOID, cuda), of_threads=True)


def _count(name: str, cuda: str) -> Callable[[int], int]:
    return _fixed(name, Overload((I32,), I32, cuda), of_threads=True)


def _vote(name: str, cuda: str, result: Scalar) -> Any:
    return _fixed(name, Overload((U32, I32), result, cuda), of_threads=True)


def _atomic(name: str, cuda: str, *types: Scalar) -> Any:
    arity = 3 if name == "atomic_cas" else 2
    spellings = tuple((type, cuda) for type in types)
    return _row(Intrinsic(name, "atomic", (arity, arity), spellings, of_threads=True))


def _update(name: str, cuda: str, *types: Scalar) -> Callable[[ptr[T] | Array[T], T], T]:
    return _atomic(name, cuda, *types)


def _shuffle(name: str, cuda: str) -> Callable[..., Any]:
    types = (I32, U32, I64, U64, F32, F64)
    return _row(Intrinsic(name, "shuffle", (3, 4), tuple((type, cuda) for type in types), of_threads=True))


def _warp_reduce(name: str, cuda: str, *types: Scalar) -> Callable[[int, int], int]:
    return _fixed(name, *(Overload((U32, type), type, cuda) for type in types), of_threads=True)


# Floating point: correctly rounded, or with the error that the Math API documents
sqrt = _math1("sqrt")
rsqrt = _math1("rsqrt")
cbrt = _math1("cbrt")
exp = _math1("exp")
exp2 = _math1("exp2")
exp10 = _math1("exp10")
expm1 = _math1("expm1")
log = _math1("log")
log2 = _math1("log2")
log10 = _math1("log10")
log1p = _math1("log1p")
sin = _math1("sin")
cos = _math1("cos")
tan = _math1("tan")
asin = _math1("asin")
acos = _math1("acos")
atan = _math1("atan")
sinh = _math1("sinh")
cosh = _math1("cosh")
tanh = _math1("tanh")
erf = _math1("erf")
erfc = _math1("erfc")
floor = _math1("floor")
ceil = _math1("ceil")
trunc = _math1("trunc")
rint = _math1("rint")
round_half_away = _math1("round_half_away", "roundf", "round")
fabs = _math1("fabs")
atan2 = _math2("atan2")
pow = _math2("pow")
fmod = _math2("fmod")
hypot = _math2("hypot")
copysign = _math2("copysign")
fma: Callable[[float, float, float], float] = _floats("fma", "fmaf", "fma", 3)
isnan = _test("isnan")
isinf = _test("isinf")
isfinite = _test("isfinite")

# Approximations by the special function unit, for f32 only
fast_exp = _fast1("fast_exp", "__expf")
fast_log = _fast1("fast_log", "__logf")
fast_log2 = _fast1("fast_log2", "__log2f")
fast_sin = _fast1("fast_sin", "__sinf")
fast_cos = _fast1("fast_cos", "__cosf")
fast_pow: Callable[[float, float], float] = _floats("fast_pow", "__powf", None, 2)
fast_divide: Callable[[float, float], float] = _floats("fast_divide", "__fdividef", None, 2)
saturate = _fast1("saturate", "__saturatef")

# Bits
popc = _bits("popc", "__popc", "__popcll", I32)
clz: Callable[[int], int] = _fixed("clz", Overload((I32,), I32, "__clz"), Overload((I64,), I32, "__clzll"))
ffs: Callable[[int], int] = _fixed("ffs", Overload((I32,), I32, "__ffs"), Overload((I64,), I32, "__ffsll"))
brev = _bits("brev", "__brev", "__brevll")
mulhi: Callable[[int, int], int] = _fixed(
    "mulhi", Overload((I32, I32), I32, "__mulhi"), Overload((I64, I64), I64, "__mul64hi")
)
umulhi: Callable[[int, int], int] = _fixed(
    "umulhi", Overload((U32, U32), U32, "__umulhi"), Overload((U64, U64), U64, "__umul64hi")
)
byte_perm: Callable[[int, int, int], int] = _fixed("byte_perm", Overload((U32, U32, U32), U32, "__byte_perm"))
# The smaller and the larger numbers of two pairs of 16 bits
vminu2: Callable[[int, int], int] = _fixed("vminu2", Overload((U32, U32), U32, "__vminu2"))
vmaxu2: Callable[[int, int], int] = _fixed("vmaxu2", Overload((U32, U32), U32, "__vmaxu2"))
vmins2: Callable[[int, int], int] = _fixed("vmins2", Overload((U32, U32), U32, "__vmins2"))
vmaxs2: Callable[[int, int], int] = _fixed("vmaxs2", Overload((U32, U32), U32, "__vmaxs2"))
funnelshift_l: Callable[[int, int, int], int] = _fixed(
    "funnelshift_l", Overload((U32, U32, U32), U32, "__funnelshift_l")
)
funnelshift_r: Callable[[int, int, int], int] = _fixed(
    "funnelshift_r", Overload((U32, U32, U32), U32, "__funnelshift_r")
)
float_as_int: Callable[[float], int] = _convert("float_as_int", F32, I32, "__float_as_int")
float_as_uint: Callable[[float], int] = _convert("float_as_uint", F32, U32, "__float_as_uint")
int_as_float: Callable[[int], float] = _convert("int_as_float", I32, F32, "__int_as_float")
uint_as_float: Callable[[int], float] = _convert("uint_as_float", U32, F32, "__uint_as_float")
double_as_longlong: Callable[[float], int] = _convert("double_as_longlong", F64, I64, "__double_as_longlong")
longlong_as_double: Callable[[int], float] = _convert("longlong_as_double", I64, F64, "__longlong_as_double")
float_to_int_rn: Callable[[float], int] = _convert("float_to_int_rn", F32, I32, "__float2int_rn")
float_to_int_rd: Callable[[float], int] = _convert("float_to_int_rd", F32, I32, "__float2int_rd")

# Barriers and fences
syncthreads = _void("syncthreads", "__syncthreads")
syncthreads_count = _count("syncthreads_count", "__syncthreads_count")
syncthreads_and = _count("syncthreads_and", "__syncthreads_and")
syncthreads_or = _count("syncthreads_or", "__syncthreads_or")
threadfence = _void("threadfence", "__threadfence")
threadfence_block = _void("threadfence_block", "__threadfence_block")
threadfence_system = _void("threadfence_system", "__threadfence_system")
syncwarp: Callable[..., None] = _fixed(
    "syncwarp", Overload((), VOID, "__syncwarp"), Overload((U32,), VOID, "__syncwarp"), of_threads=True
)

# Warps
shfl_sync = _shuffle("shfl_sync", "__shfl_sync")
shfl_up_sync = _shuffle("shfl_up_sync", "__shfl_up_sync")
shfl_down_sync = _shuffle("shfl_down_sync", "__shfl_down_sync")
shfl_xor_sync = _shuffle("shfl_xor_sync", "__shfl_xor_sync")
ballot_sync: Callable[[int, bool | int], int] = _vote("ballot_sync", "__ballot_sync", U32)
any_sync: Callable[[int, bool | int], bool] = _vote("any_sync", "__any_sync", I32)
all_sync: Callable[[int, bool | int], bool] = _vote("all_sync", "__all_sync", I32)
activemask: Callable[[], int] = _fixed("activemask", Overload((), U32, "__activemask"), of_threads=True)
match_any_sync: Callable[[int, int], int] = _fixed(
    "match_any_sync",
    Overload((U32, U32), U32, "__match_any_sync"),
    Overload((U32, U64), U32, "__match_any_sync"),
    of_threads=True,
)
reduce_add_sync = _warp_reduce("reduce_add_sync", "__reduce_add_sync", I32, U32)
reduce_min_sync = _warp_reduce("reduce_min_sync", "__reduce_min_sync", I32, U32)
reduce_max_sync = _warp_reduce("reduce_max_sync", "__reduce_max_sync", I32, U32)

# Atomics with relaxed order and device scope
atomic_add = _update("atomic_add", "atomicAdd", I32, U32, I64, U64, F32, F64)
atomic_sub = _update("atomic_sub", "atomicSub", I32, U32)
atomic_exch = _update("atomic_exch", "atomicExch", I32, U32, I64, U64, F32)
atomic_min = _update("atomic_min", "atomicMin", I32, U32, I64, U64)
atomic_max = _update("atomic_max", "atomicMax", I32, U32, I64, U64)
atomic_and = _update("atomic_and", "atomicAnd", I32, U32, I64, U64)
atomic_or = _update("atomic_or", "atomicOr", I32, U32, I64, U64)
atomic_xor = _update("atomic_xor", "atomicXor", I32, U32, I64, U64)
atomic_inc = _update("atomic_inc", "atomicInc", U32)
atomic_dec = _update("atomic_dec", "atomicDec", U32)


def _ordered() -> Callable[[ptr[T] | Array[T], T], T]:
    last = ("__NV_ATOMIC_ACQ_REL", "__NV_THREAD_SCOPE_DEVICE")
    spellings = ((U32, "__nv_atomic_fetch_add"), (U64, "__nv_atomic_fetch_add"))
    return _row(Intrinsic("atomic_add_acq_rel", "atomic", (2, 2), spellings, last=last, of_threads=True))


# It orders all accesses before it and after it, like a fence on either side, and costs less.
atomic_add_acq_rel = _ordered()


def _cas() -> Callable[[ptr[T] | Array[T], T, T], T]:
    return _atomic("atomic_cas", "atomicCAS", I32, U32, I64, U64)


atomic_cas = _cas()

clock64: Callable[[], int] = _fixed("clock64", Overload((), I64, "clock64"), of_threads=True)


__all__ = [*INTRINSICS, "INTRINSICS", "Intrinsic", "Overload"]  # pyright: ignore[reportUnsupportedDunderAll]
