"""Graph networks of one layer, and how they are trained."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

from pyg_glif._utils.sparse import Pattern, spmm
from pyg_glif.laplacian import LaplacianOperator

#: One layer of each kind, as GUIDE and its rivals use it.
NETWORKS = ("gcn", "gin", "sage", "mlp")


def gathered(
    kind: str, x: Tensor, pattern: Pattern, weight: Tensor | None = None
) -> Tensor:  # [N, F] -> [N, F] or [N, 2 F]
    """What a layer adds up of everybody's neighbours, before it learns anything.

    The sums of a first layer do not depend on what is learned, so that they are the
    same at every step of training. ``"gcn"`` has the symmetric normalisation with
    self-loops, ``"gin"`` adds neighbours to the person, ``"sage"`` puts the mean of
    neighbours beside the person, ``"mlp"`` leaves neighbours out.

    Args:
        kind (str): Which layer.
        x (Tensor): Features.
        pattern (Pattern): The graph.
        weight (Tensor, optional): Of its edges. (default: all ones)
    """
    if kind == "mlp":
        return x
    if weight is None:
        weight = x.new_ones(pattern.num_edges)
    if kind == "gin":
        return x + spmm(pattern, weight, x)
    deg = pattern.row_sum(weight).unsqueeze(1)
    if kind == "sage":
        return torch.cat([spmm(pattern, weight, x) / deg.clamp(min=1e-12), x], dim=1)
    root = (deg + 1.0).rsqrt()
    return root * (spmm(pattern, weight, root * x) + root * x)


def near_first(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """An order in which joined people are near each other, and everybody's place."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    row, col = edge_index.numpy()
    matrix = csr_matrix((np.ones(len(row)), (row, col)), shape=(num_nodes, num_nodes))
    found = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    order = torch.from_numpy(found.astype(np.int64))
    return order, order.argsort()


class OneLayer(nn.Module):
    """An embedding of everybody by one layer of PyG, and one output of it.

    Args:
        kind (str): Which layer; ``"mlp"`` does not look at the graph.
        in_channels (int): Number of features.
        hidden (int): Size of the embedding.
    """

    def __init__(self, kind: str, in_channels: int, hidden: int) -> None:
        super().__init__()
        inside = nn.Sequential(
            nn.Linear(in_channels, hidden),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, hidden),
        )
        layers: dict[str, Callable[[], nn.Module]] = {
            "gcn": lambda: GCNConv(in_channels, hidden),
            "gin": lambda: GINConv(inside),
            "sage": lambda: SAGEConv(in_channels, hidden),
            "mlp": lambda: inside,
        }
        self.kind = kind
        self.layer = layers[kind]()
        self.output = nn.Linear(hidden, 1)

    def embed(self, sums: Tensor) -> Tensor:  # [N, F] or [N, 2 F] -> [N, H]
        """The layer's output for everybody, from :func:`gathered` features."""
        layer: Any = self.layer
        out: Tensor
        if self.kind == "gcn":
            out = layer.lin(sums) + layer.bias
        elif self.kind == "gin":
            out = layer.nn(sums)
        elif self.kind == "sage":
            mean, own = sums.chunk(2, dim=1)
            out = layer.lin_l(mean) + layer.lin_r(own)
        else:
            out = layer(sums)
        return out

    def forward(self, sums: Tensor) -> Tensor:  # -> [N]
        """Log-odds of everybody."""
        out: Tensor = self.output(self.embed(sums))[:, 0]
        return out


def energy(lap: LaplacianOperator, f: Tensor) -> Tensor:  # [N] -> 0-d
    r"""The value :math:`f^\top \mathbf{L} f`, by one product for it and its gradient.

    :math:`2 \mathbf{L} f` is the gradient; terms that are zero carry it.
    """
    held = f.detach().double()
    product = lap @ held
    return held @ product + 2.0 * (f.double() - held) @ product


@dataclass(frozen=True)
class GraphRecipe:
    """How networks are trained: Adam on the whole graph, the best step is kept.

    Args:
        hidden (int): Size of the embedding.
        num_steps (int): Steps of Adam.
        lr (float): Learning rate.
        weight_decay (float): Of Adam.
        check_every (int): Steps between two looks at the validation loss.
    """

    hidden: int = 16
    num_steps: int = 300
    lr: float = 0.01
    weight_decay: float = 1e-5
    check_every: int = 10

    def network(self, kind: str, in_channels: int, seed: int) -> OneLayer:
        """A fresh network; the same one for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return OneLayer(kind, in_channels, self.hidden)

    def fit(
        self,
        model: nn.Module,
        forward: Callable[[], Tensor],
        data: Data,
        masks: dict[str, Tensor],
        term: Callable[[Tensor], Tensor] | None = None,
        num_steps: int | None = None,
    ) -> Tensor:  # -> [N]
        """Trains a model, and returns the log-odds of the step that was best.

        Args:
            model (Module): What is trained.
            forward (callable): Its log-odds for everybody.
            data (Data): Who has which label.
            masks (dict): People for training and validation.
            term (callable, optional): A term of the loss, from the log-odds; it also
                counts when the best step is chosen.
            num_steps (int, optional): In place of that of the recipe.
        """
        optimizer = torch.optim.Adam(
            model.parameters(), self.lr, weight_decay=self.weight_decay
        )
        rows = {part: mask.nonzero()[:, 0] for part, mask in masks.items()}
        truth = {part: data.y[at].float() for part, at in rows.items()}
        # Half of those to train on are of each class, and so count validation people.
        weight = {
            part: torch.where(y > 0, 0.5 / y.mean(), 0.5 / (1.0 - y.mean()))
            for part, y in truth.items()
        }

        def loss(logits: Tensor, part: str) -> Tensor:
            out = nn.functional.binary_cross_entropy_with_logits(
                logits[rows[part]], truth[part], weight[part]
            )
            return out if term is None else out + term(logits).to(out.dtype)

        best, kept = float("inf"), deepcopy(model.state_dict())
        steps = self.num_steps if num_steps is None else num_steps
        for step in range(1, steps + 1):
            model.train()
            optimizer.zero_grad()
            loss(forward(), "train").backward()
            optimizer.step()
            if step % self.check_every == 0 or step == steps:
                model.eval()
                with torch.no_grad():
                    value = float(loss(forward(), "val"))
                if value < best:
                    best, kept = value, deepcopy(model.state_dict())
        model.load_state_dict(kept)
        model.eval()
        with torch.no_grad():
            return forward()
