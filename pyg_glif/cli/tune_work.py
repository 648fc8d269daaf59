"""The work of ``pyg-glif tune``."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif.cli import settings
from pyg_glif.cli.base import UsageError, note
from pyg_glif.cli.files import open_source, replacing
from pyg_glif.cli.labels import classes
from pyg_glif.cli.metric import fair_distance
from pyg_glif.cli.people import People
from pyg_glif.tuning import TuneResult, tune


def sweep(args: argparse.Namespace, people: People) -> TuneResult:
    """The sweep."""
    label, there = classes(people, args.positive)
    if people.mask is not None:
        there &= _mask(people)
    elif not bool(there.all()):
        note(args, f"{int((~there).sum())} people without a label are neighbours only")
    given: dict[str, Any] = {} if args.lams is None else {"lams": args.lams}
    return tune(
        people.x,
        people.y,
        label,
        pairs=_pairs(args.pairs) if args.pairs else None,
        taus=args.taus,
        max_loss=args.max_loss,
        threshold=0.5 if args.threshold is None else args.threshold,
        mask=there,
        distance=fair_distance(args, people),
        theta=settings.decay(args),
        normalization=settings.form(args),
        link=settings.link(args),
        **given,
    )


def _mask(people: People) -> Tensor:
    """Where labels count."""
    assert people.mask is not None
    text = [str(value).strip().lower() for value in people.mask.tolist()]
    words = {"1": True, "1.0": True, "true": True} | {
        word: False for word in ("0", "0.0", "false", "", "nan", "none")
    }
    wrong = next((word for word in text if word not in words), None)
    if wrong is not None:
        raise UsageError(f"--mask must hold 0 and 1 (got '{wrong}')")
    return torch.from_numpy(np.array([words[word] for word in text], dtype=bool))


def _pairs(path: str) -> Any:
    """Pairs of row numbers."""
    source = open_source(path)
    if len(source.names) != 2:
        got = f"got {len(source.names)}"
        raise UsageError(f"--pairs: '{path}' must have two columns ({got})")
    return source.numbers(source.names)


def plot(path: str, found: TuneResult) -> None:
    """The trade-off as a picture."""
    with replacing(Path(path)) as beside:
        found.plot().savefig(beside, dpi=150)
