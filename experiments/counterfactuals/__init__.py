"""From texts to features: counterfactual texts, and a cached sentence encoder."""

from experiments.counterfactuals.encoding import encode
from experiments.counterfactuals.gender import has_gender, pair_names, swap_gender
from experiments.counterfactuals.terms import (
    IdentityTerm,
    find_identity_terms,
    read_terms,
    replace_identity_terms,
)

__all__ = [
    "IdentityTerm",
    "encode",
    "find_identity_terms",
    "has_gender",
    "pair_names",
    "read_terms",
    "replace_identity_terms",
    "swap_gender",
]
