from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.graph.weights import DECAY
from pyg_glif.serve import SampleMetadata
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._what_if import AFFECTED, WhatIf
from tests.oracles_inductive import fitted_weights
from tests.serve.samples import LAM, TAU, Numbers


def decide(y: torch.Tensor) -> torch.Tensor:
    return (y > 0.5).long()


def test_every_setting_is_solved_and_judged_as_the_formula_says(
    known: Numbers, tmp_path: Path
) -> None:
    path = tmp_path / "fit.safetensors"
    post = GLIFPostProcessor(tau=TAU, lam=LAM)  # the decay follows the radius
    post.fit(torch.from_numpy(known.x), torch.from_numpy(known.y)).save(path)
    sex = np.arange(len(known.y)) % 2
    served = LoadedFit(path, lambda post: SampleMetadata(sensitive={"sex": sex}))
    grid = WhatIf(served.post, served.metadata.sensitive, decide, lambda: False)
    assert len(grid.points) == len(grid.taus) * len(grid.lams)
    assert grid.taus[grid.at[0]] == TAU
    assert grid.lams[grid.at[1]] == LAM
    W = fitted_weights(known.x, TAU, DECAY / TAU**2)
    span = known.y.max() - known.y.min()
    for k, point in enumerate(grid.points):
        tau, lam = divmod(k, len(grid.lams))
        assert point["tau"] == grid.taus[tau]
        V = fitted_weights(known.x, point["tau"], DECAY / point["tau"] ** 2)
        L = np.diag(V.sum(1)) - V
        f = np.linalg.solve(np.eye(len(V)) + grid.lams[lam] * L, known.y)
        moved = np.abs(f - known.y)
        assert point["mean_moved"] == pytest.approx(moved.mean(), abs=1e-6)
        assert point["affected"] == (moved > AFFECTED * span).sum()
        apart = (W * (f[:, None] - f[None]) ** 2).sum() / W.sum()
        assert point["disagreement"] == pytest.approx(apart**0.5, abs=1e-6)
        up, down = (f > 0.5) & (known.y <= 0.5), (f <= 0.5) & (known.y > 0.5)
        assert point["kept"] == pytest.approx(1 - (up | down).mean())
        wanted = [
            ("everybody", slice(None)),
            ("sex: 0", sex == 0),
            ("sex: 1", sex == 1),
        ]
        assert point["groups"] == [
            {
                "group": name,
                "people": len(up[who]),
                "up": up[who].sum(),
                "down": down[who].sum(),
            }
            for name, who in wanted
        ]
        assert sum(point["bars"]) == len(f)
        top = point["people"]
        most = sorted(moved, reverse=True)[: len(top)]
        assert moved[top].tolist() == pytest.approx(most)


def test_nearest_samples_have_limits_in_place_of_radii(
    known: Numbers, tmp_path: Path
) -> None:
    path = tmp_path / "fit.safetensors"
    post = GLIFPostProcessor(k=5, lam=0.0)
    post.fit(torch.from_numpy(known.x), torch.from_numpy(known.y)).save(path)
    grid = WhatIf(LoadedFit(path).post, {}, None, lambda: False)
    assert grid.taus[-1] == float("inf")
    assert grid.lams[grid.at[1]] == 0.0
    point = grid.points[grid.at[0] * len(grid.lams) + grid.at[1]]
    assert (point["mean_moved"], point["kept"], point["groups"]) == (0.0, None, [])


def test_it_stops_when_it_is_no_longer_wanted(fit: Path) -> None:
    asked = iter([False, False, True])
    grid = WhatIf(LoadedFit(fit).post, {}, decide, lambda: next(asked))
    assert len(grid.points) == 2
