"""Who repaid a loan: a bank in southern Germany, about 1975."""

import os

import torch
from torch import Tensor

from pyg_glif.datasets._files import Transform
from pyg_glif.datasets._tabular import Frame, TabularDataset, read_checked_table

FILE = "german.csv.gz"
#: What the codes of the source mean, by its documentation.
CODES = {
    "checking_status": {
        "A11": "below 0",
        "A12": "0 to 200",
        "A13": "200 or more, or a regular salary",
        "A14": "no account",
    },
    "credit_history": {
        "A30": "no credits, or all repaid",
        "A31": "all repaid at this bank",
        "A32": "repaid so far",
        "A33": "delays in the past",
        "A34": "critical, or credits elsewhere",
    },
    "purpose": {
        "A40": "new car",
        "A41": "used car",
        "A42": "furniture",
        "A43": "radio or television",
        "A44": "appliances",
        "A45": "repairs",
        "A46": "education",
        "A47": "holiday",
        "A48": "retraining",
        "A49": "business",
        "A410": "other",
    },
    "savings": {
        "A61": "below 100",
        "A62": "100 to 500",
        "A63": "500 to 1000",
        "A64": "1000 or more",
        "A65": "none or unknown",
    },
    "employment_since": {
        "A71": "unemployed",
        "A72": "below 1 year",
        "A73": "1 to 4 years",
        "A74": "4 to 7 years",
        "A75": "7 years or more",
    },
    "personal_status_sex": {
        "A91": "man, divorced or separated",
        "A92": "woman, not single",
        "A93": "man, single",
        "A94": "man, married or widowed",
        "A95": "woman, single",
    },
    "other_debtors": {"A101": "none", "A102": "co-applicant", "A103": "guarantor"},
    "property": {
        "A121": "real estate",
        "A122": "savings agreement or life insurance",
        "A123": "car or other",
        "A124": "none or unknown",
    },
    "other_installment_plans": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rented", "A152": "own", "A153": "free"},
    "job": {
        "A171": "unskilled, not resident",
        "A172": "unskilled, resident",
        "A173": "skilled",
        "A174": "manager or self-employed",
    },
    "telephone": {"A191": "no", "A192": "yes"},
    "foreign_worker": {"A201": "yes", "A202": "no"},
}


class German(TabularDataset):
    r"""Borrowers of a German bank, and who repaid.

    *Statlog German credit* (`Hofmann, 1994
    <https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data>`_), the smaller
    of the two tables that most papers on fairness use. It is **not** part of the
    package. The codes of the source are replaced by words, in the meaning that its
    documentation gives them.

    Args:
        root (str or PathLike, optional): Folder in which the processed data set is
            kept, and where ``german.csv.gz`` is looked for first: in ``root/raw``,
            ``root`` and ``root/tabular``, then in ``tabular`` below the folder that
            ``PYG_GLIF_DATA`` names. Without ``root`` the data set is built in memory
            and nothing is written. (default: :obj:`None`)
        transform (callable, optional): Applied at every access.
            (default: :obj:`None`)
        pre_transform (callable, optional): Applied once, before the data set is kept.
            (default: :obj:`None`)
        force_reload (bool): Builds the data set again although ``root`` has it, which
            does not notice that files of the source have changed.
            (default: :obj:`False`)

    For people with tables: ``frame`` holds the 20 features (words as pandas'
    ``category``; no gaps), ``target`` is 1 for a good credit risk. Both have one row
    per person, are read from the source, and are copies. ``twins`` gives rows of the
    frame every personal status and sex.

    For PyG the only element is a :class:`~torch_geometric.data.Data`:

    - ``x``: numbers as they are, then an indicator of each category, float32;
      ``feature_names`` names the columns. Nothing is standardised.
    - ``y``: ``target``
    - ``sex``: position in ``sex_names``

    There is no split: the source has none.

    **STATS:** 1,000 people, 7 columns of numbers, 13 of categories, 61 columns of
    ``x``; 700 good risks; 310 women.

    **Sex is doubtful.** The documentation reads the column ``personal_status_sex`` as
    here. `Grömping (2019)
    <https://archive.ics.uci.edu/dataset/522/south+german+credit>`_ went back to the
    bank's papers and found that several codes were described wrongly: the one read as
    *woman, not single* is also that of single men, and the sex of a person cannot be
    told. Results about women and men in this table are about this column, not about
    women and men.

    Licence of the source: UCI publishes it under CC BY 4.0.
    """

    numbers = (
        "duration_months",
        "credit_amount",
        "installment_rate",
        "residence_since",
        "age",
        "existing_credits",
        "people_liable",
    )
    categories = tuple(CODES)
    outcome = "credit_risk"
    sex_names = ("woman", "man")
    raw_file_names = (FILE,)
    processed_file_names = ("german.pt",)

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        force_reload: bool = False,
    ) -> None:
        super().__init__(root, transform, pre_transform, force_reload)

    @staticmethod
    def twins(frame: Frame) -> list[Frame]:
        """The same people with each personal status and sex there is, a frame each.

        Args:
            frame (pandas.DataFrame): Some rows of ``frame``.
        """
        name = "personal_status_sex"
        kind = frame[name].dtype
        out = []
        for status in kind.categories:
            twin = frame.copy()
            twin[name] = status
            twin[name] = twin[name].astype(kind)
            out.append(twin)
        return out

    def _read(self) -> Frame:
        """The table, in words."""
        words = {name: tuple(codes) for name, codes in CODES.items()}
        words[self.outcome] = ("1", "2")
        table = read_checked_table(self.find(FILE), self.numbers, words)
        for name, codes in CODES.items():
            table[name] = table[name].map(codes).astype("category")
        table[self.outcome] = (table[self.outcome] == "1").astype("int64")
        return table

    def _about(self, table: Frame) -> dict[str, Tensor]:
        """Sex, as the documentation has it."""
        man = table["personal_status_sex"].astype(str).str.startswith("man")
        return {"sex": torch.tensor(man.to_numpy()).long()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
