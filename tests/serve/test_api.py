import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from starlette.testclient import TestClient

from pyg_glif import GLIFPostProcessor
from pyg_glif.links import Logit
from pyg_glif.serve import create_app
from pyg_glif.tables import FairTable
from tests.serve.conftest import HERE, QUIET
from tests.serve.samples import LAM, TAU, Numbers

pytestmark = QUIET


def test_correct_gives_the_formula(client: TestClient, known: Numbers) -> None:
    body = {"x": known.x_new.tolist(), "y_hat": known.y_new.tolist()}
    found = client.post("/v1/correct", json=body)
    assert found.status_code == 200
    answer = found.json()
    np.testing.assert_allclose(answer["y_fair"], known.corrected(), rtol=1e-6)
    assert answer["num_neighbors"] == known.num_neighbors()
    assert answer["y_fair"][-1] == known.y_new[-1]  # isolated: unchanged
    assert answer["notes"] == []
    assert answer["fit"] == client.get("/v1/info").json()["fit"]


def test_correct_takes_rows_by_the_names_of_their_columns(
    client: TestClient, known: Numbers
) -> None:
    rows = [
        dict(reversed(list(zip(known.names, row, strict=True))))
        for row in known.x_new.tolist()
    ]
    found = client.post("/v1/correct", json={"rows": rows, "y_hat": [*known.y_new]})
    np.testing.assert_allclose(found.json()["y_fair"], known.corrected(), rtol=1e-6)


def together(client: TestClient, bodies: list[dict[str, Any]]) -> list[Any]:
    """Answers to requests that arrive at once."""
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda b: client.post("/v1/correct", json=b), bodies))


def test_requests_that_come_together_get_the_answers_of_single_requests(
    client: TestClient, known: Numbers
) -> None:
    found = together(client, known.bodies() * 4)
    got = [one.json()["y_fair"][0] for one in found]
    np.testing.assert_allclose(got, np.tile(known.corrected(), 4), rtol=1e-6)


def test_a_large_request_is_answered_beside_small_ones(
    client: TestClient, known: Numbers
) -> None:
    many = {"x": known.x_new.tolist() * 100, "y_hat": known.y_new.tolist() * 100}
    found = client.post("/v1/correct", json=many).json()
    np.testing.assert_allclose(
        found["y_fair"], np.tile(known.corrected(), 100), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("body", "field", "msg"),
    [
        ({"x": [[1, 2, 3]]}, "y_hat", "Field required"),
        ({"x": [[1, 2, "3"]], "y_hat": [0]}, "x[0][2]", "valid number"),
        ({"x": [[1, 2, True]], "y_hat": [0]}, "x[0][2]", "valid number"),
        ({"x": [[1, 2, None]], "y_hat": [0]}, "x[0][2]", "valid number"),
        ({"x": [[1, 2]], "y_hat": [0]}, "x[0]", "at least 3 items"),
        ({"x": [[1, 2, 3, 4]], "y_hat": [0]}, "x[0]", "at most 3 items"),
        ({"x": [], "y_hat": []}, "x", "at least 1 item"),
        ({"x": [[1, 2, 3]], "y_hat": [[0]]}, "y_hat[0]", "valid number"),
        ({"x": [[1, 2, 3]], "y_hat": [0], "z": 1}, "z", "not permitted"),
        ({"y_hat": [0]}, "", "one of 'x' and 'rows' must be given (got neither)"),
        (
            {"x": [[1, 2, 3]], "y_hat": [0, 1]},
            "",
            "'y_hat' must have one entry per row of 'x' (got 2 for 1)",
        ),
        ({"rows": [{"age": 1}], "y_hat": [0]}, "rows[0].income", "Field required"),
        (
            {"rows": [{"age": "x", "income": 1, "hours per week": 2}], "y_hat": [0]},
            "rows[0].age",
            "valid number",
        ),
        ([1], "", "should be an object"),
        ({"x": [[1, 2, 1e39]], "y_hat": [0], "rows": None}, "rows", "valid array"),
    ],
)
def test_errors_name_the_field(
    client: TestClient, body: Any, field: str, msg: str
) -> None:
    found = client.post("/v1/correct", json=body)
    assert found.status_code == 422
    detail = found.json()["detail"]
    assert field in [one["field"] for one in detail]
    assert msg in json.dumps([one["msg"] for one in detail])


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"x": [[NaN, 1, 2]], "y_hat": [1]}'])
def test_what_is_no_json_is_refused(client: TestClient, text: str) -> None:
    found = client.post(
        "/v1/correct", content=text, headers={"Content-Type": "application/json"}
    )
    assert found.status_code == 422


def test_errors_are_reported_up_to_a_limit_and_without_what_was_sent(
    client: TestClient,
) -> None:
    body = {"x": [["secret"] * 3] * 50, "y_hat": [0.0] * 50}
    found = client.post("/v1/correct", json=body)
    assert len(found.json()["detail"]) == 21
    assert found.json()["detail"][-1]["msg"] == "and 130 more"
    assert "secret" not in found.text


def test_what_the_method_refuses_is_a_fault_of_that_request_only(
    known: Numbers, tmp_path: Path
) -> None:
    path = tmp_path / "fit.safetensors"
    post = GLIFPostProcessor(tau=TAU, link=Logit(eps=1e-3), lam=LAM)
    post.fit(torch.from_numpy(known.x), torch.from_numpy(known.y)).save(path)
    bodies = known.bodies() * 2
    bodies[3] = bodies[20] = {**bodies[3], "y_hat": [1.5]}  # no probability
    with TestClient(create_app(path), base_url=HERE) as client:
        found = together(client, bodies)
    assert [k for k, one in enumerate(found) if one.status_code != 200] == [3, 20]
    assert found[3].status_code == 422
    assert "'y_hat" in found[3].json()["detail"][0]["msg"]


def test_several_outputs(known: Numbers, tmp_path: Path) -> None:
    path, y = tmp_path / "fit.safetensors", torch.from_numpy(known.y)
    post = GLIFPostProcessor(tau=TAU).fit(
        torch.from_numpy(known.x), torch.stack([y, 1 - y], 1)
    )
    post.save(path)
    body = {"x": known.x_new.tolist(), "y_hat": [[v, 1 - v] for v in known.y_new]}
    with TestClient(create_app(path), base_url=HERE) as client:
        found = client.post("/v1/correct", json=body).json()["y_fair"]
        assert client.get("/v1/info").json()["num_outputs"] == 2
        short = client.post("/v1/correct", json={**body, "y_hat": [[0.1]] * 12})
    assert short.status_code == 422
    assert short.json()["detail"][0]["field"] == "y_hat[0]"
    np.testing.assert_allclose(np.sum(found, axis=1), 1.0, atol=1e-6)


def test_rows_of_a_table(table_client: TestClient, table: tuple[Path, Path]) -> None:
    rows: list[dict[str, Any]] = [
        {"age": 30, "job": "clerk"},
        {"age": None, "job": "driver", "sex": "female"},  # does not count
        {"age": 44.5, "job": "astronaut"},
    ]
    scores = [0.5, 0.4, 0.6]
    found = table_client.post("/v1/correct", json={"rows": rows, "y_hat": scores})
    assert found.status_code == 200
    # The same samples through the library, with the table that the file holds.
    post = GLIFPostProcessor.load(table[1])
    kept = FairTable.from_config(post.metadata_["table"])
    frame = pandas.DataFrame(
        {"age": [30, np.nan, 44.5], "job": ["clerk", "driver", "astronaut"]}
    )
    with pytest.warns(UserWarning, match="not seen"):
        z = kept.transform(frame)
    wanted = post.transform(z, torch.tensor(scores, dtype=torch.float64))
    np.testing.assert_allclose(found.json()["y_fair"], wanted.numpy(), rtol=1e-9)
    (note,) = found.json()["notes"]
    assert note == "'job': values that the fit has not seen count as average"


def test_a_cell_of_another_kind_is_named(table_client: TestClient) -> None:
    body = {"rows": [{"age": "old", "job": 3}], "y_hat": [0.5]}
    found = table_client.post("/v1/correct", json=body)
    fields = [one["field"] for one in found.json()["detail"]]
    assert fields == ["rows[0].age", "rows[0].job"]


def test_info_describes_the_fit(table_client: TestClient) -> None:
    found = table_client.get("/v1/info").json()
    assert found["num_people"] == 90
    columns = {one["name"]: one for one in found["columns"]}
    assert columns["age"]["kind"] == "number"
    assert columns["job"]["values"] == ["<b>nurse</b>", "clerk", "driver"]
    assert columns["sex"]["counts"] is False
    assert found["reload_error"] is None


def test_the_description_names_every_route_and_the_columns_of_the_fit(
    table_client: TestClient,
) -> None:
    found = table_client.get("/openapi.json").json()
    assert {"/v1/correct", "/v1/info", "/healthz", "/readyz", "/metrics"} <= set(
        found["paths"]
    )
    body = json.dumps(found["paths"]["/v1/correct"]["post"]["requestBody"])
    assert '"age"' in body
    assert "$defs" not in body


def test_health_and_metrics(client: TestClient, known: Numbers) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}

    def read() -> dict[str, float]:
        lines = client.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    before = read()
    body = {"x": known.x_new.tolist(), "y_hat": known.y_new.tolist()}
    client.post("/v1/correct", json=body)
    after = read()

    def grew(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grew("pyg_glif_samples_total") == len(known.y_new)
    isolated = known.num_neighbors().count(0)
    assert grew("pyg_glif_samples_isolated_total") == isolated >= 1
    moved = np.abs(known.corrected() - known.y_new).sum()
    assert grew("pyg_glif_movement_sum") == pytest.approx(moved, rel=1e-5)
    labels = 'method="POST",route="/v1/correct",status="200"'
    assert grew(f"pyg_glif_request_seconds_count{{{labels}}}") == 1
    assert 0 < after["pyg_glif_isolated_share"] < 1
    assert after["pyg_glif_fitted_samples"] == len(known.y)
