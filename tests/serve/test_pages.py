import html
import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from starlette.testclient import TestClient

from pyg_glif import GLIFPostProcessor
from pyg_glif.monitoring import TreatmentMonitor
from pyg_glif.serve import SampleMetadata, create_app
from tests.serve.conftest import HERE, QUIET
from tests.serve.samples import Numbers

pytestmark = QUIET
TOKEN = "0123456789abcdef-token"
PAGES = ("/", "/people", "/people/3", "/what-if", "/newcomer", "/docs")


def metadata_of(table: Path) -> SampleMetadata:
    """Metadata of the table."""
    people = pandas.read_csv(table)
    attributes = {"sex": people["sex"].to_numpy()}
    return SampleMetadata(list(people["name"]), people[["age", "job"]], attributes)


def settled(client: TestClient, path: str) -> Any:
    """The answer once there is nothing to wait for."""
    for _ in range(600):
        found = client.get(path)
        if found.status_code != 202 and "data-wait" not in found.text:
            return found
        time.sleep(0.05)
    raise AssertionError(found.text)


@pytest.mark.parametrize("shown", [False, True])
def test_samples_are_shown_only_on_request(
    table: tuple[Path, Path], shown: bool
) -> None:
    app = create_app(table[1], metadata=metadata_of(table[0]), show_people=shown)
    paths = ["/", "/people", "/people?q=person", "/what-if", "/newcomer"]
    paths += ["/v1/audit", "/v1/what-if", "/v1/info"]
    body = {"rows": [{"age": 30, "job": "clerk"}], "y_hat": [0.5], "names": True}
    with TestClient(app, base_url=HERE) as client:
        texts = {path: settled(client, path).text for path in paths}
        names = {p for p, text in texts.items() if re.search(r"person \d", text)}
        one = client.get("/people/3")
        named = client.post("/v1/explain", json=body)
        unnamed = client.post("/v1/explain", json={**body, "names": False})
    if shown:
        assert names == set(paths) - {"/", "/newcomer", "/v1/info"}
        assert one.status_code == 200
        assert "person 3" in one.text
        assert named.json()["neighbors"][0]["id"].startswith("person")
    else:
        assert names == set()
        assert one.status_code == 404
        assert named.status_code == 403
    assert unnamed.status_code == 200
    assert "neighbors" not in unnamed.json()
    assert not re.search(r"person \d", unnamed.json()["text"])
    # What fitted samples are like is told where they are shown, and only on average.
    assert ("The 5 closest" in unnamed.json()["text"]) == shown


def test_shares_of_an_explanation_make_up_the_result(
    client: TestClient, known: Numbers
) -> None:
    for body, peers in zip(known.bodies(), known.num_neighbors(), strict=True):
        found = client.post("/v1/explain", json=body).json()
        shares = [found[f"{who}_share"] for who in ("own", "neighbors", "others")]
        assert sum(shares) == pytest.approx(1.0, abs=1e-6)
        assert found["num_neighbors"] == peers
        means = [body["y_hat"], found["neighbors_mean"], found["others_mean"]]
        parts = [(m, share) for m, share in zip(means, shares, strict=True) if share]
        rebuilt = sum(share * mean[0] for mean, share in parts)
        assert found["y_fair"][0] == pytest.approx(rebuilt, abs=1e-5)


def test_pages_have_no_script_or_style_of_their_own(
    table: tuple[Path, Path],
) -> None:
    app = create_app(table[1], metadata=metadata_of(table[0]), show_people=True)
    with TestClient(app, base_url=HERE) as client:
        for path in (*PAGES, "/login"):
            text = settled(client, path).text
            assert "<style" not in text
            assert not re.search(r"\s(style|on\w+)=", text)
            for head, inside in re.findall(
                r"<script([^>]*)>(.*?)</script>", text, re.S
            ):
                assert "application/json" in head or (inside == "" and "src=" in head)
            assert not re.search(r"""(src|href)=["'](https?:)?//""", text)
            assert "<b>nurse" not in text  # a category, and always text


def test_files_are_those_of_the_pages_and_no_others(client: TestClient) -> None:
    found = client.get("/static/service.js")
    assert found.headers["content-type"].startswith("text/javascript")
    tag = found.headers["etag"]
    again = client.get("/static/service.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    for name in (
        "../_guard.py",
        "%2e%2e%2f_guard.py",
        "..%2fapp.py",
        "service.html",
        "x",
    ):
        assert client.get(f"/static/{name}").status_code == 404


def test_a_browser_is_asked_for_the_token_once(fit: Path) -> None:
    app = create_app(fit, token=TOKEN)
    with TestClient(app, base_url="http://fair.example") as client:
        html = {"Accept": "text/html"}
        first = client.get("/newcomer", headers=html, follow_redirects=False)
        assert (first.status_code, first.headers["location"]) == (303, "/login")
        assert client.post("/login", data={"token": "no"}).status_code == 403
        entered = client.post("/login", data={"token": TOKEN}, follow_redirects=False)
        assert entered.status_code == 303
        cookie = entered.headers["set-cookie"]
        assert TOKEN not in cookie
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
        assert client.get("/newcomer", headers=html).status_code == 200
        assert client.get("/v1/info").status_code == 200


def test_pages_under_a_path_of_a_proxy(fit: Path) -> None:
    app = create_app(fit)
    with TestClient(app, base_url=HERE, root_path="/fair") as client:
        text = client.get("/newcomer").text
        assert 'href="/fair/people"' in text
        assert 'src="/fair/static/page.js"' in text
        assert 'data-correct="/fair/v1/correct"' in text


def test_a_wide_fit_has_one_field_for_all(client: TestClient, tmp_path: Path) -> None:
    path = tmp_path / "wide.safetensors"
    x = torch.randn(30, 100, generator=torch.Generator().manual_seed(0))
    GLIFPostProcessor(target_degree=5).fit(x, x[:, 0]).save(path)
    with TestClient(create_app(path), base_url=HERE) as wide:
        assert 'data-kind="vector"' in wide.get("/newcomer").text
    assert "hours per week" in client.get("/newcomer").text


def test_the_monitor_counts_served_samples(fit: Path, known: Numbers) -> None:
    monitor = TreatmentMonitor(0.3)
    body = {"x": known.x_new.tolist(), "y_hat": known.y_new.tolist()}
    ids = [f"decision {k}" for k in range(len(known.y_new))]
    with TestClient(create_app(fit, monitor=monitor), base_url=HERE) as client:
        assert client.get("/v1/monitor").json()["num"] == 0
        for _ in range(2):  # the second time they are known
            client.post("/v1/correct", json={**body, "ids": ids})
        client.post("/v1/explain", json=known.bodies()[0])  # serves none
        state = client.get("/v1/monitor").json()
        assert (state["num"], state["num_repeated"]) == (len(ids), len(ids))
        text = client.get("/metrics").text
        assert f"pyg_glif_monitor_samples {float(len(ids))}" in text
        assert "pyg_glif_monitor_alarm 0.0" in text
        page = client.get("/monitor")
        assert f"No alarm after {len(ids)} served people" in page.text
        short = client.post("/v1/correct", json={**body, "ids": ids[:2]})
        assert short.json()["detail"][0]["msg"] == (
            "'ids' must have one entry per row of 'x' (got 2 for 12)"
        )
        # Outputs that the monitor cannot take are served all the same.
        wild = client.post("/v1/correct", json={**known.bodies()[0], "y_hat": [900.0]})
        assert wild.status_code == 200
        assert "pyg_glif_monitor_missed_total 1.0" in client.get("/metrics").text


def test_without_a_monitor_there_is_none(client: TestClient) -> None:
    assert client.get("/v1/monitor").status_code == 404
    assert client.get("/monitor").status_code == 404
    assert "/monitor" not in client.get("/newcomer").text


def missed(client: TestClient) -> float:
    """Served samples that the monitor did not count, as '/metrics' has it."""
    text = client.get("/metrics").text
    return float(re.findall(r"^pyg_glif_monitor_missed_total (\S+)", text, re.M)[0])


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_cannot_be_counted_makes_the_monitor_miss_nothing_else(
    fit: Path, known: Numbers, tmp_path: Path, kept: bool, rows: int
) -> None:
    """Requests of many kinds that are answered together, each with its own fate."""
    rng = np.random.default_rng(rows)
    kinds = rng.choice(
        ["good", "named", "empty id", "wild"], 120, p=[0.4, 0.4, 0.1, 0.1]
    )
    near, bodies = np.flatnonzero(known.num_neighbors()), []
    for k, kind in enumerate(kinds):
        some = rng.choice(near, rows)  # an isolated one has no disparity to be wrong
        body = {"x": known.x_new[some].tolist(), "y_hat": known.y_new[some].tolist()}
        if kind != "good":
            body["ids"] = [f"{k} {row}" for row in range(rows)]
        if kind == "empty id":
            body["ids"][0] = ""
        if kind == "wild":
            body["y_hat"][0] = 900.0
        bodies.append(body)
    options: dict[str, Any] = {"journal": tmp_path / "monitor.db"} if kept else {}
    monitor = TreatmentMonitor(0.3, **options)
    with TestClient(create_app(fit, monitor=monitor), base_url=HERE) as client:
        with ThreadPoolExecutor(24) as pool:
            found = list(pool.map(lambda b: client.post("/v1/correct", json=b), bodies))
        wanted = [422 if kind == "empty id" else 200 for kind in kinds]
        assert [one.status_code for one in found] == wanted
        wild = int((kinds == "wild").sum())
        assert missed(client) == wild
        served = rows * int((kinds != "empty id").sum())
        state = client.get("/v1/monitor").json()
        assert (state["num"], state["num_repeated"]) == (served - wild, 0)
    monitor.close()


def test_a_broken_monitor_stops_no_answer(
    fit: Path, known: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = TreatmentMonitor(0.3)
    tried = []

    def broken(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise OSError("no space left")

    monkeypatch.setattr(monitor, "watch", broken)
    body = {"x": known.x_new.tolist(), "y_hat": known.y_new.tolist()}
    with TestClient(create_app(fit, monitor=monitor), base_url=HERE) as client:
        assert client.post("/v1/correct", json=body).status_code == 200
        assert missed(client) == len(known.y_new)
    assert (
        len(tried) == 1
    )  # it is not the samples, so they are not looked at one by one


def test_without_a_tolerance_the_overview_says_what_to_compare_one_with(
    table: tuple[Path, Path],
) -> None:
    app = create_app(table[1], metadata=metadata_of(table[0]))
    with TestClient(app, base_url=HERE) as client:
        text = settled(client, "/").text
        verdict = settled(client, "/v1/audit").json()["verdict"]
    tiles = re.findall(r'<span class="badge">([^<]*)</span>', text)
    assert len(tiles) == len(verdict) > 2
    for tile, one in zip(tiles, verdict, strict=True):
        found = one["after"] or one["before"]
        low, high = found["low"], found["high"]
        sizes = sorted([abs(low), abs(high)])
        if low <= 0 <= high:
            sizes[0] = 0.0
        said = re.fullmatch(
            r"No tolerance was stated; compare yours with (\S+) to (\S+)", tile
        )
        assert said, tile
        for number, size in zip(said.groups(), sizes, strict=True):
            scale = 0.01 if number.endswith("%") else 1.0
            assert float(number.strip("<%")) * scale == pytest.approx(size, abs=6e-4)


def curl(text: str, client: TestClient) -> Any:
    """Sends what a line with 'curl' sends."""
    words = shlex.split(text.replace("\\\n", " "))
    assert words.pop(0) == "curl"
    headers, body, (url,) = {}, None, [one for one in words if "://" in one]
    for flag, value in pairwise(words):
        if flag == "-H":
            name, _, content = value.partition(": ")
            headers[name] = content.replace("$PYG_GLIF_TOKEN", TOKEN)
            headers[name] = headers[name].replace("TOKEN", TOKEN)
        body = value if flag == "-d" else body
    method = "GET" if body is None else "POST"
    path = url.partition("://")[2].partition("/")[2]
    return client.request(method, f"/{path}", headers=headers, content=body)


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("which", ["numbers", "table", "plain"])
def test_the_description_has_every_route_with_a_call_that_works(
    fit: Path, table: tuple[Path, Path], tmp_path: Path, which: str, token: str | None
) -> None:
    plain = tmp_path / "plain"
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    GLIFPostProcessor(tau=1.0).fit(x, torch.rand(30, 3)).save(plain)
    path = {"numbers": fit, "table": table[1], "plain": plain}[which]
    head = {} if token is None else {"Authorization": f"Bearer {token}"}
    monitor = TreatmentMonitor(0.3)
    app = create_app(path, token=token, monitor=monitor)
    with TestClient(app, base_url=HERE) as client:
        text = client.get("/docs", headers=head).text
        paths = client.get("/openapi.json", headers=head).json()["paths"]
        for one, methods in paths.items():
            for method in methods:
                assert f"<h2>{method.upper()} {one}</h2>" in text
        calls = re.findall(r"<pre><code>(.*?)</code></pre>", text, re.DOTALL)
        assert len(calls) == sum(map(len, paths.values()))
        for call in calls:
            assert curl(html.unescape(call), client).status_code in (200, 202), call
    assert not re.search(r"""(src|href)=["'](https?:)?//""", text)
    assert "<script>" not in text


@pytest.mark.parametrize("where", ["docs/deploy.md", "pyg_glif/cli/serve.py"])
def test_calls_in_the_documentation_work(where: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / where).read_text()
    text = text.replace("\\\\\n", "\\\n")  # as Python reads its own source
    calls = re.findall(r"^ *(?:\$ )?(curl (?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert calls
    people = pandas.DataFrame({"age": [30.0, 31.0, 60.0], "income": [1.0, 1.1, 3.0]})
    path = tmp_path / "fit"
    GLIFPostProcessor(tau=2.0).fit(people, np.array([0.2, 0.4, 0.9])).save(path)
    app = create_app(path, token=TOKEN)
    head = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url=HERE, headers=head) as client:
        for call in calls:
            assert curl(call, client).status_code in (200, 202), call
