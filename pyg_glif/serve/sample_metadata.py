"""Display metadata of the fitted samples: ids, raw columns, sensitive attributes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyg_glif.postprocessing import GLIFPostProcessor


class SampleMetadataError(ValueError):
    """Metadata that does not go with the fitted samples.

    Its message names rows and columns and holds no cell, so that logs may have it.
    """


@dataclass(frozen=True, eq=False)
class SampleMetadata:
    r"""Metadata of the fitted samples, in their order.

    Args:
        ids (sequence, optional): Names of the samples. (default: row numbers)
        frame (DataFrame, optional): Columns in units that a reader knows: ages rather
            than coordinates. (default: the features of the fit)
        sensitive (dict): Sensitive columns by name, one entry per sample, such as
            sex; audits and the what-if page compare their groups.

    Example:
        >>> metadata = SampleMetadata(ids=["a", "b"], sensitive={"sex": ["f", "m"]})
        >>> metadata.check(3)
        Traceback (most recent call last):
            ...
        pyg_glif.serve.sample_metadata.SampleMetadataError: 'ids' must have one ...
    """

    ids: Sequence[Any] | None = None
    frame: Any = None
    sensitive: Mapping[str, Any] = field(default_factory=dict)

    def check(self, num_samples: int) -> None:
        """Raises unless every part has one entry per sample."""
        parts = {"ids": self.ids, "frame": self.frame, **self.sensitive}
        for name, value in parts.items():
            if value is not None and len(value) != num_samples:
                msg = f"'{name}' must have one entry per fitted sample"
                raise SampleMetadataError(f"{msg} (got {len(value)} for {num_samples})")


#: Metadata of the samples of a loaded fit.
ReadMetadata: TypeAlias = Callable[["GLIFPostProcessor"], SampleMetadata]
