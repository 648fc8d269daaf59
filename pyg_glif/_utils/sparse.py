r"""Sparse products over a fixed symmetric pattern, with gradients for the values.

``torch`` has no gradient for the values of a CSR tensor, and gather-scatter needs
``edges x columns`` of memory. The four functions below need ``edges + columns``. Each
is the derivative of another, so that they can be differentiated any number of times:

=================  ==================================================
``spmm``           :math:`(v, x) \mapsto \sum_j v_{ij} x_j`
``edge_dot``       :math:`(x, y) \mapsto x_i \cdot y_j`
``column_energy``  :math:`(v, f) \mapsto \sum_{ij} v_{ij} (f_{ic} - f_{jc})^2`
``edge_energy``    :math:`(g, f) \mapsto \sum_c g_c (f_{ic} - f_{jc})^2`
=================  ==================================================
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# Edges whose gathered rows are held at once (times columns): stays in cache.
_CHUNK = 1 << 14


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the entries of a symmetric matrix are: sorted, unique, no diagonal."""

    row: Tensor  # [E] int64
    col: Tensor  # [E] int64
    rowptr: Tensor  # [N + 1] int32 where it fits
    colidx: Tensor  # [E] same dtype as rowptr
    num_nodes: int

    def __post_init__(self) -> None:
        for name in ("row", "col", "rowptr", "colidx"):
            object.__setattr__(self, name, unwrapped(getattr(self, name)))

    @classmethod
    def of(cls, row: Tensor, col: Tensor, num_nodes: int) -> "Pattern":
        """The pattern of entries in canonical order."""
        # Products read every index, and in int32 that is half as much memory.
        fits = max(num_nodes, row.numel()) < 2**31
        colidx = col.to(torch.int32 if fits else torch.int64)
        count = torch.bincount(row, minlength=num_nodes)
        ptr = torch.cat([count.new_zeros(1), count.cumsum(0)]).to(colidx.dtype)
        return cls(row, col, ptr, colidx, num_nodes)

    @cached_property
    def reverse(self) -> Tensor:  # [E]
        """Position of (column, row); only gradients and checks need it."""
        # Sorting by column lists the transpose in canonical order.
        return unwrapped(torch.sort(self.colidx, stable=True)[1])

    @property
    def num_edges(self) -> int:
        """Stored entries, both directions counted."""
        return self.row.numel()

    def csr(self, value: Tensor) -> Tensor:  # value: [E] -> sparse [N, N]
        """The sparse matrix with these values."""
        size = (self.num_nodes, self.num_nodes)
        # Detached: gradients come from the functions below, not from torch's own.
        return csr_tensor(self.rowptr, self.colidx, value.detach(), size)

    def row_sum(self, value: Tensor) -> Tensor:  # value: [E] -> [N]
        """Sums over the entries of each row, differentiable."""
        zero = value.new_zeros(self.num_nodes)
        return zero.index_add(0, self.row, value)

    def chunks(self) -> Iterator[slice]:
        """Slices of edges small enough to gather rows for."""
        for start in range(0, self.num_edges, _CHUNK):
            yield slice(start, start + _CHUNK)


def csr_tensor(
    ptr: Tensor, col: Tensor, value: Tensor, size: tuple[int, int]
) -> Tensor:
    """A CSR tensor, without torch's remark that the layout is in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(ptr, col, value, size, check_invariants=False)


def spmm(pattern: Pattern, value: Tensor, x: Tensor) -> Tensor:  # [E], [N, C] -> [N, C]
    """Product of a sparse matrix with a block of columns."""
    out: Tensor = _Spmm.apply(value, x, pattern)  # type: ignore[no-untyped-call]
    return out


def edge_dot(pattern: Pattern, x: Tensor, y: Tensor) -> Tensor:  # [N, C] twice -> [E]
    """Inner product of ``x`` at the row and ``y`` at the column of each entry."""
    out: Tensor = _EdgeDot.apply(x, y, pattern)  # type: ignore[no-untyped-call]
    return out


def column_energy(pattern: Pattern, value: Tensor, f: Tensor) -> Tensor:  # -> [C]
    """Weighted squared differences along edges, summed over edges."""
    out: Tensor = _ColumnEnergy.apply(value, f, pattern)  # type: ignore[no-untyped-call]
    return out


def edge_energy(pattern: Pattern, weight: Tensor, f: Tensor) -> Tensor:  # -> [E]
    """Weighted squared differences along edges, summed over columns."""
    out: Tensor = _EdgeEnergy.apply(weight, f, pattern)  # type: ignore[no-untyped-call]
    return out


def unwrapped(x: Tensor) -> Tensor:
    """The tensor inside the wrappers of :mod:`torch.func`.

    Whatever is computed while it differentiates is wrapped, positions of entries
    included, which then could not be used outside.
    """
    if torch.compiler.is_compiling():  # the compiler cannot trace the question
        return x
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


class _Product(Function):
    """A function of two tensors and a pattern."""

    def __init_subclass__(cls) -> None:
        cls.vmap = staticmethod(partial(_one_by_one, cls))  # type: ignore[method-assign]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        first, second, ctx.pattern = inputs
        ctx.save_for_backward(first, second)
        ctx.save_for_forward(first, second)


def _one_by_one(
    function: Any, info: Any, in_dims: tuple[int | None, ...], *args: Any
) -> tuple[Tensor, int]:
    """Works off a batch of :func:`torch.func.vmap`, of either tensor or of both."""
    first, second = (
        part.expand(info.batch_size, *part.shape)
        if dim is None
        else part.movedim(dim, 0)
        for part, dim in zip(args[:2], in_dims[:2], strict=True)
    )
    pairs = zip(first, second, strict=True)
    return torch.stack([function.apply(a, b, args[2]) for a, b in pairs]), 0


class _Spmm(_Product):
    @staticmethod
    def forward(value: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
        if pattern.num_edges == 0 or x.numel() == 0:
            return torch.zeros_like(x)
        return pattern.csr(value) @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        value, x = ctx.saved_tensors
        by_value, by_x = ctx.needs_input_grad[:2]
        dvalue = edge_dot(ctx.pattern, grad, x) if by_value else None
        # The transpose has the same pattern, and at each edge the value of the reverse.
        dx = spmm(ctx.pattern, value[ctx.pattern.reverse], grad) if by_x else None
        return dvalue, dx, None

    @staticmethod
    def jvp(ctx: Any, dvalue: Tensor | None, dx: Tensor | None, _: None) -> Tensor:
        value, x = ctx.saved_tensors
        parts = [] if dvalue is None else [spmm(ctx.pattern, dvalue, x)]
        parts += [] if dx is None else [spmm(ctx.pattern, value, dx)]
        return sum(parts[1:], parts[0])


class _EdgeDot(_Product):
    @staticmethod
    def forward(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
        zero = x.new_zeros(pattern.num_edges)
        if pattern.num_edges == 0 or x.numel() == 0:
            return zero
        entries = pattern.csr(zero)
        # Computes the entries of the pattern only, and gathers no rows for them.
        dots: Tensor = torch.sparse.sampled_addmm(entries, x, y.t(), beta=0.0)
        return dots.values()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, y = ctx.saved_tensors
        by_x, by_y = ctx.needs_input_grad[:2]
        dx = spmm(ctx.pattern, grad, y) if by_x else None
        dy = spmm(ctx.pattern, grad[ctx.pattern.reverse], x) if by_y else None
        return dx, dy, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dy: Tensor | None, _: None) -> Tensor:
        x, y = ctx.saved_tensors
        parts = [] if dx is None else [edge_dot(ctx.pattern, dx, y)]
        parts += [] if dy is None else [edge_dot(ctx.pattern, x, dy)]
        return sum(parts[1:], parts[0])


def _laplacian_product(pattern: Pattern, value: Tensor, f: Tensor) -> Tensor:
    """Half the gradient of ``column_energy`` with respect to ``f``."""
    both = value + value[pattern.reverse]
    return pattern.row_sum(both).unsqueeze(1) * f - spmm(pattern, both, f)


class _ColumnEnergy(_Product):
    @staticmethod
    def forward(value: Tensor, f: Tensor, pattern: Pattern) -> Tensor:
        out = f.new_zeros(f.size(1))
        for part in pattern.chunks():
            out.addmv_(_differences(pattern, f, part).square_().t(), value[part])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        value, f = ctx.saved_tensors
        by_value, by_f = ctx.needs_input_grad[:2]
        dvalue = edge_energy(ctx.pattern, grad, f) if by_value else None
        df = 2.0 * grad * _laplacian_product(ctx.pattern, value, f) if by_f else None
        return dvalue, df, None

    @staticmethod
    def jvp(ctx: Any, dvalue: Tensor | None, df: Tensor | None, _: None) -> Tensor:
        value, f = ctx.saved_tensors
        parts = [] if dvalue is None else [column_energy(ctx.pattern, dvalue, f)]
        if df is not None:
            parts.append(2.0 * (df * _laplacian_product(ctx.pattern, value, f)).sum(0))
        return sum(parts[1:], parts[0])


class _EdgeEnergy(_Product):
    @staticmethod
    def forward(weight: Tensor, f: Tensor, pattern: Pattern) -> Tensor:
        out = f.new_empty(pattern.num_edges)
        for part in pattern.chunks():
            torch.mv(_differences(pattern, f, part).square_(), weight, out=out[part])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, f = ctx.saved_tensors
        by_weight, by_f = ctx.needs_input_grad[:2]
        dweight = column_energy(ctx.pattern, grad, f) if by_weight else None
        df = 2.0 * weight * _laplacian_product(ctx.pattern, grad, f) if by_f else None
        return dweight, df, None

    @staticmethod
    def jvp(ctx: Any, dweight: Tensor | None, df: Tensor | None, _: None) -> Tensor:
        weight, f = ctx.saved_tensors
        parts = [] if dweight is None else [edge_energy(ctx.pattern, dweight, f)]
        if df is not None:
            # (a + b)^2 - (a - b)^2 is 4 a b: the mixed term, from squares only.
            parts.append(
                0.5 * edge_energy(ctx.pattern, weight, f + df)
                - 0.5 * edge_energy(ctx.pattern, weight, f - df)
            )
        return sum(parts[1:], parts[0])


def _differences(pattern: Pattern, f: Tensor, part: slice) -> Tensor:
    """Rows of ``f`` at both ends of some edges, subtracted."""
    ends = f.index_select(0, pattern.row[part])
    return ends.sub_(f.index_select(0, pattern.col[part]))


def connected_components(pattern: Pattern) -> Tensor:  # -> [N], smallest member
    """Names each node after the smallest node it is connected to."""
    node = torch.arange(pattern.num_nodes, device=pattern.row.device)
    label = node.clone()
    # Rows are sorted, so a row's first entry is its smallest neighbor: the first
    # round needs no pass over the edges.
    ptr = pattern.rowptr.long()
    filled = ptr[1:] > ptr[:-1]
    first = pattern.col[ptr[:-1][filled]]
    label[filled] = torch.minimum(node[filled], first)
    half = pattern.row < pattern.col
    row, col = pattern.row[half], pattern.col[half]
    while True:
        label = _compress(label)
        ends = label[row], label[col]
        low, high = torch.minimum(*ends), torch.maximum(*ends)
        is_between = low < high
        if not bool(is_between.any()):
            return label
        # Edges inside one component stay inside: later rounds skip them.
        row, col = row[is_between], col[is_between]
        # Hook the root of the larger label under the smaller one.
        label.scatter_reduce_(0, high[is_between], low[is_between], "amin")


def _compress(label: Tensor) -> Tensor:
    """Follows labels to their roots by doubling."""
    while True:
        root = label[label]
        if torch.equal(root, label):
            return label
        label = root
