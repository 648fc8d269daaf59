"""Pages of the documentation that repeat what stands elsewhere agree with it."""

import re
from pathlib import Path

import pytest

from tests.test_imports import RANKS

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli", reason="needs tomli before Python 3.11")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_install_page_names_every_extra() -> None:
    table = INSTALL.split("## Extras")[1].split("\n\n")[1]
    shown = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert len(shown) == len(set(shown))
    assert set(shown) == set(PROJECT["project"]["optional-dependencies"])


def test_the_landing_page_leads_to_every_page_for_users() -> None:
    sections = re.findall(r"^:caption: (.*)\n:hidden:\n\n([^`]+)```", INDEX, re.M)
    users = {
        page
        for caption, pages in sections
        if caption != "Developers"
        for page in pages.split()
    }
    table = re.findall(r"\{doc\}`([\w/]+)`", INDEX.split("| You want to")[1])
    assert len(users) > 20
    assert users - set(table) <= {"references", "changelog"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.stem
)
def test_files_that_pages_name_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # Its steps name files that the reader is asked to write.
    if path.stem == "architecture":
        text = text.split("## Adding")[0] + text.split("## Building")[1]
    pattern = r"`((?:examples|benchmarks|tools|tests|docs)/[\w/]+\.\w+)`"
    for name in re.findall(pattern, text):
        assert (ROOT / name).exists(), name


def table_after(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table below some words."""
    lines = text.split(heading)[1].split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_architecture_page_has_every_part_and_its_rank() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = {}
    for rank, modules, *_ in table_after(page, "fails on any other arrow."):
        for name in re.findall(r"`([\w.]+)/?`", modules):
            shown[name.removesuffix(".py")] = int(rank)
    package = ROOT / "pyg_glif"
    parts = {p.stem for p in package.iterdir() if p.suffix == ".py" or is_package(p)}
    parts -= {"__init__", "__main__"}
    assert set(shown) == parts
    for part in parts:
        assert shown[part] == (0 if part.startswith("_") else RANKS[part][0]), part


def is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()
