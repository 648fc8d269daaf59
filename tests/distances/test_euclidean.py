import numpy as np
import torch

from pyg_glif.distances import Euclidean
from tests import oracles_graph


def test_euclidean(generator: torch.Generator) -> None:
    distance = Euclidean()
    assert str(distance) == "Euclidean()"
    assert distance.state_dict() == {}
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    assert distance.embed(x) is x
    expected = oracles_graph.mahalanobis(x.numpy(), x.numpy()[:2], np.eye(3))
    np.testing.assert_allclose(distance(x, x[:2]).numpy(), expected, rtol=1e-14)
