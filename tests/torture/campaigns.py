"""All campaigns, by name."""

import torch

from . import (
    disclosure,
    files,
    layers,
    measures,
    people,
    refit,
    reuse,
    sealed,
    search,
    solves,
    tables,
    texts,
)
from .harness import Campaign, Tally, run_for

CAMPAIGNS: dict[str, Campaign] = {
    module.CAMPAIGN.name: module.CAMPAIGN
    for module in (
        search,
        solves,
        people,
        layers,
        measures,
        refit,
        reuse,
        files,
        sealed,
        tables,
        texts,
        disclosure,
    )
}


def work(name: str, seed: int, seconds: float) -> Tally:
    """One campaign, in a process of its own."""
    torch.set_num_threads(1)
    return run_for(CAMPAIGNS[name], seed, seconds)
