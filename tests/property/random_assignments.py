"""Random host programs with two small kernels and many assignments of the variables in grids and arguments.

The kernels are those of `test_checked_fusion`: they need grids that fit the pitch, so most fusions have checks at run
time that are true for some sizes and false for others. Variables are assigned between the launches, in branches and in
loops. So a launch that runs because a check failed shows whether the fusion was moved over an assignment.
"""

from __future__ import annotations

import random

__all__ = ["random_body"]

_NUMBERS = ("n", "m", "k", "j", "q")
_BUFFERS = ("a", "b", "c", "x")


def random_body(seed: int) -> str:
    """The statements of a program with the parameters ``n`` and ``m`` and the buffers ``a``, ``b`` and ``c``."""
    writer = _Body(random.Random(f"assignments:{seed}"))
    if seed % 4:
        writer.chain(writer.rng.randint(3, 4))
    else:
        writer.block("", writer.rng.randint(4, 9), 0)
    return "\n".join(writer.lines)


class _Body:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.last = "a"
        self.lines = ["k = 64", "j = m", "q = n", f"x = {rng.choice('abc')}"]

    def chain(self, count: int) -> None:
        """Write ``count`` launches, each of which reads what the one before it has written, and assignments between
        them."""
        rng = self.rng
        for number in range(count):
            for _ in range(rng.randrange(3) if number else 1):
                self.lines.append(f"{rng.choice('kj')} = {rng.choice(['m', 'm', '32', '64'])}")
            source, target = "abc"[number % 3], "abc"[(number + 1) % 3]
            self.lines.append(
                f"{rng.choice(['one', 'two'])}[({rng.choice('mkkj')} // 32, 4), 32]({source}, {target}, n)"
            )

    def block(self, indent: str, count: int, depth: int) -> None:
        """Write ``count`` statements."""
        rng = self.rng
        for _ in range(count):
            choice = rng.random()
            if choice < 0.5:
                self.lines.append(indent + self.launch())
            elif choice < 0.85 or depth > 1:
                self.lines.append(indent + self.assignment())
            elif choice < 0.93:
                self.lines.append(f"{indent}if {rng.choice(_NUMBERS)} > {rng.choice([32, 64, 90])}:")
                self.block(f"{indent}    ", rng.randint(1, 3), depth + 1)
            else:
                self.lines.append(f"{indent}for i{depth} in range(2):")
                self.block(f"{indent}    ", rng.randint(1, 4), depth + 1)

    def launch(self) -> str:
        """Often an elementwise step of a chain, with the grid and the pitch of the others under some name."""
        rng = self.rng
        blocks = rng.choice(["m // 32", "k // 32", "k // 32", "j // 32", "n // 32", "2", "max(m // 32, 1)"])
        source = self.last if rng.random() < 0.7 else rng.choice(_BUFFERS)
        self.last = rng.choice(_BUFFERS)
        pitch = rng.choice(["n", "n", "n", "q", "64"])
        grid = f"({blocks}, {rng.choice([4, 4, 4, 4, 2])})"
        return f"{rng.choice(['one', 'two'])}[{grid}, 32]({source}, {self.last}, {pitch})"

    def assignment(self) -> str:
        """Often of a variable that names the size of a grid."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.1:
            return f"x = {rng.choice('abc')}"
        if choice < 0.8:
            return f"{rng.choice('kj')} = {rng.choice(['m', 'm', 'm', '32', '64', 'n'])}"
        return f"{rng.choice(_NUMBERS)} = {rng.choice([*_NUMBERS, '32', '96'])}"
