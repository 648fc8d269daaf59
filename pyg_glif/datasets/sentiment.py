"""The sentiment data set: words of an opinion lexicon, and first names."""

import io
import os
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, from_numpy
from torch_geometric.data import Data

from pyg_glif._utils.validation import check_count
from pyg_glif.datasets._files import BuiltDataset, Transform

#: Names of races and genders, in the order of their labels.
RACES = ("White", "Black")
GENDERS = ("female", "male")


class Vocabulary(NamedTuple):
    """Words and names with a vector, and their labels."""

    words: list[str]
    x: Tensor  # [N, F]
    y: Tensor  # [N]
    race: Tensor  # [N]
    gender: Tensor  # [N]
    side_names: list[str]
    side_x: Tensor  # [M, F]


class Sentiment(BuiltDataset):
    r"""Words with a sentiment, and first names that ought to have none.

    A classifier learns from the word vectors of an opinion lexicon which words are
    positive. Applied to the vectors of first names, it likes some better than others:
    the bias that `GLIF <https://arxiv.org/abs/2110.13796>`_ (section 5.1) removes.
    It is part of the package and needs no file, folder or network; a clone has variants
    with other vectors in ``experiments.datasets.SentimentVariant``.

    Args:
        root (str or PathLike, optional): Folder in which the processed data set is
            kept. Without it the data set is built in memory and nothing is written.
            (default: :obj:`None`)
        seed (int): Number of the random split of the words into nine tenths for
            training and one tenth for testing. (default: :obj:`0`)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once, before the data set is kept.
            (default: :obj:`None`)
        force_reload (bool): Builds the data set again although ``root`` has it.
            (default: :obj:`False`)

    The only element is a :class:`~torch_geometric.data.Data` of words (positive, then
    negative) and names:

    - ``x``: vectors :math:`(N, F)`, float32, as published (not normalised)
    - ``y``: 1 for a positive word, 0 for a negative one, -1 for a name
    - ``train_mask``, ``test_mask``, ``name_mask``: every row is in exactly one
    - ``race``: 0 for White, 1 for Black; ``gender``: 0 for female, 1 for male; -1 for
      words. They are what the association test ascribes to a name.

    The data set itself has ``words`` (one per row of ``x``, in small letters), the side
    set ``side_x`` :math:`(M, F)` with its ``side_names``, from which
    :class:`~pyg_glif.metric_learning.SensitiveSVD` learns a fair distance, and the
    names of the labels, ``race_names`` and ``gender_names``.

    **STATS:**

    .. list-table::
        :header-rows: 1

        * - vectors
          - words +/-
          - train/test
          - names White/Black
          - side set
        * - GloVe 6B, 100-d
          - 1,891/4,344
          - 5,611/624
          - 48/38
          - 1,178

    6,235 of 6,786 lexicon words, 86 of the 100 names and 1,178 of 1,187 common names
    have a vector, kept in half precision. The side set are names given to at least
    25,000 children born in the United States from 1950 to 2016, except those that are
    rows of ``x``: a distance that has seen the names it is judged by flatters the
    result.

    A word of both lists of the lexicon counts as negative: no word is in both splits.

    **Sources and licences** (the package has them in ``datasets/data/LICENSES.md``):
    GloVe (Pennington et al., 2014; PDDL 1.0), opinion lexicon (Hu and Liu, 2004;
    ODC-By 1.0 and CC BY 4.0), names and their labels (Caliskan et al., 2017), births
    (Social Security Administration; CC0 1.0).

    Example:
        >>> dataset = Sentiment()
        >>> dataset
        Sentiment(seed=0)
        >>> data = dataset[0]
        >>> int(data.train_mask.sum()), int(data.test_mask.sum()), data.num_features
        (5611, 624, 100)
        >>> dataset.side_x.shape, dataset.side_names[:3]
        (torch.Size([1178, 100]), ['michael', 'david', 'james'])
    """

    folder = "sentiment"
    race_names = RACES
    gender_names = GENDERS

    words: list[str]
    side_names: list[str]
    side_x: Tensor

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        seed: int = 0,
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        force_reload: bool = False,
    ) -> None:
        self.seed = check_count("seed", seed, minimum=0, below=2**63)
        super().__init__(root, transform, pre_transform, force_reload)
        if self._root is not None:
            self.__dict__ |= torch.load(self.processed_paths[1], weights_only=True)

    @property
    def raw_file_names(self) -> list[str]:
        """No files: the source is in the package."""
        return []

    @property
    def processed_file_names(self) -> list[str]:
        """The data with its split, and the names that all seeds share."""
        return [f"sentiment_{self.seed}.pt", "sentiment_words.pt"]

    def process(self) -> None:
        """Reads the source and stores it."""
        super().process()
        names = ("words", "side_names", "side_x")
        about = {name: getattr(self, name) for name in names}
        torch.save(about, self.processed_paths[1])

    def _read(self) -> Vocabulary:
        """The source."""
        content = (files(__package__) / "data" / "sentiment.npz").read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            words, names = (
                file[key].tobytes().decode().split("\n")
                for key in ("words", "side_names")
            )
            return Vocabulary(
                words=words,
                x=from_numpy(file["x"]).float(),
                y=from_numpy(file["y"]).long(),
                race=from_numpy(file["race"]).long(),
                gender=from_numpy(file["gender"]).long(),
                side_names=names,
                side_x=from_numpy(file["side_x"]).float(),
            )

    def _build(self) -> Data:
        """The source, with the split."""
        source = self._read()
        self.words, self.side_names = source.words, source.side_names
        self.side_x = source.side_x
        train_mask, test_mask = _split(source.y >= 0, self.seed)
        return Data(
            x=source.x,
            y=source.y,
            train_mask=train_mask,
            test_mask=test_mask,
            name_mask=source.y < 0,
            race=source.race,
            gender=source.gender,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seed={self.seed})"


def _split(is_word: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Nine tenths of the words for training, the rest (rounded up) for testing."""
    index = is_word.nonzero().flatten()
    generator = torch.Generator().manual_seed(seed)
    order = index[torch.randperm(len(index), generator=generator)]
    test = torch.zeros_like(is_word)
    test[order[: -(-len(index) // 10)]] = True
    return is_word & ~test, test
