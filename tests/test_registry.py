"""Objects describe themselves, and are found again by their names."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pyg_glif import registry as kinds
from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
    TaskDistance,
)
from pyg_glif.links import Identity, Link, Log, Logit, Softmax
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.registry import build, describe, register, registered
from pyg_glif.solvers import CG, Auto, Cholesky, CoordinateDescent, Solver
from pyg_glif.solvers.base import Attempt
from pyg_glif.solvers.system import System
from tests.postprocessing.people import people

PLAIN = [
    Identity(),
    Softmax("logits", eps=1e-3),
    Logit(eps=0.01),
    Log(),
    Auto(rtol=1e-9, max_iter=7, throw=False),
    CG(preconditioner=None, deflate=True),
    CG(),
    Cholesky(rtol=1e-4),
    CoordinateDescent(epochs=3, batch_size=5, rtol=0.1, progress=False),
]
SIGMA = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]])
DISTANCES = [
    Euclidean(),
    Mahalanobis(SIGMA),
    Mahalanobis(SIGMA.double(), learnable=True),
    SensitiveSubspace(torch.tensor([[1.0, 2.0, 0.0]])),
    TaskDistance(
        SensitiveSubspace(torch.tensor([[1.0, 2.0, 0.0]])),
        nn.Linear(2, 2, bias=False),
        weight=0.3,
    ),
]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten."""
    copy = {family: dict(known) for family, known in kinds._KINDS.items()}
    monkeypatch.setattr(kinds, "_KINDS", copy)
    return


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_objects_come_back(value: Any) -> None:
    record = json.loads(json.dumps(describe(value)))
    assert build(value.family, record) == value


@pytest.mark.parametrize("value", DISTANCES, ids=repr)
def test_distances_come_back_with_their_tensors(value: FairDistance) -> None:
    record = json.loads(json.dumps(describe(value)))
    state = {name: t.detach().clone() for name, t in value.state_dict().items()}
    other = build("distance", record, state=state)
    assert type(other) is type(value)
    assert repr(other) == repr(value)
    for name, tensor in value.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
        assert other.state_dict()[name].dtype == tensor.dtype


def test_everything_of_the_package_is_registered() -> None:
    for family, base, unnamed in (
        ("distance", FairDistance, {"CallableDistance"}),  # a function is code
        ("link", Link, set()),
        ("solver", Solver, set()),
    ):
        own = {
            kind.__name__
            for kind in base.__subclasses__()
            if kind.__module__.startswith("pyg_glif.")
        }
        assert own - set(registered(family)) == unnamed


@pytest.mark.parametrize("value", DISTANCES, ids=repr)
def test_null_space_is_where_the_distance_is_zero(value: FairDistance) -> None:
    free = value.null_space(3)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    rank = int(torch.linalg.matrix_rank(value.embed(torch.eye(3)).double(), atol=1e-5))
    assert free.shape == (3, 3 - rank)
    torch.testing.assert_close(free.T @ free, torch.eye(3 - rank).to(free))
    for direction in free.T.float():
        moved = value(x, x + 3.0 * direction).diagonal()
        torch.testing.assert_close(moved, torch.zeros(4), rtol=0, atol=1e-5)
    free.zero_()  # a copy
    assert value.null_space(3).shape[1] == 0 or value.null_space(3).any()


class Scaled(FairDistance):
    """Features times weights, which are tensors, and a power, which is plain."""

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("weight", torch.ones(2))

    def embed(self, x: Tensor) -> Tensor:
        return x * self.weight.to(x) ** self.power

    def to_config(self) -> dict[str, Any]:
        return {"power": self.power}


@dataclass(frozen=True)
class Cubic(Link):
    shift: float = 0.0

    def to_dual(self, y_hat: Tensor) -> Tensor:
        return (y_hat + self.shift) ** 3

    def from_dual(self, eta: Tensor) -> Tensor:
        return eta.abs() ** (1 / 3) * eta.sign() - self.shift


@dataclass(frozen=True, kw_only=True)
class Nested(Solver):
    """Hands the work to another solver."""

    inner: Solver = field(default_factory=Cholesky)

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        return self.inner.attempt(system, rhs, x0)


def test_own_classes_are_saved_and_loaded(tmp_path: Path) -> None:
    group = people()
    for kind in (Scaled, Cubic, Nested):
        register(kind)
    distance = Scaled(2.0)
    distance.weight = torch.tensor([1.0, 1.0 / 3.0], dtype=torch.float64)
    link, solver = Cubic(0.5), Nested(inner=CG(rtol=1e-11))
    post = group.fit(distance=distance, link=link, solver=solver)
    post.save(tmp_path / "fit")
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert (other.link, other.solver) == (link, solver)
    assert type(other.distance) is Scaled
    assert other.distance.power == 2.0
    assert torch.equal(other.distance.weight, distance.weight)
    assert torch.equal(other.y_fair_, post.y_fair_)
    first = post.transform(group.x_new, group.y_new)
    assert torch.equal(other.transform(group.x_new, group.y_new), first)


def test_a_class_that_is_not_registered_when_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(Cubic)
    people().fit(link=Cubic(0.5)).save(tmp_path / "fit")
    monkeypatch.delitem(kinds._KINDS["link"], "Cubic")
    message = "the file names the class 'Cubic', which is not registered"
    with pytest.raises(ValueError, match=message):
        GLIFPostProcessor.load(tmp_path / "fit")
    post = GLIFPostProcessor.load(tmp_path / "fit", link=Cubic(0.5))
    assert post.link == Cubic(0.5)


def test_names_are_taken_once() -> None:
    register(Cubic)
    register(Cubic)  # the same class again, as when a cell is run twice

    def other() -> type:
        class Cubic(Link):
            pass

        return Cubic

    with pytest.raises(ValueError, match="'Cubic' must be the name of one link only"):
        register(other())
    for bad in (int, Cubic(), kinds.Registered):
        with pytest.raises(TypeError, match="'kind' must be a class of distances"):
            register(bad)  # type: ignore[type-var]


def test_objects_that_cannot_be_described() -> None:
    class Needs(FairDistance):
        def __init__(self, table: object) -> None:
            super().__init__()

        def embed(self, x: Tensor) -> Tensor:
            return x

    class Plain(Link):
        def to_dual(self, y_hat: Tensor) -> Tensor:
            return y_hat

        def from_dual(self, eta: Tensor) -> Tensor:
            return eta

    register(Needs)
    register(Plain)
    for value, message in (
        (CallableDistance(torch.cdist), "'distance' must be of a registered class"),
        (Needs(None), "because the constructor needs 'table'"),
        (Plain(), "'Plain' must be a dataclass or override 'to_config'"),
        (
            CoordinateDescent(generator=torch.Generator()),
            "'CoordinateDescent.generator' must be plain data to be saved",
        ),
        (Nested(), "'solver' must be of a registered class"),
    ):
        with pytest.raises(TypeError, match=message):
            describe(value)
