import pytest

from .__main__ import main
from .campaigns import CAMPAIGNS
from .harness import Campaign, Case, Tally, run_case

_SEED = 20211206


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_first_cases_find_nothing(name: str) -> None:
    campaign, tally = CAMPAIGNS[name], Tally()
    for number in range(campaign.num_in_tests):
        tally.add(run_case(campaign, _SEED, number))
    assert tally.counts["cases"] == campaign.num_in_tests
    found = [f"{f.kind}: {f.detail} ({f.recipe})" for f in tally.findings]
    assert not found, "\n".join(found)


def test_a_case_repeats_and_reports_what_escapes() -> None:
    def run(case: Case) -> None:
        case.worst("number", case.rng.random())
        raise KeyError("missing")

    campaign = Campaign("made up", run, 1, 1.0)
    first, second = (run_case(campaign, 3, 7) for _ in range(2))
    assert first.worst == second.worst
    (found,) = first.findings
    assert found.recipe == "make torture SEED=3 CASE=made up:7"
    assert "KeyError" in found.kind


def test_exit_code_says_whether_something_was_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(case: Case) -> None:
        case.check(case.number == 0, "an odd number", "of 1")

    monkeypatch.setitem(CAMPAIGNS, "made up", Campaign("made up", run, 1, 1.0))
    assert main(["--case", "made up:0"]) == 0
    assert "no finding" in capsys.readouterr().out
    assert main(["--case", "made up:1", "--seed", "5"]) == 1
    assert "make torture SEED=5 CASE=made up:1" in capsys.readouterr().out
