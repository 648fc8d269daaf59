"""Rows on which a text classifier is judged: texts as written and altered."""

import math
from dataclasses import dataclass

from torch import Tensor
from torch_geometric.data import Data
from torchmetrics.functional.classification import multiclass_accuracy

from pyg_glif.metrics import prediction_consistency


@dataclass(frozen=True, eq=False)
class Texts:
    """Validation or test rows.

    Args:
        x (torch.Tensor): Embeddings.
        y (torch.Tensor): Class of each row.
        group (torch.Tensor): One number for a text and its alterations.
        original (torch.Tensor): Which rows are texts as written.
        num_classes (int): Number of classes.
    """

    x: Tensor
    y: Tensor
    group: Tensor
    original: Tensor
    num_classes: int

    @classmethod
    def of(cls, data: Data, mask: Tensor) -> "Texts":
        """The rows of a split."""
        return cls(
            x=data.x[mask],
            y=data.y[mask],
            group=data.group[mask],
            original=data.original[mask],
            num_classes=int(data.y.max()) + 1,
        )

    def balanced_accuracy(self, logits: Tensor) -> float:
        """Mean over the classes of the share of texts, as written, that are right."""
        found = multiclass_accuracy(
            logits[self.original],
            self.y[self.original],
            num_classes=self.num_classes,
            average="macro",
        )
        return float(found)

    def inconsistency(self, logits: Tensor) -> float:
        """Share of altered texts that are not all given one class."""
        return 1.0 - float(prediction_consistency(logits, self.group))

    def measure(self, logits: Tensor) -> dict[str, float]:
        """Both, as the paper reports them; NaN where there is no solution."""
        if logits.isnan().any():
            return {"balanced_accuracy": math.nan, "consistency": math.nan}
        return {
            "balanced_accuracy": self.balanced_accuracy(logits),
            "consistency": 1.0 - self.inconsistency(logits),
        }
