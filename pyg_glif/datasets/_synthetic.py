"""Synthetic table with the columns of the census."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: Levels of schooling: name, years, share.
_SCHOOLING = (
    ("10th", 6, 0.1),
    ("HS-grad", 9, 0.35),
    ("Some-college", 10, 0.25),
    ("Bachelors", 13, 0.2),
    ("Masters", 14, 0.08),
    ("Doctorate", 16, 0.02),
)
_OCCUPATIONS = (
    "Craft-repair",
    "Transport-moving",
    "Machine-op-inspct",
    "Adm-clerical",
    "Other-service",
    "Sales",
    "Tech-support",
    "Exec-managerial",
    "Prof-specialty",
)
#: Effect of an occupation on a high income, in log-odds.
_PAY = (0.1, -0.1, -0.2, 0.0, -0.9, 0.2, 0.4, 0.8, 0.6)
_FREQUENT = {
    "workclass": {"Private": 0.74, "Self-emp-not-inc": 0.1, "Local-gov": 0.13},
    "race": {"White": 0.84, "Black": 0.12, "Asian-Pac-Islander": 0.04},
    "native_country": {"United-States": 0.92, "Mexico": 0.06, "India": 0.02},
}
#: Effect of being a woman, all else equal, in log-odds.
_PENALTY = 0.9


def synthetic_census(
    num_rows: int, generator: torch.Generator
) -> Any:  # a frame of pandas
    """A random table with the columns of the census; ``?`` marks unknown values.

    Ages, schooling, families, work and gains are drawn one after the other; ``income``
    (1 or 0) from a logistic model of all of them, which is biased against women.
    """
    import pandas as pd

    def uniform() -> Tensor:
        return torch.rand(num_rows, generator=generator, dtype=torch.float64)

    def pick(shares: Sequence[float]) -> Tensor:  # -> [N] positions
        bounds = torch.tensor(shares, dtype=torch.float64).cumsum(0)
        return torch.searchsorted(bounds[:-1], uniform(), right=True)

    def words(shares: Mapping[str, float]) -> list[str]:
        names = list(shares)
        return [names[i] for i in pick(list(shares.values())).tolist()]

    woman = uniform() < 0.35
    age = (18 + 52 * uniform() ** 1.3).floor()
    schooling = pick([share for *_, share in _SCHOOLING])
    years = torch.tensor([years for _, years, _ in _SCHOOLING])[schooling]
    married = uniform() < torch.where(woman, 0.25, 0.7) * ((age - 17) / 15).clamp(max=1)
    divorced = ~married & (uniform() < (age - 18) / 70)
    at_home = ~married & ~divorced & (uniform() < (32 - age) / 14)
    # Office work for more women, crafts for more men; schooling opens the last four.
    work = pick([1 / 3, 1 / 3, 1 / 3]) + torch.where(
        uniform() < 0.3 + 0.4 * woman, 3, 0
    )
    learned = uniform() < (years.double() - 8) / 6
    work = torch.where(learned, 5 + pick([0.25] * 4), work.clamp(max=5))
    hours = (40 + 12 * (uniform() - 0.5) * 2 - 6 * woman + 5 * (work >= 7)).floor()
    gain = torch.where(uniform() < 0.06, (3_000 + 12_000 * uniform()).floor(), 0.0)
    loss = torch.where(uniform() < 0.03, (1_500 + 800 * uniform()).floor(), 0.0)
    log_odds = (
        -4.2
        + 0.3 * (years - 9)
        + 1.7 * married
        + 0.05 * (age - 18).clamp(max=32)
        + 0.03 * (hours - 40)
        + torch.tensor(_PAY, dtype=torch.float64)[work]
        + gain / 1_500
        + loss / 1_500
        - _PENALTY * woman
    )
    income = uniform() < torch.sigmoid(log_odds)

    def family(she: bool, wed: bool, divorced: bool, child: bool) -> str:
        if wed:
            return "Wife" if she else "Husband"
        return "Own-child" if child else "Unmarried" if divorced else "Not-in-family"

    families = zip(
        *(t.tolist() for t in (woman, married, divorced, at_home)), strict=True
    )
    status = torch.where(married, 0, torch.where(divorced, 1, 2))
    statuses = ("Married-civ-spouse", "Divorced", "Never-married")
    return pd.DataFrame(
        {
            "age": age.long(),
            "fnlwgt": (20_000 + 300_000 * uniform()).long(),
            "education_num": years,
            "capital_gain": gain.long(),
            "capital_loss": loss.long(),
            "hours_per_week": hours.long(),
            "workclass": words(_FREQUENT["workclass"] | {"?": 0.03}),
            "education": [_SCHOOLING[i][0] for i in schooling.tolist()],
            "marital_status": [statuses[i] for i in status.tolist()],
            "occupation": [_OCCUPATIONS[i] for i in work.tolist()],
            "relationship": [family(*row) for row in families],
            "race": words(_FREQUENT["race"]),
            "sex": ["Female" if she else "Male" for she in woman.tolist()],
            "native_country": words(_FREQUENT["native_country"]),
            "income": income.long(),
        }
    )
