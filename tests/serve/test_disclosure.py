"""What answers tell about fitted samples, and what attackers make of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from starlette.testclient import TestClient

from pyg_glif import GLIFPostProcessor
from pyg_glif.links import Log, Logit, Softmax
from pyg_glif.serve import create_app
from tests.oracles_inductive import fitted_weights, weights
from tests.serve.conftest import HERE, QUIET

pytestmark = QUIET

Array = NDArray[np.float64]
TAU, THETA, LAM, STEP = 0.9, 0.5, 2.0, 0.02
EXACT = {"min_shared": 1, "resolution": 0.0}


class Scene:
    """Fitted samples, dense here and sparse there, and queries around them."""

    def __init__(self, num: int = 200) -> None:
        rng = np.random.default_rng(11)
        self.x = rng.normal(size=(num, 3)) * rng.choice([0.7, 1.8], (num, 1))
        self.y = 1 / (1 + np.exp(-self.x[:, 0] - rng.normal(size=num)))
        self.q = self.x[rng.integers(0, num, 600)] + rng.normal(size=(600, 3)) / 3
        W = fitted_weights(self.x, TAU, THETA)
        L = np.diag(W.sum(1)) - W
        self.f = np.linalg.solve(np.eye(num) + LAM * L, self.y)
        self.w = weights(self.q, self.x, TAU, THETA)
        total = self.w.sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.effective = np.nan_to_num(total**2 / (self.w**2).sum(1))
            self.mean = np.nan_to_num(self.w @ self.f / total)
        self.own = 1 / (1 + LAM * total)

    def fit(self, **options: Any) -> GLIFPostProcessor:
        y = options.pop("y", self.y)
        post = GLIFPostProcessor(tau=TAU, theta=THETA, lam=LAM, **options)
        return post.fit(torch.from_numpy(self.x), torch.from_numpy(y))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def client(folder: Path, post: GLIFPostProcessor, **options: Any) -> TestClient:
    path = folder / "fit.safetensors"
    post.save(path)
    return TestClient(create_app(path, **options), base_url=HERE)


@pytest.fixture(scope="module")
def protected(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    with client(tmp_path_factory.mktemp("fit"), scene.fit()) as found:
        yield found


def ask(client: TestClient, x: Array, y: Any) -> dict[str, Any]:
    body = {"x": x.tolist(), "y_hat": np.asarray(y).tolist()}
    answer = client.post("/v1/correct", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def claims(client: TestClient, x: Array) -> tuple[Array, Array]:
    """Score and distance of the one neighbor whom each query would have, if it had one.

    Two requests are two equations: the own share is how much of another output comes
    through, and what is left is the neighbor's score.
    """
    low, high = (np.array(ask(client, x, np.full(len(x), y))["y_fair"]) for y in (0, 1))
    own = high - low
    with np.errstate(invalid="ignore", divide="ignore"):
        return low / (1 - own), np.sqrt(-np.log((1 / own - 1) / LAM) / THETA)


def recovered(scene: Scene, score: Array, dist: Array) -> int:
    """Samples whose score and distance an attacker found out to six digits."""
    true = np.linalg.norm(scene.q[:, None] - scene.x, axis=2)
    hit = np.isclose(score[:, None], scene.f, rtol=0, atol=1e-5)
    return int((hit & np.isclose(dist[:, None], true, rtol=0, atol=1e-4)).any(0).sum())


def test_two_requests_disclose_no_score_and_distance(
    scene: Scene, protected: TestClient, tmp_path: Path
) -> None:
    assert recovered(scene, *claims(protected, scene.q)) == 0
    with client(tmp_path, scene.fit(), **EXACT) as exact:  # the attack does work
        assert recovered(scene, *claims(exact, scene.q)) > 20


def test_corrections_rest_on_five_samples_in_effect(
    scene: Scene, protected: TestClient
) -> None:
    y = np.linspace(0, 1, len(scene.q))
    answer = ask(protected, scene.q, y)
    few = scene.effective < 5
    assert answer["withheld"] == few.tolist()
    assert 50 < few.sum() < 550
    fair = np.array(answer["y_fair"])
    np.testing.assert_array_equal(fair[few], y[few])
    want = scene.own * y + (1 - scene.own) * scene.mean
    spread = scene.y.std()
    bound = STEP / 2 * (np.abs(y - scene.mean) + spread) * (1 + 1e-6)
    assert (np.abs(fair - want) <= bound)[~few].all()
    assert np.mean(fair[~few] != y[~few]) > 0.9
    # Neither counts nor any sample's own distance or score.
    keys = {"y_fair", "num_neighbors", "withheld", "certificate", "notes", "fit"}
    assert set(answer) == keys
    assert answer["num_neighbors"] == np.where(few, 0, 5).tolist()
    assert set(answer["certificate"]) == {"own_share"}
    own = np.array(answer["certificate"]["own_share"])
    np.testing.assert_allclose(own[few], 1.0)
    np.testing.assert_allclose(own / STEP, np.round(own / STEP), atol=1e-9)


OUTPUTS = {
    "none": (None, [0.0, 1.0, -3.0, 1e6, -1e9]),
    "logit": (Logit(1e-9), [0.5, 0.1, 1e-6, 1 - 1e-9]),
    "log": (Log(), [1.0, 1e-6, 1e9]),
    "softmax": (Softmax(eps=1e-9), [0.5, 0.1, 1e-6, 1 - 1e-9]),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_no_output_that_is_asked_about_tells_more_digits(
    scene: Scene, tmp_path: Path, kind: str
) -> None:
    link, asked = OUTPUTS[kind]

    def columns(y: Any) -> Any:
        return np.stack([y, 1 - y], -1) if kind == "softmax" else np.asarray(y)

    def dual(y: Any) -> Array:
        eta = torch.tensor(y) if link is None else link.to_dual(torch.tensor(y))
        flat: Array = eta.reshape(len(y), -1).numpy()
        return flat - flat.mean(1, keepdims=True) if kind == "softmax" else flat

    x = scene.q[scene.effective > 6][:40]
    parts = []
    with client(tmp_path, scene.fit(link=link, y=columns(scene.y))) as found:
        for y in asked:
            sent = columns(np.full(len(x), y))
            answer = ask(found, x, sent)
            assert not any(answer["withheld"])
            own = np.array(answer["certificate"]["own_share"])[:, None]
            np.testing.assert_allclose(own / STEP, np.round(own / STEP), atol=1e-9)
            told = dual(np.array(answer["y_fair"]))
            parts.append((own, (told - own * dual(sent)) / (1 - own)))
    for own, mean in parts[1:]:
        np.testing.assert_array_equal(own, parts[0][0])
        # The same rounded mean every time, up to what float64 makes of large numbers.
        np.testing.assert_allclose(mean, parts[0][1], rtol=1e-5, atol=1e-5)


def test_metrics_count_what_the_answers_tell(
    scene: Scene, protected: TestClient
) -> None:
    def read(name: str) -> float:
        lines = protected.get("/metrics").text.splitlines()
        return float(next(x.split()[1] for x in lines if x.startswith(name)))

    names = ("pyg_glif_samples_isolated_total", "pyg_glif_movement_sum")
    before = [read(name) for name in names]
    y = np.full(len(scene.q), 0.5)
    answer = ask(protected, scene.q, y)
    isolated, moved = (read(n) - old for n, old in zip(names, before, strict=True))
    assert isolated == sum(answer["withheld"])
    told = np.abs(np.array(answer["y_fair"]) - y).sum()
    assert moved == pytest.approx(told, rel=1e-9)


def test_explanations_tell_no_more_than_corrections(
    scene: Scene, protected: TestClient
) -> None:
    spread, shown = scene.y.std(), 0
    for at in range(0, 120):
        body = {"x": [scene.q[at].tolist()], "y_hat": [0.5]}
        told = protected.post("/v1/explain", json=body).json()
        correct = protected.post("/v1/correct", json=body).json()
        assert told["y_fair"] == correct["y_fair"]
        assert (told["num_neighbors"], told["num_others"]) in ((None, None), (0, 0))
        assert "The 5 closest" not in told["text"]
        assert not any(f" {n} p" in told["text"] for n in range(1, 200))
        if correct["withheld"][0]:
            assert told["own_share"] == 1.0
            assert "Too few people like you were found" in told["text"]
            continue
        for name in ("own_share", "neighbors_share", "others_share"):
            if told[name] is not None:
                steps = told[name] / STEP
                assert steps == pytest.approx(round(steps), abs=1e-9)
        for name in ("neighbors_mean", "others_mean"):
            if told[name] is not None:
                shown += 1
                steps = told[name][0] / (STEP * spread)
                assert steps == pytest.approx(round(steps), abs=1e-6)
    assert shown > 20


@pytest.mark.parametrize("options", [{"show_people": True}, EXACT])
def test_exact_answers_are_a_setting(
    scene: Scene, tmp_path: Path, options: Any
) -> None:
    y = np.full(len(scene.q), 0.3)
    with client(tmp_path, scene.fit(), **options) as found:
        answer = ask(found, scene.q, y)
        info = found.get("/v1/info").json()
    assert (info["min_shared"], info["resolution"]) == (None, None)
    want = scene.own * y + (1 - scene.own) * scene.mean
    np.testing.assert_allclose(answer["y_fair"], want, rtol=1e-6)
    assert answer["num_neighbors"] == (scene.w > 0).sum(1).tolist()


def test_the_description_and_the_info_say_what_applies(protected: TestClient) -> None:
    info = protected.get("/v1/info").json()
    assert (info["min_shared"], info["resolution"]) == (5, STEP)
    schemas = json.dumps(protected.get("/openapi.json").json())
    assert "withheld" in schemas


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_shared": 0}, "'min_shared' must be at least 1"),
        ({"resolution": -0.1}, "'resolution' must be non-negative"),
        ({"resolution": 1.0}, "'resolution' must be below 1"),
    ],
)
def test_settings_are_checked(
    scene: Scene, tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        client(tmp_path, scene.fit(), **options)
