from .auditor import Auditor, WorstCase, free_directions
from .guide import GroupEqualityLoss, SimilarityAttention, guide_head
from .inform import inform_debias, inform_debias_graph
from .lipschitz_projection import Projection, lipschitz_projection
from .pfr import pairwise_fair_features
from .redress import RankingLoss
from .sensei import SenSeIRegularizer
from .sensr import SenSRLoss

__all__ = [
    "Auditor",
    "GroupEqualityLoss",
    "Projection",
    "RankingLoss",
    "SenSRLoss",
    "SenSeIRegularizer",
    "SimilarityAttention",
    "WorstCase",
    "free_directions",
    "guide_head",
    "inform_debias",
    "inform_debias_graph",
    "lipschitz_projection",
    "pairwise_fair_features",
]
