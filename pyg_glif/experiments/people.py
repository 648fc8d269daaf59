"""The test set of the sentiment experiment: words to classify, names to treat alike."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from pyg_glif.distances import FairDistance
from pyg_glif.metrics import group_gap, group_std, lipschitz_violations


@dataclass(frozen=True, eq=False)
class People:
    """Test words and names, which every method post-processes together.

    Args:
        x (torch.Tensor): Embeddings.
        y (torch.Tensor): Class of each word; -1 for names.
        is_name (torch.Tensor): Which rows are names.
        race (torch.Tensor): Of the names; -1 for words.
        gender (torch.Tensor): Of the names; -1 for words.
        rows (torch.Tensor): Where the rows are in the data set.
        distance (FairDistance): Who is similar.
    """

    x: Tensor
    y: Tensor
    is_name: Tensor
    race: Tensor
    gender: Tensor
    rows: Tensor
    distance: FairDistance

    @classmethod
    def of(cls, data: Data, distance: FairDistance) -> "People":
        """Test words and names of a data set."""
        rows = (data.test_mask | data.name_mask).nonzero().squeeze(1)
        return cls(
            x=data.x[rows],
            y=data.y[rows],
            is_name=data.name_mask[rows],
            race=data.race[rows],
            gender=data.gender[rows],
            rows=rows,
            distance=distance,
        )

    def measure(self, logit: Tensor) -> dict[str, float]:  # logit: [N]
        """Accuracy on words; spread and gaps of names, without sign.

        The spread is also given in units of the spread of words, because a network
        that is trained anew may have smaller logits altogether.
        """
        words, names = logit[~self.is_name], logit[self.is_name]
        right = (words > 0).long() == self.y[~self.is_name]
        name_std = float(group_std(names))
        return {
            "accuracy": float(right.double().mean()),
            "name_std": name_std,
            "relative_std": name_std / float(group_std(words)),
            "race_gap": abs(float(group_gap(names, self.race[self.is_name]))),
            "gender_gap": abs(float(group_gap(names, self.gender[self.is_name]))),
        }

    def violations(
        self, before: Tensor, after: Tensor, lipschitz: float, num_bins: int
    ) -> dict[str, Any]:
        """Pairs that break a Lipschitz condition, by fair distance."""
        z = self.distance.embed(self.x).double()
        width = float((z - z.mean(0)).norm(dim=1).max()) * 2.0 / num_bins
        bins = [width * i for i in range(num_bins + 1)]
        every = {
            name: lipschitz_violations(
                self.x, y, lipschitz, distance=self.distance, bins=bins
            )
            for name, y in (("before", before), ("after", after))
        }
        names = lipschitz_violations(
            self.x, after, lipschitz, distance=self.distance, bins=bins,
            mask=self.is_name,
        )  # fmt: skip
        return {
            "lipschitz": lipschitz,
            "bin_edges": bins,
            "pairs": every["after"].bin_pairs.tolist(),
            "before": every["before"].bin_violations.tolist(),
            "after": every["after"].bin_violations.tolist(),
            "name_pairs": names.bin_pairs.tolist(),
            "name_after": names.bin_violations.tolist(),
        }
