from .auditor import Auditor, WorstCase, free_directions
from .lipschitz_projection import Projection, lipschitz_projection
from .sensei import SenSeIRegularizer
from .sensr import SenSRLoss

__all__ = [
    "Auditor",
    "Projection",
    "SenSRLoss",
    "SenSeIRegularizer",
    "WorstCase",
    "free_directions",
    "lipschitz_projection",
]
