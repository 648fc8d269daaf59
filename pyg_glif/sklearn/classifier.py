"""A classifier that treats similar people alike."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.validation import check_choice
from pyg_glif.links import Link, Logit, Softmax
from pyg_glif.model_selection import RiskControl
from pyg_glif.sklearn._base import GLIFEstimator
from pyg_glif.sklearn._sklearn_compat import is_frozen
from pyg_glif.typing import Normalization

# Nothing is certain beyond this, whatever the model says.
_CLOSEST = 1e-6
# Bytes of the name of a class.
_WIDEST = 1 << 16


class GLIFClassifier(ClassifierMixin, GLIFEstimator):  # type: ignore[misc]
    r"""A classifier of scikit-learn, corrected to treat similar people alike.

    Fitting takes five steps: out-of-fold predictions of all people; the model, trained
    on all of them; who is similar, by the model's own reasons
    (:class:`~pyg_glif.tables.FairTable`); radius and strength; and the correction
    (:class:`~pyg_glif.GLIFPostProcessor`) of the out-of-fold predictions. Predicting
    takes the model's output and one step of averaging with similar people of the fit.

    Args:
        estimator (object): A classifier with ``predict_proba``. A copy is trained; in
            scikit-learn's ``FrozenEstimator`` it is used as it is, and should then not
            have been trained on the people of ``fit``.
        sensitive (sequence): Columns that must not count for who is similar, by name
            or position. The model still gets them. :obj:`None` means none.
            (default: :obj:`()`)
        equivalent (dict, optional): Values that count as one, as in
            ``{"relationship": [("Husband", "Wife")]}``. (default: :obj:`None`)
        ignore (sequence): Columns that do not count either, such as names.
            (default: :obj:`()`)
        scale (str or dict): What a distance is: ``"effect"`` on the model, in
            log-odds, and more, see :class:`~pyg_glif.tables.FairTable`.
            (default: ``"effect"``)
        proxies (bool): Whether to remove what tells the sensitive columns.
            (default: :obj:`False`)
        tau (float, optional): Radius. (default: what gives the share ``coverage`` of
            people a neighbour)
        coverage (float): Used where neither ``tau`` nor ``k`` is given.
            (default: :obj:`0.95`)
        k (int, optional): Similar are the ``k`` nearest, within ``tau`` if that is
            given. (default: :obj:`None`, all within the radius)
        theta (float, optional): Decay of the weights. (default: that of
            :class:`~pyg_glif.GLIFPostProcessor`; where ``coverage`` gives the radius,
            :math:`16 / \tau^2`)
        lam (float or str): Strength. ``"tune"`` takes the fairest of five that loses at
            most ``max_loss``, in cross-validation; the strongest of them lets peers
            weigh ten times as much as the person, on average. (default: ``"tune"``)
        max_loss (float): Accuracy that may be lost;
            :func:`~pyg_glif.model_selection.tune` says how sure that is.
            (default: :obj:`0.005`)
        link (str or Link): What is averaged: ``"logit"``, log-odds (several classes:
            log-probabilities), or ``"identity"``, probabilities.
            (default: ``"logit"``)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        cv (int, splitter or iterable): Folds of the out-of-fold predictions; a number
            is lowered to the size of the smallest class. (default: :obj:`5`)
        n_jobs (int, optional): Processes that train models. (default: :obj:`None`)
        random_state (int, RandomState, optional): Folds and the samples over which
            effects are averaged. (default: :obj:`None`, the same as 0: two fits of a
            deterministic model to the same data are equal)
        progress (bool, optional): Whether to show progress bars; :obj:`None` shows
            them on a terminal. (default: :obj:`None`)
        rehearse (bool, optional): Whether strengths are tried in a rehearsal, in
            which every fold comes to models and scales that have not seen it. Without
            it, models of the others have learnt from the labels of the fold, and the
            loss that ``tune_`` tells is too low where people are few. It takes ten
            more fits of the model, and five of the table, for five folds.
            (default: :obj:`None`, up to 10,000 people and ten folds, if every two of
            three folds or more leave people to learn from)
        guarantee (RiskControl, optional): A promise to newcomers in place of
            ``max_loss``. Some people are set aside; model, table and correction are
            fitted to the others, and the strength is the fairest that those set aside
            certify, see :class:`~pyg_glif.model_selection.RiskControl`. Peers are
            those of the correction. (default: :obj:`None`)

    Attributes:
        estimator_ (object): The trained model.
        table_ (FairTable): From people to coordinates; ``table_.summary()``.
        post_ (GLIFPostProcessor): The correction: ``post_.tau_``, ``post_.lam``.
        tune_ (TuneResult): How the strength was chosen, if it was.
        guarantee_ (Guarantee): What was certified, with ``guarantee``.
        classes_ (numpy.ndarray): The classes.
        n_features_in_ (int): Number of columns.
        feature_names_in_ (numpy.ndarray): Their names, if there are names.

    People come as frames of pandas or polars, or as arrays. The people of ``fit`` are
    newcomers too when they come to ``predict``: the model has been trained on them and
    is surer of them than it should be. What the fit found for them is
    ``post_.y_fair_``. Probabilities are kept 1e-6 from 0 and 1, which have no log-odds;
    if some out-of-fold ones are 0 or 1, half as far as the closest others.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(200, 3))
        >>> y = x[:, 0] + x[:, 2] > 0
        >>> model = GLIFClassifier(LogisticRegression(), sensitive=[2], lam=1.0)
        >>> model.fit(x, y).predict_proba(x[:3]).shape
        (3, 2)
        >>> model.table_.unit_
        'log-odds'
    """

    _kind_of_outputs: ClassVar[Any] = "probabilities"

    classes_: NDArray[Any]

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
        link: Literal["logit", "identity"] | Link = "logit",
        normalization: Normalization = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
        progress: bool | None = None,
        rehearse: bool | None = None,
        guarantee: RiskControl | None = None,
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
        self.guarantee = guarantee

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Classes of people.

        Args:
            X (DataFrame or array-like): People, a row each.
        """
        outputs = self._after(X)  # refuses an estimator that is not fitted
        classes: NDArray[Any] = self.classes_[decisions(outputs).numpy()]
        return classes

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities of the classes, a column each.

        Args:
            X (DataFrame or array-like): People, a row each.
        """
        p = self._after(X)
        out: NDArray[np.float64]
        out = (torch.stack([1.0 - p, p], 1) if p.dim() == 1 else p).numpy()
        return out

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Log-odds of the second class; of several, log-probabilities, a column each.

        Args:
            X (DataFrame or array-like): People, a row each.
        """
        p = self._after(X)
        tiny = torch.finfo(p.dtype).tiny
        if p.dim() == 1:
            out = p.clamp(min=tiny).log() - (1.0 - p).clamp(min=tiny).log()
        else:
            out = p.clamp(min=tiny).log()
        return out.numpy()

    @staticmethod
    def _outputs(model: Any, given: Any) -> NDArray[np.float64]:  # [N, C]
        return np.asarray(model.predict_proba(given), dtype=np.float64)

    def _signal(self, outputs: NDArray[np.float64]) -> Tensor:  # [N] or [N, C]
        out = torch.from_numpy(outputs)
        return out[:, 1].contiguous() if out.size(1) == 2 else out

    def _link_for(self, outputs: NDArray[np.float64]) -> Link | None:
        if self.link == "identity":
            return None
        if isinstance(self.link, Link):
            return self.link
        kept, eps = np.minimum(outputs, 1.0 - outputs), _CLOSEST
        if not kept.all():
            eps = max(eps, float(kept[kept > 0].min(initial=0.5)) / 2)
        return Logit(eps) if outputs.shape[1] == 2 else Softmax(eps=eps)

    def _check_model(self) -> None:
        if not isinstance(self.link, Link):
            check_choice("link", self.link, ("logit", "identity"))
        if not hasattr(self.estimator, "predict_proba"):
            kind = type(self.estimator).__name__
            msg = f"'estimator' must have 'predict_proba' (got {kind})"
            remedy = "Wrap it in 'sklearn.calibration.CalibratedClassifierCV'"
            raise TypeError(f"{msg}. {remedy}")

    def _check_target(self, y: Any) -> NDArray[Any]:
        truth: NDArray[Any] = column_or_1d(y, warn=True)
        assert_all_finite(truth, input_name="y")
        check_classification_targets(truth)
        self.classes_, counts = np.unique(truth, return_counts=True)
        if len(counts) < 2:
            (name,) = self.classes_.tolist()
            raise ValueError(f"'y' must have two classes (got one class, {name!r})")
        if counts.min() < 2 and not is_frozen(self.estimator):
            name = self.classes_.tolist()[counts.argmin()]
            msg = f"'y' must have each class twice (got {name!r} once)"
            raise ValueError(f"{msg}. Leave rare classes out or join them")
        return truth

    def _check_fitted(self, model: Any) -> None:
        super()._check_fitted(model)
        ours, theirs = self.classes_.tolist(), np.asarray(model.classes_).tolist()
        if ours != theirs:
            msg = f"'estimator' must have the classes {ours}"
            raise ValueError(f"{msg} (got {theirs})")

    def _splitter(self, y: NDArray[Any], seed: int) -> Any:
        if not isinstance(self.cv, int):
            return check_cv(self.cv, y, classifier=True)
        smallest = int(np.unique(y, return_counts=True)[1].min())
        number = max(2, min(self.cv, smallest))
        return StratifiedKFold(number, shuffle=True, random_state=seed)

    def _check_folds(self, y: NDArray[Any], folds: list[Any]) -> None:
        for number, (others, _) in enumerate(folds):
            absent = np.setdiff1d(self.classes_, y[others]).tolist()
            if absent:
                msg = "'cv' must leave every class among the others of each fold"
                raise ValueError(f"{msg} (got no {absent[0]!r} for fold {number})")

    def _judged(self, y: NDArray[Any], new: NDArray[np.int64]) -> dict[str, Any]:
        labels = torch.from_numpy(np.searchsorted(self.classes_, y))
        return {"labels": labels}

    def _scores(self, y: Any, before: Tensor, after: Tensor) -> dict[str, float]:
        named = {"accuracy_before": before, "accuracy_after": after}
        return {
            name: float(accuracy_score(y, self.classes_[decisions(p).numpy()]))
            for name, p in named.items()
        }

    def _labels(self, y: Any) -> Tensor | None:
        return torch.from_numpy(np.searchsorted(self.classes_, np.asarray(y)))

    def _facts(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str}

    def _adopt(self, config: dict[str, Any]) -> None:
        dtype = np.dtype(str(config["dtype"]))
        if dtype.itemsize > _WIDEST:  # before that much memory is taken for each
            msg = f"'dtype' must take at most {_WIDEST} bytes"
            raise ValueError(f"{msg} (got {dtype.itemsize})")
        self.classes_ = np.array(config["classes"], dtype=dtype)
