"""The README: its example runs as typed, its links and commands exist."""

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
