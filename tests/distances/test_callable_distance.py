import pytest
import torch
from torch import Tensor, nn

from pyg_glif.distances import CallableDistance


def manhattan(x1: Tensor, x2: Tensor) -> Tensor:
    return torch.cdist(x1, x2, p=1.0)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.scale * torch.cdist(x1, x2)


def test_callable_distance() -> None:
    distance = CallableDistance(manhattan)
    assert str(distance) == "CallableDistance(manhattan)"
    assert not distance.is_embedding
    x = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    assert distance(x, x).tolist() == [[0.0, 3.0], [3.0, 0.0]]
    with pytest.raises(TypeError, match=r"^'CallableDistance' has no embedding"):
        distance.embed(x)


def test_callable_distance_registers_a_module() -> None:
    distance = CallableDistance(Scaled())
    assert str(distance) == "CallableDistance(\n  (function): Scaled()\n)"
    assert list(distance.state_dict()) == ["function.scale"]
    distance(torch.zeros(1, 1), torch.ones(1, 1)).sum().backward()
    (scale,) = distance.parameters()
    assert scale.grad is not None
    assert scale.grad.item() == 1.0
