"""The sentiment data set: words of an opinion lexicon, and first names."""

import os

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif._utils.validation import check_choice, check_count
from pyg_glif.datasets._files import BuiltDataset, Transform
from pyg_glif.datasets._sentiment_sources import (
    FILES,
    GENDERS,
    RACES,
    read_vocabulary,
)


class Sentiment(BuiltDataset):
    r"""Words with a sentiment, and first names that ought to have none.

    A classifier learns from the word vectors of an opinion lexicon which words are
    positive. Applied to the vectors of first names, it likes some better than others:
    the bias that `GLIF <https://arxiv.org/abs/2110.13796>`_ (section 5.1) removes.
    The default variant is part of the package and needs no file, folder or network.

    Args:
        root (str or PathLike, optional): Folder in which the processed data set is
            kept, and where files are looked for first: in ``root/raw``, ``root`` and
            ``root/sentiment``, then in ``sentiment`` below the folder that
            ``PYG_GLIF_DATA`` names. Without ``root`` the data set is built in memory
            and nothing is written. (default: :obj:`None`)
        variant (str): Which vectors and which side set of common names, see the table
            (:obj:`"us"`, :obj:`"nyc"`, :obj:`"word2vec"`, :obj:`"glove42b"`).
            (default: :obj:`"us"`)
        seed (int): Number of the random split of the words into nine tenths for
            training and one tenth for testing. (default: :obj:`0`)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once, before the data set is kept.
            (default: :obj:`None`)
        force_reload (bool): Builds the data set again although ``root`` has it, which
            does not notice that files of the source have changed.
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

        * - variant
          - vectors
          - words +/-
          - train/test
          - names White/Black
          - side set
          - names also in it
        * - ``"us"``
          - GloVe 6B, 100-d
          - 1,891/4,344
          - 5,611/624
          - 48/38
          - 1,178
          - 0
        * - ``"nyc"``
          - GloVe 6B, 100-d
          - 1,889/4,344
          - 5,609/624
          - 48/38
          - 1,137
          - 32
        * - ``"word2vec"``
          - Google News, 300-d
          - 1,853/4,445
          - 5,668/630
          - 39/33
          - 173
          - 31
        * - ``"glove42b"``
          - GloVe 42B, 300-d
          - 6,624 in all
          - 5,961/663
          - 49/45
          - as in its file
          - as in its file

    The last row is the paper's setting with its published numbers; its files cannot be
    shipped. Coverage of ``"us"``: 6,235 of 6,786 lexicon words, 86 of the 100 names
    and 1,178 of 1,187 common names have a vector.

    - ``"us"`` keeps vectors in half precision. Its side set are names given to at
      least 25,000 children born in the United States from 1950 to 2016, except those
      that are rows of ``x``: a distance that has seen the names it is judged by
      flatters the result.
    - ``"nyc"`` and ``"word2vec"`` need files. Their side set are the distinct
      names given to Black or White children in New York City (2011 to 2016), names of
      the test among them, as in the paper.
    - ``"glove42b"`` reads the files of the authors' script:
      ``sentiment_glove.42B.300d.txt``, ``positive-words.txt``, ``negative-words.txt``
      and ``Popular_Baby_Names.csv``. A name is in the side set as often as it is in
      the table, as in the paper.

    A word of both lists of the lexicon counts as negative: no word is in both splits.

    **Sources and licences** (the package has them in ``datasets/data/LICENSES.md``):
    GloVe (Pennington et al., 2014; PDDL 1.0), opinion lexicon (Hu and Liu, 2004;
    ODC-By 1.0 and CC BY 4.0), names and their labels (Caliskan et al., 2017), births
    (Social Security Administration; CC0 1.0).

    Example:
        >>> dataset = Sentiment()
        >>> dataset
        Sentiment(variant='us', seed=0)
        >>> data = dataset[0]
        >>> int(data.train_mask.sum()), int(data.test_mask.sum()), data.num_features
        (5611, 624, 100)
        >>> dataset.side_x.shape, dataset.side_names[:3]
        (torch.Size([1178, 100]), ['michael', 'david', 'james'])
    """

    folder = "sentiment"
    variants = tuple(FILES)
    race_names = RACES
    gender_names = GENDERS

    words: list[str]
    side_names: list[str]
    side_x: Tensor

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        variant: str = "us",
        seed: int = 0,
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        force_reload: bool = False,
    ) -> None:
        check_choice("variant", variant, self.variants)
        self.variant = variant
        self.seed = check_count("seed", seed, minimum=0, below=2**63)
        super().__init__(root, transform, pre_transform, force_reload)
        if self._root is not None:
            self.__dict__ |= torch.load(self.processed_paths[1], weights_only=True)

    def _origin(self) -> str:
        """Where the variant's files can be had."""
        if self.variant != "glove42b":
            return super()._origin()
        return (
            "It is in 'project_data' of the authors' code (GitHub project "
            "Felix-Petersen/fairness-post-processing)"
        )

    @property
    def raw_file_names(self) -> list[str]:
        """The files of the variant; none for the one that is in the package."""
        return list(FILES[self.variant])

    @property
    def processed_file_names(self) -> list[str]:
        """The data with its split, and the names that all seeds share."""
        return [
            f"sentiment_{self.variant}_{self.seed}.pt",
            f"sentiment_{self.variant}_words.pt",
        ]

    def process(self) -> None:
        """Reads the source and stores it."""
        super().process()
        names = ("words", "side_names", "side_x")
        about = {name: getattr(self, name) for name in names}
        torch.save(about, self.processed_paths[1])

    def _build(self) -> Data:
        """The source, with the split."""
        source = read_vocabulary(self.variant, self.find)
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
        return f"{type(self).__name__}(variant={self.variant!r}, seed={self.seed})"


def _split(is_word: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Nine tenths of the words for training, the rest (rounded up) for testing."""
    index = is_word.nonzero().flatten()
    generator = torch.Generator().manual_seed(seed)
    order = index[torch.randperm(len(index), generator=generator)]
    test = torch.zeros_like(is_word)
    test[order[: -(-len(index) // 10)]] = True
    return is_word & ~test, test
