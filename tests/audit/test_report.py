"""Figures of a report against NumPy; its forms; that it loads nothing."""

import hashlib
import json
import math
import re
import shutil
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.audit import (
    AuditData,
    AuditReport,
    Bootstrap,
    IntervalEstimate,
    Verdict,
    audit,
)
from pyg_glif.graph import SimilarityGraph
from tests import oracles_inductive as oracle

FEW = Bootstrap(num_samples=20)
GOLDEN = Path(__file__).parent / "golden" / "report.json"


class Scene:
    """People with ages, hours and a sex, twins among them, and their report."""

    def __init__(self, num: int = 80, **options: Any) -> None:
        random = np.random.default_rng(3)
        self.frame = pd.DataFrame(
            {"age": random.integers(20, 30, num), "job": random.choice(list("ab"), num)}
        )
        self.x = np.column_stack(
            [self.frame["age"] / 4.0, (self.frame["job"] == "a").astype(float)]
        )
        self.x[-1] = 99.0  # similar to nobody
        self.sex = np.where(random.random(num) < 0.4, "f", "m")
        self.y = 1 / (1 + np.exp(-random.normal(size=num) - (self.sex == "m")))
        self.post = GLIFPostProcessor(tau=0.6, theta=0.5, lam=0.8)
        self.post.fit(self.x, self.y)
        self.fair = self.post.y_fair_.numpy()
        options = {"sensitive": {"sex": self.sex}, "threshold": 0.5, **options}
        self.report = self.post.audit(bootstrap=FEW, **options)
        self.W = oracle.fitted_weights(self.x, 0.6, 0.5)
        self.first, self.second = np.nonzero(np.triu(self.W > 0))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def found(report: AuditReport, name: str) -> Verdict:
    (one,) = (v for v in report.verdict if v.name == name)
    return one


def dyadic(unlike: np.ndarray, pairs: list[tuple[int, int]]) -> tuple[float, float]:
    """The interval of a share of pairs, pair of pairs by pair of pairs."""
    share, size = unlike.mean(), len(pairs)
    total = 0.0
    for a, one in enumerate(pairs):
        for b, two in enumerate(pairs):
            if set(one) & set(two):
                total += (unlike[a] - share) * (unlike[b] - share)
    number = min(share * (1 - share) * size**2 / total, size)
    z = NormalDist().inv_cdf(0.975)
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    root = math.sqrt(share * (1 - share) / number + z * z / (4 * number**2))
    half = z / (1 + z * z / number) * root
    return middle - half, middle + half


@pytest.mark.parametrize("when", ["before", "after"])
def test_shares_of_pairs_match_their_definition(scene: Scene, when: str) -> None:
    y = {"before": scene.y, "after": scene.fair}[when]
    decision = y > 0.5
    unlike = decision[scene.first] != decision[scene.second]
    dist = np.linalg.norm(scene.x[scene.first] - scene.x[scene.second], axis=1)
    for name, which in {
        "pairs": np.ones(len(unlike), dtype=bool),
        "pairs_by_sex": scene.sex[scene.first] != scene.sex[scene.second],
        "identical": dist == 0,
    }.items():
        one = found(scene.report, name)
        chosen = unlike[which].astype(float)
        pairs = list(zip(scene.first[which], scene.second[which], strict=True))
        assert one.total == len(chosen)
        assert getattr(one, f"num_{when}") == chosen.sum()
        estimate = getattr(one, when)
        assert estimate.value == pytest.approx(chosen.mean())
        assert estimate.low <= estimate.value <= estimate.high
        if 0 < chosen.mean() < 1:
            low, high = dyadic(chosen, pairs)
            assert estimate.low == pytest.approx(low)
            assert estimate.high == pytest.approx(high)


def test_nobody_treated_unlike_is_no_certainty() -> None:
    # A ring of 50: what is left of 50 pairs if pairs with a person in common agree.
    row = torch.arange(50)
    edges = torch.cat(
        [torch.stack([row, (row + 1) % 50]), torch.stack([(row + 1) % 50, row])], 1
    )
    edges = edges[:, (edges[0] * 50 + edges[1]).argsort()]
    graph = SimilarityGraph(edges, torch.ones(100), 50, 1.0)
    data = AuditData(torch.zeros(50, 1), torch.zeros(50), graph=graph)
    report = audit(data, threshold=0.5, num_nearest=None)
    one = found(report, "pairs")
    number = 50**2 / (50 * 2**2 - 50)
    z = NormalDist().inv_cdf(0.975)
    assert (one.before.value, one.before.low) == (0.0, 0.0)
    assert one.before.high == pytest.approx(z * z / (number + z * z))


def test_dyadic_intervals_cover() -> None:
    # People who are treated unlike by their own doing: pairs depend on each other.
    random, inside = np.random.default_rng(0), 0
    edges = torch.tensor(
        [
            (i, j)
            for i in range(60)
            for j in range(60)
            if i != j and (i - j) % 60 in (1, 2, 3, 57, 58, 59)
        ]
    ).T
    graph = SimilarityGraph(edges, torch.ones(edges.size(1)), 60, 1.0)
    for _ in range(150):
        y = torch.tensor((random.random(60) < 0.2).astype(float))
        data = AuditData(torch.zeros(60, 1), y, graph=graph)
        report = audit(data, threshold=0.5, num_nearest=None, bootstrap=FEW)
        estimate = found(report, "pairs").before
        inside += estimate.low <= 2 * 0.2 * 0.8 <= estimate.high
    assert inside >= 0.9 * 150


def test_groups_match_their_definition(scene: Scene) -> None:
    for one in scene.report.groups["sex"]:
        mine = scene.sex == one.group
        assert one.num_samples == mine.sum()
        for y, mean, rate in (
            (scene.y, one.mean_before, one.rate_before),
            (scene.fair, one.mean_after, one.rate_after),
        ):
            assert mean.value == pytest.approx(y[mine].mean())
            half = 1.959964 * y[mine].std(ddof=1) / math.sqrt(mine.sum())
            assert mean.high - mean.value == pytest.approx(half, rel=1e-5)
            assert rate.value == pytest.approx((y[mine] > 0.5).mean())
            assert rate.low <= rate.value <= rate.high
            assert rate.high - rate.low > 0.05
        up = (scene.fair > 0.5) & (scene.y <= 0.5)
        assert one.num_raised == (up & mine).sum()
        assert one.num_lowered == ((scene.fair <= 0.5) & (scene.y > 0.5) & mine).sum()


def test_everybody_is_in_every_chart(scene: Scene) -> None:
    bins = scene.report.bins
    for name in ("before_after_by_sex", "moved_by_sex", "num_neighbors"):
        assert sum(row["num_samples"] for row in bins[name]) == 80
    for group in "fm":
        rows = [row for row in bins["moved_by_sex"] if row["group"] == group]
        moved = (scene.fair - scene.y)[scene.sex == group]
        for row in rows:
            inside = (moved >= row["from"]) & (moved < row["to"])
            assert inside.sum() == row["num_samples"]
        rows = [r for r in bins["before_after_by_sex"] if r["group"] == group]
        step = np.diff(sorted({r["before"] for r in bins["before_after_by_sex"]})).min()
        for row in rows:
            inside = (
                (np.abs(scene.y - row["before"]) <= step / 2 + 1e-12)
                & (np.abs(scene.fair - row["after"]) <= step / 2 + 1e-12)
                & (scene.sex == group)
            )
            assert inside.sum() == row["num_samples"]
    degree = (scene.W > 0).sum(1)
    for row in bins["num_neighbors"]:
        inside = (degree >= row["from"]) & (degree <= row["to"])
        assert inside.sum() == row["num_samples"]
    dist = np.linalg.norm(scene.x[scene.first] - scene.x[scene.second], axis=1)
    last = max(row["to"] for row in bins["difference_by_distance"])
    for row in bins["difference_by_distance"]:
        y = {"before": scene.y, "after": scene.fair}[row["when"]]
        apart = np.abs(y[scene.first] - y[scene.second])
        below = dist <= row["to"] if row["to"] == last else dist < row["to"]
        inside = (dist > 0) & (dist >= row["from"]) & below
        assert inside.sum() == row["num_pairs"]
        for key, share in (("median", 0.5), ("p90", 0.9)):
            assert (apart[inside] <= row[key] + 1e-12).mean() >= share
            assert (apart[inside] < row[key] - 1e-12).mean() < share


def test_lists_of_people_and_pairs(scene: Scene) -> None:
    report = scene.report
    (alone,) = report.isolated
    assert (alone.index, alone.num_neighbors, alone.neighbors_before) == (79, 0, None)
    assert alone.before == alone.after == pytest.approx(scene.y[79])
    apart = np.abs(scene.y[scene.first] - scene.y[scene.second])
    dist = np.linalg.norm(scene.x[scene.first] - scene.x[scene.second], axis=1)
    for pairs, which in (
        (report.pairs_before, dist > 0),
        (report.identical_before, dist == 0),
    ):
        top = np.sort(apart[which])[::-1][:10]
        assert [p.difference_before for p in pairs] == pytest.approx(list(top))
        for pair in pairs:
            assert pair.before == (scene.y[pair.first], scene.y[pair.second])
    assert report.facts["num_identical"] == (dist == 0).sum()


@pytest.mark.parametrize(
    ("tolerance", "estimate", "state"),
    [
        (None, IntervalEstimate(0.1, 0.05, 0.2), "none"),
        (0.2, IntervalEstimate(0.1, 0.05, 0.2), "within"),
        (0.19, IntervalEstimate(0.1, 0.05, 0.2), "open"),
        (0.05, IntervalEstimate(0.1, 0.05, 0.2), "open"),
        (0.04, IntervalEstimate(0.1, 0.05, 0.2), "beyond"),
        (0.1, IntervalEstimate(-0.05, -0.09, 0.01), "within"),
        (0.08, IntervalEstimate(-0.05, -0.09, 0.01), "open"),
        (0.01, IntervalEstimate(-0.05, -0.09, -0.02), "beyond"),
    ],
)
def test_a_verdict_needs_all_of_the_interval(
    tolerance: float | None, estimate: IntervalEstimate, state: str
) -> None:
    one = Verdict("a", "A", "A.", estimate, tolerance=tolerance)
    assert one.state == state
    # What counts is the state after, if there is one.
    worse = IntervalEstimate(9.0, 9.0, 9.0)
    assert replace(one, before=worse, after=estimate).state == state


def test_tolerances_are_stated_by_name_or_for_all_pairs() -> None:
    options: dict[str, Any] = {"tolerance": 0.1}
    report = Scene(**options).report
    stated = {one.name: one.tolerance for one in report.verdict}
    assert stated == {
        "pairs": 0.1, "pairs_by_sex": 0.1, "identical": 0.1,
        "gap_by_sex": None, "selection_by_sex": None, "isolated": None,
    }  # fmt: skip
    report = Scene(tolerance={"gap_by_sex": 0.2}).report
    assert found(report, "gap_by_sex").tolerance == 0.2
    with pytest.raises(ValueError, match="'tolerance' must name some of 'pairs', "):
        Scene(tolerance={"pears": 0.1})
    with pytest.raises(ValueError, match="'tolerance' must be non-negative"):
        Scene(tolerance=-0.1)


def test_without_decisions_a_difference_counts() -> None:
    report = Scene(threshold=None).report
    scene = Scene(threshold=None, difference=0.3)
    assert report.setup["difference"] == pytest.approx(scene.y.std(ddof=1) / 2)
    unlike = np.abs(scene.y[scene.first] - scene.y[scene.second]) > 0.3
    assert found(scene.report, "pairs").num_before == unlike.sum()
    assert "got outputs more than 0.3 apart" in scene.report.verdict[0].words
    assert scene.report.groups["sex"][0].rate_before is None
    assert "changed_by_sex" not in scene.report.bins


def test_classes_are_decisions() -> None:
    scene = Scene()
    y = np.column_stack([scene.y, 1 - scene.y, 0.4 + 0 * scene.y])
    post = GLIFPostProcessor(tau=0.6, theta=0.5, lam=0.8).fit(scene.x, y)
    report = post.audit(bootstrap=FEW, sensitive={"sex": scene.sex})
    label = y.argmax(1)
    unlike = label[scene.first] != label[scene.second]
    assert found(report, "pairs").num_before == unlike.sum()
    assert report.worst_before[0].before == tuple(y[report.worst_before[0].index])
    assert not [name for name in report.bins if name.startswith("before_after")]
    text = report.to_markdown()
    assert "now above" not in text
    assert "now a later class" in text
    pytest.importorskip("vl_convert")
    assert "chart-moved-by-sex" in report.to_html()


def test_the_words(scene: Scene) -> None:
    one = found(scene.report, "pairs_by_sex")
    assert one.words == (
        f"Of {one.total} pairs of similar people of different sex, {one.num_before} "
        f"got different decisions; after correction {one.num_after}."
    )
    assert found(scene.report, "isolated").words.startswith("1 of 80 people is similar")


def test_what_was_compared(scene: Scene) -> None:
    setup, made = scene.report.setup, scene.report.made
    assert (setup["tau"], setup["theta"], setup["lam"]) == (0.6, 0.5, 0.8)
    assert setup["link"] == "Identity"
    total = hashlib.sha256()
    for name, array in (("x", scene.x), ("y", np.stack([scene.y, scene.fair]))):
        total.update(f"'{name}' torch.float64 {list(array.shape)};".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    assert made["data_sha256"] == total.hexdigest()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", made["date"])
    assert set(made["versions"]) == {"pyg_glif", "torch", "python"}
    assert scene.report.certificate["status"] == "CONVERGED"


def test_nothing_is_infinite(scene: Scene) -> None:
    text = json.dumps(scene.report.to_dict(), allow_nan=False)
    assert "Infinity" not in text
    assert "inf" not in re.findall(r"\binf\b", scene.report.to_markdown())


def schema(value: Any) -> Any:
    """Keys and kinds of plain data."""
    if isinstance(value, dict):
        return {key: schema(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [schema(value[0])] if value else []
    return (
        "number"
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else type(value).__name__
    )


def golden_report() -> AuditReport:
    """Four people, computed by hand where that is possible."""
    x = torch.tensor([[0.0], [0.0], [1.0], [9.0]], dtype=torch.float64)
    graph = SimilarityGraph.search(x, 1.0)
    before = torch.tensor([0.25, 0.75, 0.75, 0.5], dtype=torch.float64)
    after = torch.tensor([0.5, 0.625, 0.625, 0.5], dtype=torch.float64)
    report = audit(
        AuditData(x, before, after, graph=graph),
        sensitive={"sex": ["f", "m", "f", "m"]},
        threshold=0.5, tolerance=0.1, num_nearest=1, num_worst=2, bootstrap=FEW,
    )  # fmt: skip
    made = {"date": "2026-01-01T00:00:00+00:00", "versions": {"pyg_glif": "0"}}
    report = replace(report, made={**made, "data_sha256": "0"})
    people = pd.DataFrame({"age": [30, 30, 40, None], "job": ["a", "b", "b", None]})
    return report.with_ids(["<script>", "b|c", "c", "d"]).with_features(people)


def test_a_small_report_is_what_it_was() -> None:
    # Written by 'python -m tests.audit.test_report'; a change of the schema
    # needs another 'schema_version'.
    record = golden_report().to_dict()
    kept = json.loads(GOLDEN.read_text())
    assert record["schema_version"] == kept["schema_version"] == 3
    assert schema(record) == schema(kept)
    assert close(json.loads(json.dumps(record)), kept)


def close(one: Any, two: Any) -> bool:
    """Whether plain data agree up to rounding."""
    if isinstance(one, dict):
        return set(one) == set(two) and all(close(one[k], two[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(close, one, two))
    if isinstance(one, float):
        return one == pytest.approx(two)
    return bool(one == two)


def test_a_small_report_by_hand() -> None:
    report = golden_report()
    # Pairs: 0-1 (identical), 0-2, 1-2; only 0 was refused before; 0.5 is not above.
    one = found(report, "pairs")
    assert (one.num_before, one.num_after, one.total) == (2, 2, 3)
    assert found(report, "identical").num_before == 1
    assert [p.index for p in report.isolated] == [3]
    worst = report.worst_before[0]
    assert (worst.index, worst.before, worst.neighbors_before) == (0, 0.25, 0.75)
    (pair, *_) = report.pairs_before
    assert (pair.first, pair.second, pair.distance) == (0, 2, 1.0)
    assert report.differing(pair) == [
        {"feature": "age", "first": 30, "second": 40},
        {"feature": "job", "first": "a", "second": "b"},
    ]


class Page(HTMLParser):
    """What a page would load or run, and the text of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts: list[str | None] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "action", "data", "poster", "background"):
                self.loads.append(f"{tag} {name}={value}")
            if name == "href" and not (value or "").startswith("#"):
                self.loads.append(f"{tag} {name}={value}")
            assert not name.startswith("on"), name
        if tag == "script":
            self.scripts.append(dict(attrs).get("type"))
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_loads_nothing_and_ids_stay_text(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    report = golden_report()
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    page = Page(text)
    assert page.loads == []
    assert page.scripts.count(None) == 2
    assert page.scripts.count("application/json") == len(report.figures())
    assert "default-src 'none'" in text
    assert "<script>" in page.text  # an id, as text in a cell
    style = text.split("<style>")[1].split("</style>")[0]
    assert not re.search(r"url\(|@import|https?:", style)


def test_the_page_of_ten_thousand_is_below_two_megabytes() -> None:
    pytest.importorskip("vl_convert")
    random = torch.Generator().manual_seed(0)
    x = torch.rand(10_000, 2, generator=random, dtype=torch.float64)
    y = torch.rand(10_000, generator=random, dtype=torch.float64)
    sex = torch.randint(0, 2, (10_000,), generator=random)
    post = GLIFPostProcessor(tau=0.004).fit(x, y)  # leaves thousands without peers
    report = post.audit(
        sensitive={"sex": sex}, threshold=0.5, num_nearest=None, bootstrap=FEW
    )
    assert report.facts["num_isolated"] > 2000
    report = report.with_ids([f"a person with a long name {i}" for i in range(10_000)])
    assert len(report.to_html().encode()) < 2_000_000


def test_numbers_that_name_people_are_written_as_they_are(scene: Scene) -> None:
    report = scene.report.with_ids(range(32000, 32080))
    for form in (report.to_html(), report.to_markdown()):
        assert "32079" in form  # similar to nobody, and listed
        assert "32,079" not in form


def test_a_long_list_scrolls_by_itself() -> None:
    alone = torch.arange(30.0).unsqueeze(1) * 9
    page = GLIFPostProcessor(tau=1.0).fit(alone, torch.rand(30)).audit().to_html()
    (opening,) = re.findall(r'<div class="([^"]*)"[^>]*>\s*<table id="isolated"', page)
    assert opening.split() == ["table", "long"]


def test_a_report_without_samples() -> None:
    whole = golden_report()
    report = whole.without_samples()
    assert report.to_dict()["samples"] is None
    shown = report.to_markdown() + report._repr_html_() + json.dumps(report.to_dict())
    assert "b|c" not in shown
    assert "script" not in shown


@pytest.mark.parametrize("few", [1, 4, 5, 20])
def test_a_report_without_people_follows_the_disclosure_rule(few: int) -> None:
    rng = torch.Generator().manual_seed(few)
    x, y = torch.randn(60, 2, generator=rng), torch.rand(60, generator=rng)
    post = GLIFPostProcessor(tau=0.6).fit(x, y)
    sex = ["f"] * few + ["m"] * (60 - few)
    report = post.audit(threshold=0.5, sensitive={"sex": sex}).without_samples()
    content = report.to_dict()
    assert ("sex" in json.dumps(content)) == (few >= 5)
    assert not [name for name in content["facts"] if "largest" in name]
    assert "lipschitz_ratio_max" not in {one["name"] for one in content["measures"]}
    bars = [row for rows in content["charts"].values() for row in rows]
    assert bars
    for row in bars:
        assert row.get("num_samples", row.get("num_pairs", 0)) not in range(1, 5)
    assert "lipschitz_ratio_p50" in {one["name"] for one in content["measures"]}
    assert report.to_html().startswith("<!")
    assert report.to_markdown().startswith("# ")


def test_the_short_form_says_that_it_is_short() -> None:
    text = golden_report()._repr_html_()
    assert "Shortened" in text
    assert "<script" not in text
    assert "Similar people of different sex" in text


def test_the_tradeoff(scene: Scene) -> None:
    class Tried:
        """What a sweep tells."""

        def to_dict(self) -> dict[str, Any]:
            points = [
                {
                    "tau": 1.0,
                    "k": None,
                    "lam": lam,
                    "score": 0.9 - lam / 10,
                    "unfairness": 1 / (1 + lam),
                }
                for lam in (0.0, 1.0, 2.0)
            ]
            return {
                "score": "accuracy", "unfairness": "energy", "points": points,
                "front": points[:2], "baseline": points[0], "best": points[1],
            }  # fmt: skip

    report = scene.report.with_tradeoff(Tried())
    text = report.to_markdown()
    assert "### What fairness costs" in text
    assert "| tau=1, lam=1 | chosen | 0.5 | 0.8 |" in text
    pytest.importorskip("altair")
    assert report.figures()[-1].name == "tradeoff"


def test_ids_and_people_belong_to_the_people() -> None:
    report = golden_report()
    with pytest.raises(ValueError, match=r"'ids' must have one entry .*got 1 for 4"):
        report.with_ids(["a"])
    with pytest.raises(ValueError, match=r"'features' must have one row .*got 1 for 4"):
        report.with_features(pd.DataFrame({"a": [1]}))
    with pytest.raises(TypeError, match="'features' must be a frame"):
        report.with_features([1, 2, 3, 4])
    with pytest.raises(AttributeError, match="has no attribute 'worst'"):
        _ = report.worst


@pytest.mark.slow
def test_a_browser_draws_everything_and_asks_for_nothing(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    webdriver = pytest.importorskip("selenium.webdriver")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    Scene().report.with_ids(f"<b>{i}" for i in range(80)).to_html(tmp_path / "r.html")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(word)
    logs = {"browser": "ALL", "performance": "ALL"}
    options.set_capability("goog:loggingPrefs", logs)
    service = webdriver.ChromeService(driver)
    page = webdriver.Chrome(options=options, service=service)
    try:
        for width in (1280, 390):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1}
            command = "Emulation.setDeviceMetricsOverride"
            page.execute_cdp_cmd(command, {**size, "mobile": False})
            page.get((tmp_path / "r.html").as_uri())
            figures = "document.querySelectorAll('figure.chart')"
            drawn = f"return [...{figures}].map(f => f.dataset.drawn)"
            for _ in range(100):
                states = page.execute_script(drawn)
                if None not in states:
                    break
                time.sleep(0.1)
            assert states == ["yes"] * len(states)
            assert len(states) > 5
            wide = page.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width
        assert page.find_elements("css selector", "td b") == []
        head = page.find_element("css selector", "#most-moved th button")
        head.click()
        cells = page.find_elements("css selector", "#most-moved tbody td:first-child")
        names = [cell.text for cell in cells]
        assert names == sorted(names)
        # Numbers with intervals, as percentages and with thousands set apart.
        order = page.execute_script(
            """
            const table = document.querySelector("#most-moved");
            const cells = [...table.tBodies[0].rows].map((row) => row.cells[0]);
            const texts = ["9% [1%, 20%]", "10.5%", "<0.01%", "1,234", "-3"];
            texts.forEach((text, k) => { cells[k].textContent = text; });
            cells.slice(texts.length).forEach((cell) => cell.parentNode.remove());
            const button = table.querySelector("th button");
            button.parentNode.removeAttribute("aria-sort");
            button.click();
            return [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
            """
        )
        assert order == ["-3", "<0.01%", "9% [1%, 20%]", "10.5%", "1,234"]
        severe = [e for e in page.get_log("browser") if e["level"] != "INFO"]
        assert severe == []
        for entry in page.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                assert url.startswith(("file:", "data:")), url
    finally:
        page.quit()


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_report().to_dict(), indent=1) + "\n")
