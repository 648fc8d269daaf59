"""New samples as a fit sees them: checked, in its column order, type and device."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.arrays import column_names, column_order, to_tensor
from pyg_glif._utils.validation import (
    check_features,
    check_finite,
    check_rank,
    check_rows,
    check_same_rows,
    check_width,
)
from pyg_glif.fit.fit import Fit
from pyg_glif.fit.sample_info import check_same, check_y_std


class NewOutputs(NamedTuple):
    """Outputs of new samples, in the column order of the fit."""

    value: Tensor  # [M] or [M, C]
    order: list[int] | None  # columns of the caller, None if in the order of the fit

    def restore(self, value: Tensor) -> Tensor:
        """Columns in the order of the caller."""
        return value if self.order is None else value[:, self.columns]

    @property
    def columns(self) -> Tensor:
        """Column of the fit for each column of the caller."""
        assert self.order is not None
        return torch.tensor(self.order).argsort()


def read_features(fit: Fit, x: Any, name: str = "x_new") -> Tensor:  # [M, F]
    """Features of new samples."""
    order = column_order(name, column_names(name, x), fit.names[0])
    out = check_rows(name, to_tensor(name, x), fit.x.size(1)).to(fit.x)
    return check_features(name, out if order is None else out[:, order])


def read_outputs(
    fit: Fit, y: Any, x: Tensor, names: tuple[str, str] = ("x_new", "y_hat_new")
) -> NewOutputs:
    """Outputs of new samples, whose features are known."""
    name = names[1]
    order = column_order(name, column_names(name, y), fit.names[1])
    out = to_tensor(name, y)
    check_rank(name, out, fit.y_hat.dim())
    if out.dim() == 2:
        check_width(name, out, fit.y_hat.size(1))
    check_same_rows(name, out, names[0], x)
    check_finite(name, out)
    out = out.to(x.device)
    return NewOutputs(out if order is None else out[:, order], order)


def read_std(fit: Fit, y_std: Any, x: Tensor) -> Tensor | None:  # [M] float64
    """Standard deviations of new outputs, if and only if the fit has them."""
    check_same("y_std", fit.sample_info.y_std, y_std)
    return None if y_std is None else check_y_std(y_std, len(x), x)


def read_groups(fit: Fit, groups: Any, x: Tensor) -> Tensor | None:  # [M] int64
    """Numbers of the groups of new samples, if they are known."""
    if groups is None:
        return None
    known = fit.sample_info.groups
    if known is None:
        raise ValueError("'groups' must be None, because the fit has none")
    return known.codes(groups, len(x))
