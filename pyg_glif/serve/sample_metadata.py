"""Who the fitted people are, as far as the fit itself does not know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class RegisterError(ValueError):
    """What is known about fitted samples does not go with them.

    Its message names rows and columns and holds no cell, so that logs may have it.
    """


@dataclass(frozen=True, eq=False)
class Register:
    r"""What is known about the fitted people beside their fit, a row each, in order.

    Args:
        ids (sequence, optional): What people are called. (default: their row numbers)
        frame (DataFrame, optional): Their columns, as people read them: ages rather
            than coordinates. (default: the features of the fit)
        attributes (dict): Protected columns by name, one entry per person, such as
            sex; audits and the what-if page tell their groups apart.

    Example:
        >>> register = Register(ids=["ann", "ben"], attributes={"sex": ["f", "m"]})
        >>> register.check(3)
        Traceback (most recent call last):
            ...
        pyg_glif.serve.sample_metadata.RegisterError: 'ids' must have one entry per ...
    """

    ids: Sequence[Any] | None = None
    frame: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def check(self, num_people: int) -> None:
        """Raises unless it is about so many people."""
        parts = {"ids": self.ids, "frame": self.frame, **self.attributes}
        for name, value in parts.items():
            if value is not None and len(value) != num_people:
                msg = f"'{name}' must have one entry per fitted person"
                raise RegisterError(f"{msg} (got {len(value)} for {num_people})")
