import json
from dataclasses import replace
from pathlib import Path

from experiments.records import Record, Run, summarize
from experiments.report import Report, ResultTable, describe, seeds_note


def report() -> Report:
    records = (
        Record("Baseline", {}, {"score": 0.5}),
        Record("GLIF", {"tau": 3.0, "lam": 0.1}, {"score": 0.25}),
    )
    runs = tuple(Run("bios", "text", seed, {}, records) for seed in (0, 1))
    table = ResultTable("All of it", {"score": "score"}, summarize(runs), {"score": 1})
    return Report("bios", "text", runs, (table,), ("Mind this.",), (Path("a.md"),))


def test_report() -> None:
    assert repr(report()) == "Report('bios', variant='text', seeds=[0, 1])"
    assert report().to_markdown() == (
        "# Bios (text), seeds 0, 1\n\n"
        "**All of it**\n\n"
        "| method | setting | score |\n"
        "| --- | --- | ---: |\n"
        "| Baseline | - | 0.5 ± 0.0 |\n"
        "| GLIF | tau² = 9, lam = 0.1 | 0.2 ± 0.0 |\n\n"
        "Mind this.\n"
    )


def test_a_table_says_where_there_is_no_minimum() -> None:
    saddle = Record("GLIF-NRW", {"lam": 1.0}, {"score": 0.5}, "INDEFINITE")
    rows = summarize([Run("bios", "text", 0, {}, (saddle,))])
    text = ResultTable("One", {"score": "score"}, rows, {}).to_markdown()
    assert "| GLIF-NRW (no minimum) | lam = 1 | 0.500 |" in text
    rows = summarize(Run("bios", "text", seed, {}, (saddle,)) for seed in (0, 1))
    text = ResultTable("Two", {"score": "score"}, rows, {}).to_markdown()
    assert "| GLIF-NRW (no minimum in 2 of 2 seeds) | lam = 1 | 0.500 ± " in text


def test_a_table_says_who_has_fewer_seeds() -> None:
    one, two = (Record(name, {}, {"score": 0.5}) for name in ("SenSeI", "GLIF"))
    runs = [Run("bios", "text", 0, {}, (one, two)), Run("bios", "text", 1, {}, (two,))]
    text = ResultTable("Two", {"score": "score"}, summarize(runs), {}).to_markdown()
    assert "| SenSeI (1 of 2 seeds) | - | 0.500 |" in text
    assert "| GLIF | - | 0.500 ± " in text


def test_a_single_seed_has_no_means() -> None:
    one = replace(report(), runs=report().runs[:1])
    assert one.to_markdown().startswith("# Bios (text), seed 0\n")
    assert seeds_note(one.runs) == ()
    assert seeds_note(report().runs) == (
        "Means over the seeds ± their standard deviation.",
    )


def test_plain_data_is_json() -> None:
    plain = json.loads(json.dumps(report().to_dict(), allow_nan=False))
    assert plain["files"] == ["a.md"]
    (table,) = plain["tables"]
    assert table["rows"][1]["mean"] == {"score": 0.25}
    assert table["rows"][1]["setting"] == {"tau": 3.0, "lam": 0.1}


def test_settings_show_squared_radii() -> None:
    assert describe({"tau": 8**0.5, "lam": 0.1}) == "tau² = 8, lam = 0.1"
    assert describe({"L": 2.25}) == "L = 2.25"
    assert describe({}) == "-"
