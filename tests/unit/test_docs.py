"""The documentation holds together: links and anchors lead somewhere, pages can be reached, files that are named exist.

`make docs` builds the site with MkDocs and fails for a broken link, too; this test needs no MkDocs.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / "docs" / "experiments"
#: The pages of the site, as `make docs` copies them.
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "golden" / "README.md"],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
#: A backquoted word that looks like a file of the repository.
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]+\.(?:py|md|ptx|cu|json|yml|toml|txt))`|`((?:[\w.-]+/)+)`")
#: The first line of an item of a list, or a row of a table.
_ITEM = re.compile(r"[-*] |\||\d+\. ")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The page without blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^(?: {4}).*$", "", text, flags=re.MULTILINE)


def links(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(re.sub(r"`[^`]*`", "", prose(page))):
        yield match[1] or match[2]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings that GitHub and MkDocs agree on."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading.lower().replace("`", "")).strip()
        if words.replace(" ", "-") == re.sub(r"[-\s]+", "-", words):
            found.add(words.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target in PAGES or target.suffix in (".svg", ".yml"), f"{link} is not a page of the site"
        assert target.is_file(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading; there are {sorted(anchors(target))}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        files = (link.partition("#")[0] for link in links(page))
        waiting += [target for file in files if file and (target := (page.parent / file).resolve()) in PAGES]
    assert reached == set(PAGES)


def test_the_navigation_has_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"([\w./-]+\.md)$", text, re.MULTILINE)) == [name_of(page) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    """A path is given from the root, from the folder of the page, or from the folder that the sentence is about."""
    bases = [ROOT, page.parent, ROOT / "transforms", ROOT / "analysis"]
    for file, folder in _FILE.findall(prose(page)):
        named = file or folder
        if named.startswith(("build/", "suites/SUITE", "/", "tests/ptx/NAME", "results/")) or "<" in named:
            continue
        assert any(next(base.glob(named.rstrip("/")), None) for base in bases), f"there is no {named}"


def test_the_way_of_a_file_names_real_functions() -> None:
    """Each line of the page on the architecture that begins with a file: the file has the names behind it."""
    block = "".join(re.findall(r"^```text\n(.*?)^```$", (ROOT / "docs" / "architecture.md").read_text(), re.M | re.S))
    found = re.findall(r"^(\S+\.py) +(\S.*?)(?: {2,}.*)?$", block, re.MULTILINE)
    assert len(found) > 20
    for file, names in found:
        path = ROOT / file if (ROOT / file).is_file() else ROOT / "transforms" / file
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"[A-Za-z_]{3,}", re.sub(r"\(.*?\)", "", names)):
            assert re.search(rf"\b{name}\b", text), f"{file} has no {name}"


def test_experiments_are_listed() -> None:
    """Each script and each page of the folder is in its index."""
    index = (EXPERIMENTS / "index.md").read_text(encoding="utf-8")
    for path in EXPERIMENTS.iterdir():
        if path.suffix in (".py", ".cu", ".ptx"):
            assert f"`{path.name}`" in index, path.name
        elif path.suffix == ".md" and path.name != "index.md":
            assert f"({path.name}" in index, path.name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lists_and_tables_have_an_empty_line_in_front(page: Path) -> None:
    """Without it, GitHub shows a list or table and Markdown of the site does not."""
    lines = prose(page).splitlines()
    for before, line in pairwise(lines):
        if _ITEM.match(line) and before.strip() and not before.startswith(" "):
            assert _ITEM.match(before), f"{before!r} is followed by {line!r}"
