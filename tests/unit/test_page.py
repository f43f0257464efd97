"""The page of a report: its parts, what it escapes, that it loads nothing, and the code that it shows."""

import copy
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_runs import arm, session, task
from own_kernels import COALESCED, STRIDED, write_program, write_ptx
from ptxmotion.cli import main
from ptxmotion.harness.code_view import (
    LONGEST,
    CodeView,
    Note,
    machine_code,
    machine_key,
    numbered,
    ptx_key,
    side_by_side,
)
from ptxmotion.harness.compare import Change, compare_results
from ptxmotion.harness.history import entry_of, series_of, steps_of
from ptxmotion.harness.page import code_page, result_page
from ptxmotion.harness.page_tables import Since
from ptxmotion.harness.results import ResultFile, read, settle

PLANTED = Path(__file__).parents[1] / "results" / "h200_planted.json"
SUITES = PLANTED.with_name("suites_full_h200.json")

pytest.importorskip("matplotlib")


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects ids, links and text."""

    VOID = frozenset("meta input br col".split())

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("href", "src"):
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def timed() -> ResultFile:
    tasks = [
        task("suite/a", arm("O3", "honest 1e-4"), arm("lcm", "honest 0.9e-4"), arm("bad", "nan 1e-4")),
        task("suite/b<script>alert(1)</script>", arm("O3", "honest 1e-3"), arm("lcm", "honest 1.001e-3")),
    ]
    return session().run(tasks)


def test_a_page_has_all_parts_and_loads_nothing(timed: ResultFile) -> None:
    text = result_page(timed)
    page = Page(text)
    for part in ("Summary", "Results", "Programs", "Machine and protocol", "FASTER", "MISMATCH"):
        assert part in page.text, part
    assert "<script>alert" not in text
    assert "suite/b<script>alert(1)</script>" in page.text
    assert text.count("<script>") == 1 and text.count('class="plot"') == 2
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert not re.findall(r"(?:src|href|url|@import)\W+(?:https?:)?//", text)
    assert "default-src 'none'" in text
    assert result_page(timed) == text


def test_an_interrupted_run_and_an_error_are_shown(timed: ResultFile) -> None:
    result = copy.deepcopy(timed)
    result.complete = False
    result.benchmarks[0].error = "it <broke>\nbadly"
    page = Page(result_page(result))
    assert "interrupted" in page.text and "it <broke>\nbadly" in page.text


def test_what_got_slower_comes_first() -> None:
    result = read(SUITES)
    text = result_page(result)
    verdicts = re.findall(r'<tr data-verdict="(\w+)"', text.partition('id="results"')[2])
    order = ["SLOWER", "FASTER", "SAME", "IDENTICAL"]
    assert list(dict.fromkeys(verdicts)) == order and verdicts == sorted(verdicts, key=order.index)
    slower = text.partition("<h2>Slower variants</h2>")[2].partition("<h2>")[0]
    assert slower.count('data-verdict="SLOWER"') == verdicts.count("SLOWER") > 0
    assert "FASTER" not in slower and "These are slower than O3" in Page(slower).text
    # The slowest is the first one, with the figures that differ.
    speedups = [float(key) for key in re.findall(r'data-key="([\d.]+)"', slower)]
    assert speedups == sorted(speedups) and "code size of needle_1 9856 → 9472" in Page(slower).text
    assert '<a href="#results" data-verdict="SLOWER">' in text
    result.benchmarks = [each for each in result.benchmarks if all(c.verdict != "SLOWER" for c in each.candidates)]
    settle(result)
    assert "No variant is slower than O3." in Page(result_page(result)).text


def test_changes_since_a_baseline_come_before_all(timed: ResultFile) -> None:
    before = copy.deepcopy(timed)
    after = copy.deepcopy(timed)
    for result, registers in ((before, 20), (after, 23)):
        for each in result.benchmarks[0].arms:
            each.static["scale"]["registers"] = registers
    changes = compare_results(before, after)
    text = result_page(after, since=Since("<base>.json", before, changes))
    assert text.index("Since the baseline") < text.index("<h2>Summary")
    part = text.partition("<h2>Since the baseline</h2>")[2].partition("<h2>")[0]
    words = Page(part).text
    assert "registers of scale" in words and "suite/a" in words and "<base>.json" in words
    # What all variants of a program share is one row.
    assert part.count("registers of scale") == 1
    # Kernels have their names of the source.
    mangled = Change("worse", "suite/a:O3:_Z6squarePii:registers", 20, 23, unit="registers per thread")
    page = Page(result_page(after, since=Since("b.json", before, [mangled])))
    assert "registers of square(int*, int)" in page.text
    equal = result_page(before, since=Since("b.json", before, compare_results(before, before)))
    assert ("No figure and no verdict differs" in equal) == (not compare_results(before, before))


def test_trends_have_their_steps(timed: ResultFile) -> None:
    entries = [entry_of(timed) for _ in range(2)]
    entries[1].commit["id"] = "f" * 40
    entries[1].results["suite/a"]["lcm"]["scale:registers"] += 5
    series = series_of(entries)
    page = Page(result_page(timed, history=series, steps=steps_of([s for s in series if s.figure != "time"])))
    assert "suite/a lcm scale:registers" in page.text and "at ffffffffffff" in page.text
    assert "No figure has changed." in Page(result_page(timed, history=series_of(entries[:1]))).text


# --- code


def test_lines_side_by_side() -> None:
    left = [f"line {i}" for i in range(40)]
    right = [*left[:20], "new", *left[21:]]
    rows = side_by_side(numbered(left), numbered(right), {5: [Note("Missed", "why")]})
    assert [row.skipped for row in rows if row.skipped] == [1, 9, 16]
    assert [(row.left, row.right) for row in rows if not row.is_equal] == [((21, "line 20"), (21, "new"))]
    assert [row.left for row in rows if row.notes] == [(5, "line 4")]
    assert len(side_by_side(numbered(left), [])) == 40
    long = side_by_side(numbered(["x"] * (LONGEST + 9)), [])
    assert len(long) == LONGEST + 1 and long[-1].skipped == -1


def test_spaces_and_registers_are_not_compared() -> None:
    assert ptx_key("\tmov.u32 \t%r1, %r2;") == ptx_key("mov.u32 %r1, %r2;") != ptx_key("mov.u32 %r1, %r3;")
    assert machine_key("@P0 BRA `(.L_x_1) ;") == machine_key("@P1 BRA `(.L_x_22) ;")
    assert machine_key("IADD3 R1, R2, 0x10 ;") != machine_key("IADD3 R1, R2, 0x20 ;")
    assert machine_key("IADD3 R1, R2, RZ ;") != machine_key("IADD3 R1, R2, R3 ;")


def test_the_machine_code_of_each_kernel() -> None:
    text = """
//--------------------- .text.one                  --------------------------
\t.section\t.text.one,"ax",@progbits
.text.one:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   EXIT ;
        /*0020*/                   NOP;
.L_x_2:


//--------------------- .text.two                  --------------------------
        /*0000*/                   EXIT ;
//--------------------- SYMBOLS --------------------------
"""
    assert machine_code(text) == {"one": ["    LDC R1, c[0x0][0x28] ;", ".L_x_1:", "    EXIT ;"], "two": ["    EXIT ;"]}


def test_a_page_of_code_says_what_is_missing() -> None:
    page = Page(code_page("opt x.ptx", "no kernel changed", [CodeView("k", missing="no <PTX>")]))
    assert "no <PTX>" in page.text
    assert "no kernel" in Page(code_page("opt x.ptx", "", [])).text


_PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .u64 %a; .reg .u32 %r<5>;
  ld.param.u64 %a, [p];
  mov.u32 %r0, %tid.x;
  mad.lo.u32 %r1, %r0, %r0, 7;
  st.global.u32 [%a], %r1;
  ld.global.u32 %r2, [%a+4];
  st.global.u32 [%a+4], %r0;
  ld.global.u32 %r3, [%a+4];
  mad.lo.u32 %r4, %r0, %r0, 7;
  add.u32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r2;
  st.global.u32 [%a+8], %r3;
  ret;
}
.visible .entry other() { ret; }
"""


def test_opt_writes_a_page_of_its_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in" / "kernel.ptx"
    source.parent.mkdir()
    source.write_text(_PTX)
    assert main(["opt", "--passes=lcm,dce", str(source), "-o", "out.ptx", "--report=html"]) == 0
    assert "the report: out.html" in capfd.readouterr().err
    page = Page(Path("out.html").read_text())
    assert "1 of 2 kernels changed; passes: lcm, dce" in page.text
    assert "mad.lo.u32 %r4, %r0, %r0, 7;" in page.text
    # A remark is below the line of its instruction.
    rows = re.findall(r"<tr.*?</tr>", Path("out.html").read_text(), re.DOTALL)
    (at,) = [number for number, row in enumerate(rows) if "done: lcm: &#x27;mad.lo.u32&#x27;" in row]
    assert "mad.lo.u32 %r4, %r0, %r0, 7;" in rows[at - 1] and '<td class="l">14</td>' in rows[at - 1]
    assert re.search(r"refused: lcm: 'ld\.global\.u32' .*\[memory-store\]", page.text)
    assert "Machine code" in page.text or "the machine code" in page.text
    # The optimized file does not depend on the report.
    assert main(["opt", "--passes=lcm,dce", str(source)]) == 0
    assert capfd.readouterr().out == Path("out.ptx").read_text()
    # Where the output is stdout, the page has the name of the input.
    assert main(["opt", "--passes=lcm,dce", str(source), "--report=html"]) == 0
    assert Path("kernel.html").read_text() == Path("out.html").read_text()
    assert main(["opt", str(source.parent), "-o", "folder", "--report=html", "--passes=dce"]) == 0
    assert Path("folder/kernel.html").is_file()


def test_a_report_has_the_code_of_variants_and_the_history(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_ptx(tmp_path / "bad.ptx", STRIDED)
    program = write_program(tmp_path / "mine.py", COALESCED)
    run = ["bench", "run", str(program), "--backend=emulator", "--seeds=1", "--variant=bad.ptx", "--json=r.json"]
    assert main(run) == 0
    assert main(["bench", "history", "add", "r.json", "--folder=h"]) == 0
    assert main(["bench", "report", "r.json", "--format=html", "-o", "report", "--history=h"]) == 0
    assert "report/report.html" in capfd.readouterr().out
    page = Page((tmp_path / "report" / "report.html").read_text())
    assert "Code: scale" in page.text and "S2R" in page.text and "No figure has changed." in page.text
    assert "WORSE" in page.text and "512" in page.text and "+700.0 %" in page.text
    # Without the cache the page says so.
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "empty"))
    assert main(["bench", "report", "r.json", "--format=html", "-o", "report"]) == 0
    text = Page((tmp_path / "report" / "report.html").read_text()).text
    assert "not in the cache of this machine" in text and "S2R" not in text


def test_a_result_of_a_gpu_has_intervals() -> None:
    result = read(PLANTED)
    result.benchmarks = result.benchmarks[:2]
    text = result_page(result)
    assert text.count('class="plot"') == 2 and "faster than O3, in %" in text
