import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from starlette.testclient import TestClient

from pyg_glif import GLIFPostProcessor
from pyg_glif.links import Logit
from pyg_glif.serve import SampleMetadata, create_app
from pyg_glif.tables import FairTable
from tests.serve.conftest import HERE, QUIET
from tests.serve.samples import Numbers

TOKEN = "0123456789abcdef-token"
BODY = {"x": [[0.0, 0.0, 0.0]], "y_hat": [0.5]}

pytestmark = QUIET


@pytest.fixture(scope="module")
def guarded(fit: Path) -> TestClient:
    """A service with a token; not started, because nothing here gets that far."""
    return TestClient(create_app(fit, token=TOKEN), base_url="http://fair.example")


def test_without_the_token_nothing_but_health_is_answered(guarded: TestClient) -> None:
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/readyz").status_code == 503  # not started
    paths = guarded.app.openapi()["paths"]  # type: ignore[attr-defined]
    for path, methods in paths.items():
        for method in methods:
            if path not in ("/healthz", "/readyz"):
                found = guarded.request(method, path.replace("{row}", "0"))
                assert found.status_code == 401, path
    found = guarded.post("/v1/correct", json=BODY)
    assert found.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \xff"]
)
def test_another_token_is_refused(guarded: TestClient, header: str) -> None:
    headers = {b"Authorization": header.encode("latin-1")}
    assert guarded.get("/v1/info", headers=headers).status_code == 401  # type: ignore


def test_the_token_opens(guarded: TestClient) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/v1/info", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "token",
    ["short", "0123456789abcdef ", " 0123456789abcdef", "0123456789abcdéf"]
    + [f"0123456789{char}abcdef" for char in "\0\t\n\r\x1b\x7f\xa0\u2028\ud800"],
)
def test_a_token_that_no_header_can_carry_is_refused(fit: Path, token: str) -> None:
    with pytest.raises(ValueError, match=r"^'token' must .*\. Let 'secrets"):
        create_app(fit, token=token)


@pytest.mark.parametrize(
    "token", ["with a space inside", "".join(map(chr, range(33, 127)))]
)
def test_every_token_that_is_taken_opens(fit: Path, token: str) -> None:
    client = TestClient(create_app(fit, token=token), base_url="http://fair.example")
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/v1/info", headers=headers).status_code == 200
    entered = client.post("/login", data={"token": token}, follow_redirects=False)
    assert entered.status_code == 303


def test_methods_that_are_made_up_are_counted_as_one(fit: Path) -> None:
    app = create_app(fit)
    client = TestClient(app, base_url=HERE)
    for k in range(50):
        client.request(f"MADE{k}", "/v1/info")
        client.request(f"MADE{k}", "/v1/correct")
    client.request("PATCH", "/v1/info")
    text = app.state.service.metrics.text().decode()
    labels = set(re.findall(r'method="(\w+)"', text))
    assert labels == {"other", "PATCH"}


SECRET = "secret7d1f"
NUMBER = 918273.645
ODD: list[Any] = [SECRET, NUMBER, [SECRET], {"a": SECRET}, None, True, "now", "today"]


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("field", ["x", "y_hat", "ids", "rows", "age", "start", "top"])
@pytest.mark.parametrize("route", ["/v1/correct", "/v1/explain"])
def test_a_refusal_repeats_nothing_that_was_sent(
    dated: TestClient, route: str, field: str, value: Any
) -> None:
    row = {"age": 30.0, "start": "2020-05-17"}
    body: dict[str, Any] = {"rows": [row], "y_hat": [0.5]}
    if field in row:
        row[field] = value
    else:
        body[field] = [value] if field in ("y_hat", "ids") else value
    found = dated.post(route, json=body)
    if field == "start":
        assert found.status_code == (200 if value is None else 422)
    if found.status_code != 200:
        assert found.status_code == 422
        for text in (SECRET, str(NUMBER), "now", "today"):
            assert text not in found.text


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The service of a table with dates, whose outputs must be probabilities."""
    path = tmp_path_factory.mktemp("dated") / "fit.safetensors"
    rng = np.random.default_rng(0)
    days = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(
        rng.integers(0, 900, 40), unit="D"
    )
    frame = pandas.DataFrame({"age": rng.normal(40, 9, 40), "start": days})
    y = 1 / (1 + np.exp(-(frame["age"].to_numpy() - 40) / 9))
    table = FairTable(scale="standard").fit(frame, y)
    post = GLIFPostProcessor(target_degree=5, link=Logit(eps=1e-3))
    post.fit(table.transform(frame), torch.from_numpy(y))
    post.save(path, metadata={"table": table.to_config()})
    with TestClient(create_app(path), base_url=HERE) as client:
        yield client


@pytest.mark.parametrize(
    ("date", "status"),
    [
        ("2020-05-17", 200),
        ("2020-05-17T10:30", 200),
        ("2020-05-17T10:30:15.25Z", 200),
        ("2020-05-17 10:30:15+02:00", 200),
        (None, 200),
        ("2020-02-30", 422),
        ("2020-13-01", 422),
        ("", 422),
        ("NaT", 422),
        ("17.05.2020", 422),
        ("May 2020", 422),
        (20200517, 422),
    ],
)
def test_dates_are_written_as_iso_8601_has_it(
    dated: TestClient, date: Any, status: int
) -> None:
    body = {"rows": [{"age": 30.0, "start": date}], "y_hat": [0.5]}
    assert dated.post("/v1/correct", json=body).status_code == status


def test_pages_do_not_repeat_what_they_refuse(client: TestClient) -> None:
    found = client.get(f"/people/{SECRET}")
    assert (found.status_code, SECRET in found.text) == (422, False)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::"])
def test_a_foreign_name_that_points_here_is_refused(
    client: TestClient, host: str
) -> None:
    found = client.get("/v1/info", headers={"Host": host})
    assert found.status_code == 421


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:1", "[::1]:80"])
def test_the_names_of_this_machine_are_fine(client: TestClient, host: str) -> None:
    assert client.get("/v1/info", headers={"Host": host}).status_code == 200


def test_every_response_has_the_headers(client: TestClient) -> None:
    for path in ("/v1/info", "/nowhere", "/v1/correct"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_limits_on_rows_and_bytes(fit: Path) -> None:
    app = create_app(fit, max_rows=2, max_bytes=2000)
    with TestClient(app, base_url=HERE) as client:
        three = {"x": [[0.0, 0.0, 0.0]] * 3, "y_hat": [0.5] * 3}
        found = client.post("/v1/correct", json=three)
        assert found.status_code == 422
        assert found.json()["detail"][0]["field"] == "x"
        big = b"[" + b" " * 2000
        kind = {"Content-Type": "application/json"}
        found = client.post("/v1/correct", content=big, headers=kind)
        assert found.status_code == 413

        def parts() -> object:  # without a length
            yield from (big[:1500], big[1500:])

        found = client.post("/v1/correct", content=parts(), headers=kind)  # type: ignore
        assert found.status_code == 413
        assert client.post("/v1/correct", json=BODY).status_code == 200


def test_a_form_of_another_site_cannot_ask(client: TestClient) -> None:
    kind = {"Content-Type": "text/plain"}  # what browsers send without asking first
    found = client.post(
        "/v1/correct", content='{"x": [[0,0,0]], "y_hat": [0]}', headers=kind
    )
    assert found.status_code == 415


def test_logs_hold_neither_features_nor_ids(
    fit: Path, known: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [f"secret{k}" for k in range(len(known.y))]
    app = create_app(fit, metadata=SampleMetadata(ids=ids), show_people=True)
    app.state.service.fit.correct = None  # whatever asks for it fails
    with (
        caplog.at_level(logging.DEBUG),
        TestClient(app, base_url=HERE, raise_server_exceptions=False) as client,
    ):
        body = {"x": [[0.123456789, 0.0, 0.0]], "y_hat": [0.987654321]}
        found = client.post("/v1/correct", json=body)
        assert found.status_code == 500
        assert found.json() == {"detail": "the service failed"}
        client.get("/people?q=secret3")
        client.get("/people/3")
    ours = [one for one in caplog.records if one.name.startswith("pyg_glif")]
    text = "\n".join(one.getMessage() for one in ours)
    assert "POST /v1/correct 500" in text
    for hidden in ("0.1234", "0.9876", "secret"):
        assert hidden not in text


def test_too_many_requests_are_refused_rather_than_kept_waiting(
    fit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyg_glif.serve._batching.MAX_WAITING", 0)
    with TestClient(create_app(fit), base_url=HERE) as client:
        found = client.post("/v1/correct", json=BODY)
    assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
    # The same before it is started and after it has ended.
    assert client.post("/v1/correct", json=BODY).status_code == 503


def test_an_application_can_be_started_again(fit: Path) -> None:
    app = create_app(fit)
    for _ in range(2):
        with TestClient(app, base_url=HERE) as client:
            assert client.post("/v1/correct", json=BODY).status_code == 200


def test_a_body_must_keep_coming(fit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyg_glif.serve._middleware.PATIENCE", 0.05)
    app = create_app(fit)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/correct"}
    scope |= {"headers": headers, "query_string": b"", "http_version": "1.1"}
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 408
