"""Committed results are in the words of the code that writes them."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from experiments import EXPERIMENTS, SENTIMENT, Record, Run
from experiments._graph_report import ALIKE, GUIDE, MATCHED
from experiments.graphs import GraphExperiment
from experiments.records import UNMATCHED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
METRICS = ("accuracy", "name_std", "relative_std", "race_gap", "gender_gap")


@pytest.fixture
def tool() -> ModuleType:
    """The script that writes the pages."""
    path = ROOT / "tools" / "write_results.py"
    spec = importlib.util.spec_from_file_location("write_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def some_runs(num_seeds: int) -> list[Run]:
    """A baseline, with numbers that are easy to tell from measured ones."""
    record = Record("Baseline", {}, dict.fromkeys(METRICS, 123.0), chosen=True)
    return [Run("sentiment", "us", seed, {}, (record,)) for seed in range(num_seeds)]


def words(page: str) -> list[str]:
    """All lines of a page but the rows of its tables."""
    heads = [line for line in page.splitlines() if line.startswith(("| method", "| -"))]
    rest = [line for line in page.splitlines() if not line.startswith("|")]
    return [*heads, *rest]


@pytest.mark.parametrize(("name", "num"), [("demo", 1), ("sentiment_us", 10)])
def test_pages_of_sentiment_are_in_the_words_of_the_writer(name: str, num: int) -> None:
    page = (RESULTS / f"{name}.md").read_text()
    assert words(page) == words(SENTIMENT.report(some_runs(num)).to_markdown())


def test_readme_shows_the_census(tool: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (RESULTS / "adult_uci.md").read_text(encoding="utf-8")
    assert tool.show_census(readme, page) == readme


def test_tool_reads_runs_of_every_experiment(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for run in reversed(some_runs(12)):
        run.write(tmp_path / "a")
    replace(some_runs(1)[0], experiment="bios", variant="text").write(tmp_path)
    found = tool.read([tmp_path, tmp_path / "a"])
    assert list(found) == ["bios_text", "sentiment_us"]
    assert [run.seed for run in found["sentiment_us"]] == list(range(12))


def test_kept_runs_are_read_like_files(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "RECORDS", tmp_path)
    tool.keep("sentiment_us", some_runs(3))
    assert tool.read([tmp_path]) == {"sentiment_us": some_runs(3)}
    once = (tmp_path / "sentiment_us.zip").read_bytes()
    tool.keep("sentiment_us", some_runs(3))
    assert (tmp_path / "sentiment_us.zip").read_bytes() == once


@pytest.mark.parametrize(
    "archive", sorted((RESULTS / "records").glob("*.zip")), ids=lambda path: path.stem
)
def test_pages_say_what_their_records_say(tool: ModuleType, archive: Path) -> None:
    runs = sorted(tool.runs_in_archive(archive), key=lambda run: run.seed)
    report = EXPERIMENTS[runs[0].experiment].report(runs)
    assert report.to_markdown() == (RESULTS / f"{archive.stem}.md").read_text()


def test_pages_of_graphs_are_of_all_records(tool: ModuleType) -> None:
    for page, text in tool.graph_pages(tool.read([RESULTS / "records"])).items():
        assert text == (RESULTS / page).read_text(), page


def test_matched_in_the_records_is_no_less_fair_than_guide(tool: ModuleType) -> None:
    kept = tool.read([RESULTS / "records"]).values()
    runs = [
        run
        for group in kept
        for run in group
        if isinstance(EXPERIMENTS[run.experiment], GraphExperiment)
    ]
    assert len(runs) == 4 * 4 * 10
    for run in runs:
        chosen = {record.method: record for record in run.records if record.chosen}
        guide = chosen[GUIDE].metrics
        for method, measures in (
            (MATCHED, ["unfairness"]),
            (ALIKE, ["unfairness", "unfairness_unit"]),
        ):
            record = chosen[method]
            fair = all(record.metrics[m] <= guide[m] * (1 + 1e-9) for m in measures)
            assert (record.status != UNMATCHED) == fair, (run.file_name, method)
