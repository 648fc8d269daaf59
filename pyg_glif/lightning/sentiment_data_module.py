"""The sentiment data in batches."""

from typing import Literal

from pyg_glif.datasets import Sentiment
from pyg_glif.lightning.fair_data_module import FairDataModule


class SentimentDataModule(FairDataModule):
    r"""Batches of :class:`~pyg_glif.datasets.Sentiment`, as in the paper.

    Training batches hold 500 positive and 500 negative words, testing covers the words
    left out, and prediction covers all words and names. Names have no label.

    Args:
        variant (str): Which vectors and names; see the data set.
            (default: :obj:`"us"`)
        root (str, optional): Folder in which the processed data set is kept.
            (default: :obj:`None`)
        seed (int): Number of the split, and where the randomness of batches starts.
            (default: :obj:`0`)
        batch_size (int): Rows per batch. (default: :obj:`1000`)
        balanced (bool): Whether batches hold equally many words of both classes.
            (default: :obj:`True`)
        steps_per_epoch (int, optional): Training batches that make an epoch.
            (default: :obj:`200`)

    Attributes:
        dataset (Sentiment): The data set, which has the words and the side set.

    Example:
        >>> sentiment = SentimentDataModule(seed=1)
        >>> x, y, index = next(iter(sentiment.train_dataloader()))
        >>> x.shape, int(y.sum())
        (torch.Size([1000, 100]), 500)
    """

    def __init__(
        self,
        variant: Literal["us", "nyc", "word2vec", "glove42b"] = "us",
        root: str | None = None,
        seed: int = 0,
        batch_size: int = 1000,
        balanced: bool = True,
        steps_per_epoch: int | None = 200,
    ) -> None:
        self.dataset = Sentiment(root, variant, seed)
        super().__init__(
            self.dataset[0],
            batch_size=batch_size,
            balanced=balanced,
            steps_per_epoch=steps_per_epoch,
            seed=seed,
        )
