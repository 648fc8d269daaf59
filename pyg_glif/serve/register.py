"""Who the fitted people are, as far as the fit itself does not know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


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
        >>> register.checked(2).find("ben")
        1
        >>> register.checked(3)
        Traceback (most recent call last):
            ...
        ValueError: 'ids' must have one entry per fitted person (got 2 for 3)
    """

    ids: Sequence[Any] | None = None
    frame: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def checked(self, num_people: int) -> "Register":
        """The same with ids as texts; raises unless it is about ``num_people``."""
        parts = {"ids": self.ids, "frame": self.frame, **self.attributes}
        for name, value in parts.items():
            if value is not None and len(value) != num_people:
                msg = f"'{name}' must have one entry per fitted person"
                raise ValueError(f"{msg} (got {len(value)} for {num_people})")
        ids = range(num_people) if self.ids is None else self.ids
        return Register([str(one) for one in ids], self.frame, self.attributes)

    def find(self, person: str) -> int | None:
        """The row of the person of that name, the first if there are several."""
        try:
            return (self.ids or []).index(person)
        except ValueError:
            return None

    def search(self, text: str, most: int) -> list[int]:
        """Rows of people whose id contains ``text``, those it starts with first."""
        text = text.casefold()
        found = [
            (not one.casefold().startswith(text), row)
            for row, one in enumerate(self.ids or [])
            if text in one.casefold()
        ]
        return [row for _, row in sorted(found)[:most]]
