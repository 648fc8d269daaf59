from .certificate import Certificate, NearbyBound, Sensitivity
from .fit import Fit, TransformInfo
from .fitted_neighbors import Peers

__all__ = [
    "Certificate",
    "Fit",
    "NearbyBound",
    "Peers",
    "Sensitivity",
    "TransformInfo",
]
