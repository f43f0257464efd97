"""Other forms of the comparisons in the text of a program. What it computes stays the same.

An integer comparison ``setp.lt.s32 %p, %a, %b`` becomes one of these:

- the second result of the opposite comparison: ``setp.ge.s32 %x|%p, %a, %b``, or ``_|%p``;
- a comparison with two results, of which the second one is not read;
- a comparison that is combined with a predicate that is always true or always false;
- a copy or the negation of another predicate.

If ``%p`` is written once, some guards ``@%p`` become ``@!%x``, where ``%x`` is the opposite predicate.
"""

from __future__ import annotations

import random
import re

__all__ = ["OPPOSITES", "respelled"]

#: The comparison that holds if and only if the other one does not.
OPPOSITES = {
    "eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "lo": "hs", "hs": "lo", "ls": "hi",
    "hi": "ls",
}  # fmt: skip

_BODY = re.compile(r"^\{$", re.MULTILINE)
_COMPARISON = re.compile(
    r"(?P<guard>@!?[\w%$]+ +)?setp\.(?P<relation>" + "|".join(OPPOSITES) + r")\.(?P<type>[bsu]\d+) "
    r"(?P<result>[%\w$]+), (?P<sources>[^;|]+);"
)
#: A guard and the predicate that it reads.
_GUARD = re.compile(r"@(!?)(%?[\w$]+)")


def respelled(ptx: str, rng: random.Random, share: float = 0.35) -> str:
    """``ptx`` with a ``share`` of its comparisons in another form. A body begins at a line ``{``."""
    head, *bodies = _BODY.split(ptx)
    return "{".join([head, *(_Body(body, rng).respelled(share) for body in bodies)])


class _Body:
    """The text of one function. ``opposites`` maps a predicate to a register that always has the opposite value."""

    def __init__(self, text: str, rng: random.Random) -> None:
        self.text = text
        self.rng = rng
        self.count = 0
        self.opposites: dict[str, str] = {}

    def respelled(self, share: float) -> str:
        def one(match: re.Match[str]) -> str:
            return self.comparison(match) if self.rng.random() < share else match[0]

        text = _COMPARISON.sub(one, self.text)
        text = _GUARD.sub(self.guard, text)
        return (f"\n\t.reg .pred %other<{self.count}>;" if self.count else "") + text

    def new(self) -> str:
        self.count += 1
        return f"%other{self.count - 1}"

    def comparison(self, match: re.Match[str]) -> str:
        guard, relation, kind, result, sources = match.group("guard", "relation", "type", "result", "sources")
        guard = guard or ""
        opposite = f"{guard}setp.{OPPOSITES[relation]}.{kind}"
        way = self.rng.random()
        if way < 0.15:
            return f"{guard}setp.{relation}.{kind} {result}|{self.new()}, {sources};"
        if way < 0.25 and not guard:  # ptxas 13.0 may crash if a guarded comparison has no first result
            return f"{opposite} _|{result}, {sources};"
        if way < 0.6:
            other = self.new()
            if not guard and result.startswith("%") and self.is_written_once(result):  # others may be parameters
                self.opposites[result] = other
            return f"{opposite} {other}|{result}, {sources};"
        other = self.new()
        if way < 0.7:
            return f"{guard}setp.{relation}.{kind} {other}, {sources}; {guard}mov.pred {result}, {other};"
        if way < 0.8:
            return f"{opposite} {other}, {sources}; {guard}not.pred {result}, {other};"
        return self.combined(guard, relation, kind, result, sources, other)

    def combined(self, guard: str, relation: str, kind: str, result: str, sources: str, fixed: str) -> str:
        """The comparison, combined with the predicate ``fixed``, which is set to true or to false before."""
        operation = self.rng.choice(["and", "or", "xor"])
        first = sources.partition(",")[0]
        always = "eq" if operation == "and" else "ne"
        constant = f"{guard}setp.{always}.{kind} {fixed}, {first}, {first}; "
        if self.rng.random() < 0.5:
            return f"{constant}{guard}setp.{relation}.{operation}.{kind} {result}, {sources}, {fixed};"
        relation = OPPOSITES[relation]
        return f"{constant}{guard}setp.{relation}.{operation}.{kind} {self.new()}|{result}, {sources}, {fixed};"

    def is_written_once(self, register: str) -> bool:
        """Whether the text names the register once other than as a source or in a guard."""
        name = re.escape(register)
        if re.search(rf"call[^;]*{name}\b", self.text):
            return False
        return len(re.findall(rf"(?<!@)(?<!!)(?<!, ){name}\b", self.text)) == 1

    def guard(self, match: re.Match[str]) -> str:
        negation, register = match.groups()
        other = self.opposites.get(register)
        if other is None or self.rng.random() < 0.5:
            return match[0]
        return f"@{'' if negation else '!'}{other}"
