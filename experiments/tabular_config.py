"""Settings, splits, models and counterfactual variants of experiments on tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from experiments.datasets import German
from experiments.training import Recipe
from pyg_glif.datasets import Adult

if TYPE_CHECKING:
    import pandas as pd

_RECIPE = Recipe(64, 300, 3e-3, batch_size=500, weight_decay=1e-4)


@dataclass(frozen=True)
class TabularConfig:
    r"""Settings of an experiment on a table.

    Args:
        dataset (str): ``"adult"`` or ``"german"``.
        variant (str): ``"uci"``, or ``"invented"`` for synthetic samples.
        sensitive (tuple of str): Columns that must not count.
        revealing (tuple of str): Columns that give them away; dropped with them in
            one row.
        equivalent (dict): Values of other columns that are to count as one.
        ignore (tuple of str): Columns that no model and no metric is given.
        limit (int or float, optional): Number or share of samples.
            (default: all)
        test_share (float): Share of new samples, which are not part of the fit.
        num_folds (int): Folds of the out-of-fold outputs of training samples.
        radius (float): Radius of the evaluated pairs, in log-odds.
        target_degree (float): Mean number of neighbors of the radius graphs.
        k (int): Neighbors in the k-nearest graph.
        lams (tuple of float): Strengths of GLIF that are tried on training samples.
        max_loss (float): Accuracy that may be lost on training samples.
        promise (float, optional): ``max_loss`` of the estimator.
            (default: the estimator's own)
        num_slow (int): Samples of the IF-constraints.
        lipschitz (tuple of float): Constants that are tried there.
        num_rival (int): Training samples of networks and of ExponentiatedGradient.
        max_iter (int): Models that ExponentiatedGradient may fit.
        recipe (Recipe): How networks are trained.
        penalties (tuple of float): Weights of the Laplacian loss that are tried.
    """

    dataset: str
    variant: str = "uci"
    sensitive: tuple[str, ...] = ("sex", "race")
    revealing: tuple[str, ...] = ("relationship",)
    equivalent: Mapping[str, Sequence[Sequence[str]]] | None = None
    ignore: tuple[str, ...] = ()
    limit: float | None = None
    test_share: float = 1 / 3
    num_folds: int = 5
    radius: float = 0.1
    target_degree: float = 20.0
    k: int = 20
    lams: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    max_loss: float = 0.003
    promise: float | None = None
    num_slow: int = 1_500
    lipschitz: tuple[float, ...] = (1.0, 2.0, 4.0)
    num_rival: int = 4_000
    max_iter: int = 10
    recipe: Recipe = _RECIPE
    penalties: tuple[float, ...] = (0.3, 1.0, 3.0)


@dataclass(frozen=True, eq=False)
class Split:
    """Training samples, and new samples with their counterfactual variants.

    Args:
        train (pandas.DataFrame): Training samples, all columns that count.
        versions (list): New samples, then their variants: the sensitive columns, and
            what goes with them, changed.
        y (torch.Tensor): Labels of training samples.
        y_new (torch.Tensor): Labels of new samples.
        group (torch.Tensor): Group of training samples, 0 or 1.
        groups (torch.Tensor): Group of new samples in each version, ``[M, 1 + T]``.
    """

    train: "pd.DataFrame"
    versions: list["pd.DataFrame"]
    y: Tensor
    y_new: Tensor
    group: Tensor
    groups: Tensor

    @classmethod
    def of(cls, config: TabularConfig, seed: int) -> "Split":
        """A random split of the data set."""
        dataset = _read(config)
        frame = dataset.frame.drop(columns=list(config.ignore))
        y = torch.tensor(dataset.target.to_numpy())
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(frame), generator=generator)
        if config.limit is not None:
            share = 1 if isinstance(config.limit, int) else len(frame)
            order = order[: round(config.limit * share)]
        num_new = round(config.test_share * len(order))
        new, known = order[:num_new], order[num_new:]
        new_frame = frame.iloc[new.numpy()].reset_index(drop=True)
        versions = [new_frame, *dataset.twins(new_frame)]
        train = frame.iloc[known.numpy()].reset_index(drop=True)
        groups = torch.stack([_group(config, version) for version in versions], dim=1)
        return cls(train, versions, y[known], y[new], _group(config, train), groups)


def trees(frame: "pd.DataFrame", seed: int) -> Any:
    """Boosted trees, which take categories and gaps as they are."""
    return HistGradientBoostingClassifier(random_state=seed)


def linear(frame: "pd.DataFrame", seed: int) -> Any:
    """Logistic regression on standardised numbers and indicators of categories."""
    words = frame.select_dtypes("category").columns
    features = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), words),
        (StandardScaler(), frame.columns.difference(words)),
    )
    return make_pipeline(features, LogisticRegression(max_iter=1_000))


#: Models by their name in tables: from a frame, of which only the columns count, and a
#: seed to what can be fitted.
MODELS: dict[str, Callable[["pd.DataFrame", int], Any]] = {
    "boosted trees": trees,
    "logistic regression": linear,
}


def _read(config: TabularConfig) -> Any:
    """The data set."""
    return Adult(variant=config.variant) if config.dataset == "adult" else German()


def _group(config: TabularConfig, frame: "pd.DataFrame") -> Tensor:  # [N]
    """1 for men, 0 for women."""
    values = frame[config.sensitive[0]].astype(str).str.lower()
    return torch.tensor(values.str.match("man|male").to_numpy()).long()
