"""From texts to features: counterfactual texts, and a cached sentence encoder."""

from pyg_glif.text.encoding import encode
from pyg_glif.text.gender import has_gender, pair_names, swap_gender
from pyg_glif.text.terms import (
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
