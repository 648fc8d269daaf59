"""Smoothing of a trainer's predictions."""

import copy
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.validation import (
    check_one_process,
    check_outputs,
    check_same_rows,
    full_precision,
)
from pyg_glif.errors import NotFittedError
from pyg_glif.lightning._batch import to_rows
from pyg_glif.lightning.resolve import Callback, LightningModule, Trainer
from pyg_glif.metrics import laplacian_energy, local_lipschitz
from pyg_glif.postprocessing import GLIFPostProcessor

_RESULTS = ("post_", "y_hat_", "y_fair_", "metrics_")
_QUANTILE = 0.99  # of the edges; the largest ratio is noise for near duplicates


class GLIFCallback(Callback):
    r"""Smooths the outputs of ``trainer.test`` or ``trainer.predict``.

    At the end of the run a :class:`~pyg_glif.GLIFPostProcessor` is fitted to all
    outputs and the features of their batches (`GLIF
    <https://arxiv.org/abs/2110.13796>`_),

    .. math::
        f = \arg\min_f \|f - \hat y\|^2 + \lambda f^\top \mathbf{L} f, \qquad
        W_{ij} = e^{-\theta d_{ij}^2} \; \text{if} \; d_{ij} \le \tau .

    The model does not change, nor does what ``trainer.predict`` returns. Works with any
    module whose step returns outputs :math:`(B)` or :math:`(B, C)`, or a dictionary
    that holds them as ``"logits"``, and any batches :class:`FairClassifier` takes.

    Args:
        name (str): Start of all logged names; give each of several callbacks its
            own. (default: ``"glif"``)
        **settings: Keywords of :class:`~pyg_glif.GLIFPostProcessor`: ``lam``, ``tau``,
            ``distance``, ``theta``, ``k`` and so on, with its defaults.

    Attributes:
        post_ (GLIFPostProcessor): The fit: it explains, audits, is saved, and corrects
            new samples. ``post_.tau_`` is the radius, ``post_.solution_`` the solve.
        y_hat_ (torch.Tensor): Outputs before smoothing, in the order of the loader.
        y_fair_ (torch.Tensor): Outputs after smoothing.
        metrics_ (dict): Logged metrics, ``before`` and ``after``: ``glif_accuracy`` of
            the labelled rows if outputs have several columns, ``glif_energy``, the
            Laplacian energy, and ``glif_lipschitz``, the ratio of output difference to
            fair distance that 99% of edges do not exceed. Those of ``trainer.predict``
            go to the trainer's loggers.

    Several loaders or processes are refused.

    Example:
        >>> from torch_geometric.data import Data
        >>> from pyg_glif.lightning import FairClassifier, FairDataModule
        >>> x = torch.tensor([[0.0], [1.0], [5.0]])
        >>> data = FairDataModule(Data(x=x, y=torch.tensor([0, 0, 1])))
        >>> callback = GLIFCallback(lam=1.0, tau=2.0)
        >>> quiet = {"logger": False, "enable_progress_bar": False}
        >>> trainer = Trainer(accelerator="cpu", callbacks=callback, **quiet)
        >>> _ = trainer.predict(FairClassifier(torch.nn.Linear(1, 2)), data)
        >>> callback.y_fair_[2] - callback.y_hat_[2]  # isolated
        tensor([0., 0.])
        >>> metrics = callback.metrics_
        >>> round(metrics["glif_energy_after"] / metrics["glif_energy_before"], 2)
        0.2
        >>> callback.post_
        GLIFPostProcessor(tau=2.0)
    """

    post_: GLIFPostProcessor
    y_hat_: Tensor  # [N] or [N, C]
    y_fair_: Tensor  # [N] or [N, C]
    metrics_: dict[str, float]

    def __init__(self, *, name: str = "glif", **settings: Any) -> None:
        super().__init__()
        self.post = GLIFPostProcessor(**settings)
        self.name = name
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []  # x, y_hat, labels

    def __getattr__(self, name: str) -> Any:
        owner = type(self).__name__
        if name not in _RESULTS:
            raise AttributeError(f"'{owner}' object has no attribute '{name}'")
        msg = f"This {owner} has seen no outputs yet. Pass it to a trainer and call"
        raise NotFittedError(f"{msg} 'trainer.test' or 'trainer.predict'")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Checks the trainer, and drops the result of an earlier run."""
        name = type(self).__name__
        check_one_process(name, trainer.world_size)
        testing = trainer.testing
        batches = trainer.num_test_batches if testing else trainer.num_predict_batches
        if len(batches) != 1:
            msg = f"'{name}' must see one dataloader (got {len(batches)})"
            raise ValueError(f"{msg}. Run them one after another")
        self._parts = []
        for result in _RESULTS:
            vars(self).pop(result, None)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keeps features, outputs and labels, on the CPU like the distance.

        Kept are copies: a loader may fill the same memory again for the next batch.
        """
        split = "test" if trainer.testing else "predict"
        y_hat = outputs.get("logits") if isinstance(outputs, dict) else outputs
        if not isinstance(y_hat, Tensor):
            msg = f"'{split}_step' must return outputs, or a dictionary with 'logits'"
            raise TypeError(f"{msg} (got {type(y_hat).__name__})")
        rows = to_rows(batch, split)
        check_same_rows(f"{split}_step(...)", y_hat, "x", rows.x)
        label = rows.y if rows.y is not None else torch.full((len(rows.x),), -1)
        self._parts.append(
            (_copied(rows.x), _copied(y_hat), label.to("cpu", copy=True))
        )

    # Kept tensors should be usable where gradients are wanted.
    @torch.inference_mode(False)
    @torch.no_grad()
    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Smooths, and logs metrics of the outputs before and after."""
        if not self._parts:
            msg = f"'{type(self).__name__}' must see at least one batch (got none)"
            raise ValueError(msg)
        x, y_hat, label = (torch.cat(part) for part in zip(*self._parts, strict=True))
        self._parts = []
        post = self._fitted(x, check_outputs("y_hat", y_hat))
        self.post_, self.y_hat_, self.y_fair_ = post, y_hat, post.y_fair_
        self.metrics_ = {
            f"{self.name}_{key}_{when}": value
            for when, y in (("before", y_hat), ("after", post.y_fair_))
            for key, value in _metrics(post, y, label).items()
        }
        if trainer.testing:
            pl_module.log_dict(self.metrics_, batch_size=len(y_hat))
            return
        for logger in trainer.loggers:
            logger.log_metrics(self.metrics_, step=trainer.global_step)

    on_predict_start = on_test_start
    on_predict_batch_end = on_test_batch_end
    on_predict_epoch_end = on_test_epoch_end

    def _fitted(self, x: Tensor, y_hat: Tensor) -> GLIFPostProcessor:
        """A post-processor fitted to the outputs of the run."""
        settings = self.post.get_params()
        if settings["distance"] is not None:
            # It may be part of the model as well, and have moved with it.
            settings["distance"] = copy.deepcopy(settings["distance"]).cpu()
        return GLIFPostProcessor(**settings).fit(x, y_hat)


def _copied(value: Tensor) -> Tensor:
    """A copy on the CPU, in float32 if the tensor is in half precision."""
    return full_precision(value.detach().to("cpu", copy=True))


def _metrics(post: GLIFPostProcessor, y: Tensor, label: Tensor) -> dict[str, float]:
    """Energy, Lipschitz ratio and, where there are classes, accuracy of outputs."""
    graph, known = post.graph_, label >= 0
    energy = laplacian_energy(
        y, graph.edge_index, graph.edge_weight, normalization=post.normalization
    )
    ratios = local_lipschitz(
        y, graph.edge_index, graph.edge_sq_dist, quantiles=[_QUANTILE], num_worst=0
    )
    metrics = {"energy": float(energy), "lipschitz": float(ratios.quantiles)}
    if y.dim() == 2 and y.size(1) > 1 and bool(known.any()):
        right = (decisions(y) == label)[known]
        metrics["accuracy"] = float(right.double().mean())
    return metrics
