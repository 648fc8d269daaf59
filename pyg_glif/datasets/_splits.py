"""Who trains, who validates, who tests."""

import math

import numpy as np
import torch
from torch import Tensor

from pyg_glif._validate import check_scalar

#: Numbers of the splits.
TRAIN, VAL, TEST = 0, 1, 2


def check_shares(
    default: tuple[float, float], test_share: float | None, val_share: float | None
) -> tuple[float, float]:
    """Shares of test texts and of validation texts among the others."""
    test = default[0] if test_share is None else test_share
    val = default[1] if val_share is None else val_share
    return (
        check_scalar("test_share", test, above=0, below=1),
        check_scalar("val_share", val, minimum=0, below=1),
    )


def as_share(limit: float | None, num: int) -> float | None:
    """A number of texts as a share of all."""
    return min(1.0, limit / num) if isinstance(limit, int) else limit


def keep(num: int, limit: float | None) -> Tensor:
    """Rows to keep, ascending and the same for all seeds: a number or a share."""
    if limit is None:
        return torch.arange(num)
    count = limit if isinstance(limit, int) else math.ceil(limit * num)
    order = torch.randperm(num, generator=torch.Generator().manual_seed(0))
    return order[: min(int(count), num)].sort().values


def stratified_split(  # [P] -> [P]
    stratum: Tensor, test_share: float, val_share: float, seed: int
) -> Tensor:
    """Splits each stratum by the same shares; validation comes out of training."""
    generator = torch.Generator().manual_seed(seed)
    split = torch.full_like(stratum, TRAIN)
    for value in stratum.unique():
        rows = (stratum == value).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        num_test = round(test_share * len(rows))
        num_val = round(val_share * (len(rows) - num_test))
        split[rows[:num_test]] = TEST
        split[rows[num_test : num_test + num_val]] = VAL
    return split


def choose_terms(num_terms: int, num_known: int, seed: int) -> Tensor:
    """Numbers of the known terms, ascending: the authors' choice for each seed."""
    return _choose_terms(np.random.RandomState(seed), num_terms, num_known)


def authors_bios_split(num: int, test_share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Training rows, in random order, and test rows of the authors' script."""
    state = np.random.RandomState(seed)
    train = torch.from_numpy(
        state.choice(num, int(num * (1 - test_share)), replace=False)
    )
    left = torch.ones(num, dtype=torch.bool)
    left[train] = False
    return train, left.nonzero().flatten()


def authors_toxicity_split(
    num_terms: int, num_known: int, nums: tuple[int, int], test_share: float, seed: int
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Known terms, then training and test rows of the authors' script.

    One pair for comments without, one for comments with identity terms: all drawn
    one after the other from one stream, so none of the draws may be left out.
    """
    state = np.random.RandomState(seed)
    known = _choose_terms(state, num_terms, num_known)
    parts = []
    for num in nums:
        order = torch.from_numpy(state.permutation(num))
        num_test = math.ceil(test_share * num)
        parts.append((order[num_test:], order[:num_test]))
    return known, parts


def _choose_terms(
    state: np.random.RandomState, num_terms: int, num_known: int
) -> Tensor:
    """The first draw of the authors' stream."""
    chosen = state.choice(num_terms, size=num_known, replace=False)
    return torch.from_numpy(chosen).sort().values


def carve_validation(
    train: Tensor, test: Tensor, val_share: float, share: float | None
) -> tuple[Tensor, Tensor]:
    """Rows, ascending, and their splits; validation is the end of shuffled training.

    Of each split the same share is kept.
    """
    num_val = round(val_share * len(train))
    cut = len(train) - num_val
    parts = [(train[:cut], TRAIN), (train[cut:], VAL), (test, TEST)]
    kept = [(rows[keep(len(rows), share)], split) for rows, split in parts]
    split = torch.cat([torch.full_like(rows, split) for rows, split in kept])
    number, order = torch.cat([rows for rows, _ in kept]).sort()
    return number, split[order]
