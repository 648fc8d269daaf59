"""Experiments by the name that the command line knows them by."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.experiment import Experiment

# Module and object. Names alone must cost nothing: the command line lists them in its
# help, and no experiment can be imported without torch and Lightning.
_PLACES = {
    "sentiment": ("sentiment", "SENTIMENT"),
    "bios": ("text", "BIOS"),
    "toxicity": ("text", "TOXICITY"),
    "adult": ("tabular", "ADULT"),
    "german": ("tabular", "GERMAN"),
    "credit": ("graphs", "CREDIT"),
    "bail": ("graphs", "BAIL"),
    "german_graph": ("graphs", "GERMAN_GRAPH"),
    "nba": ("graphs", "NBA"),
}


class _Experiments(Mapping[str, "Experiment"]):
    """Imports an experiment when it is looked up."""

    def __getitem__(self, name: str) -> "Experiment":
        module, attribute = _PLACES[name]
        found: Experiment = getattr(import_module(f"experiments.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


#: Each is called with ``seeds``, ``variant``, ``limit``, ``out`` and ``progress``.
EXPERIMENTS: Mapping[str, "Experiment"] = _Experiments()
