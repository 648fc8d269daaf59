"""What GLIF is compared with: other ways to treat similar people alike."""

from pyg_glif.baselines.auditor import Auditor, WorstCase, free_directions
from pyg_glif.baselines.inform import inform_debias
from pyg_glif.baselines.lipschitz_projection import Projection, lipschitz_projection
from pyg_glif.baselines.sensei import SenSeIRegularizer
from pyg_glif.baselines.sensr import SenSRLoss

__all__ = [
    "Auditor",
    "Projection",
    "SenSRLoss",
    "SenSeIRegularizer",
    "WorstCase",
    "free_directions",
    "inform_debias",
    "lipschitz_projection",
]
