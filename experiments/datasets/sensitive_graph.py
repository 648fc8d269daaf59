"""Graphs of people with a sensitive attribute, on which fair networks are compared."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from pyg_glif._utils.validation import check_choice, check_count
from pyg_glif.datasets._files import BuiltDataset, Transform, read_table

_PARTS = ("train", "val", "test")


class _Source(NamedTuple):
    """What the columns of a graph are."""

    label: str
    sensitive: str
    dropped: tuple[str, ...] = ()
    num_labels: int = 100  # known to those who train, half of each class
    codes: Mapping[str, float] = MappingProxyType({})


# Dropped columns and numbers of labels as NIFTY has them.
_SOURCES = {
    "credit": _Source("NoDefaultNextMonth", "Age", ("Single",), 6000),
    "bail": _Source("RECID", "WHITE"),
    "german": _Source(
        "GoodCustomer",
        "Gender",
        ("OtherLoansAtStore", "PurposeOfLoan"),
        codes={"Male": 0.0, "Female": 1.0},
    ),
    "nba": _Source("SALARY", "country"),
}


class SensitiveGraph(BuiltDataset):
    r"""A graph of people, what is predicted about them, and a sensitive attribute.

    The four graphs on which individually fair networks are compared: ``"credit"``,
    ``"bail"`` and ``"german"`` as `NIFTY <https://arxiv.org/abs/2102.13186>`_ made
    them, who joined people with similar features, and ``"nba"``, the links between
    players' accounts, of `FairGNN <https://arxiv.org/abs/2009.01454>`_. They are
    **not** part of the package.

    Args:
        root (str or PathLike, optional): Folder in which the processed data set is
            kept, and where the files are looked for first: in ``root/raw``, ``root``
            and ``root/graphs/<name>``, then in ``graphs/<name>`` below the folder
            that ``PYG_GLIF_DATA`` names. Without ``root`` the data set is built in
            memory and nothing is written. (default: :obj:`None`)
        name (str): Which graph. (default: ``"credit"``)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once, before the data set is kept.
            (default: :obj:`None`)
        force_reload (bool): Builds the data set again although ``root`` has it, which
            does not notice that files of the source have changed.
            (default: :obj:`False`)

    The only element is a :class:`~torch_geometric.data.Data`:

    - ``x``: features from -1 to 1, the sensitive one as it is; ``feature_names``
    - ``y``: label 0 or 1, and -1 where it is not known
    - ``group``: the sensitive attribute, which is also a column of ``x``
    - ``edge_index``: both directions of every edge

    **STATS:**

    ========  ======  ========  =======  ======================  ===========
    name      nodes   features  pairs    label                   attribute
    ========  ======  ========  =======  ======================  ===========
    credit    30,000  13        137,377  pays next month         age
    bail      18,876  18        311,870  arrested again          race
    german    1,000   27        21,742   good customer           sex
    nba       403     96        10,621   salary above median     nationality
    ========  ======  ========  =======  ======================  ===========
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        name: str = "credit",
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        force_reload: bool = False,
    ) -> None:
        check_choice("name", name, tuple(_SOURCES))
        self.name, self.folder = name, f"graphs/{name}"
        super().__init__(root, transform, pre_transform, force_reload)

    @property
    def raw_file_names(self) -> tuple[str, ...]:
        """People, and who is joined with whom."""
        return ("nodes.csv.gz", "edges.npz")

    @property
    def processed_file_names(self) -> tuple[str, ...]:
        """One file for each graph."""
        return (f"sensitive_graph_{self.name}.pt",)

    def split(self, seed: int, num_labels: int | None = None) -> dict[str, Tensor]:
        """Masks ``train``, ``val`` and ``test``, as NIFTY and GUIDE draw them.

        The people of each class are shuffled: of the first half, some are for training,
        half of ``num_labels`` from each class at most; a quarter is for validation, a
        quarter for testing.

        Args:
            seed (int): Of the shuffles.
            num_labels (int, optional): People to train on. (default: 6,000 for
                ``"credit"``, 100 for the others)
        """
        if num_labels is None:
            num_labels = _SOURCES[self.name].num_labels
        check_count("num_labels", num_labels, minimum=2)
        rng = np.random.default_rng(check_count("seed", seed, minimum=0))
        y = self[0].y
        masks = {part: torch.zeros(len(y), dtype=torch.bool) for part in _PARTS}
        for label in (0, 1):
            rows = torch.from_numpy(
                rng.permutation((y == label).nonzero()[:, 0].numpy())
            )
            half, most = len(rows) // 2, int(0.75 * len(rows))
            masks["train"][rows[: min(half, num_labels // 2)]] = True
            masks["val"][rows[half:most]] = True
            masks["test"][rows[most:]] = True
        return masks

    def _build(self) -> Data:
        """Reads and scales the people, and makes the edges symmetric."""
        source = _SOURCES[self.name]
        nodes = self.find(self.raw_file_names[0])
        rows = read_table(nodes, (source.label, source.sensitive, *source.dropped))
        names = [
            name for name in rows[0] if name not in (source.label, *source.dropped)
        ]

        def numbers(name: str) -> np.ndarray:
            texts = (row[name] for row in rows)
            return np.array([source.codes.get(text, text) for text in texts], float)

        x = np.stack([numbers(name) for name in names], axis=1)
        low, high = x.min(0), x.max(0)
        reach = np.where(high > low, high - low, 1.0)
        at = names.index(source.sensitive)
        group = x[:, at].copy()
        x = 2.0 * (x - low) / reach - 1.0
        x[:, at] = group
        label = numbers(source.label)
        # Of the two classes, only 'german' calls one of them -1.
        y = np.where(label < 0, 0, label) if self.name == "german" else label
        with np.load(self.find(self.raw_file_names[1])) as file:
            edges = torch.from_numpy(file["edge_index"].astype(np.int64))
        return Data(
            x=torch.from_numpy(x).float(),
            y=torch.from_numpy(y).long(),
            group=torch.from_numpy(group).long(),
            edge_index=to_undirected(edges, num_nodes=len(rows)),
            feature_names=names,
        )
