"""A regressor that treats similar people alike."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, is_classifier
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import assert_all_finite, column_or_1d
from torch import Tensor

from pyg_glif._utils.validation import check_choice
from pyg_glif.links import Link, Log
from pyg_glif.sklearn._base import GLIFEstimator
from pyg_glif.typing import Normalization


class GLIFRegressor(RegressorMixin, GLIFEstimator):  # type: ignore[misc]
    r"""A regressor of scikit-learn, corrected to treat similar people alike.

    As :class:`GLIFClassifier`, with these differences: outputs are those of
    ``predict``, distances are in their unit, and the score is the coefficient of
    determination :math:`R^2`.

    Args:
        estimator (object): A regressor. A copy is trained; in scikit-learn's
            ``FrozenEstimator`` it is used as it is, and should then not have been
            trained on the people of ``fit``.
        sensitive (sequence): See :class:`GLIFClassifier`.
        equivalent (dict, optional): Likewise.
        ignore (sequence): Likewise.
        scale (str or dict): Likewise.
        proxies (bool): Likewise.
        tau (float, optional): Likewise.
        coverage (float): Likewise.
        k (int, optional): Likewise.
        theta (float, optional): Likewise.
        lam (float or str): Likewise.
        max_loss (float): :math:`R^2` that may be lost. (default: :obj:`0.005`)
        link (str or Link): What is averaged: ``"identity"``, outputs, or ``"log"``,
            logarithms of positive outputs. (default: ``"identity"``)
        normalization (str, optional): See :class:`GLIFClassifier`.
        cv (int, splitter or iterable): Likewise; a number is lowered to that of
            people.
        n_jobs (int, optional): Likewise.
        random_state (int, RandomState, optional): Likewise.
        progress (bool, optional): Likewise.
        rehearse (bool, optional): Likewise.

    Attributes:
        estimator_ (object): The trained model.
        table_ (FairTable): From people to coordinates.
        post_ (GLIFPostProcessor): The correction.
        tune_ (TuneResult): How the strength was chosen, if it was.
        n_features_in_ (int): Number of columns.
        feature_names_in_ (numpy.ndarray): Their names, if there are names.

    Example:
        >>> from sklearn.linear_model import LinearRegression
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(200, 3))
        >>> y = x[:, 0] + x[:, 2]
        >>> model = GLIFRegressor(LinearRegression(), sensitive=[2], lam=1.0)
        >>> model.fit(x, y).predict(x[:3]).shape
        (3,)
        >>> model.table_.unit_
        'output'
    """

    _kind_of_outputs: ClassVar[Any] = "values"

    def __init__(
        self,
        estimator: Any,
        *,
        sensitive: Sequence[Any] | None = (),
        equivalent: Mapping[Any, Sequence[Sequence[Any]]] | None = None,
        ignore: Sequence[Any] = (),
        scale: Any = "effect",
        proxies: bool = False,
        tau: float | None = None,
        coverage: float = 0.95,
        k: int | None = None,
        theta: float | None = None,
        lam: float | Literal["tune"] = "tune",
        max_loss: float = 0.005,
        link: Literal["identity", "log"] | Link = "identity",
        normalization: Normalization = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
        progress: bool | None = None,
        rehearse: bool | None = None,
    ) -> None:
        self.estimator = estimator
        self.sensitive = sensitive
        self.equivalent = equivalent
        self.ignore = ignore
        self.scale = scale
        self.proxies = proxies
        self.tau = tau
        self.coverage = coverage
        self.k = k
        self.theta = theta
        self.lam = lam
        self.max_loss = max_loss
        self.link = link
        self.normalization = normalization
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.progress = progress
        self.rehearse = rehearse

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Outputs for people.

        Args:
            X (DataFrame or array-like): People, a row each.
        """
        out: NDArray[np.float64] = self._after(X).numpy()
        return out

    @staticmethod
    def _outputs(model: Any, given: Any) -> NDArray[np.float64]:  # [N]
        return np.asarray(model.predict(given), dtype=np.float64)

    def _signal(self, outputs: NDArray[np.float64]) -> Tensor:  # [N]
        return torch.from_numpy(outputs.reshape(len(outputs)))

    def _link_for(self, outputs: NDArray[np.float64]) -> Link | None:
        if isinstance(self.link, Link):
            return self.link
        return Log() if self.link == "log" else None

    def _check_model(self) -> None:
        if not isinstance(self.link, Link):
            check_choice("link", self.link, ("identity", "log"))
        kind = type(self.estimator).__name__
        if is_classifier(self.estimator) or not hasattr(self.estimator, "predict"):
            msg = f"'estimator' must be a regressor (got {kind})"
            raise TypeError(f"{msg}. For a classifier use 'GLIFClassifier'")

    def _check_target(self, y: Any) -> NDArray[Any]:
        truth: NDArray[Any] = column_or_1d(y, warn=True, dtype=np.float64)
        assert_all_finite(truth, input_name="y")
        return truth

    def _splitter(self, y: NDArray[Any], seed: int) -> Any:
        if not isinstance(self.cv, int):
            return check_cv(self.cv)
        return KFold(min(self.cv, len(y)), shuffle=True, random_state=seed)

    def _check_folds(self, y: NDArray[Any], folds: list[Any]) -> None:
        pass

    def _judged(self, y: NDArray[Any], new: NDArray[np.int64]) -> dict[str, Any]:
        def r2(outputs: Tensor) -> float:
            return float(r2_score(y[new], outputs.numpy()[new]))

        return {"score": r2}

    def _scores(self, y: Any, before: Tensor, after: Tensor) -> dict[str, float]:
        named = {"r2_before": before, "r2_after": after}
        return {name: float(r2_score(y, f.numpy())) for name, f in named.items()}
