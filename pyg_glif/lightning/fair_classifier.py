"""Training of a classifier, with or without terms for fairness."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own habit)
from torch_geometric.data import Data
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassConfusionMatrix

from pyg_glif._utils.validation import (
    check_attribute,
    check_choice,
    check_count,
    check_kind,
    check_rank,
    check_scalar,
    check_width,
    full_precision,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.errors import SimilarityWarning
from pyg_glif.lightning._batch import Rows, to_rows
from pyg_glif.lightning._terms import Terms, parameters_of
from pyg_glif.lightning.resolve import LightningModule
from pyg_glif.lightning.similarity_penalty import SimilarityPenalty
from pyg_glif.transforms.storage import check_graph_name, check_named, graph_keys


class FairClassifier(LightningModule):
    r"""Trains any classifier, optionally with penalties on disagreement of neighbors.

    .. math::
        \frac{1}{|B_\ell|} \sum_{i \in B_\ell} \mathrm{CE}(f_i, y_i) +
        \sum_k \mathrm{term}_k

    with logits :math:`f_i` of the model and labelled rows :math:`B_\ell` of the batch.
    A batch is ``(x, y)``, ``(x, y, index)`` or a :class:`~torch_geometric.data.Data`,
    of which the rows in ``train_mask``, ``val_mask`` or ``test_mask`` are labelled. Of
    a ``Data`` that a neighbor loader has sampled, the first ``batch_size`` rows count.
    Rows with a negative ``y`` have no label; they count in the terms only.

    Args:
        model (torch.nn.Module): Maps features :math:`(N, F)` to logits
            :math:`(N, C)`. Other parameters of its ``forward``, such as
            ``edge_index``, take the tensors of a ``Data`` of the same name.
        term (torch.nn.Module or list, optional): Terms added to the loss, one or
            several, such as :class:`~pyg_glif.baselines.SenSeIRegularizer` or
            :class:`~pyg_glif.nn.LaplacianLoss`: modules or functions that return a
            number. The names of their parameters select their inputs: ``model``; ``x``,
            ``y``, ``index`` and ``logits`` (or ``f``) of the rows; ``edge_index`` and
            ``edge_weight`` of a ``Data``. They are saved in checkpoints, not trained.
        loss (torch.nn.Module, optional): Replaces the cross-entropy over labelled
            rows, such as :class:`~pyg_glif.baselines.SenSRLoss`.
        lam (float): If above zero, :obj:`SimilarityPenalty(lam, **penalty)` is one of
            the terms. (default: :obj:`0.0`)
        graph (str): Rows of the terms: ``"batch"``, whose graph is searched at every
            step, or ``"full"``, all rows of the data module, whose graph is built once.
            (default: ``"batch"``)
        name (str, optional): Name of the graph of a ``Data`` that terms read, if it
            is a second one: ``"fair"`` takes ``fair_edge_index`` and
            ``fair_edge_weight``. Terms that read edges need it where there is a second
            graph with weights.
        lr (float): Learning rate of Adam. (default: :obj:`1e-3`)
        weight_decay (float): Weight decay of Adam. (default: :obj:`0.0`)
        num_classes (int, optional): Number of classes, two or more. (default:
            ``out_channels`` or ``out_features`` of the model or of the last layer of a
            :class:`torch.nn.Sequential`)
        **penalty: Keywords of :class:`SimilarityPenalty` for ``lam``: ``tau``,
            ``distance``, ``theta``, ``normalization``, ``reduction``.

    A penalty that finds no edge in the first epoch raises a
    :class:`~pyg_glif.errors.SimilarityWarning`. Logged are ``train_loss`` and, if there
    are terms or a ``loss``, ``train_cross_entropy``, the sum ``train_regularizer`` of
    the terms, and ``train_dual``, SenSeI's price of squared fair distance; for ``val``
    and ``test`` the cross-entropy, ``val_accuracy`` and ``val_balanced_accuracy``, over
    the labelled rows of all batches and processes, if there are any. Prediction returns
    logits. Under mixed or half precision, cross-entropy and :class:`SimilarityPenalty`
    are computed in single precision.

    Example:
        >>> from torch_geometric.nn import MLP
        >>> model = MLP([2, 8, 3], norm=None)
        >>> classifier = FairClassifier(model, lam=0.1, tau=1.0)
        >>> classifier.num_classes, classifier(torch.zeros(5, 2)).shape
        (3, torch.Size([5, 3]))
        >>> def modest(logits):
        ...     return 0.01 * logits.square().mean()
        >>> classifier = FairClassifier(model, term=modest)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        term: nn.Module | list[nn.Module] | None = None,
        loss: nn.Module | None = None,
        lam: float = 0.0,
        graph: Literal["batch", "full"] = "batch",
        name: str | None = None,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        num_classes: int | None = None,
        **penalty: Any,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["model", "term", "loss", "distance"])
        if "_instantiator" in self.hparams:
            # From LightningCLI: what is kept are class paths and arguments, not
            # modules, and a checkpoint then suffices to build everything again.
            self.save_hyperparameters()
        check_kind("model", model, nn.Module)
        check_choice("graph", graph, ("batch", "full"))
        self.model = model
        self.graph = graph
        self.name = check_graph_name(name)
        self.lr = check_scalar("lr", lr, above=0.0)
        self.weight_decay = check_scalar("weight_decay", weight_decay, minimum=0.0)
        self.num_classes = _num_classes(model, num_classes)
        self._inputs = parameters_of(model)
        own = SimilarityPenalty(lam, **penalty)
        terms = term if isinstance(term, (list, tuple)) else [term]
        terms = [part for part in terms if part is not None]
        self.terms = Terms("term", [*terms, *([own] if own.lam > 0 else [])], model)
        self.loss = Terms("loss", [] if loss is None else [loss], model)
        self.mean_loss = MeanMetric()
        self.confusion = MulticlassConfusionMatrix(self.num_classes)
        self._full: Data | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Logits of the model."""
        logits: Tensor = self.model(x, *args, **kwargs)
        return logits

    def on_fit_start(self) -> None:
        """Drops the data of an earlier fit."""
        self._full = None
        for term in self._penalties():
            term.num_edges_seen = 0

    def on_train_epoch_end(self) -> None:
        """Warns once of a penalty without an edge."""
        for term in self._penalties():
            if self.current_epoch == 0 and term.num_edges_seen == 0:
                shown = f"{type(term).__name__}({term.extra_repr()})"
                msg = f"{shown} found no edge in the first epoch and has no effect"
                remedy = "Raise 'tau' ('pyg_glif.suggest_tau' finds one)"
                remedy = "Give the graph edges" if term.tau is None else remedy
                warn_caller(f"{msg}. {remedy}", SimilarityWarning)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch and its terms."""
        rows = to_rows(batch, "train")
        logits, labelled = self._logits(rows), rows.labelled
        size = max(1, int(labelled.sum()))
        loss = cross_entropy = _cross_entropy(logits, rows)
        if self.loss.parts and bool(labelled.any()):
            loss = self.loss.total(self._offer(rows, logits, labelled))
        if self.loss.parts or self.terms.parts:
            self.log("train_cross_entropy", cross_entropy.detach(), batch_size=size)
        if self.terms.parts:
            extra = self.terms.total(self._offer(*self._compared(rows, logits)))
            self.log("train_regularizer", extra, batch_size=size)
            loss = loss + extra
        for dual in (*self.terms.duals(), *self.loss.duals()):
            self.log("train_dual", dual, batch_size=1)
        self.log("train_loss", loss, batch_size=size, prog_bar=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        """Resets the counts of the epoch."""
        self.mean_loss.reset()
        self.confusion.reset()
        # A process without labelled rows takes part in the sums like any other.
        no_row = torch.zeros(0, self.num_classes, device=self.device)
        self._count(no_row, no_row[:, 0].long())

    def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Logits of a batch, whose labelled rows are counted."""
        rows = to_rows(batch, self._split)
        logits, labelled = self._logits(rows), rows.labelled
        assert rows.y is not None
        self._count(full_precision(logits[labelled]), rows.y[labelled])
        return logits

    def on_validation_epoch_end(self) -> None:
        """Logs loss and accuracies over all labelled rows of the epoch."""
        matrix, split = self.confusion.compute().float(), self._split
        loss = self.mean_loss.compute()
        occurs = matrix.sum(1) > 0
        if not bool(occurs.any()):
            return
        recall = (matrix.diag() / matrix.sum(1))[occurs]
        means = {
            f"{split}_cross_entropy": loss,
            f"{split}_accuracy": matrix.trace() / matrix.sum(),
            f"{split}_balanced_accuracy": recall.mean(),
        }
        # The same in every process already.
        self.log_dict(means, prog_bar=split == "val", sync_dist=True)

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    def _count(self, logits: Tensor, y: Tensor) -> None:  # [B, C], [B]
        """Adds labelled rows, of which there may be none, to the counts."""
        self.mean_loss.update(F.cross_entropy(logits, y, reduction="none"))
        self.confusion.update(logits, y)

    @property
    def _split(self) -> str:
        """The split that is evaluated."""
        trainer = self._trainer
        return "test" if trainer is not None and trainer.testing else "val"

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

    def _penalties(self) -> list[SimilarityPenalty]:
        """The terms that compare neighbors."""
        return [term for term in self.terms if isinstance(term, SimilarityPenalty)]

    def _logits(self, rows: Rows) -> Tensor:  # [B, C]
        """Logits of a batch; inputs that ``forward`` names come from the ``Data``."""
        data = {} if rows.data is None else rows.data.to_dict()
        data.pop("y", None)  # no model sees the labels
        inputs = {}
        for name, is_needed in self._inputs.items():
            # Numbers such as 'batch_size' mean one thing to a loader, another to a GNN.
            if not isinstance(data.get(name), (int, float, type(None))):
                inputs[name] = self._convert(data[name])
            elif is_needed:
                got = "a Data without it" if data else "rows without a graph"
                msg = f"'model' must be given '{name}', as its 'forward' asks for"
                remedy = (
                    "Train on a whole Data ('FairDataModule(data, batch_size=None)')"
                )
                raise ValueError(
                    f"{msg} (got {got}). {remedy} or with a neighbor loader"
                )
        x = rows.x if rows.data is None else rows.data.x
        logits: Tensor = self(self._convert(x), **inputs)
        check_rank("model(x)", logits, 2)
        check_width("model(x)", logits, self.num_classes)
        return logits[: len(rows.x)]

    def _convert(self, value: Any) -> Any:
        """Converts to the precision of the trainer, which keeps a ``Data``."""
        trainer = self._trainer
        return (
            value if trainer is None else trainer.precision_plugin.convert_input(value)
        )

    def _compared(self, rows: Rows, logits: Tensor) -> tuple[Rows, Tensor]:
        """The rows that the terms compare, and their logits."""
        if rows.data is not None or self.graph == "batch":
            return rows, logits
        if self._full is None:
            data = getattr(getattr(self.trainer, "datamodule", None), "data", None)
            if not isinstance(data, Data):
                msg = "'graph' must be \"batch\" unless the trainer has a data module"
                msg = f"{msg} with 'data' (got \"full\")"
                raise ValueError(f"{msg}. Use 'FairDataModule'")
            self._full = copy.copy(data).to(self.device)  # PyG moves it in place
        rows = to_rows(self._full, "train")
        return rows, self._logits(rows)

    def _offer(
        self, rows: Rows, logits: Tensor, chosen: Tensor | None = None
    ) -> dict[str, Any]:
        """Inputs that terms may select, of all rows or of the chosen ones."""
        parts = {"x": rows.x, "y": rows.y, "index": rows.index, "logits": logits}
        if chosen is not None:
            parts = {
                key: None if value is None else value[chosen]
                for key, value in parts.items()
            }
        elif rows.data is not None and not rows.is_sampled:
            keys = graph_keys(self.name)
            if self.terms.read_edges():
                check_named(rows.data, self.name)
                if self.name is not None:
                    check_attribute("data", rows.data.keys(), keys[0])
            tensors = (rows.data.get(key) for key in keys)
            parts |= dict(zip(graph_keys(None), tensors, strict=True))
        return {**parts, "f": parts["logits"], "model": self.model}


def _cross_entropy(logits: Tensor, rows: Rows) -> Tensor:
    """Mean cross-entropy of the labelled rows, zero if there are none."""
    labelled = rows.labelled
    assert rows.y is not None
    if not bool(labelled.any()):
        # A function of the logits, so that 'backward' still works.
        return 0.0 * logits.sum()
    return F.cross_entropy(full_precision(logits[labelled]), rows.y[labelled])


def _num_classes(model: nn.Module, num_classes: int | None) -> int:
    """Number of classes, read off the last layer if it is :obj:`None`."""
    last = model
    while not hasattr(last, "out_channels") and isinstance(last, nn.Sequential):
        last = last[-1]
    width: Any = getattr(last, "out_channels", getattr(last, "out_features", None))
    width = width if num_classes is None else num_classes
    if num_classes is None and not isinstance(width, int):
        kind = type(model).__name__
        msg = "'num_classes' must be given if 'model' has no 'out_channels'"
        raise ValueError(f"{msg} (got {kind})")
    if width == 1:
        msg = "'num_classes' must be at least 2 (got 1)"
        remedy = "For a single logit give 'model' two outputs; for a regression add"
        remedy = f"{remedy} 'LaplacianLoss' to the loss of your own module"
        raise ValueError(f"{msg}. {remedy}")
    return check_count("num_classes", width, minimum=2)
