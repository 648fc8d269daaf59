from .certificate import Certificate
from .fit import Fit
from .fitted_neighbors import FittedNeighbors
from .transform_info import TransformInfo

__all__ = ["Certificate", "Fit", "FittedNeighbors", "TransformInfo"]
