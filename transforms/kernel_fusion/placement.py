"""The addresses of a kernel's accesses at one of its launches, in thread coordinates and host quantities.

Computes: the polynomial of an access in which the launch's extents and arguments are substituted. Atoms that differ
between threads carry the number of the launch, 0 or 1, so that the threads of the two launches are distinguished. Host
quantities are the same in both launches. A word that was extended from 32 bits becomes the plain polynomial if the
value is shown to be in range.
Guarantees: an exact polynomial is exact for every thread of the launch. A parameter whose argument is not known is
``unnamed``: it has the same value in all threads of its launch, and is not known to be equal to anything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.memory.thread_accesses import Access, Comparison
from ...analysis.values.polynomial import Atom, Poly, TooManyTerms, constant, variable
from ...analysis.values.thread_affine import coordinate, fits, range_of
from .host_values import Bounds, HostValues, Signs, interval, narrowed
from .launch_site import Buffer, LaunchSite, Scalar

__all__ = ["AXES", "VARYING", "Target", "Placement", "bounds_of_names"]

AXES = "xyz"

#: Kinds of atoms whose values differ between threads.
VARYING = frozenset(["tid", "ctaid", "gid", "turn", "opaque", "word"])

#: The largest extents that CUDA allows.
_MOST = {
    "block": {"x": 1024, "y": 1024, "z": 64},
    "grid": {"x": 2**31 - 1, "y": 65535, "z": 65535},
}


def bounds_of_names(sites: tuple[LaunchSite, LaunchSite]) -> dict[str, Bounds]:
    """Bounds of host expressions that follow from the launches: extents are at least 1, and arguments fit into their
    parameters."""
    by_name: dict[str, Bounds] = {}

    def note(value: object, bounds: Bounds) -> None:
        if isinstance(value, str):
            by_name[value] = narrowed(by_name.get(value, (None, None)), bounds)

    for site in sites:
        for what, extents in (("grid", site.grid), ("block", site.block)):
            for axis, extent in zip(AXES, extents, strict=True):
                note(extent, (1, _MOST[what][axis]))
        for param in site.kernel.params or ():
            argument = site.arguments.get(param.name)
            if isinstance(argument, Scalar) and not param.type.is_float and not param.dims:
                bits = param.type.bits
                note(argument.value, argument.bounds or (range_of("s", bits)[0], range_of("u", bits)[1]))
    return by_name


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an access: a device allocation by name, and the offset from its start. Atoms that differ between
    threads carry the launch's number. ``upper`` and ``lower`` map an atom to its bounds under the conditions that guard
    the access."""

    buffer: str
    offset: Poly
    upper: dict[Atom, list[Bound]]
    lower: dict[Atom, list[Bound]]


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound that holds if each polynomial of ``conditions`` is positive."""

    value: Poly
    conditions: tuple[Poly, ...] = ()


class Placement:
    """One launch, as number 0 or 1 of the two."""

    def __init__(self, site: LaunchSite, number: int, values: HostValues, signs: Signs) -> None:
        self.site = site
        self.number = number
        self.values = values
        self.signs = signs
        self.grid = [values.poly(extent) for extent in site.grid]
        self.block = [values.poly(extent) for extent in site.block]
        self._params = {param.name: param for param in site.kernel.params or ()}
        self._atoms: dict[Atom, Poly] = {}
        self._turns: dict[Atom, Atom] = {}

    def axis(self, kind: str, axis: str) -> Poly:
        """``tid`` or ``ctaid`` of this launch. It is 0 if the extent is 1."""
        return self._of(coordinate(kind, axis))

    def extent(self, kind: str, axis: str) -> Poly:
        """The number of values that ``tid`` or ``ctaid`` can have."""
        return (self.block if kind == "tid" else self.grid)[AXES.index(axis)]

    def place(self, access: Access) -> Target | None:
        """The target of the access. ``None`` if its address is not one buffer and an offset."""
        buffers = [
            (atom, argument)
            for monomial, coefficient in access.address.terms
            if len(monomial) == 1 and coefficient == 1
            for atom in monomial
            if atom.kind == "param" and isinstance(argument := self.site.arguments.get(atom.name), Buffer)
        ]
        if len(buffers) != 1:
            return None
        atom, argument = buffers[0]
        try:
            offset = self.poly(access.address - variable(atom)) + self.values.poly(argument.offset)
        except TooManyTerms:
            return None
        if any(other.kind in ("unnamed", "symbol", "pointer") for other in offset.atoms):
            return None
        upper, lower = self._bounds(access.guards)
        return Target(argument.name, offset, upper, lower)

    # --- polynomials ---------------------------------------------------------------------------------------------

    def poly(self, poly: Poly) -> Poly:
        """The polynomial with this launch's values substituted. Raises `TooManyTerms`."""
        return poly.substitute({atom: self._of(atom) for atom in poly.atoms})

    def _of(self, atom: Atom) -> Poly:
        form = self._atoms.get(atom)
        if form is None:
            form = self._atoms[atom] = self._placed(atom)
        return form

    def _placed(self, atom: Atom) -> Poly:
        kind, name = atom.kind, atom.name
        if kind in ("tid", "ctaid"):
            extent = self.extent(kind, name[-1])
            if extent.is_constant and extent.value == 1:
                return constant(0)
            high = interval(extent)[1]
            return variable(Atom(kind, f"{name}#{self.number}", 0, (high if high is not None else 2**31) - 1))
        if kind in ("ntid", "nctaid"):
            return self.extent("tid" if kind == "ntid" else "ctaid", name[-1])
        if kind == "param":
            return self._param(atom)
        if kind == "extended":
            return self._extended(atom)
        if kind == "symbol":
            return variable(Atom("symbol", f"{name}#{self.number}"))
        return variable(Atom(kind, f"{name}#{self.number}", atom.low, atom.high))

    def _param(self, atom: Atom) -> Poly:
        argument = self.site.arguments.get(atom.name)
        if isinstance(argument, Scalar) and atom.name in self._params and not self._params[atom.name].dims:
            if isinstance(argument.value, str) and not self._params[atom.name].type.is_float:
                return self.values.poly(argument.value)
            if isinstance(argument.value, int):
                return constant(int(argument.value))
        kind = "pointer" if isinstance(argument, Buffer) else "unnamed"
        return variable(Atom(kind, f"{atom.name}#{self.number}"))

    def _extended(self, atom: Atom) -> Poly:
        assert atom.inner is not None
        inner = self.poly(atom.inner)
        kind = atom.name[0]
        if inner.is_constant:
            value = inner.value & 0xFFFF_FFFF
            return constant(value - (1 << 32) if value > range_of(kind, 32)[1] else value)
        if fits(interval(inner), kind, 32):
            return inner
        least, greatest = self.extreme(inner, -1), self.extreme(inner, 1)
        if (
            least is not None
            and greatest is not None
            and self.signs.ensure_positive(in_range(least, greatest, kind, 32))
        ):
            return inner
        varies = any(each.kind in VARYING for each in inner.atoms)
        return variable(Atom("word" if varies else "uniform", f"{kind}32({inner})", atom.low, atom.high, inner))

    # --- guards --------------------------------------------------------------------------------------------------

    def _bounds(self, guards: tuple[Comparison, ...]) -> tuple[dict[Atom, list[Bound]], dict[Atom, list[Bound]]]:
        upper: dict[Atom, list[Bound]] = {}
        lower: dict[Atom, list[Bound]] = {}
        for guard in guards:
            try:
                self._guard(guard, upper, lower)
            except TooManyTerms:
                continue
        return upper, lower

    def _guard(self, guard: Comparison, upper: dict[Atom, list[Bound]], lower: dict[Atom, list[Bound]]) -> None:
        if guard.relation == "ne" or (guard.kind == "b" and guard.relation != "eq"):
            return
        kind = "u" if guard.kind == "b" else guard.kind
        left, left_conditions = self._number(self.poly(guard.left), kind, guard.bits)
        right, right_conditions = self._number(self.poly(guard.right), kind, guard.bits)
        if left is None or right is None:
            return
        conditions = (*left_conditions, *right_conditions)
        # The guard says that ``slack`` is at least 0.
        slack = right - left - (1 if guard.relation == "lt" else 0)
        for sign in (1, -1) if guard.relation == "eq" else (1,):
            self._linear(slack * sign, conditions, upper, lower)

    def _number(self, poly: Poly, kind: str, bits: int) -> tuple[Poly | None, tuple[Poly, ...]]:
        """The word as an integer, and the polynomials that must be positive for this."""
        if fits(interval(poly), kind, bits):
            return poly, ()
        highest, lowest = self.extreme(poly, 1), self.extreme(poly, -1)
        if highest is None or lowest is None:
            return None, ()
        return poly, tuple(in_range(lowest, highest, kind, bits))

    def extreme(self, poly: Poly, sign: int) -> Poly | None:
        """An upper (``sign`` 1) or lower (-1) bound over the coordinates of all threads, in host quantities."""
        total = constant(0)
        for atom, coefficient in linear(poly, VARYING) or ():
            if atom is None:
                total = total + coefficient
                continue
            if self.signs.is_positive(coefficient + 1):
                goes_up = True
            elif self.signs.is_positive(1 - coefficient):
                goes_up = False
            else:
                return None
            if goes_up == (sign > 0):
                bound = self._greatest(atom)
                if bound is None:
                    return None
                total = total + coefficient * bound
            elif atom.low is None:
                return None
            else:
                total = total + coefficient * atom.low
        return total if linear(poly, VARYING) is not None else None

    def _greatest(self, atom: Atom) -> Poly | None:
        if atom.kind in ("tid", "ctaid"):
            return self.extent(atom.kind, atom.name.partition("#")[0][-1]) - 1
        return constant(atom.high) if atom.high is not None else None

    def _linear(
        self,
        slack: Poly,
        conditions: tuple[Poly, ...],
        upper: dict[Atom, list[Bound]],
        lower: dict[Atom, list[Bound]],
    ) -> None:
        """Add the bound that ``slack >= 0`` gives, if it contains only one coordinate or one global index."""
        parts = linear(self.with_global_index(slack), VARYING)
        if parts is None:
            return
        varying = [(atom, coefficient) for atom, coefficient in parts if atom is not None]
        if len(varying) != 1 or not varying[0][1].is_constant:
            return
        atom, factor = varying[0][0], varying[0][1].value
        rest = next((coefficient for each, coefficient in parts if each is None), constant(0))
        if factor == 1:
            lower.setdefault(atom, []).append(Bound(-rest, conditions))
        elif factor == -1:
            upper.setdefault(atom, []).append(Bound(rest, conditions))

    def with_global_index(self, poly: Poly) -> Poly:
        """The polynomial with ``gid.x`` instead of ``ctaid.x * ntid.x + tid.x``, and the same for the other axes."""
        for axis in AXES:
            tid, ctaid = self.axis("tid", axis), self.axis("ctaid", axis)
            if tid.is_constant or ctaid.is_constant:
                continue
            thread, block = next(iter(tid.atoms)), next(iter(ctaid.atoms))
            a, b = poly.coefficient(thread), poly.coefficient(block)
            if a is None or b is None or not a.terms or a * self.extent("tid", axis) != b:
                continue
            poly = poly - a * tid - b * ctaid + a * variable(self.global_index(axis))
        return poly

    def global_index(self, axis: str) -> Atom:
        """The atom for ``ctaid * ntid + tid`` of one axis."""
        high = interval(self.extent("tid", axis) * self.extent("ctaid", axis))[1]
        return Atom("gid", f"gid.{axis}#{self.number}", 0, high - 1 if high is not None else None)

    def greatest(self, atom: Atom) -> Poly | None:
        """The greatest value of a varying atom of this launch, without its guards."""
        if atom.kind == "gid":
            axis = atom.name.partition("#")[0][-1]
            return self.extent("tid", axis) * self.extent("ctaid", axis) - 1
        return self._greatest(atom)


def in_range(lowest: Poly, highest: Poly, kind: str, bits: int) -> list[Poly]:
    """Polynomials that are positive if all values from ``lowest`` to ``highest`` fit into the type."""
    low, high = range_of(kind, bits)
    return [constant(high + 1) - highest, lowest - (low - 1)]


def linear(poly: Poly, varying: frozenset[str]) -> list[tuple[Atom | None, Poly]] | None:
    """The coefficient of each varying atom, and under ``None`` the remaining terms. ``None`` if a term contains two
    varying atoms."""
    coefficients: dict[Atom | None, Poly] = {}
    for monomial, coefficient in poly.terms:
        here = [atom for atom in monomial if atom.kind in varying]
        if len(here) > 1:
            return None
        atom = here[0] if here else None
        rest = tuple([each for each in monomial if each.kind not in varying])
        coefficients[atom] = coefficients.get(atom, constant(0)) + Poly(((rest, coefficient),))
    return list(coefficients.items())
