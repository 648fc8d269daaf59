"""The post-processor people deploy."""

import logging
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.arrays import (
    column_names,
    column_order,
    like,
    to_labels,
    to_tensor,
)
from pyg_glif._utils.files import damage_in
from pyg_glif._utils.params import ParamsMixin
from pyg_glif._utils.runtime import Lock
from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_features,
    check_kind,
    check_not_empty,
    check_outputs,
    check_same_rows,
    check_scalar,
    check_share,
)
from pyg_glif.audit.audit import AuditData, audit
from pyg_glif.audit.audit_report import AuditReport
from pyg_glif.audit.measures import Bootstrap
from pyg_glif.distances import FairDistance
from pyg_glif.errors import NotFittedError
from pyg_glif.explain.explanation import Explanation
from pyg_glif.fit.fit import Fit as Fit
from pyg_glif.fit.io import read_fit, read_options, write_fit
from pyg_glif.fit.queries import (
    read_features,
    read_groups,
    read_outputs,
    read_std,
)
from pyg_glif.fit.refit import extend, fit_samples, forget
from pyg_glif.fit.sample_info import SampleInfo
from pyg_glif.fit.settings import FitSettings
from pyg_glif.fit.transform_info import TransformInfo, solve_jointly, update
from pyg_glif.graph import SimilarityGraph, decay_of, suggest_tau
from pyg_glif.links import Link
from pyg_glif.postprocessing._checks import (
    doubt_features,
    doubt_graph,
    doubt_newcomers,
)
from pyg_glif.postprocessing._explain import explain_fitted, explain_query
from pyg_glif.postprocessing.summary import (
    FitSummary,
    completed_report,
    summarize,
)
from pyg_glif.solvers import Solution, Solver
from pyg_glif.typing import Normalization

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from pyg_glif.tables import FairTable

_NAMES = ("feature_names_in_", "output_names_")
_log = logging.getLogger("pyg_glif")


class GLIFPostProcessor(ParamsMixin):
    r"""Makes the outputs of a finished model treat similar people alike.

    Fitting builds the similarity graph of people with known outputs and solves
    (`GLIF <https://arxiv.org/abs/2110.13796>`_)

    .. math::
        f = \arg\min_f \|f - \hat y\|^2 + \lambda f^\top \mathbf{L} f, \qquad
        W_{ij} = e^{-\theta d_{ij}^2} \; \text{if} \; d_{ij} \le \tau .

    New people are then corrected one by one or together, without a new fit.

    Args:
        distance (FairDistance, optional): Who counts as similar.
            (default: Euclidean)
        tau (float, optional): Radius, in units of the distance; with ``k``, a limit
            beyond which nobody is a neighbour. (default: what gives ``target_degree``
            neighbours on average, as ``tau_`` and the log tell; with ``k`` no limit)
        theta (float, optional): Decay of the weights. (default: a fixed number over
            :math:`\tau^2`, see :func:`~pyg_glif.graph.decay_of`; with ``k``, weights
            tuned to everybody's distance from their :math:`k`-th nearest, see
            :class:`~pyg_glif.graph.SimilarityGraph`)
        lam (float): Strength :math:`\lambda \ge 0`. (default: :obj:`1.0`)
        normalization (str, optional): :obj:`None`, :obj:`"nrw"` or :obj:`"density"`.
            (default: :obj:`None`)
        solver (Solver, optional): How systems are solved. (default: :obj:`Auto()`)
        link (Link, optional): Output space; averages are taken in its dual
            coordinates. (default: :obj:`None`)
        target_degree (float): Neighbours that people have on average, used where
            ``tau``, ``coverage`` and ``k`` are :obj:`None`. It is a mean: where people
            are spread unevenly, half of them may have a quarter of it and some nobody,
            which :meth:`summary` shows. (default: :obj:`20`)
        progress (bool, optional): Whether searches show a progress bar; :obj:`None`
            shows it on a terminal if it takes seconds. (default: :obj:`None`)
        coverage (float, optional): In place of ``target_degree``, the share of people
            who have a neighbour. (default: :obj:`None`)
        k (int, optional): In place of a radius, the number of nearest others who are
            neighbours, for data of uneven density. Two people are neighbours if one
            is among the ``k`` nearest of the other, ties included. New people are
            placed beside the fitted ones by the same rule, one at a time, and fitted
            people stay who they are to each other. (default: :obj:`None`)
        mutual (bool): With ``k``, whether each must be among the ``k`` nearest of the
            other. (default: :obj:`False`)

    Attributes:
        tau_ (float): The radius in use; with ``k`` the limit, infinite without one.
        theta_ (float): The decay in use; :obj:`None` if weights are tuned to people.
        graph_ (torch_geometric.data.Data): ``edge_index``, ``edge_weight`` and
            ``edge_sq_dist`` of the fitted people.
        similarity_ (SimilarityGraph): The same without PyG.
        fit_ (Fit): The fit, immutable; its tensors are no copies.
        x_ (torch.Tensor): Features of the fitted people, as the fit has them.
        y_hat_ (torch.Tensor): Outputs of the model for them.
        y_fair_ (torch.Tensor): Smoothed outputs of the fitted people.
        solution_ (Solution): The solve behind them: status, residual, error bound.
        shares_ (dict): What ``lam`` is times for each group, if ``fit`` was given
            ``groups``; :obj:`None` if not.
        num_isolated_ (int): Fitted people without a neighbour.
        isolated_ (torch.Tensor): Their row numbers.
        ids_ (tuple): What people are called, if ``fit`` was told; else :obj:`None`.
        n_features_in_ (int): Number of features.
        feature_names_in_ (numpy.ndarray): Names of the features, if the fit was given
            a frame and all names are texts.
        output_names_ (numpy.ndarray): Names of the outputs, under the same conditions.
        metadata_ (dict): What ``save`` was given as ``metadata``, after ``load``.

    Arguments may be tensors, NumPy arrays, or pandas or polars series and frames;
    results are what ``y_hat`` was, in its precision, with its index and columns.
    Columns of frames, of features and of outputs, are matched with those of the fit by
    name, in any order, and those of the fit with the frame that ``distance`` was
    learned from; a name too many or too few is an error. Where only the fit or
    only the new people have names, columns are taken by position, with a warning.
    Everything that is kept is a copy, and so is every attribute that is handed out:
    nothing that is done to arrays or to ``distance`` after ``fit`` changes the fit.
    Features are converted to the precision and device of the fit, so that people
    who were fitted are found again. ParamsMixin follow scikit-learn: ``get_params``,
    ``set_params`` and ``sklearn.base.clone`` work, and a change of parameters takes
    effect at the next ``fit``. No method but ``fit``, ``partial_fit``, ``forget`` and
    ``describe`` changes the fit. Threads can share the object: these four wait for
    each other, and all other methods go on with the fit that there was when they began.

    A :class:`~pyg_glif.errors.SimilarityWarning` says what was hardly meant. ``fit``
    warns if at least nine tenths of all pairs of at least 20 people are neighbours; if
    the distance is plain Euclidean and a column of a table spreads more than 100 times
    as far as another (a frame, or at most 64 columns with whole numbers among them);
    and if a column of 0 and 1 in a frame is named like an outcome. ``transform`` warns
    if more than half of at least ten new people have no neighbour.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
        >>> post = GLIFPostProcessor(tau=0.5, theta=0.0)
        >>> post.fit_transform(x, torch.tensor([0.9, 0.2, 0.7, 0.4]))
        tensor([0.6750, 0.5000, 0.6250, 0.4000])
        >>> post.transform(torch.tensor([[0.1], [9.0]]), torch.tensor([0.0, 0.3]))
        tensor([0.4500, 0.3000])
        >>> post
        GLIFPostProcessor(tau=0.5, theta=0.0)
    """

    fit_: Fit
    metadata_: dict[str, Any]
    feature_names_in_: NDArray[np.object_]
    output_names_: NDArray[np.object_]

    def __init__(
        self,
        *,
        distance: FairDistance | None = None,
        tau: float | None = None,
        theta: float | None = None,
        lam: float = 1.0,
        normalization: Normalization = None,
        solver: Solver | None = None,
        link: Link | None = None,
        target_degree: float = 20,
        progress: bool | None = None,
        coverage: float | None = None,
        k: int | None = None,
        mutual: bool = False,
    ) -> None:
        self.distance = distance
        self.tau = tau
        self.theta = theta
        self.lam = lam
        self.normalization = normalization
        self.solver = solver
        self.link = link
        self.target_degree = target_degree
        self.progress = progress
        self.coverage = coverage
        self.k = k
        self.mutual = mutual
        self._check_params()
        self._changing = Lock()

    def fit(
        self,
        x: Any,
        y_hat: Any,
        graph: SimilarityGraph | None = None,
        *,
        y_std: Any = None,
        ids: Any = None,
        groups: Any = None,
    ) -> "GLIFPostProcessor":
        """Finds who is similar and smooths their outputs.

        Args:
            x (array-like): Features :math:`(N, F)`.
            y_hat (array-like): Outputs of the model, :math:`(N)` or :math:`(N, C)`.
            graph (SimilarityGraph, optional): What a search for these people in this
                distance and radius has found, if there was one: it is not searched
                again. (default: :obj:`None`)
            y_std (float or array-like, optional): Standard deviation of everybody's
                output, :math:`(N)`, in the coordinates in which outputs are averaged:
                whoever is known better keeps more of their own output, see
                :func:`~pyg_glif.glif_smooth`. (default: :obj:`None`)
            ids (sequence, optional): What people are called, texts or whole numbers,
                each once, for :meth:`forget`. They are saved with the fit.
                (default: :obj:`None`, row numbers)
            groups (sequence, optional): A group for everybody, a text or whole number.
                The strength is then shared out so that all groups are treated equally
                alike, see :func:`~pyg_glif.glif_smooth`; ``solution_.balance`` tells
                how evenly, and ``shares_`` what each group's strength is times. Not
                with ``"nrw"`` or ``y_std``. Groups are saved with the fit.
                (default: :obj:`None`)
        """
        with self._changing:
            params = _independent(self.get_params())
            columns, known = column_names("x", x), None
            if columns is not None and params["distance"] is not None:
                known = params["distance"].feature_names
            order = None if known is None else column_order("x", columns, known)
            features, outputs = _people(x, y_hat)
            if order is not None:  # the distance goes by position
                features, columns = features[:, order], known
            names = columns, column_names("y_hat", y_hat)
            doubt_features(features, names[0], params["distance"])
            info = SampleInfo.of(
                len(features), features, ids=ids, y_std=y_std, groups=groups
            )
            if groups is not None:
                check_choice(
                    "normalization", params["normalization"], (None, "density")
                )
            settings = self._settings(features, params)
            fitted = fit_samples(settings, features, outputs, names, info, graph)
            self._adopt(fitted)
            doubt_graph(fitted.share_joined, len(features), settings.tau, settings.k)
            return self

    def fit_transform(
        self,
        x: Any,
        y_hat: Any,
        *,
        y_std: Any = None,
        ids: Any = None,
        groups: Any = None,
    ) -> Any:
        """Fits, and returns the smoothed outputs as what ``y_hat`` was."""
        with self._changing:
            fair = self.fit(x, y_hat, y_std=y_std, ids=ids, groups=groups).y_fair_
        return like(y_hat, fair)

    def partial_fit(
        self,
        x: Any,
        y_hat: Any,
        *,
        y_std: Any = None,
        ids: Any = None,
        groups: Any = None,
    ) -> "GLIFPostProcessor":
        """Adds people and solves again, starting from the present solution.

        The result is that of a fit on everybody with the same radius: ``tau_`` and
        all other settings stay those of the first fit. Only pairs with new people
        are searched for; with ``k`` all pairs are, because whoever comes changes who
        is among the nearest of the others.

        Args:
            x (array-like): Features of the people to add, :math:`(M, F)`.
            y_hat (array-like): Their outputs.
            y_std (float or array-like, optional): As in :meth:`fit`, which has the say
                whether they are given.
            ids (sequence, optional): Likewise.
            groups (sequence, optional): Likewise; shares are found anew for everybody.
        """
        with self._changing:
            fitted: Fit | None = self.__dict__.get("fit_")
            if fitted is None:
                return self.fit(x, y_hat, y_std=y_std, ids=ids, groups=groups)
            x_new = read_features(fitted, x, "x")
            y_new = read_outputs(fitted, y_hat, x_new, ("x", "y_hat")).value
            info = fitted.sample_info.of_more(
                len(x_new), x_new, ids=ids, y_std=y_std, groups=groups
            )
            if len(x_new):
                self._adopt(extend(fitted, x_new, y_new.to(fitted.y_hat), info))
            return self

    def forget(
        self, ids: Any, *, path: str | PathLike[str] | None = None
    ) -> "GLIFPostProcessor":
        """Removes people and solves again, starting from the present solution.

        The result is that of a fit without them with the same radius, up to the error
        bound of ``solution_``: ``tau_`` and all other settings stay. No search is
        needed; with ``k`` all pairs are searched again, because whoever leaves changes
        who is among the nearest of the others.

        Args:
            ids (sequence): Who is to leave, by the ``ids`` of the fit or, if it has
                none, by row number. Those who stay are numbered anew, in their order.
            path (str or Path, optional): A file that :meth:`save` wrote. It is
                rewritten in one step: of those who left, no features, outputs, edges
                or ids are in it any more. Metadata is carried over as it is.
                (default: :obj:`None`, only this object forgets)

        Features, outputs, edges, ids and every index are dropped. What was *learned*
        from those people before the fit stays as it is: the model, a learned distance,
        the radius. Raises :class:`ValueError` on an id that is not in the fit, before
        anything changes.
        """
        with self._changing:
            fitted = self._require_fit("forget")
            rows = fitted.sample_info.rows_of(ids, len(fitted.x)).to(fitted.x.device)
            gone = torch.zeros(len(fitted.x), dtype=torch.bool, device=fitted.x.device)
            gone[rows] = True
            if bool(gone.all()):
                msg = f"'ids' must leave a sample in the fit (got all {len(gone)})"
                raise ValueError(f"{msg}. Delete the fit instead")
            metadata: dict[str, Any] = self.metadata_
            omit: Sequence[str] = ()
            kept = metadata
            if path is not None:
                omit, kept = read_options(path)
            if bool(gone.any()):
                self._adopt(forget(fitted, gone), metadata)
            if path is not None:
                self.save(path, omit=omit, metadata=kept)
            return self

    def transform(
        self,
        x_new: Any,
        y_hat_new: Any,
        joint: bool = False,
        *,
        y_std: Any = None,
        groups: Any = None,
    ) -> Any:
        r"""Smooths the outputs of new samples against the fitted ones.

        .. math::
            f_i = \frac{\hat y_i + \lambda \sum_j w_{ij} f_j}
            {1 + \lambda \sum_j w_{ij}}, \qquad j \text{ fitted}

        for ``normalization=None`` (:mod:`pyg_glif.fit._inductive` has the
        others): the paper's inductive step, section 3.2.3. No result depends on the
        rest of the batch.

        Args:
            x_new (array-like): Features :math:`(M, F)`, any number of rows.
            y_hat_new (array-like): Outputs of the model for them.
            joint (bool): Whether new samples are neighbors of each other too and are
                solved for together, fitted ones staying as they are. The result then
                depends on the batch. (default: :obj:`False`)
            y_std (float or array-like, optional): Standard deviations of their outputs,
                if and only if the fit was given some. (default: :obj:`None`)
            groups (sequence, optional): Groups of the new samples, of those that the
                fit knows, if it balances groups. Weights :math:`w_{ij}` are then times
                the mean of the shares of both groups; shares stay those of the fit.
                (default: :obj:`None`, not known: times the share of the fitted
                sample's group)

        A sample without neighbors gets ``y_hat_new`` back, exactly; the log tells how
        many there were.
        """
        options = {"joint": joint, "y_std": y_std, "groups": groups}
        return self._transform(x_new, y_hat_new, **options).value

    def transform_info(
        self,
        x_new: Any,
        y_hat_new: Any,
        joint: bool = False,
        *,
        y_std: Any = None,
        groups: Any = None,
        with_std: bool = False,
    ) -> TransformInfo:
        """Outputs of :meth:`transform` with neighbors, certificates and errors.

        Args:
            x_new (array-like): As in :meth:`transform`.
            y_hat_new (array-like): Likewise.
            joint (bool): Likewise.
            y_std (float or array-like, optional): Likewise.
            groups (sequence, optional): Likewise.
            with_std (bool): Whether ``uncertainty`` has the standard deviation of each
                result, :math:`(M)`, in the coordinates in which outputs are averaged.
                It is that under independent errors of all outputs, fitted and new, with
                the ``y_std`` given, or with standard deviation 1: multiply it by yours.
                Not with ``joint``. (default: :obj:`False`)
        """
        options = {"joint": joint, "y_std": y_std, "groups": groups}
        return self._transform(
            x_new, y_hat_new, **options, with_info=True, with_std=with_std
        )

    def _transform(
        self,
        x_new: Any,
        y_hat_new: Any,
        *,
        joint: bool,
        y_std: Any,
        groups: Any,
        with_info: bool = False,
        with_std: bool = False,
    ) -> TransformInfo:
        """Outputs of new samples, with as much beside them as asked for."""
        fitted = self._require_fit("transform")
        x = read_features(fitted, x_new)
        outputs = read_outputs(fitted, y_hat_new, x)
        std = read_std(fitted, y_std, x)
        if joint and with_std:
            raise ValueError("'joint' must be False with 'with_std' (got True)")
        code = read_groups(fitted, groups, x)
        if joint:
            info = solve_jointly(
                fitted, x, outputs.value, std, code, with_info=with_info
            )
        else:
            info = update(
                fitted,
                x,
                outputs.value,
                std,
                code,
                with_info=with_info,
                with_std=with_std,
            )
        neighbors = info.neighbors
        if neighbors is not None and outputs.order is not None:
            neighbors = neighbors.reordered(outputs.columns)
        if info.num_isolated:
            _log.info("%d of %d have no neighbor", info.num_isolated, len(x))
            doubt_newcomers(info.num_isolated, len(x))
        value = like(y_hat_new, outputs.restore(info.value))
        return replace(info, value=value, neighbors=neighbors)

    def describe(
        self,
        features: Any,
        *,
        ids: Any = None,
        table: "FairTable | None" = None,
        output_names: Sequence[Any] | None = None,
    ) -> "GLIFPostProcessor":
        """Tells what the fitted people are like, for letters and reports.

        Args:
            features (DataFrame): A row per sample, in the order of the fit, in values
                that readers know. It may have more columns than ``x``.
            ids (sequence, optional): What they are called, texts or whole numbers,
                each once. (default: :obj:`None`, as before)
            table (FairTable, optional): What made ``x`` of them: letters are about the
                columns that it counts, and reasons in its unit.
                (default: :obj:`None`, all columns)
            output_names (sequence, optional): What several outputs are called, such as
                classes. (default: the names of the fit)

        All are saved with the fit. People who come by ``partial_fit`` have to be
        described again, with all others; those whom ``forget`` removes are removed.
        Without a description, columns of the fit that have names are taken.
        """
        with self._changing:
            self.fit_ = self._require_fit("describe").described(
                features, ids=ids, table=table, output_names=output_names
            )
            return self

    def explain(self, i: int | str, top: int | None = None) -> Explanation:
        r"""Who contributed how much to the output of a fitted person.

        Row :math:`i` of :math:`(\mathbf{I} + \lambda \mathbf{L})^{-1}`, at the cost of
        solving for one column.

        Args:
            i (int or str): Number of the person, or if it is a text their id.
            top (int, optional): How many contributors to return; counts, shares and
                averages are of all. (default: :obj:`None`, all)
        """
        fitted = self._require_fit("explain")
        return explain_fitted(fitted, i, top)

    def explain_new(
        self,
        x_new: Any,
        top: int | None = None,
        *,
        y_hat_new: Any = None,
        features: Any = None,
        y_std: Any = None,
        groups: Any = None,
    ) -> Explanation:
        r"""Who contributes how much to the output that a new person gets.

        Their own output comes as index ``-1``; what it is does not matter for the
        weights.

        Args:
            x_new (array-like): Features of one person, :math:`(1, F)`.
            top (int, optional): How many contributors to return; counts, shares and
                averages are of all. (default: :obj:`None`, all)
            y_hat_new (array-like, optional): The model's output for them, so that the
                explanation knows from what to what it went. (default: :obj:`None`)
            features (DataFrame, optional): What they are like, one row, if the fitted
                people were described. (default: :obj:`None`)
            y_std (float or array-like, optional): As in :meth:`transform`.
            groups (sequence, optional): Likewise.
        """
        fitted = self._require_fit("explain_new")
        return explain_query(
            fitted, x_new, top, y_hat_new, features, y_std=y_std, groups=groups
        )

    def audit(
        self,
        *,
        sensitive: Mapping[str, Any] | None = None,
        variants: Any = None,
        labels: Any = None,
        threshold: float | None = None,
        difference: float | None = None,
        tolerance: float | Mapping[str, float] | None = None,
        num_nearest: int | None = 5,
        num_worst: int = 10,
        bootstrap: Bootstrap = Bootstrap(),  # noqa: B008  (immutable)
    ) -> AuditReport:
        """Compares the fitted people's treatment before and after.

        See :func:`~pyg_glif.audit.audit` for the arguments. Outputs that are
        equal up to the error bound of the solve count as equal.
        """
        fitted = self._require_fit("audit")
        data = AuditData(
            fitted.x,
            fitted.y_hat,
            fitted.y_fair,
            graph=fitted.graph,
            lap=fitted.graph_lap,
            distance=fitted.settings.distance,
            error=fitted.error(fitted.y_fair),
            progress=fitted.settings.progress,
        )
        report = audit(
            data,
            sensitive=sensitive,
            variants=None if variants is None else to_labels("variants", variants),
            labels=None if labels is None else to_labels("labels", labels),
            threshold=threshold,
            difference=difference,
            tolerance=tolerance,
            num_nearest=num_nearest,
            num_worst=num_worst,
            bootstrap=bootstrap,
        )
        return completed_report(report, fitted)

    def summary(self, unit: str | None = None) -> FitSummary:
        """What the fit did: who is similar by which columns, degrees, who is alone.

        Args:
            unit (str, optional): What distances are measured in, for the text.
                (default: ``"units of the distance"``)
        """
        return summarize(self._require_fit("summary"), unit)

    def save(
        self,
        path: str | PathLike[str],
        *,
        omit: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the fit to one safetensors file, its settings in the header.

        The file holds the features and outputs of the fitted people: protect it as
        you protect them. One checksum covers all of it. It is written beside ``path``,
        to a hidden file that ends in ``.part``, and then takes its place; what a killed
        process left there is removed by the next ``save`` to the same path.

        Args:
            path (str or Path): Where to write; replaced in one step if it exists. A
                symbolic link is followed.
            omit (sequence of str): Settings left out, of ``"distance"``, ``"link"``
                and ``"solver"``: your own classes cannot be saved, and ``load`` must
                be given them. (default: :obj:`()`)
            metadata (dict, optional): Plain data of your own to keep in the file, as
                JSON has it; ``load`` hands it back as ``metadata_``.
                (default: :obj:`None`)
        """
        fitted = self._require_fit("save")
        write_fit(path, fitted, omit, metadata or {})

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        distance: FairDistance | None = None,
        link: Link | None = None,
        solver: Solver | None = None,
        progress: bool | None = None,
    ) -> "GLIFPostProcessor":
        """Reads what ``save`` wrote, without running code from the file.

        Args:
            path (str or Path): The file.
            distance (FairDistance, optional): In place of the saved or omitted one.
            link (Link, optional): Likewise.
            solver (Solver, optional): Likewise.
            progress (bool, optional): Whether searches show a progress bar, which is
                not saved.

        Raises :class:`~pyg_glif.errors.DamagedFileError` if the file is not, bit for
        bit, what ``save`` wrote.
        """
        given: dict[str, Any] = {"distance": distance, "link": link, "solver": solver}
        cls(**given)  # refuses what the caller got wrong
        fitted, metadata = read_fit(path, _independent(given), progress)
        with damage_in(path):
            out = cls(**_independent(fitted.settings.params))
            out._adopt(fitted, metadata)
        return out

    @property
    def y_fair_(self) -> Tensor:
        """Smoothed outputs of the fitted people, a copy."""
        return self._require_attribute("y_fair_").y_fair.clone()

    @property
    def x_(self) -> Tensor:
        """Features of the fitted people, a copy."""
        return self._require_attribute("x_").x.clone()

    @property
    def y_hat_(self) -> Tensor:
        """Outputs of the model for the fitted people, a copy."""
        return self._require_attribute("y_hat_").y_hat.clone()

    @property
    def ids_(self) -> tuple[str | int, ...] | None:
        """What the fitted people are called, if the fit was told."""
        return self._require_attribute("ids_").sample_info.ids

    @property
    def shares_(self) -> dict[str | int, float] | None:
        """What ``lam`` is times for each group, if the fit balances groups."""
        fitted = self._require_attribute("shares_")
        if fitted.sample_info.groups is None or fitted.shares is None:
            return None
        labels = fitted.sample_info.groups.labels
        return dict(zip(labels, fitted.shares.tolist(), strict=True))

    @property
    def isolated_(self) -> Tensor:
        """Numbers of the fitted people without a neighbour, a copy."""
        return self._require_attribute("isolated_").isolated

    @property
    def solution_(self) -> Solution:
        """The solve behind the smoothed outputs, a copy."""
        fitted = self._require_attribute("solution_")
        return replace(
            fitted.solution,
            value=fitted.y_fair.clone(),
            residual=fitted.solution.residual.clone(),
            error_bound=fitted.solution.error_bound.clone(),
        )

    @property
    def similarity_(self) -> SimilarityGraph:
        """The similarity graph of the fitted people as the library has it, a copy."""
        graph = self._require_attribute("similarity_").graph
        edge_index, sq_dist = graph.edge_index.clone(), graph.sq_dist.clone()
        return replace(
            graph,
            edge_index=edge_index,
            sq_dist=sq_dist,
            _sound=(edge_index, sq_dist),
            scale=None if graph.scale is None else graph.scale.clone(),
        )

    @property
    def graph_(self) -> "Data":
        """The similarity graph of the fitted people, a copy."""
        # Loading PyG takes about as long as loading torch: only those who ask wait.
        from torch_geometric.data import Data

        fitted = self._require_attribute("graph_")
        return Data(
            edge_index=fitted.graph.edge_index.clone(),
            edge_weight=fitted.settings.graph_weights(fitted.graph),
            edge_sq_dist=fitted.graph.sq_dist.clone(),
            num_nodes=len(fitted.x),
        )

    def _check_params(self) -> None:
        """Raises on parameters that no data can make right."""
        if self.tau is not None:
            check_scalar("tau", self.tau, minimum=0.0, allow_inf=True)
        if self.theta is not None:
            check_scalar("theta", self.theta, minimum=0.0)
        check_scalar("lam", self.lam, minimum=0.0)
        check_scalar("target_degree", self.target_degree, above=0.0)
        if self.coverage is not None:
            check_share("coverage", self.coverage)
        if self.k is not None:
            check_count("k", self.k)
        check_choice("mutual", self.mutual, (True, False))
        check_choice("normalization", self.normalization, (None, "nrw", "density"))
        for name, kind in (("distance", FairDistance), ("link", Link)):
            if getattr(self, name) is not None:
                check_kind(name, getattr(self, name), kind)
        if self.solver is not None:
            check_kind("solver", self.solver, Solver)

    @staticmethod
    def _settings(x: Tensor, params: Mapping[str, Any]) -> FitSettings:
        """Settings for a fit to ``x``; without ``tau``, the radius is suggested."""
        tau, theta, k = params["tau"], params["theta"], params["k"]
        if k is not None:
            check_count("k", k, below=len(x))
            return FitSettings.of(params, math.inf if tau is None else tau, theta)
        if tau is None:
            tau = _suggested(x, params)
        return FitSettings.of(params, tau, float(decay_of(theta, tau)))

    def _adopt(self, fitted: Fit, metadata: dict[str, Any] | None = None) -> None:
        """Makes a fit the one in use."""
        self.fit_ = fitted
        self.tau_, self.theta_ = fitted.settings.tau, fitted.settings.theta
        self.num_isolated_ = fitted.isolated.numel()
        self.n_features_in_ = fitted.x.size(1)
        self.metadata_ = {} if metadata is None else metadata
        for attribute, names in zip(_NAMES, fitted.names, strict=True):
            if names is not None and all(isinstance(name, str) for name in names):
                setattr(self, attribute, np.array(names, dtype=object))
            else:  # as scikit-learn has it: absent where columns have no names
                self.__dict__.pop(attribute, None)

    def _require_fit(self, method: str) -> Fit:
        """The fit; raises :class:`NotFittedError` without one."""
        if "fit_" not in self.__dict__:
            msg = f"'{type(self).__name__}.{method}' needs a fit. Call 'fit' first"
            raise NotFittedError(msg)
        return self.fit_

    def _require_attribute(self, name: str) -> Fit:
        """The fit; without one the attribute does not exist, as scikit-learn has it."""
        if "fit_" not in self.__dict__:
            msg = f"'{type(self).__name__}.{name}' needs a fit. Call 'fit' first"
            raise AttributeError(msg)
        return self.fit_


def _independent(params: Mapping[str, Any]) -> dict[str, Any]:
    """ParamsMixin that do not change when the caller trains or edits an object.

    Solvers are immutable but for a generator, which has to move on when it is used.
    """
    held = {name: deepcopy(params[name]) for name in ("distance", "link")}
    return {**params, **held}


def _people(x: Any, y_hat: Any) -> tuple[Tensor, Tensor]:
    """Features and outputs to fit, checked, in memory of their own."""
    x = check_features("x", to_tensor("x", x, copy=True))
    check_not_empty("x", x)
    y = check_outputs("y_hat", to_tensor("y_hat", y_hat, copy=True)).to(x.device)
    check_same_rows("y_hat", y, "x", x)
    return x, y


def _suggested(x: Tensor, params: Mapping[str, Any]) -> float:
    """The radius for the coverage or else the degree that is wanted."""
    coverage, degree = params["coverage"], params["target_degree"]
    if coverage is None:
        tau = suggest_tau(x, degree, distance=params["distance"])
        _log.info("tau = %.6g, for %g neighbours each", tau, degree)
    else:
        tau = suggest_tau(x, coverage=coverage, distance=params["distance"])
        _log.info("tau = %.6g, for a neighbour each of %.4g%%", tau, 100 * coverage)
    return tau
