import pytest
import torch
from torch import Tensor, nn

from pyg_glif.distances import CallableDistance
from pyg_glif.typing import PairwiseFunction


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


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x1, x2: torch.zeros(3, 2),
            ValueError,
            "'function(x1, x2)' must have shape (2, 3) (got (3, 2))",
        ),
        (
            lambda x1, x2: torch.full((2, 3), -1.0),
            ValueError,
            "'function(x1, x2)' must be non-negative (got -1)",
        ),
        (
            lambda x1, x2: torch.full((2, 3), torch.nan),
            ValueError,
            "'function(x1, x2)' must be finite (got nan at index (0, 0), "
            "6 such values)",
        ),
        (
            lambda x1, x2: torch.zeros(2, 3, dtype=torch.int64),
            TypeError,
            "'function(x1, x2)' must be float32 or float64 (got torch.int64)",
        ),
        (
            lambda x1, x2: 1.0,
            TypeError,
            "'function(x1, x2)' must be a torch.Tensor (got float). "
            "Use 'torch.as_tensor'",
        ),
    ],
)
def test_callable_distance_checks_what_the_function_returns(
    function: PairwiseFunction, error: type[Exception], message: str
) -> None:
    distance = CallableDistance(function)
    with pytest.raises(error) as caught:
        distance(torch.zeros(2, 1), torch.zeros(3, 1))
    assert str(caught.value) == message


def test_callable_distance_rejects_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match=r"^'function' must be callable \(got str\)$"):
        CallableDistance("euclidean")  # type: ignore[arg-type]
