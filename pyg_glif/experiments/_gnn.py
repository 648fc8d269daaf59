"""Networks on a graph, trained on all of it at once."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

#: One layer of each kind, as GUIDE and its rivals use it.
NETWORKS = ("gcn", "gin", "sage", "mlp")


class OneLayer(nn.Module):
    """An embedding of everybody by one layer, and one output of it.

    Args:
        kind (str): Which layer; ``"mlp"`` does not look at the graph.
        in_channels (int): Number of features.
        hidden (int): Size of the embedding.
    """

    def __init__(self, kind: str, in_channels: int, hidden: int) -> None:
        super().__init__()
        self.takes_graph = kind != "mlp"
        inside = nn.Sequential(
            nn.Linear(in_channels, hidden),
            nn.ReLU(),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, hidden),
        )
        layers: dict[str, Callable[[], nn.Module]] = {
            # A graph does not change between steps: its normalisation is kept.
            "gcn": lambda: GCNConv(in_channels, hidden, cached=True),
            "gin": lambda: GINConv(inside),
            "sage": lambda: SAGEConv(in_channels, hidden),
            "mlp": lambda: inside,
        }
        self.layer = layers[kind]()
        self.output = nn.Linear(hidden, 1)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:  # [N, F] -> [N, H]
        """The embedding of everybody."""
        out: Tensor = self.layer(x, edge_index) if self.takes_graph else self.layer(x)
        return out

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # -> [N]
        """Log-odds of everybody."""
        out: Tensor = self.output(self.embed(x, edge_index))[:, 0]
        return out


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
    num_steps: int = 1000
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
        truth = data.y.float()

        def loss(logits: Tensor, part: str) -> Tensor:
            rows = masks[part]
            out = nn.functional.binary_cross_entropy_with_logits(
                logits[rows], truth[rows]
            )
            return out if term is None else out + term(logits)

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
