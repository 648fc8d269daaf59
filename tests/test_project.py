"""Files around the code parse, and agree with pyproject.toml."""

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli", reason="needs tomli before Python 3.11")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HIDDEN = [ROOT / ".pre-commit-config.yaml", ROOT / ".readthedocs.yaml"]
YAML = [*HIDDEN, ROOT / "CITATION.cff", *sorted((ROOT / ".github").rglob("*.yml"))]


def read(path: Path | str) -> dict[str, Any]:
    found = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def pins(name: str) -> dict[str, list[str]]:
    """Package and pinned versions of a constraints file, one for each marker."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            package, version = line.split(";")[0].split("==")
            found.setdefault(package.strip().lower(), []).append(version.strip())
    return found


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_it_is_yaml(path: Path) -> None:
    assert read(path)


def test_no_file_holds_both_sides_of_a_merge() -> None:
    folders = ("", ".ci", ".github", "benchmarks", "docs", "examples", "tools")
    files = [path for folder in folders for path in (ROOT / folder).glob("*")]
    files += [p for name in ("pyg_glif", "tests") for p in (ROOT / name).rglob("*")]
    kinds = {"", ".css", ".html", ".js", ".md", ".py", ".pyi", ".toml", ".txt", ".yml"}
    texts = [path for path in files if path.is_file() and path.suffix in kinds]
    assert ROOT / "CHANGELOG.md" in texts
    for path in texts:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^(<{7}|>{7}) ", text, re.M), path


def test_one_version_everywhere() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    released = re.findall(
        r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.M
    )
    assert released, "the changelog must have a dated section"
    assert released[0] == (citation["version"], citation["date-released"])
    assert released == sorted(released, key=lambda found: parts(found[0]), reverse=True)


def test_ci_tests_every_python_that_is_declared() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    versions = jobs["tests"]["strategy"]["matrix"]["python-version"]
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=")
    declared = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if " :: 3." in c]
    assert versions == declared


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", ".ci/run"])
def test_ci_runs_the_list_of_the_makefile(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    targets = set(re.findall(r"^\W*(?:run: )?make ([\w-]+)", text, re.M))
    assert "ci" in targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^CI := (.*)$", makefile, re.M)
    assert {"lint", "docs", "demo", "test"} <= set(listed.split())
    for target in targets | set(listed.split()):
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "workflows").iterdir()), ids=lambda p: p.name
)
def test_actions_are_named_by_their_commit(path: Path) -> None:
    # A tag or branch may be moved to other code; the comment says which version it is.
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_the_hooks_have_the_version_of_make_lint() -> None:
    (repo,) = read(".pre-commit-config.yaml")["repos"]
    assert [repo["rev"].removeprefix("v")] == pins("constraints.txt")["ruff"]


def requirements() -> list[str]:
    """What the package itself imports, now or when an extra is there."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"]]
    for name in ("plots", "files", "report", "serve", "ray"):
        wanted += [r for r in extras[name] if not r.startswith("pyg_glif")]
    return wanted


@pytest.mark.parametrize("requirement", requirements())
def test_floors_are_tested(requirement: str) -> None:
    package, floor = requirement.split(";")[0].split(">=")
    (oldest,) = pins("constraints-oldest.txt")[package.lower()]
    short = parts(floor)
    assert parts(oldest)[: len(short)] == short
    newest = pins("constraints.txt")[package.lower()]
    assert all(parts(version) >= short for version in newest)


# Distributions by the names that they are imported by, where these differ.
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "prometheus_client": "prometheus-client",
    "lazy_loader": "lazy-loader",
    "pytorch_lightning": "pytorch-lightning",
    "torch_geometric": "torch-geometric",
}
# What comes with a front door, by its folder; all else of the package is always there.
FRONT_DOORS = {"serve": "serve", "distributed": "ray", "reporting": "report"}
# Parts of a declared distribution.
BELOW = {
    "typing_extensions": "torch",
    "markupsafe": "jinja2",
    "anyio": "fastapi",
    "starlette": "fastapi",
    "pydantic": "fastapi",
    "pydantic_core": "fastapi",
}


def imported(path: Path) -> set[str]:
    """Packages that a module imports by a statement, now or when a function runs."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found - set(sys.stdlib_module_names) - {"pyg_glif"}


def declared(*extras: str) -> set[str]:
    """Packages that come with the base and with extras."""
    wanted = [*PROJECT["dependencies"]]
    for name in extras:
        wanted += PROJECT["optional-dependencies"][name]
    found = {re.split(r"[\[<>=;]", requirement)[0] for requirement in wanted}
    return found | (declared("report") if "pyg_glif" in found else set())


@pytest.mark.parametrize(
    "part", sorted({p.parent.name for p in (ROOT / "pyg_glif").glob("*/*.py")} | {""})
)
def test_what_is_imported_is_declared(part: str) -> None:
    folder = ROOT / "pyg_glif" / part
    files = folder.rglob("*.py") if part else folder.glob("*.py")
    names = {name for path in files for name in imported(path)}
    names = {BELOW.get(name, DISTRIBUTIONS.get(name, name)) for name in names}
    extras = [FRONT_DOORS[part]] if part in FRONT_DOORS else []
    assert names <= declared(*extras)


def test_no_extra_is_empty() -> None:
    for name in PROJECT["optional-dependencies"]:
        assert declared(name) > declared(), name


def test_nothing_else_is_pinned_as_oldest() -> None:
    packages = {requirement.split(">=")[0].lower() for requirement in requirements()}
    assert set(pins("constraints-oldest.txt")) == packages
