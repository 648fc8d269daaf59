"""The README: its example runs as typed, its claims agree with its table."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LANDING = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"\d+\.\d+")


def blocks(page: str, kind: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page) if name == kind]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 130


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs what a reader has typed, in a process and a folder of its own."""
    folder.mkdir()
    (folder / "typed.py").write_text(code, encoding="utf-8")
    words = [sys.executable, "-W", "error::SyntaxWarning", "typed.py"]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )


def test_the_first_example_runs_as_typed(tmp_path: Path) -> None:
    install, example = blocks(README, "bash")[0], blocks(README, "python")[0]
    assert README.index(install) < README.index(example)
    # A page of a report needs the extra that the line above installs.
    assert ".to_html(" not in example or "[report]" in install
    pytest.importorskip("vl_convert", reason="needs the extra 'report'")
    done = run(example, tmp_path / "empty")
    assert done.returncode == 0, done.stderr
    shown = blocks(README, "text")[0]
    assert NUMBER.sub("x", done.stdout) == NUMBER.sub("x", shown)
    found, said = (list(map(float, NUMBER.findall(t))) for t in (done.stdout, shown))
    assert found == pytest.approx(said, abs=0.03)  # other processors, other trees
    assert (tmp_path / "empty" / "report.html").stat().st_size > 10_000


def test_the_first_example_of_the_landing_page_is_that_of_the_readme() -> None:
    (install,) = blocks(LANDING, "bash")
    assert install == blocks(README, "bash")[0]
    assert blocks(LANDING, "python")[0] == blocks(README, "python")[0]
    assert blocks(LANDING, "text")[0] == blocks(README, "text")[0]


def rows(page: str) -> dict[str, list[float]]:
    """The means of each method: accuracy, flipped, pairs, gap, gap in true yes."""
    table = page.split("<!-- census -->")[1].split("<!-- end -->")[0]
    found = {}
    for line in table.strip().splitlines()[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found[name] = [float(cell.split()[0]) for cell in cells]
    return found


def test_what_is_said_about_the_table_is_in_the_table() -> None:
    words, table = " ".join(README.split()), rows(README)
    base, glif = table["the model as it is"], table["**GLIFClassifier**"]
    dropped = table["without sex, race, relationship"]
    groups = [row for name, row in table.items() if name.endswith("(groups)")]
    assert "for about .001 of accuracy" in words
    assert 0.0005 < base[0] - glif[0] < 0.0015
    assert glif[2] < base[2] / 2
    said = re.search(r"between the sexes grows from (\.\d+) to (\.\d+)", words)
    assert said is not None
    assert [float(number) for number in said.groups()] == [base[4], glif[4]]
    assert "as accurate, simpler, and exact when flipped; pairs differ more" in words
    assert abs(dropped[0] - base[0]) < 0.001
    assert dropped[1] == 1.0
    assert dropped[2] > glif[2]
    assert "close the gap in decisions, and treat similar people least alike" in words
    assert all(abs(row[3]) < 0.01 for row in groups)
    others = [row for name, row in table.items() if not name.endswith("(groups)")]
    assert min(row[2] for row in groups) > max(row[2] for row in others)


def test_no_seconds_on_the_front_page() -> None:
    # Those of a busy machine say nothing; benchmarks have ratios.
    assert not re.search(r"\bseconds?\b|\d+ ?(s|ms|min)\b", README)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"\]\((?!http)(.*?)\)", README)))
)
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make ([\w-]+)`", README)):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for name in set(re.findall(r"`pyg-glif (\w+)", README)):
        assert (ROOT / "pyg_glif" / "cli" / f"{name}.py").exists()
