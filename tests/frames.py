"""The least that a frame must offer, so that tests need neither pandas nor polars."""

import numpy as np


class Series:
    """A named column."""

    def __init__(self, name: str, values: np.ndarray) -> None:
        self.name, self.values = name, values

    def to_numpy(self) -> np.ndarray:
        return self.values


class Frame:
    """Named columns."""

    def __init__(self, values: np.ndarray, schema: list[str]) -> None:
        self.values, self.columns = values, schema

    def to_numpy(self) -> np.ndarray:
        return self.values


Series.__module__ = Frame.__module__ = "polars.dataframe"
