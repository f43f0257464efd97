"""The examples in the help of the actions of `bench`. A test runs them."""

from __future__ import annotations

__all__ = ["EXAMPLES"]

#: By name of an action: the end of its help.
EXAMPLES: dict[str, str] = {
    "list": """\
examples:
  ptxmotion bench list
  ptxmotion bench list rodinia 'parboil/*'
""",
    "run": """\
On a GPU, the variants are timed. On the emulator, their instructions are counted. The outputs are checked on both.

examples:
  ptxmotion bench run pathfinder --variant=-O2 --variant=cse,lcm --json results.json
  ptxmotion bench run pathfinder --backend=emulator --size=tiny --variant=mine=-O3
  ptxmotion bench run rodinia --backend=emulator --size=tiny --dry-run
""",
    "compare": """\
Figures of machine code, counts of the emulator, correctness and verdicts on times are compared.

examples:
  ptxmotion bench compare before.json after.json
  ptxmotion bench compare before.json after.json --fail-on=slower,invalid --threshold='.*:registers=10%'
""",
    "track": """\
examples:
  ptxmotion bench track results.json --baseline baseline.json --update     (the first time)
  ptxmotion bench track results.json --baseline baseline.json
  ptxmotion bench track results.json --baseline baseline.json --fail-on=none --update     (accept changes)
""",
    "history": """\
examples:
  ptxmotion bench history add results.json
  ptxmotion bench history find
""",
    "audit": """\
examples:
  ptxmotion bench audit before.json after.json
""",
    "report": """\
examples:
  ptxmotion bench report results.json -o report
  ptxmotion bench report results.json --format=html --baseline before.json -o report
  ptxmotion bench report results.json --format=svg,markdown -o report     (plots, also of html, need ptxmotion[plots])
""",
    "export": """\
gha: github-action-benchmark; bmf: Bencher; pytest-benchmark: its JSON; csv and markdown: tables.

examples:
  ptxmotion bench export results.json --format csv
  ptxmotion bench export results.json --format gha -o gha.json
""",
}
