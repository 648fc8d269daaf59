import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
)
from pyg_glif.links import Identity, Link, Logit, Softmax
from pyg_glif.postprocessor import GLIFPostProcessor
from pyg_glif.solvers import CG, Auto, Cholesky, CoordinateDescent, SolveStatus
from tests.postprocessor.people import people

SIGMA = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
DISTANCES = [
    None,
    Euclidean(),
    Mahalanobis(SIGMA),
    Mahalanobis(SIGMA.double(), learnable=True),
    SensitiveSubspace(torch.tensor([[1.0, 3.0]])),
]


class Halved(FairDistance):
    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@pytest.mark.parametrize("distance", DISTANCES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loaded_gives_the_same_bits(
    distance: FairDistance | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    group = people(dtype=dtype)
    post = group.fit(distance=distance, solver=None, normalization="density")
    post.save(tmp_path / "fit.safetensors")
    other = GLIFPostProcessor.load(str(tmp_path / "fit.safetensors"))
    assert repr(other) == repr(post)
    assert other.tau_ == post.tau_
    assert torch.equal(other.y_fair_, post.y_fair_)
    assert torch.equal(other.graph_.edge_index, post.graph_.edge_index)
    assert torch.equal(other.graph_.edge_weight, post.graph_.edge_weight)
    for joint in (False, True):
        first = post.transform(group.x_new, group.y_new, joint=joint)
        second = other.transform(group.x_new, group.y_new, joint=joint)
        assert torch.equal(first, second)
    assert torch.equal(other.explain(4).weight, post.explain(4).weight)
    found, saved = other.solution_, post.solution_
    assert found.status is saved.status is SolveStatus.CONVERGED
    assert (found.num_iter, found.solver) == (saved.num_iter, saved.solver)
    assert torch.equal(found.error_bound, saved.error_bound)
    post.partial_fit(group.x_new, group.y_new)
    other.partial_fit(group.x_new, group.y_new)
    assert torch.equal(other.y_fair_, post.y_fair_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_are_not_rounded_again(dtype: torch.dtype, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 9, generator=generator, dtype=dtype)
    distance = SensitiveSubspace(x[:4])
    post = GLIFPostProcessor(distance=distance, target_degree=5).fit(x, x[:, 0])
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert torch.equal(other.distance.directions, distance.directions)
    assert other.distance.directions.dtype == dtype


@pytest.mark.parametrize(
    "solver",
    [
        Auto(rtol=1e-8),
        CG(rtol=1e-7, preconditioner=None, deflate=True),
        CG(max_iter=500),
        Cholesky(),
        CoordinateDescent(epochs=3, batch_size=7),
    ],
    ids=lambda s: type(s).__name__,
)
@pytest.mark.parametrize("link", [None, Identity(), Logit(eps=1e-3), Softmax("logits")])
def test_settings_survive(solver: object, link: Link | None, tmp_path: Path) -> None:
    group = people()
    post = group.fit(solver=solver, link=link, tau=math.inf, lam=1)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert (other.solver, other.link, other.tau, other.lam) == (
        solver,
        link,
        math.inf,
        1,
    )


def test_parameters_of_the_fit_are_saved(tmp_path: Path) -> None:
    group = people()
    post = group.fit(tau=None, target_degree=5, solver=None).set_params(lam=9.0)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert (other.tau, other.target_degree, other.lam) == (None, 5, 0.7)
    assert other.solver is None
    assert other.tau_ == post.tau_


def test_one_file_replaced_in_one_step(tmp_path: Path) -> None:
    post = people().fit()
    post.save(tmp_path / "fit")
    post.save(tmp_path / "fit")
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]
    with safe_open(tmp_path / "fit", framework="pt") as file:
        header = json.loads(file.metadata()["pyg_glif"])
    assert header["format"] == "pyg_glif.GLIFPostProcessor"
    assert header["version"] == 1


@pytest.mark.parametrize(
    "distance", [Halved(), CallableDistance(lambda a, b: torch.cdist(a, b))]
)
def test_own_distances_are_left_out_and_handed_in(
    distance: FairDistance, tmp_path: Path
) -> None:
    group = people()
    post = group.fit(distance=distance)
    kind = type(distance).__name__
    with pytest.raises(TypeError) as caught:
        post.save(tmp_path / "fit")
    assert str(caught.value) == (
        "'distance' must be one of Euclidean, Mahalanobis, SensitiveSubspace to be "
        f'saved (got {kind}). Use save(path, omit=["distance"]) and '
        "load(path, distance=...)"
    )
    assert not list(tmp_path.iterdir())
    post.save(tmp_path / "fit", omit=["distance"])
    with pytest.raises(ValueError, match="'distance' must be given") as caught:
        GLIFPostProcessor.load(tmp_path / "fit")
    assert str(caught.value) == (
        "'distance' must be given, because the file leaves it out. "
        "Use load(path, distance=...)"
    )
    other = GLIFPostProcessor.load(tmp_path / "fit", distance=distance)
    first = post.transform(group.x_new, group.y_new)
    assert torch.equal(other.transform(group.x_new, group.y_new), first)


def test_subclasses_are_own_classes(tmp_path: Path) -> None:
    class Euclidean(FairDistance):  # the name alone does not count
        def embed(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    with pytest.raises(TypeError, match=r"to be saved \(got Euclidean\)"):
        people().fit(distance=Euclidean()).save(tmp_path / "fit")
    solver = CoordinateDescent(generator=torch.Generator())
    with pytest.raises(TypeError, match="'solver' must have no generator"):
        people().fit(solver=solver).save(tmp_path / "fit")
    with pytest.raises(ValueError, match="'omit' must be one of 'distance'"):
        people().fit().save(tmp_path / "fit", omit=["x"])


def rewrite(path: Path, **changes: object) -> None:
    """Changes entries of the header."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["pyg_glif"])
    metadata = {"pyg_glif": json.dumps({**header, **changes})}
    save_file(load_file(path), path, metadata=metadata)


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "fit"
    ours = "'path' must be a file that 'GLIFPostProcessor.save' wrote (got "

    def message() -> str:
        with pytest.raises(ValueError, match="'path' must be") as caught:
            GLIFPostProcessor.load(path)
        return str(caught.value)

    path.write_bytes(b"not a file of this kind")
    assert message().startswith(ours)
    save_file({"x": torch.zeros(2)}, path)
    kind = "another kind of safetensors file"
    assert message() == f"{ours}{kind} in '{path}')"
    people().fit().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert message().startswith(ours)
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    path.write_bytes(bytes(flipped))
    assert message() == f"{ours}a wrong checksum in '{path}')"
    path.write_bytes(whole)
    rewrite(path, version=2)
    assert message() == (
        f"'path' must be of format version 1 or earlier (got 2 in '{path}'). "
        "Install a later pyg_glif"
    )
    path.write_bytes(whole)
    rewrite(path, format="other")
    assert message() == f"{ours}format 'other' in '{path}')"
    path.write_bytes(whole)
    rewrite(path, solution=None)
    assert message() == f"{ours}a damaged header in '{path}')"
    path.write_bytes(whole)
    rewrite(path, objects={"distance": {"class": "os.system", "options": {}}})
    assert message() == f"{ours}a damaged header in '{path}')"
    with pytest.raises(FileNotFoundError):
        GLIFPostProcessor.load(tmp_path / "nothing")
