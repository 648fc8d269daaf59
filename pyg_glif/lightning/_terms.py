"""Terms of a training loss, called by the names of their parameters."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from pyg_glif._utils.validation import check_callable

# Inputs of terms, by the names of their parameters.
_OFFERED = ("model", "x", "y", "logits", "f", "index", "edge_index", "edge_weight")


class Terms(nn.ModuleList):
    """Terms and the inputs of each; functions stand beside the modules."""

    def __init__(self, name: str, parts: list[Any], model: nn.Module) -> None:
        super().__init__(part for part in parts if isinstance(part, nn.Module))
        self.parts: list[tuple[Callable[..., Tensor | None], dict[str, bool]]] = []
        for part in parts:
            check_callable(name, part)
            names = parameters_of(part, skip=0)
            unknown = [key for key, needed in names.items() if needed]
            unknown = [key for key in unknown if key not in _OFFERED]
            if unknown:
                msg = f"'{name}' must need no parameters beside {', '.join(_OFFERED)}"
                raise ValueError(f"{msg} (got {', '.join(unknown)})")
            if "model" in names and "edge_index" in parameters_of(model):
                # It moves rows one by one, which in a graph moves others as well.
                msg = f"'model' must be a function of the features only for '{name}'"
                raise ValueError(f"{msg} (got a forward with 'edge_index')")
            self.parts.append((part, names))

    def total(self, offer: Mapping[str, Any]) -> Tensor:
        """Sum of all terms."""
        total: Tensor = offer["logits"].new_zeros(())
        known = {key: value for key, value in offer.items() if value is not None}
        for part, names in self.parts:
            missing = [key for key in names if names[key] and key not in known]
            if missing:
                msg = f"'{missing[0]}' must be in the batch for {type(part).__name__}"
                raise ValueError(f"{msg} (got none). Train on a whole Data that has it")
            value = part(**{key: known[key] for key in names if key in known})
            total = total if value is None else total + value
        return total

    def read_edges(self) -> bool:
        """Whether a term depends on the edges of a batch: not if it has a radius."""
        return any(
            "edge_index" in names and getattr(part, "tau", None) is None
            for part, names in self.parts
        )

    def duals(self) -> list[Tensor]:
        """The tensors ``dual`` of those terms that have one, as SenSeI and SenSR do."""
        duals = [getattr(part, "dual", None) for part in self]
        return [dual for dual in duals if isinstance(dual, Tensor)]


def parameters_of(part: Any, skip: int = 1) -> dict[str, bool]:
    """Names of the parameters after the first few, and whether they must be given."""
    # A torch_geometric.nn.Sequential has its own, its 'forward' takes anything.
    own = getattr(getattr(part, "signature", None), "param_dict", None)
    function = part.forward if isinstance(part, nn.Module) else part
    parameters = own or inspect.signature(function).parameters
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter.default is inspect.Parameter.empty
        for name, parameter in list(parameters.items())[skip:]
        if getattr(parameter, "kind", None) not in variable
    }
