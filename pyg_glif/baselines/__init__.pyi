from .auditor import Auditor, WorstCase
from .lipschitz_projection import Projection, lipschitz_projection
from .sensei import SenSeIRegularizer
from .sensr import SenSRLoss

__all__ = [
    "Auditor",
    "Projection",
    "SenSRLoss",
    "SenSeIRegularizer",
    "WorstCase",
    "lipschitz_projection",
]
