"""What classifier and regressor have in common."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from os import PathLike
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from threadpoolctl import threadpool_limits
from torch import Tensor

from pyg_glif._utils.arrays import to_labels
from pyg_glif._utils.files import damage_in
from pyg_glif._utils.json import is_subset
from pyg_glif._utils.validation import check_count, check_kind, check_scalar
from pyg_glif.audit import AuditData, AuditReport, Bootstrap, audit
from pyg_glif.audit.setup import fit_setup, table_setup
from pyg_glif.explain import Explanation
from pyg_glif.graph import SimilarityGraph, decay_of, suggest_tau
from pyg_glif.links import Link, dual_of
from pyg_glif.model_selection import Guarantee, RiskControl, TuneResult, tune
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.sklearn._input import Form, People, check_takes_text, ids_of
from pyg_glif.sklearn._nested_cv import Rehearsal, fitted_in_two
from pyg_glif.sklearn._risk_control import fit_with_guarantee
from pyg_glif.sklearn._sklearn_compat import is_frozen, routing_enabled, traits
from pyg_glif.tables import FairTable

_Self = TypeVar("_Self", bound="GLIFEstimator")

# Strengths that are tried: how many times as much as the person their peers weigh, on
# average. Beyond, people are hardly heard in their own case; and the loss that is
# measured is that of models trained on a part of the people, which averaging helps more
# than it helps the model of all.
_PULLS = (0.1, 0.3, 1.0, 3.0, 10.0)
# People whose peers are looked at to find the strengths.
_SAMPLE = 10_000
# A radius within which nearly everybody has a peer is a wide one for most: weights fall
# faster in it than in others, so that far peers count for those who have no near ones.
_FASTER = 8.0
# Up to here the strength is tuned in a rehearsal, which takes ten more fits of the
# model for five folds and a table for each. Where people are more, the label of one
# hardly tells in the model.
_FEW_PEOPLE, _FEW_FOLDS = 10_000, 10
# Parameters that table and correction have under the same names.
_OF_TABLE = ("sensitive", "equivalent", "ignore", "scale", "proxies")
_OF_POST = ("tau", "k", "theta", "normalization", "progress")
# Parameters that a file holds beside those of the table.
_SAVED = ("tau", "coverage", "k", "theta", "lam", "max_loss", "normalization")
# A sensitive column with more values does not divide people into groups.
_MAX_GROUPS = 20


class OutputModel(BaseEstimator):  # type: ignore[misc]
    """A model whose ``predict`` gives the outputs that are smoothed.

    Asked for probabilities, ``cross_val_predict`` numbers the classes before it trains,
    and weights of classes by their names would fit no more.
    """

    def __init__(self, estimator: Any, outputs: Callable[[Any, Any], Any]) -> None:
        self.estimator = estimator
        self.outputs = outputs

    def fit(self, X: Any, y: Any, **params: Any) -> "OutputModel":  # noqa: N803
        """Trains the model."""
        self.estimator_ = clone(self.estimator).fit(X, y, **params)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Outputs of the model."""
        return self.outputs(self.estimator_, X)

    def get_metadata_routing(self) -> Any:
        """What the model asks for."""
        return self.estimator.get_metadata_routing()


class GLIFEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A model, who is similar by its own reasons, and the correction of its outputs."""

    _kind_of_outputs: ClassVar[Any]  # as the table calls them

    # Parameters, which the constructors of the subclasses set.
    estimator: Any
    lam: Any
    link: Any
    tau: float | None
    coverage: float
    k: int | None
    theta: float | None
    max_loss: float
    normalization: Any
    cv: Any
    n_jobs: int | None
    random_state: Any
    progress: bool | None
    rehearse: bool | None
    guarantee: RiskControl | None = None

    estimator_: Any
    table_: FairTable
    post_: GLIFPostProcessor
    tune_: TuneResult
    guarantee_: Guarantee
    feature_names_in_: NDArray[np.object_]
    n_features_in_: int

    def fit(
        self: _Self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        **fit_params: Any,
    ) -> _Self:
        """Trains the model, finds who is similar, and fits the correction.

        Args:
            X (DataFrame or array-like): People, a row each.
            y (array-like): What is true of them.
            sample_weight (array-like, optional): Weights for the training of the
                model; the correction does not depend on them.
                (default: :obj:`None`)
            fit_params: Further arguments for the ``fit`` of the model.
        """
        self._check_params()
        if y is None:
            name = type(self).__name__
            msg = f"{name} requires y to be passed, but the target y is None"
            raise ValueError(msg)
        if self.guarantee is not None:
            if sample_weight is not None:
                fit_params = {**fit_params, "sample_weight": sample_weight}
            fit_with_guarantee(self, X, y, self.guarantee, fit_params)
            return self
        self.__dict__.pop("guarantee_", None)
        self._form = Form.of(self, X)
        people = self._form.read(self, X)
        check_consistent_length(people.frame, y, sample_weight)
        if len(people.frame) < 2:
            raise ValueError("'X' must have at least two people (got 1 sample)")
        y = self._check_target(y)
        seed = self._seed()
        table = self._new_table(seed)
        table.check(people.frame)
        if not is_frozen(self.estimator):
            check_takes_text(self.estimator, people.given, y)
        for_fit, for_split = self._routed(sample_weight, fit_params)
        folds = list(self._splitter(y, seed).split(people.given, y, **for_split))
        # A fit trains up to 21 models. Threads of OpenMP wait for each other in every
        # step, on a shared machine many times as long as the step takes.
        few = len(y) <= _FEW_PEOPLE
        with threadpool_limits(1) if few else nullcontext():
            self._fit_correction(people, y, table, folds, for_fit, seed)
        return self

    def _fit_correction(
        self,
        people: People,
        y: NDArray[Any],
        table: FairTable,
        folds: list[Any],
        for_fit: dict[str, Any],
        seed: int,
    ) -> None:
        """Fits model, table and correction to samples that were checked."""
        rehearsal = None
        if is_frozen(self.estimator):
            self._check_fitted(self.estimator)
            self.estimator_ = self.estimator
            outputs = self._outputs(self.estimator, people.given)
        else:
            self._check_folds(y, folds)
            model = OutputModel(self.estimator, self._outputs)
            if self._rehearses(y, folds):
                rehearsal = Rehearsal(model, people, y, folds, for_fit, self.n_jobs)
                outputs = rehearsal.outputs
            else:
                outputs = cross_val_predict(
                    model,
                    people.given,
                    y,
                    cv=folds,
                    n_jobs=self.n_jobs,
                    params=for_fit,
                )
            self.estimator_ = clone(self.estimator).fit(people.given, y, **for_fit)
        y_hat, link = self._signal(outputs), self._link_for(outputs)
        self.table_ = table.fit(people.frame, self._outputs_of_frame)
        x = table.transform(people.frame)
        if bool((x == x[0]).all()):
            msg = "'estimator' must depend on a column that counts"
            raise ValueError(f"{msg} (got the same coordinates for everybody)")
        tau, theta = self._reach(x)
        graph = None if self.k is not None else self._similarity(x, tau)
        self.__dict__.pop("tune_", None)
        lam = self.lam
        if lam == "tune":
            tried = self._tried(x, y_hat, y, folds) | {"graph": graph}
            if rehearsal is not None:
                tried = self._staged(rehearsal, tau, y, link, seed) or tried
            weight = self._weight_of_peers(x, graph, theta)
            self.tune_ = tune(
                **tried,
                **({"taus": [tau]} if self.k is None else {"ks": [self.k]}),
                lams=[pull / weight for pull in _PULLS] if weight > 0 else [0.0],
                max_loss=self.max_loss,
                theta=theta,
                normalization=self.normalization,
                link=link,
                progress=self.progress,
            )
            lam = self.tune_.best.lam
        post = self._new_post(tau=tau, theta=theta, lam=lam, link=link)
        self._keep(post.fit(x, y_hat, graph), people.frame, ids_of(people.frame))

    def _keep(self, post: GLIFPostProcessor, frame: Any, ids: Any) -> None:
        """Takes over a fitted correction, with the features and ids of its samples."""
        many = post.y_hat_.dim() > 1
        self.post_ = post.describe(
            frame,
            ids=ids,
            table=self.table_,
            output_names=self._facts().get("classes") if many else None,
        )

    def explain(self, X: Any, top: int | None = None) -> list[Explanation]:  # noqa: N803
        """Whose outputs make up the output of each person, and by how much.

        Args:
            X (DataFrame or array-like): People, a row each.
            top (int, optional): How many contributors to return for each.
                (default: :obj:`None`, all)

        Contributors are numbered as the rows of ``fit``; ``-1`` is the person. They are
        called by the index of a pandas frame, if it is not just their number.
        """
        people = self._read(X)
        x, y_hat = self._coordinates(people), self._before(people)
        return [
            self.post_.explain_new(
                x[at : at + 1],
                top,
                y_hat_new=y_hat[at : at + 1],
                features=people.frame[at : at + 1],
            )
            for at in range(len(x))
        ]

    def num_neighbors(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """How many people of the fit are similar to each person.

        Who has none keeps the output of the model.

        Args:
            X (DataFrame or array-like): People, a row each.
        """
        people = self._read(X)
        y_hat, x = self._before(people), self._coordinates(people)
        info = self.post_.transform_info(x, y_hat)
        out: NDArray[np.int64] = info.num_neighbors.numpy()
        return out

    def audit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        sensitive: Mapping[str, Any] | None = None,
        variants: Any = None,
        difference: float | None = None,
        tolerance: float | Mapping[str, float] | None = None,
        num_nearest: int | None = 5,
        num_worst: int = 10,
        bootstrap: Bootstrap = Bootstrap(),  # noqa: B008  (immutable)
    ) -> AuditReport:
        """Compares how the model and its correction treat similar people.

        Args:
            X (DataFrame or array-like): People, a row each; peers are those among
                them. For the people of the fit there is ``post_.audit()``.
            y (array-like, optional): What is true of them; the report then has the
                score before and after. (default: :obj:`None`)
            sensitive (dict, optional): Labels of sensitive attributes by name.
                (default: the sensitive columns of two to 20 values)
            variants (array-like, optional): Label of the counterfactual group of each
                row. (default: :obj:`None`)
            difference (float, optional): Two people are treated unlike if their
                outputs are further apart. (default: :obj:`None`, if decisions differ)
            tolerance (float or dict, optional): Share of pairs that may be treated
                unlike, see :func:`~pyg_glif.audit.audit`.
                (default: :obj:`None`)
            num_nearest (int, optional): Number of nearest samples for consistency.
                (default: :obj:`5`)
            num_worst (int): How many people and pairs to list.
                (default: :obj:`10`)
            bootstrap (Bootstrap): How intervals are drawn.
                (default: :obj:`Bootstrap()`)
        """
        people = self._read(X)
        x, before = self._coordinates(people), self._before(people)
        info = self.post_.transform_info(x, before)
        after = info.value
        if sensitive is None:
            sensitive = self._groups_among(people)
        graph = self._similarity(x, self.tau if self.k else self.post_.tau_)
        decides = before.dim() == 1 and self._kind_of_outputs == "probabilities"
        data = AuditData(
            x,
            before,
            after,
            graph=graph,
            lap=graph.laplacian(self.post_.theta),
            error=self.post_._require_fit("audit").error(after),
            progress=self.progress,
        )
        report = audit(
            data,
            sensitive=sensitive,
            variants=None if variants is None else to_labels("variants", variants),
            labels=self._labels(y) if decides and y is not None else None,
            threshold=0.5 if decides else None,
            difference=difference,
            tolerance=tolerance,
            num_nearest=num_nearest,
            num_worst=num_worst,
            bootstrap=bootstrap,
        )
        scores = {} if y is None else self._scores(y, before, after)
        report = report.with_facts(
            num_without_fitted_neighbors=info.num_isolated, **scores
        )
        report = self._told(report).with_features(people.frame)
        ids = ids_of(people.frame)
        return report if ids is None else report.with_ids(ids)

    def _told(self, report: AuditReport) -> AuditReport:
        """A report with what was compared, and what was tried."""
        report = report.with_setup(
            **table_setup(self.table_.summary(), self.table_.sensitive or ()),
            **fit_setup(self.post_._require_fit("audit")),
        )
        return report.with_tradeoff(self.tune_) if hasattr(self, "tune_") else report

    def save(self, path: str | PathLike[str]) -> None:
        """Writes everything but the model to one safetensors file.

        The file holds coordinates, values of the columns that count, and outputs of the
        people of the fit: protect it as you protect them. The model, ``estimator_``, is
        kept by whatever means you keep models. ``tune_``, ``cv``, ``n_jobs`` and
        ``random_state`` are not kept.

        Args:
            path (str or Path): Where to write; replaced in one step if it exists.
        """
        check_is_fitted(self)
        self.post_.save(path, metadata={"estimator": self._config()})

    @classmethod
    def load(cls: type[_Self], path: str | PathLike[str], *, estimator: Any) -> _Self:
        """Reads what ``save`` wrote, without running code from the file.

        Args:
            path (str or Path): The file.
            estimator (object): The fitted model, ``estimator_`` of what was saved.

        Raises :class:`~pyg_glif.errors.DamagedFileError` if ``save`` cannot have
        written the file.
        """
        post = GLIFPostProcessor.load(path)
        with damage_in(path):
            config = post.metadata_.get("estimator", {})
            kind = config.get("kind", "GLIFPostProcessor")
        if kind != cls.__name__:
            msg = f"'path' must be a file that '{cls.__name__}.save' wrote"
            raise ValueError(f"{msg} (got one that '{kind}.save' wrote)")
        cls(estimator)._check_model()  # refuses what the caller got wrong
        with damage_in(path):
            out = cls._of_config(config, estimator, post)
        out._check_fitted(estimator)
        return out

    def _config(self) -> dict[str, Any]:
        """All but the model and the fit, as plain data."""
        return {
            "kind": type(self).__name__,
            "params": {name: getattr(self, name) for name in _SAVED},
            "link": self.link if isinstance(self.link, str) else None,
            "table": self.table_.to_config(),
            "form": self._form.to_config(),
            **self._facts(),
        }

    @classmethod
    def _of_config(
        cls: type[_Self],
        config: dict[str, Any],
        estimator: Any,
        post: GLIFPostProcessor,
    ) -> _Self:
        """The estimator of a description, of a model and of a fit."""
        table = FairTable.from_config(config["table"])
        table.frame_name = "X"
        params = {name: getattr(table, name) for name in _OF_TABLE}
        link = config["link"] or post.link
        out = cls(estimator, link=link, **params, **config["params"])
        out._check_params()
        names = (
            tuple(n) if isinstance(n, list) else n for n in config["form"]["names"]
        )
        out._form = Form(**{**config["form"], "names": tuple(names)})
        if out._form.names != tuple(table.feature_names_in_):
            raise ValueError(
                f"'form' must have the columns of the table (got {out._form.names})"
            )
        out._adopt(config)
        out.n_features_in_ = len(out._form.names)
        if out._form.is_frame and all(isinstance(n, str) for n in out._form.names):
            out.feature_names_in_ = np.array(out._form.names, dtype=object)
        out.estimator_, out.table_, out.post_ = estimator, table, post
        width = len(table.get_feature_names_out())
        if (width, out.k) != (post.n_features_in_, post.k):
            msg = f"'table' must have {post.n_features_in_} coordinates (got {width})"
            raise ValueError(f"{msg} and 'k' be {post.k} (got {out.k})")
        described = post.fit_.sample_info.features
        counted = tuple(str(one["name"]) for one in config["table"]["columns"])
        if described is not None and described.names != counted:
            raise ValueError(f"'people' must have the columns {counted}")
        if not is_subset(config, out._config()):
            raise ValueError("another description of the estimator that it describes")
        return out

    def get_metadata_routing(self) -> Any:
        """What is handed on to the model and to the splitter."""
        fit = MethodMapping().add(caller="fit", callee="fit")
        split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=fit)
        router.add(splitter=check_cv(self.cv), method_mapping=split)
        return router

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "post_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan, tags.input_tags.string = traits(self.estimator)
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"allow_nan": traits(self.estimator)[0]}

    @staticmethod
    @abstractmethod
    def _outputs(model: Any, given: Any) -> NDArray[np.float64]:
        """What the model says of people."""

    @abstractmethod
    def _check_model(self) -> None:
        """Raises unless the model has outputs of the right kind."""

    @abstractmethod
    def _check_target(self, y: Any) -> NDArray[Any]:
        """What is true of people, checked."""

    @abstractmethod
    def _splitter(self, y: NDArray[Any], seed: int) -> Any:
        """Who divides people into folds."""

    @abstractmethod
    def _check_folds(self, y: NDArray[Any], folds: list[Any]) -> None:
        """Raises if the model could not learn enough from the others of a fold."""

    @abstractmethod
    def _signal(self, outputs: NDArray[np.float64]) -> Tensor:
        """Outputs as they are smoothed."""

    @abstractmethod
    def _link_for(self, outputs: NDArray[np.float64]) -> Link | None:
        """The space in which outputs are averaged."""

    @abstractmethod
    def _judged(self, y: NDArray[Any], new: NDArray[np.int64]) -> dict[str, Any]:
        """By what ``tune`` judges outputs, those of newcomers at some rows."""

    @abstractmethod
    def _scores(self, y: Any, before: Tensor, after: Tensor) -> dict[str, float]:
        """How good outputs are, before and after."""

    def _labels(self, y: Any) -> Tensor | None:
        """True classes by number, of a classifier."""
        return None

    def _facts(self) -> dict[str, Any]:
        """What else a file holds."""
        return {}

    def _adopt(self, config: dict[str, Any]) -> None:
        """Takes over what else a file held."""

    def _check_fitted(self, model: Any) -> None:
        """Raises unless a model is fitted to the columns of the fit."""
        check_is_fitted(model)
        width = getattr(model, "n_features_in_", self.n_features_in_)
        if width != self.n_features_in_:
            msg = f"'estimator' must take {self.n_features_in_} columns"
            raise ValueError(f"{msg} (got one that takes {width})")
        names = getattr(model, "feature_names_in_", None)
        if names is not None and list(names) != list(self._form.names):
            msg = f"'estimator' must take the columns {list(self._form.names)}"
            raise ValueError(f"{msg} (got one that takes {list(names)})")

    def _check_params(self) -> None:
        """Raises on parameters that no data can make right."""
        self._check_model()
        if self.lam != "tune" and isinstance(self.lam, str):
            raise ValueError(f"'lam' must be a number or 'tune' (got {self.lam!r})")
        if self.lam == "tune" and self.tau is not None and self.k is not None:
            msg = "'k' must be given without 'tau' if 'lam' is 'tune'"
            raise ValueError(f"{msg} (got {self.k} and {self.tau:g})")
        if self.guarantee is not None:
            check_kind("guarantee", self.guarantee, RiskControl)
            if self.lam != "tune":
                msg = "'lam' must be 'tune' with a 'guarantee'"
                raise ValueError(f"{msg} (got {self.lam!r})")
        check_scalar("max_loss", self.max_loss, minimum=0.0)
        check_scalar("coverage", self.coverage, above=0.0, below=1.0)
        if isinstance(self.cv, int):
            check_count("cv", self.cv, minimum=2)
        self._new_post(lam=1.0 if self.lam == "tune" else self.lam)

    def _seed(self) -> int:
        """Where randomness starts: the same for every fit without a state."""
        state = 0 if self.random_state is None else self.random_state
        return int(check_random_state(state).randint(2**31 - 1))

    def _new_post(self, **settings: Any) -> GLIFPostProcessor:
        """The correction, not fitted."""
        given = {name: getattr(self, name) for name in _OF_POST}
        return GLIFPostProcessor(**{**given, **settings})

    def _new_table(self, seed: int) -> FairTable:
        """The table, not fitted."""
        given = {name: getattr(self, name) for name in _OF_TABLE}
        for name in ("sensitive", "equivalent", "ignore"):
            given[name] = self._form.named(given[name])
        if isinstance(given["scale"], Mapping):
            given["scale"] = self._form.named(given["scale"])
        table = FairTable(**given, outputs=self._kind_of_outputs, random_state=seed)
        table.frame_name = "X"
        return table

    def _routed(
        self, sample_weight: Any, fit_params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments for the ``fit`` of the model and the ``split`` of the splitter."""
        if routing_enabled():
            routed = process_routing(
                self, "fit", sample_weight=sample_weight, **fit_params
            )
            return routed.estimator.fit, routed.splitter.split
        if sample_weight is not None:
            if not has_fit_parameter(self.estimator, "sample_weight"):
                kind = type(self.estimator).__name__
                msg = "'sample_weight' must be left out if 'estimator' takes none"
                remedy = "For a step of a pipeline use '<step>__sample_weight'"
                raise ValueError(f"{msg} (got {kind}). {remedy}")
            fit_params = {**fit_params, "sample_weight": sample_weight}
        return fit_params, {}

    def _rehearses(self, y: NDArray[Any], folds: list[Any]) -> bool:
        """Whether the folds of ``tune`` have models and scales of their own."""
        if self.lam != "tune" or self.rehearse is False:
            return False
        two, why = fitted_in_two(folds), ""
        come = np.concatenate([new for _, new in folds])
        if len(folds) < 3 or not np.array_equal(np.sort(come), np.arange(len(y))):
            why = "three folds or more in which everybody comes once"
        elif min(len(rows) for rows in two.values()) < 2:
            why = "people who are fitted in both of every two folds"
        else:
            try:
                self._check_folds(y, [(rows, rows) for rows in two.values()])
            except ValueError:
                why = "every class among those who are fitted in both of two folds"
        if why and self.rehearse:
            raise ValueError(f"'cv' must have {why} if 'rehearse' is True")
        few = len(y) <= _FEW_PEOPLE and len(folds) <= _FEW_FOLDS
        return not why and (few or self.rehearse is True)

    def _reach(self, x: Tensor) -> tuple[float | None, float | None]:
        """Radius and decay, as given or as the coverage asks for."""
        if self.tau is not None or self.k is not None:
            return self.tau, self.theta
        tau = suggest_tau(x, coverage=self.coverage)
        decay = _FASTER * float(decay_of(None, tau))
        return tau, decay if self.theta is None else self.theta

    def _tried(
        self, x: Tensor, y_hat: Tensor, y: NDArray[Any], folds: list[Any]
    ) -> dict[str, Any]:
        """On whom ``tune`` tries strengths, and by what it judges them."""
        new = np.concatenate([new for _, new in folds])
        return {"x": x, "y_hat": y_hat, "cv": folds, **self._judged(y, new)}

    def _staged(
        self,
        rehearsal: Rehearsal,
        tau: float | None,
        y: NDArray[Any],
        link: Link | None,
        seed: int,
    ) -> dict[str, Any] | None:
        """The same in a rehearsal, unless a fold alone has no scale or outputs."""
        try:
            stage = rehearsal.stage(partial(self._new_table, seed), self._form, tau)
            y_hat = self._signal(stage.outputs)
            dual_of(link, y_hat)
        except ValueError:
            if self.rehearse:
                raise
            return None
        return self._tried(stage.x, y_hat, y[stage.person], stage.folds)

    def _weight_of_peers(
        self, x: Tensor, graph: SimilarityGraph | None, theta: float | None
    ) -> float:
        """How much peers weigh beside a person at strength one, on average."""
        generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(len(x), generator=generator)[:_SAMPLE]
        if graph is None:
            found, more = self._similarity(x[rows], self.tau), 1.0
        else:
            some = torch.zeros(len(x), dtype=torch.bool)
            some[rows] = True
            found = graph.subgraph(some)
            # Within a radius there are more peers among more people.
            more = (len(x) - 1) / (len(rows) - 1)
        lap = found.laplacian(theta, self.normalization)
        return more * float((lap.diagonal * lap.lam_scale).mean())

    def _read(self, X: Any) -> People:  # noqa: N803
        """People who may be new."""
        check_is_fitted(self)
        return self._form.read(self, X)

    def _coordinates(self, people: People) -> Tensor:
        """Where people are, by the reasons of the model."""
        return self.table_.transform(people.frame)

    def _before(self, people: People) -> Tensor:
        """The outputs of the model."""
        return self._signal(self._outputs(self.estimator_, people.given))

    def _after(self, X: Any) -> Tensor:  # noqa: N803
        """Corrected outputs."""
        people = self._read(X)
        x, y_hat = self._coordinates(people), self._before(people)
        out: Tensor = self.post_.transform(x, y_hat)
        return out

    def _outputs_of_frame(self, frame: Any) -> NDArray[np.float64]:
        """Outputs of people whom the table makes up."""
        return self._outputs(self.estimator_, self._form.given(frame))

    def _similarity(self, x: Tensor, tau: float | None) -> SimilarityGraph:
        """Who is similar among people."""
        if self.k is not None:
            return SimilarityGraph.nearest(x, self.k, tau=tau, progress=self.progress)
        assert tau is not None  # it is given or suggested
        return SimilarityGraph.search(x, tau, progress=self.progress)

    def _groups_among(self, people: People) -> dict[str, list[str]]:
        """The sensitive columns that divide people into groups."""
        columns = {
            str(name): [str(value) for value in people.frame[name]]
            for name in self.table_.sensitive or ()
        }
        few = range(2, _MAX_GROUPS + 1)
        return {name: held for name, held in columns.items() if len({*held}) in few}
