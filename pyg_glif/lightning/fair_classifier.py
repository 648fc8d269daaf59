"""Training a classifier, with or without a fairness penalty."""

import copy
import inspect
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own habit)
from torch_geometric.data import Data
from torchmetrics import Metric

from pyg_glif._validate import (
    check_choice,
    check_count,
    check_kind,
    check_rank,
    check_scalar,
    check_width,
)
from pyg_glif.distances import FairDistance
from pyg_glif.lightning._batch import Rows, to_rows
from pyg_glif.lightning._similarity import Similarity
from pyg_glif.lightning.resolve import LightningModule
from pyg_glif.nn import LaplacianLoss
from pyg_glif.typing import Normalization


class FairClassifier(LightningModule):
    r"""Trains any classifier, optionally to treat similar people alike.

    .. math::
        \frac{1}{|B_\ell|} \sum_{i \in B_\ell} \mathrm{CE}(f_i, y_i) +
        \lambda \, c \, \mathrm{tr}(\mathbf{F}^{\top} \mathbf{L} \mathbf{F})

    with logits :math:`f_i` of the model, labelled rows :math:`B_\ell` of the batch and
    the penalty of :class:`~pyg_glif.nn.LaplacianLoss`, whose ``reduction`` settles
    :math:`c`. A batch is ``(x, y)``, ``(x, y, index)``, or a whole
    :class:`~torch_geometric.data.Data`, of which the rows in ``train_mask``,
    ``val_mask`` or ``test_mask`` are labelled. Rows with a negative ``y`` have no
    label; they count in the penalty only.

    Args:
        model (torch.nn.Module): Maps features :math:`(N, F)` to logits
            :math:`(N, C)`. If its ``forward`` has parameters ``edge_index`` and
            ``edge_weight``, it is given those of a ``Data``.
        lr (float): Learning rate of Adam. (default: :obj:`1e-3`)
        weight_decay (float): Weight decay of Adam. (default: :obj:`0.0`)
        lam (float): Weight :math:`\lambda \ge 0` of the penalty; zero trains without.
            (default: :obj:`0.0`)
        distance (FairDistance, optional): Who is similar. It is not trained, but
            saved in checkpoints. (default: Euclidean)
        tau (float, optional): Radius of the similarity graph, in units of the
            distance. :obj:`None` takes ``edge_index`` and ``edge_weight`` of the
            data, with ``graph="full"`` or batches that are a ``Data``.
        theta (float): Decay of the weights. (default: :obj:`1e-4`)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        reduction (str): ``"sum"``, ``"mean"`` or, with a ``normalization``,
            ``"consistent"``. (default: ``"mean"``)
        graph (str): Whom the penalty compares: ``"batch"``, the rows of the batch,
            or ``"full"``, everybody. (default: ``"batch"``)
        num_classes (int, optional): Number of classes. (default: ``out_channels`` or
            ``out_features`` of the model or of the last layer of a
            :class:`torch.nn.Sequential`)

    ``"batch"`` searches the batch anew at every step. Its pairs are those of the whole
    radius graph with both ends in the batch, so in expectation the penalty is that of
    everybody times a constant, which grows with the batch for
    ``normalization=None``. ``"full"`` is the penalty on the whole graph: ``data`` of
    the trainer's data module, unlabelled people included, goes through the model at
    every step. The graph is built once. A batch that is a ``Data`` is everybody, in
    either case.

    Logged are ``train_loss`` and, if it has two, its parts ``train_cross_entropy`` and
    ``train_regularizer``; for ``val`` and ``test`` the cross-entropy, ``val_accuracy``
    and ``val_balanced_accuracy``, the mean of the accuracies within those classes that
    occur among the labels. These three are over the labelled rows of all batches and,
    in a distributed run, of all processes; without any labelled row they are not
    logged. Prediction returns logits. Subclasses replace :meth:`regularizer`.

    Under mixed or half precision the model runs as the trainer says; similarity graph,
    penalty and cross-entropy are computed in single precision, or in double if the
    model is.

    Example:
        >>> from pyg_glif.lightning import MLP
        >>> classifier = FairClassifier(MLP(2, 8, 3), lam=0.1, tau=1.0)
        >>> classifier.num_classes, classifier(torch.zeros(5, 2)).shape
        (3, torch.Size([5, 3]))
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        lam: float = 0.0,
        distance: FairDistance | None = None,
        tau: float | None = None,
        theta: float = 1e-4,
        normalization: Normalization = None,
        reduction: Literal["sum", "mean", "consistent"] = "mean",
        graph: Literal["batch", "full"] = "batch",
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["model", "distance"])
        if "_instantiator" in self.hparams:
            # From LightningCLI: what is kept are class paths and arguments, not
            # modules, and a checkpoint then suffices to build everything again.
            self.save_hyperparameters()
        check_kind("model", model, nn.Module)
        if distance is not None:
            check_kind("distance", distance, FairDistance)
        self.model = model
        self.distance = distance
        self.lr = check_scalar("lr", lr, above=0.0)
        self.weight_decay = check_scalar("weight_decay", weight_decay, minimum=0.0)
        self.lam = check_scalar("lam", lam, minimum=0.0)
        self.theta = check_scalar("theta", theta, minimum=0.0)
        self.tau = tau
        if tau is not None:
            check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        check_choice("graph", graph, ("batch", "full"))
        self.graph = graph
        if reduction == "consistent":
            check_choice("normalization", normalization, ("nrw", "density"))
        self.penalty = LaplacianLoss(
            normalization, reduction, theta if reduction == "consistent" else None
        )
        self.num_classes = _num_classes(model, num_classes)
        self.val_tally = _Tally(self.num_classes)
        self.test_tally = _Tally(self.num_classes)
        self._takes = set(inspect.signature(model.forward).parameters)
        self._similarity = Similarity(tau, distance, theta, normalization)
        self._everybody: Data | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Logits of the model."""
        logits: Tensor = self.model(x, *args, **kwargs)
        return logits

    def regularizer(
        self, x: Tensor, logits: Tensor, index: Tensor | None
    ) -> Tensor | None:
        r"""What is added to the cross-entropy; here the Laplacian penalty.

        Args:
            x (torch.Tensor): Features of the batch.
            logits (torch.Tensor): What the model makes of them.
            index (torch.Tensor, optional): Which rows of the data set they are, if
                the batch says so.

        Shapes:
            - **input:** features :math:`(B, F)`, logits :math:`(B, C)`, rows
              :math:`(B)`
            - **output:** a number, or :obj:`None` for nothing
        """
        if self.lam == 0:
            return None
        everybody = self._everybody
        if everybody is not None and x is not everybody.x:
            logits = self._logits(to_rows(everybody))
        # Who is similar must not depend on how precisely the model is computed.
        with torch.autocast(x.device.type, enabled=False):
            if everybody is None:
                lap = self._similarity.of_rows(x)
            else:
                lap = self._similarity.of_data(everybody)
            penalty: Tensor = self.penalty(_at_least_single(logits), lap)
        return self.lam * penalty

    def on_fit_start(self) -> None:
        """Forgets the data of an earlier fit."""
        self._everybody = None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Cross-entropy and regulariser of a batch."""
        rows = to_rows(batch, "train")
        self._everybody = self._find_everybody(rows)
        logits = self._logits(rows)
        loss, _, target = self._cross_entropy(rows, logits)
        size = max(1, len(target))
        extra = self.regularizer(rows.x, logits, rows.index)
        if extra is not None:
            parts = {"train_cross_entropy": loss, "train_regularizer": extra}
            self.log_dict(parts, batch_size=size)
            loss = loss + extra
        self.log("train_loss", loss, batch_size=size, prog_bar=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        """Begins to count."""
        self.val_tally.start()

    def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Logits of a batch, whose labelled rows are counted."""
        return self._evaluate(batch, "val", self.val_tally)

    def on_validation_epoch_end(self) -> None:
        """Logs what all labelled rows have shown."""
        self._log_tally("val", self.val_tally)

    def on_test_epoch_start(self) -> None:
        """Begins to count."""
        self.test_tally.start()

    def test_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Logits of a batch, whose labelled rows are counted."""
        return self._evaluate(batch, "test", self.test_tally)

    def on_test_epoch_end(self) -> None:
        """Logs what all labelled rows have shown."""
        self._log_tally("test", self.test_tally)

    def predict_step(
        self, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> Tensor:
        """Logits of a batch."""
        return self._logits(to_rows(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam over the parameters of the model."""
        return torch.optim.Adam(
            self.model.parameters(), lr=self.lr, weight_decay=self.weight_decay
        )

    def _logits(self, rows: Rows) -> Tensor:  # [B, C]
        """What the model makes of a batch, with the graph it may want."""
        data = {} if rows.data is None else rows.data.to_dict()
        keys = {"edge_index", "edge_weight"} & self._takes & set(data)
        inputs = {key: self._convert(data[key]) for key in keys}
        logits: Tensor = self(self._convert(rows.x), **inputs)
        check_rank("model(x)", logits, 2)
        check_width("model(x)", logits, self.num_classes)
        return logits

    def _cross_entropy(
        self, rows: Rows, logits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean over labelled rows (zero without any), their logits and classes."""
        if rows.y is None:
            raise ValueError("'y' must be given to train or test (got None)")
        labelled = rows.y >= 0
        score, target = _at_least_single(logits[labelled]), rows.y[labelled]
        if len(target) == 0:
            return 0.0 * logits.sum(), score, target
        return F.cross_entropy(score, target), score, target

    def _convert(self, value: Any) -> Any:
        """In the precision of the trainer, which converts batches but no ``Data``."""
        trainer = self._trainer
        return (
            value if trainer is None else trainer.precision_plugin.convert_input(value)
        )

    def _evaluate(self, batch: Any, split: str, tally: "_Tally") -> Tensor:
        """Counts the labelled rows of a batch."""
        rows = to_rows(batch, split)
        logits = self._logits(rows)
        _, score, target = self._cross_entropy(rows, logits)
        tally.update(score, target)
        return logits

    def _log_tally(self, split: str, tally: "_Tally") -> None:
        """Logs the same numbers in every process, or nothing in any."""
        found = {f"{split}_{key}": value for key, value in tally.compute().items()}
        self.log_dict(found, prog_bar=split == "val", sync_dist=True)

    def _find_everybody(self, rows: Rows) -> Data | None:
        """The whole set, on the device of the model; ``None`` if the batch will do."""
        if rows.data is not None or self.lam == 0:
            return rows.data
        if self.graph == "batch":
            return None
        if self._everybody is not None:
            return self._everybody
        data = getattr(getattr(self.trainer, "datamodule", None), "data", None)
        if not isinstance(data, Data):
            msg = "'graph' must be \"batch\" unless the trainer has a data module with"
            raise ValueError(f"{msg} 'data' (got \"full\"). Use 'FairDataModule'")
        return copy.copy(data).to(self.device)  # PyG moves a Data in place


class _Tally(Metric):
    """Loss and decisions of labelled rows, summed over batches and processes.

    A process whose rows have no label takes part in the sums like any other: if it
    stayed away, the others would wait for it.
    """

    full_state_update = False
    loss: Tensor
    num_right: Tensor
    num_rows: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        per_class = torch.zeros(num_classes, dtype=torch.long)
        loss = torch.zeros((), dtype=torch.float32)
        self.add_state("loss", loss, dist_reduce_fx="sum")
        self.add_state("num_right", per_class, dist_reduce_fx="sum")
        self.add_state("num_rows", per_class.clone(), dist_reduce_fx="sum")

    def start(self) -> None:
        """Forgets all rows."""
        self.reset()
        # torchmetrics warns of a process that has not counted anything at all.
        no_score = self.loss.new_zeros(0, len(self.num_rows))
        self.update(no_score, self.num_rows[:0])

    def update(self, score: Tensor, target: Tensor) -> None:  # [B, C], [B]
        """Adds labelled rows, of which there may be none."""
        size = len(self.num_rows)
        right = target[score.argmax(1) == target]
        self.loss += F.cross_entropy(score, target, reduction="sum")
        self.num_right += right.bincount(minlength=size)
        self.num_rows += target.bincount(minlength=size)

    def compute(self) -> dict[str, Tensor]:
        """Means over rows and over classes that occur; nothing without any row."""
        occurs = self.num_rows > 0
        if not bool(occurs.any()):
            return {}
        num_right, num_rows = self.num_right[occurs].float(), self.num_rows[occurs]
        return {
            "cross_entropy": self.loss / num_rows.sum(),
            "accuracy": num_right.sum() / num_rows.sum(),
            "balanced_accuracy": (num_right / num_rows).mean(),
        }


def _at_least_single(value: Tensor) -> Tensor:
    """In single precision if it is in half, else as it is."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


def _num_classes(model: nn.Module, given: int | None) -> int:
    """Number of classes, read off the last layer if it is not given."""
    if given is not None:
        return check_count("num_classes", given, minimum=2)
    last = model
    while not hasattr(last, "out_channels") and isinstance(last, nn.Sequential):
        last = last[-1]
    found = getattr(last, "out_channels", getattr(last, "out_features", None))
    if not isinstance(found, int):
        kind = type(model).__name__
        msg = "'num_classes' must be given if 'model' has no 'out_channels'"
        raise ValueError(f"{msg} (got {kind})")
    return check_count("num_classes", found, minimum=2)
