"""Pages of the documentation that repeat what stands elsewhere agree with it."""

import re
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli", reason="needs tomli before Python 3.11")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
# What people call them.
SPOKEN = {"torch-geometric": "PyTorch Geometric", "numpy": "NumPy"}


def package(requirement: str) -> str:
    """The package that a requirement is about."""
    return re.split(r"[\[<>=;~! ]", requirement)[0]


def test_the_install_page_names_every_dependency() -> None:
    sentence = INSTALL.split("That brings all the package needs:")[1].split(".")[0]
    for requirement in PROJECT["project"]["dependencies"]:
        name = package(requirement)
        assert SPOKEN.get(name, name) in sentence


def test_the_install_page_names_every_extra() -> None:
    table = INSTALL.split("## Extras")[1].split("\n\n")[1]
    shown = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert len(shown) == len(set(shown))
    assert set(shown) == set(PROJECT["project"]["optional-dependencies"])


def test_the_landing_page_leads_to_every_page_for_users() -> None:
    users = INDEX.split(":caption: Using it\n:hidden:\n\n")[1].split("```")[0].split()
    table = re.findall(r"\{doc\}`([\w/]+)`", INDEX.split("| You want to")[1])
    assert len(users) > 10
    assert set(users) <= set(table)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.stem
)
def test_files_that_pages_name_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:examples|benchmarks|tools|tests|docs)/[\w/]+\.\w+)`", text
    )
    # Architecture names files that the reader is asked to write.
    missing = {name for name in named if not (ROOT / name).exists()}
    assert missing <= {
        "tests/distances/test_logarithmic.py",
        "tests/transforms/test_standardize.py",
    }
