"""A network on a table, trained with and without the Laplacian penalty."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from experiments.evaluation import EvaluatedSamples
from experiments.experiment import Method
from experiments.records import Record
from experiments.tabular_methods import AS_IT_IS, ModelComparison
from experiments.training import Make, for_accuracy, with_penalty
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.graph import decay_of, suggest_tau

if TYPE_CHECKING:
    import pandas as pd

_DEGREE = 5  # comparable people of each in a batch


class NetworkComparison:
    """A network that sees the coordinates of another model, and who somebody is.

    Args:
        base (ModelComparison): The model whose effects give the coordinates and the
            evaluated pairs.

    Coordinates say who is similar. Indicators of the sensitive columns follow them;
    the penalty's distance ignores those.
    """

    name = "network"

    def __init__(self, base: ModelComparison) -> None:
        self.base, self.config, self.split = base, base.config, base.split
        self.num_people = min(self.config.num_rival, len(self.split.train) // 2)
        self.accuracy = 0.0  # on training people it has not seen, without the penalty

    def methods(self) -> Mapping[str, Method]:
        """Training for accuracy alone, and with the penalty."""
        return {
            f"{self.name}: {AS_IT_IS}": self.plain,
            f"{self.name}: Laplacian penalty": self.penalized,
        }

    def features(self, z: Tensor, frame: "pd.DataFrame") -> Tensor:  # [N, D + S]
        """Coordinates, and an indicator of each sensitive category."""
        columns = [
            torch.tensor(frame[name].cat.codes.to_numpy()).long().unsqueeze(1)
            == torch.arange(len(frame[name].cat.categories))
            for name in self.config.sensitive
        ]
        return torch.cat([z.float(), *(column.float() for column in columns)], dim=1)

    def known(self, rows: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, coordinates, truth and group of some training people."""
        z = self.base.places("effect")[0][rows]
        x = self.features(z, self.split.train[rows])
        return x, z, self.split.y[rows], self.split.group[rows]

    def train(self, make: Make) -> tuple[float, Tensor]:
        """A network on some training people: its accuracy on others, and outputs.

        Outputs are those of newcomers in all versions, ``[M, 1 + T]``. Batches have
        equally many of each class; the shift that this gives the log-odds is taken
        back.
        """
        x, _, y, _ = self.known(slice(self.num_people))
        others, _, truth, group = self.known(self._others)
        z_new, versions = self.base.places("effect")[1], self.split.versions
        x_new = torch.cat([others, *(self.features(z_new, each) for each in versions)])
        recipe, base = self.config.recipe, self.base
        logits = recipe.outputs(
            make, Data(x=x, y=y), x_new, base.seed, progress=base.progress
        )
        told = (logits[:, 1] - logits[:, 0]).double() + torch.logit(y.double().mean())
        trial = EvaluatedSamples(truth, group, {})
        accuracy = trial.measure(told[: len(others)].unsqueeze(1))["accuracy"]
        return accuracy, told[len(others) :].reshape(len(versions), -1).T

    @property
    def _others(self) -> slice:
        """Training people who choose the weight of the penalty."""
        return slice(self.num_people, 2 * self.num_people)

    def record(self, name: str, outputs: Tensor, setting: dict[str, float]) -> Record:
        """What is measured of newcomers."""
        metrics = self.base.judged.measure(outputs)
        return Record(f"{self.name}: {name}", setting, metrics, chosen=True)

    def plain(self) -> Iterable[Record]:
        """Training for accuracy alone."""
        self.accuracy, outputs = self.train(for_accuracy(self.config.recipe.lr))
        yield self.record(AS_IT_IS, outputs, {})

    def penalized(self) -> Iterable[Record]:
        """The penalty in training: the largest weight that costs little enough."""
        config, lr = self.config, self.config.recipe.lr
        x, z, _, _ = self.known(self._others)
        distance = SensitiveSubspace(torch.eye(x.size(1))[z.size(1) :])
        tau = suggest_tau(z[: config.recipe.batch_size], _DEGREE)
        theta = float(decay_of(None, tau))
        for lam in sorted(config.penalties, reverse=True):
            accuracy, outputs = self.train(with_penalty(lr, lam, distance, tau, theta))
            if accuracy >= self.accuracy - config.max_loss:
                break
        yield self.record("Laplacian penalty", outputs, {"lam": lam})
