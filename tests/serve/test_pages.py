import re
import time
from pathlib import Path
from typing import Any

import pandas
import pytest
from starlette.testclient import TestClient

from pyg_glif.monitoring import TreatmentMonitor
from pyg_glif.serve import Register, create_app
from tests.serve.conftest import HERE, QUIET
from tests.serve.people import Numbers

pytestmark = QUIET
TOKEN = "0123456789abcdef-token"


def register(table: Path) -> Register:
    """Who the people of the table are."""
    people = pandas.read_csv(table)
    attributes = {"sex": people["sex"].to_numpy()}
    return Register(list(people["name"]), people[["age", "job"]], attributes)


def settled(client: TestClient, path: str) -> Any:
    """The answer once there is nothing to wait for."""
    for _ in range(600):
        found = client.get(path)
        if found.status_code != 202 and "data-wait" not in found.text:
            return found
        time.sleep(0.05)
    raise AssertionError(found.text)


@pytest.mark.parametrize("shown", [False, True])
def test_people_are_shown_only_if_that_was_asked_for(
    table: tuple[Path, Path], shown: bool
) -> None:
    app = create_app(table[1], people=register(table[0]), show_people=shown)
    paths = ["/", "/people", "/people?q=person", "/what-if", "/newcomer"]
    paths += ["/v1/audit", "/v1/what-if", "/v1/info"]
    body = {"rows": [{"age": 30, "job": "clerk"}], "y_hat": [0.5], "names": True}
    with TestClient(app, base_url=HERE) as client:
        texts = {path: settled(client, path).text for path in paths}
        names = {p for p, text in texts.items() if re.search(r"person \d", text)}
        one = client.get("/people/3")
        named = client.post("/v1/explain", json=body)
        told = client.post("/v1/explain", json={**body, "names": False})
    if shown:
        assert names == set(paths) - {"/", "/newcomer", "/v1/info"}
        assert one.status_code == 200
        assert "person 3" in one.text
        assert named.json()["peers"][0]["id"].startswith("person")
    else:
        assert names == set()
        assert one.status_code == 404
        assert named.status_code == 403
    assert told.status_code == 200
    assert "peers" not in told.json()
    assert not re.search(r"person \d", told.json()["text"])
    # What fitted people are like is told where they are shown, and only on average.
    assert ("The 5 closest" in told.json()["text"]) == shown


def test_shares_of_an_explanation_make_up_the_result(
    client: TestClient, known: Numbers
) -> None:
    for body, peers in zip(known.bodies(), known.num_peers(), strict=True):
        found = client.post("/v1/explain", json=body).json()
        shares = [found[f"{who}_share"] for who in ("own", "peers", "others")]
        assert sum(shares) == pytest.approx(1.0, abs=1e-6)
        assert found["num_peers"] == peers
        means = [body["y_hat"], found["peers_mean"], found["others_mean"]]
        parts = [(m, share) for m, share in zip(means, shares, strict=True) if share]
        rebuilt = sum(share * mean[0] for mean, share in parts)
        assert found["y_fair"][0] == pytest.approx(rebuilt, abs=1e-5)


def test_pages_have_no_script_or_style_of_their_own(
    table: tuple[Path, Path],
) -> None:
    app = create_app(table[1], people=register(table[0]), show_people=True)
    with TestClient(app, base_url=HERE) as client:
        for path in ("/", "/people", "/people/3", "/what-if", "/newcomer", "/login"):
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
    found = client.get("/static/desk.js")
    assert found.headers["content-type"].startswith("text/javascript")
    tag = found.headers["etag"]
    again = client.get("/static/desk.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    for name in ("../_guard.py", "%2e%2e%2f_guard.py", "..%2fapp.py", "desk.html", "x"):
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
    import torch

    from pyg_glif import GLIFPostProcessor

    path = tmp_path / "wide.safetensors"
    x = torch.randn(30, 100, generator=torch.Generator().manual_seed(0))
    GLIFPostProcessor(target_degree=5).fit(x, x[:, 0]).save(path)
    with TestClient(create_app(path), base_url=HERE) as wide:
        assert 'data-kind="vector"' in wide.get("/newcomer").text
    assert "hours per week" in client.get("/newcomer").text


def test_the_monitor_counts_whoever_is_served(fit: Path, known: Numbers) -> None:
    monitor = TreatmentMonitor(0.3)
    body = {"x": known.x_new.tolist(), "y_hat": known.y_new.tolist()}
    ids = [f"decision {k}" for k in range(len(known.y_new))]
    with TestClient(create_app(fit, monitor=monitor), base_url=HERE) as client:
        assert client.get("/v1/monitor").json()["num"] == 0
        for _ in range(2):  # the second time they are known
            client.post("/v1/correct", json={**body, "ids": ids})
        client.post("/v1/explain", json=known.bodies()[0])  # serves nobody
        state = client.get("/v1/monitor").json()
        assert (state["num"], state["num_repeated"]) == (len(ids), len(ids))
        text = client.get("/metrics").text
        assert f"pyg_glif_monitor_people {float(len(ids))}" in text
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
