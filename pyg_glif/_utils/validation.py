"""Checks of arguments that several modules share.

Every check takes the caller's own argument name first and raises
``'name' must be <condition> (got <value>)``. A check with a single user stands beside
that user, in the same form.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches

import torch
from torch import Tensor

from pyg_glif._utils.arrays import column_names, column_order, to_floats, to_labels


def check_scalar(
    name: str,
    value: float,
    *,
    minimum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    allow_inf: bool = False,
) -> float:
    """A real number within the limits, finite unless ``allow_inf``."""
    try:
        number = None if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise TypeError(f"'{name}' must be a number (got {value!r})")
    value = number
    if math.isnan(value) or (math.isinf(value) and not allow_inf):
        raise ValueError(f"'{name}' must be finite (got {value})")
    if minimum is not None and value < minimum:
        condition = "non-negative" if minimum == 0 else f"at least {minimum}"
        raise ValueError(f"'{name}' must be {condition} (got {value})")
    if above is not None and value <= above:
        condition = "positive" if above == 0 else f"above {above}"
        raise ValueError(f"'{name}' must be {condition} (got {value})")
    if below is not None and value >= below:
        raise ValueError(f"'{name}' must be below {below} (got {value})")
    return value


def check_count(
    name: str, value: int, *, minimum: int = 1, below: int | None = None
) -> int:
    """A whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"'{name}' must be a whole number (got {value!r})")
    if value < minimum:
        raise ValueError(f"'{name}' must be at least {minimum} (got {value})")
    if below is not None and value >= below:
        raise ValueError(f"'{name}' must be below {below} (got {value})")
    return value


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raises unless the value is one of ``choices``."""
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"'{name}' must be one of {allowed} (got {value!r})")


def check_tensor(name: str, value: object) -> Tensor:
    """A tensor, not an array or a list."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        msg = f"'{name}' must be a torch.Tensor (got {kind}). Use 'torch.as_tensor'"
        raise TypeError(msg)
    return value


def as_labels(name: str, value: object) -> Tensor:
    """A tensor as it is; labels in an array, a series or a list as whole numbers."""
    return value if isinstance(value, Tensor) else to_labels(name, value)


def check_floating(name: str, value: Tensor) -> None:
    """Values in float32 or float64."""
    if value.dtype not in (torch.float32, torch.float64):
        msg = f"'{name}' must be float32 or float64 (got {value.dtype})"
        raise TypeError(msg)


def check_rank(name: str, value: Tensor, *ranks: int) -> None:
    """Raises unless the tensor has one of the given numbers of dimensions."""
    if value.dim() not in ranks:
        wanted = " or ".join(f"{rank}-dimensional" for rank in ranks)
        msg = f"'{name}' must be {wanted} (got shape {tuple(value.shape)})"
        raise ValueError(msg)


def check_finite(name: str, value: Tensor) -> None:
    """Raises on NaN and infinity, and names the first such entry."""
    if is_batched(value):  # checked where the batch is taken apart
        return
    # A sum is finite only if no entry is NaN or infinite (or it overflows, in
    # which case the exact test decides): one pass, no boolean copy.
    if value.numel() == 0 or bool(torch.isfinite(value.sum())):
        return
    bad = ~torch.isfinite(value)
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        got = float(value[where])
        index = where[0] if len(where) == 1 else where
        msg = f"'{name}' must be finite (got {got} at index {index}"
        raise ValueError(f"{msg}, {int(bad.sum())} such values)")


def is_batched(value: Tensor) -> bool:
    """Whether :func:`torch.func.vmap` hides the entries from any look at them."""
    if torch.compiler.is_compiling():  # the compiler cannot trace the question
        return False
    return bool(torch._C._functorch.is_batchedtensor(value))


def check_unbatched(name: str, value: Tensor, remedy: str) -> None:
    """Raises on a tensor that :func:`torch.func.vmap` has batched."""
    if is_batched(value):
        msg = f"'{name}' must not be batched by 'torch.func.vmap' (got a batch)"
        raise TypeError(f"{msg}. {remedy}")


def check_features(name: str, value: object, distance: object = None) -> Tensor:
    """Rows of finite features, ``[N, F]``, in float32 or float64.

    Columns of a frame are put into the order in which the distance knows them.
    """
    value = check_rows(name, value, names=getattr(distance, "feature_names", None))
    check_finite(name, value)
    return value


def check_width(name: str, value: Tensor, width: int) -> None:
    """Raises unless the last dimension has ``width`` entries."""
    if value.size(-1) != width:
        msg = f"'{name}' must have {width} columns (got {value.size(-1)})"
        raise ValueError(msg)


def check_length(name: str, value: Tensor, length: int, per: str = "row") -> None:
    """Raises unless the tensor is 1-dimensional with one entry per row, or the like."""
    if value.dim() != 1 or value.numel() != length:
        msg = f"'{name}' must have one entry per {per}"
        raise ValueError(f"{msg} (got shape {tuple(value.shape)} for {length})")


def check_integer(name: str, value: Tensor) -> Tensor:
    """Whole numbers that can be indices or labels, of any width, as int64."""
    dtype = value.dtype
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        raise TypeError(f"'{name}' must hold whole numbers (got {dtype})")
    # What int64 cannot hold is negative if its bits are read as int64.
    if dtype == torch.uint64 and bool((value.view(torch.int64) < 0).any()):
        raise ValueError(f"'{name}' must hold whole numbers below 2**63")
    return value.long()


def check_batch(batch: object, num_nodes: int) -> Tensor:
    """One non-negative graph number per node, in any order, renumbered from 0.

    Consecutive numbers keep positions and coordinates that are made of them independent
    of the original ones.
    """
    batch = as_labels("batch", batch)
    if batch.dtype != torch.bool:
        batch = check_integer("batch", batch)
    check_length("batch", batch, num_nodes, "node")
    if batch.numel() and int(batch.min()) < 0:
        raise ValueError(f"'batch' must be non-negative (got {int(batch.min())})")
    consecutive: Tensor = torch.unique(batch.long(), return_inverse=True)[1]
    return consecutive


def check_indices(name: str, value: Tensor, num_nodes: int) -> None:
    """Node numbers from 0 to ``num_nodes - 1``."""
    if value.numel() == 0:
        return
    low, high = int(value.min()), int(value.max())
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        msg = f"'{name}' must hold node indices from 0 to {num_nodes - 1} (got {bad})"
        raise ValueError(msg)


def check_edges(
    edge_index: object, num_nodes: int | None = None, *, name: str = "edge_index"
) -> Tensor:
    """Edges as ``[2, E]`` whole numbers, within range where that is known."""
    edge_index = as_labels(name, edge_index)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        msg = f"'{name}' must have shape [2, num_edges]"
        raise ValueError(f"{msg} (got {tuple(edge_index.shape)})")
    edge_index = check_integer(name, edge_index)
    if num_nodes is not None:
        check_indices(name, edge_index, num_nodes)
    return edge_index


def check_edge_values(name: str, value: object, num_edges: int) -> Tensor:
    """One value per edge, ``[E]``, as a float."""
    value = to_floats(name, value)
    check_length(name, value, num_edges, "edge")
    return value


def check_non_negative(name: str, value: Tensor) -> None:
    """Raises on negative entries."""
    low = float(value.detach().min()) if value.numel() else 0.0
    if low < 0:
        raise ValueError(f"'{name}' must be non-negative (got {low:g})")


def check_rows(
    name: str,
    value: object,
    width: int | None = None,
    names: tuple[object, ...] | None = None,
) -> Tensor:
    """Rows of features, in float32 or float64, whose values are not checked.

    Columns of a frame are put into the order of ``names``.
    """
    columns = None if names is None else column_names(name, value)
    order = None if columns is None else column_order(name, columns, names)
    value = to_floats(name, value)
    check_rank(name, value, 2)
    if width is not None:
        check_width(name, value, width)
    return value if order is None else value[:, order]


def check_comparable(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Rows of the same width and dtype as another argument."""
    check_width(name, value, like.size(-1))
    if value.dtype != like.dtype:
        msg = f"'{name}' must have the dtype of '{like_name}', {like.dtype}"
        raise TypeError(f"{msg} (got {value.dtype})")


def check_pairs(name: str, value: object) -> Tensor:
    """Pairs of two different nodes, ``[P, 2]``."""
    value = check_tensor(name, value)
    if value.dim() != 2 or value.size(1) != 2:
        msg = f"'{name}' must have shape [num_pairs, 2]"
        raise ValueError(f"{msg} (got {tuple(value.shape)})")
    value = check_integer(name, value)
    loops = (value[:, 0] == value[:, 1]).nonzero()
    if loops.numel():
        where = int(loops[0])
        msg = f"'{name}' must name two different nodes per pair"
        raise ValueError(f"{msg} (got {tuple(value[where].tolist())} at index {where})")
    return value


def check_judgements(name: str, value: object, num_pairs: int) -> Tensor:
    """One weight from 0 to 1 per pair, ``[P]``."""
    value = check_tensor(name, value)
    check_floating(name, value)
    check_length(name, value, num_pairs, "pair")
    check_finite(name, value)
    outside = (value < 0) | (value > 1)
    if bool(outside.any()):
        got = float(value[outside][0])
        raise ValueError(f"'{name}' must be between 0 and 1 (got {got:g})")
    return value


def check_not_empty(name: str, value: Tensor) -> None:
    """Raises on a tensor without entries."""
    if value.numel() == 0:
        msg = f"'{name}' must not be empty (got shape {tuple(value.shape)})"
        raise ValueError(msg)


def check_subspace_rank(name: str, rank: int, num_features: int) -> None:
    """Raises unless the rank is above 0 and below the number of features."""
    if rank == 0:
        raise ValueError(f"'{name}' must have a rank of at least 1 (got zeros only)")
    if rank == num_features:
        msg = f"'{name}' must have a rank below the number of features"
        msg = f"{msg} (got rank {rank} of {num_features} features)"
        raise ValueError(f"{msg}. Every pair would be at distance 0")


def check_callable(name: str, value: object) -> None:
    """Raises unless the value is callable."""
    if not callable(value):
        raise TypeError(f"'{name}' must be callable (got {type(value).__name__})")


def check_coefficient(name: str, value: object, *, minimum: float) -> None:
    """A number, or a 0-dimensional tensor that may be learned."""
    if isinstance(value, Tensor):
        check_rank(name, value, 0)
        check_unbatched(name, value, "Call once for each value")
        value = value.detach().item()
    check_scalar(name, value, minimum=minimum)  # type: ignore[arg-type]


def check_kind(name: str, value: object, kind: type) -> None:
    """Raises unless the value is an instance of ``kind``."""
    if not isinstance(value, kind):
        got = type(value).__name__
        raise TypeError(f"'{name}' must be a {kind.__name__} (got {got})")


def check_attribute(name: str, keys: Iterable[str], key: str) -> None:
    """Raises unless ``key`` is among the attributes ``keys``."""
    keys = sorted(keys)
    if key not in keys:
        got = ", ".join(repr(k) for k in keys) or "none"
        raise ValueError(f"'{name}' must have the attribute '{key}' (got {got})")


def check_node_rows(name: str, value: Tensor, num_nodes: int) -> None:
    """Raises unless there is one row per node."""
    if value.dim() == 0 or value.size(0) != num_nodes:
        msg = f"'{name}' must have one row per node"
        raise ValueError(f"{msg} (got shape {tuple(value.shape)} for {num_nodes})")


def check_group(name: str, value: object, num_rows: int) -> Tensor:
    """One whole number or truth value per row, any numbers."""
    value = as_labels(name, value)
    if value.dtype != torch.bool:
        check_integer(name, value)
    check_length(name, value, num_rows)
    return value.long()


def check_repeated(name: str, num_repeated: int, num_groups: int) -> None:
    """Raises unless some group has two rows or more."""
    if num_repeated == 0:
        msg = f"'{name}' must hold a group of at least 2 rows"
        remedy = "Rows are compared with those of the same number"
        raise ValueError(f"{msg} (got {num_groups} groups of one). {remedy}")


def full_precision(value: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, which holds them exactly; others as they are."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def check_signal(name: str, value: object, *, half: bool = False) -> Tensor:
    """Finite floating-point values, ``[N]`` or ``[N, C]``."""
    value = check_tensor(name, value)
    check_rank(name, value, 1, 2)
    check_floating(name, full_precision(value) if half else value)
    check_finite(name, value.detach())
    return value


def check_outputs(name: str, value: object) -> Tensor:
    """Finite outputs of at least one sample, ``[N]`` or ``[N, C]``, as floats."""
    value = check_signal(name, to_floats(name, value))
    check_not_empty(name, value)
    return value


def check_same_rows(name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Raises unless the tensor has as many rows as another argument."""
    if value.size(0) != like.size(0):
        msg = f"'{name}' must have as many rows as '{like_name}'"
        raise ValueError(f"{msg} (got {value.size(0)} for {like.size(0)})")


def check_num_rows(name: str, num_rows: int, minimum: int) -> None:
    """Raises unless there are at least ``minimum`` rows."""
    if num_rows < minimum:
        msg = f"'{name}' must have at least {minimum} rows (got {num_rows})"
        raise ValueError(msg)


def check_labels(name: str, value: object, num_rows: int) -> Tensor:
    """One non-negative whole number (or truth value) per row."""
    value = check_group(name, value, num_rows)
    check_non_negative(name, value)
    return value


def check_mask(name: str, value: object, num_rows: int) -> Tensor:
    """One truth value per row."""
    if not isinstance(value, Tensor):
        value = to_labels(name, value)
        is_truth = bool(((value == 0) | (value == 1)).all())
        value = value.bool() if is_truth else value
    if value.dtype != torch.bool:
        raise TypeError(f"'{name}' must hold truth values (got {value.dtype})")
    check_length(name, value, num_rows)
    return value


def check_two_values(name: str, values: Tensor) -> None:
    """Raises unless there are at least two distinct values."""
    if values.numel() < 2:
        msg = f"'{name}' must take at least two values (got {values.tolist()} only)"
        raise ValueError(msg)


def check_share(name: str, value: float) -> float:
    """A number from 0 to 1."""
    value = check_scalar(name, value)
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"'{name}' must be between 0 and 1 (got {value})")
    return value


def check_exclusive(
    name: str, value: object | None, other_name: str, other: object | None
) -> None:
    """Raises if both of two options are given."""
    if value is not None and other is not None:
        raise ValueError(f"'{name}' must not be given together with '{other_name}'")


def check_one_process(name: str, world_size: int) -> None:
    """Raises if several processes take part."""
    if world_size > 1:
        msg = f"'{name}' must run in one process (got {world_size})"
        raise ValueError(f"{msg}. Pass 'devices=1' to the trainer")


def check_embedding(name: str, value: object) -> None:
    """Raises unless the fair distance has an embedding."""
    if not getattr(value, "is_embedding", False):
        got = type(value).__name__
        raise TypeError(f"'{name}' must have an embedding (got {got})")


def check_texts(name: str, value: object, *, minimum: int = 0) -> list[str]:
    """A list of texts, from any iterable but a single text."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        got = type(value).__name__
        raise TypeError(f"'{name}' must be a sequence of texts (got {got})")
    texts = list(value)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            msg = f"'{name}' must hold texts (got {type(text).__name__}"
            raise TypeError(f"{msg} at index {index})")
    if len(texts) < minimum:
        msg = f"'{name}' must hold at least {minimum} texts (got {len(texts)})"
        raise ValueError(msg)
    return texts


def check_known(name: str, values: Iterable[object], known: Iterable[object]) -> None:
    """Raises on values that are not known, and suggests those spelled alike."""
    known = list(known)
    unknown = [value for value in values if value not in known]
    if not unknown:
        return
    texts = [value for value in known if isinstance(value, str)]
    matches = [get_close_matches(str(value), texts, n=1) for value in unknown]
    similar = ", ".join(repr(match[0]) for match in matches if match)
    listed = ", ".join(map(repr, known))
    msg = f"'{name}' must be of {listed} (got {', '.join(map(repr, unknown))})"
    raise ValueError(f"{msg}. Did you mean {similar}?" if similar else msg)
