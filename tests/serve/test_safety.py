import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pyg_glif.serve import Register, create_app
from tests.serve.conftest import HERE, QUIET
from tests.serve.people import Numbers

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


def test_a_short_token_is_refused(fit: Path) -> None:
    with pytest.raises(ValueError, match="'token' must have at least 16 characters"):
        create_app(fit, token="short")


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
    app = create_app(fit, people=Register(ids=ids), show_people=True)
    app.state.desk.service.served.correct = None  # whatever asks for it fails
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
    monkeypatch.setattr("pyg_glif.serve._guard.PATIENCE", 0.05)
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
