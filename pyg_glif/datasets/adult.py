"""The Adult data set: the census of 1994."""

import os

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_choice
from pyg_glif.datasets._files import Transform
from pyg_glif.datasets._synthetic import synthetic_census
from pyg_glif.datasets._tabular import Frame, Series, TabularDataset, read_checked_table

FILE, UNKNOWN = "adult.csv.gz", "?"
SPLITS = ("train", "test")
INCOMES = ("<=50K", ">50K")
_SWAPS = {"sex": ("Female", "Male"), "relationship": ("Wife", "Husband")}


class Adult(TabularDataset):
    r"""The census of 1994 and incomes above 50,000 dollars a year.

    The table that most papers on fairness with tables use
    (`Kohavi, 1996 <https://archive.ics.uci.edu/dataset/2/adult>`_). It is **not** part
    of the package; the variant ``"invented"`` is, and needs no file.

    Args:
        root (str or PathLike, optional): Folder in which the processed data set is
            kept, and where ``adult.csv.gz`` is looked for first: in ``root/raw``,
            ``root`` and ``root/tabular``, then in ``tabular`` below the folder that
            ``PYG_GLIF_DATA`` names. Without ``root`` the data set is built in memory
            and nothing is written. (default: :obj:`None`)
        variant (str): :obj:`"uci"` or :obj:`"invented"`, see below.
            (default: :obj:`"uci"`)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once, before the data set is kept.
            (default: :obj:`None`)
        force_reload (bool): Builds the data set again although ``root`` has it, which
            does not notice that files of the source have changed.
            (default: :obj:`False`)

    For tables, ``frame`` holds the 14 features (text as pandas'
    ``category``, unknown entries as gaps), ``target`` is 1 for an income above 50,000
    dollars, ``split`` says ``"train"`` or ``"test"``. All three have one row per
    sample, are read from the source, and are copies. ``twins`` gives rows of the frame
    the other sex.

    For PyG the only element is a :class:`~torch_geometric.data.Data`:

    - ``x``: numbers as they are, then an indicator of each category, float32;
      ``feature_names`` names the columns. Nothing is standardised.
    - ``y``: ``target``
    - ``train_mask``, ``test_mask``: the split of the source
    - ``sex``, ``race``: positions in ``sex_names``, ``race_names``

    **STATS:**

    .. list-table::
        :header-rows: 1

        * - variant
          - rows, train / test
          - columns of ``x``
          - above 50,000 dollars
          - rows with a gap
        * - ``"uci"``
          - 32,561 / 16,281
          - 105
          - 23.9%
          - 3,620
        * - ``"invented"``
          - 6,000 / 3,000
          - 40
          - 22.4%
          - 248

    - ``fnlwgt`` is how many people of the population a row stands for: a weight, not a
      feature. Models of the experiments do without it.
    - ``relationship`` gives away the sex of the married (*Husband*, *Wife*): a
      distance that ignores sex should take these two as one.
    - ``"invented"`` has the same columns, made by a short random program, always the
      same: no row is real, and no number in it says anything about the world.
      Women's chances are lowered on purpose, all else equal, so that there is
      something to find.

    Licence of the source: UCI publishes it under CC BY 4.0.

    Example:
        >>> adult = Adult(variant="invented")
        >>> adult
        Adult(variant='invented')
        >>> adult.frame.loc[:2, ["age", "relationship", "sex"]]
           age relationship   sex
        0   66      Husband  Male
        1   28      Husband  Male
        2   19    Own-child  Male
        >>> adult[0].x.shape, adult.feature_names[-1]
        (torch.Size([9000, 40]), 'native_country=United-States')
    """

    variants = ("uci", "invented")
    numbers = (
        "age",
        "fnlwgt",
        "education_num",
        "capital_gain",
        "capital_loss",
        "hours_per_week",
    )
    categories = (
        "workclass",
        "education",
        "marital_status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native_country",
    )
    outcome = "income"

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        variant: str = "uci",
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        force_reload: bool = False,
    ) -> None:
        check_choice("variant", variant, self.variants)
        self.variant = variant
        super().__init__(root, transform, pre_transform, force_reload)

    @property
    def raw_file_names(self) -> list[str]:
        """One table; none for the variant that is made up."""
        return [FILE] if self.variant == "uci" else []

    @property
    def processed_file_names(self) -> list[str]:
        """The tensors of the variant."""
        return [f"adult_{self.variant}.pt"]

    @property
    def split(self) -> Series:
        """A copy of the source's split, ``"train"`` or ``"test"`` per row."""
        return self._table["split"].copy()

    @property
    def sex_names(self) -> tuple[str, ...]:
        """Names of the labels in ``sex``."""
        return tuple(self._table["sex"].cat.categories)

    @property
    def race_names(self) -> tuple[str, ...]:
        """Names of the labels in ``race``."""
        return tuple(self._table["race"].cat.categories)

    @staticmethod
    def twins(frame: Frame) -> list[Frame]:
        """The same rows with the other sex: one frame, in which husbands are wives.

        Args:
            frame (pandas.DataFrame): Some rows of ``frame``.
        """
        twin = frame.copy()
        for name, (one, other) in _SWAPS.items():
            column = frame[name]
            swapped = column.astype(object).where(column != one, other)
            swapped = swapped.where(column != other, one)
            twin[name] = swapped.astype(column.dtype)
        return [twin]

    def _read(self) -> Frame:
        """The census, or the synthetic table."""
        if self.variant == "invented":
            table = synthetic_census(9_000, torch.Generator().manual_seed(0))
            table["split"] = ["train"] * 6_000 + ["test"] * 3_000
        else:
            words = dict.fromkeys(self.categories, None)
            words |= {self.outcome: INCOMES, "split": SPLITS}
            table = read_checked_table(self.find(FILE), self.numbers, words)
            table[self.outcome] = (table[self.outcome] == INCOMES[1]).astype("int64")
        for name in self.categories:
            known = table[name].where(table[name] != UNKNOWN)
            table[name] = known.astype("category")
        return table

    def _about(self, table: Frame) -> dict[str, Tensor]:
        """The split, sex and race."""
        masks = {
            f"{name}_mask": torch.tensor((table["split"] == name).to_numpy())
            for name in SPLITS
        }
        groups = {
            name: torch.tensor(table[name].cat.codes.to_numpy()).long()
            for name in ("sex", "race")
        }
        return masks | groups

    def __repr__(self) -> str:
        return f"{type(self).__name__}(variant={self.variant!r})"
