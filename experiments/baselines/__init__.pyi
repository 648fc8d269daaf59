from .guide import GroupEqualityLoss, SimilarityAttention, guide_head
from .inform import inform_debias, inform_debias_graph
from .pfr import pairwise_fair_features
from .redress import RankingLoss

__all__ = [
    "GroupEqualityLoss",
    "RankingLoss",
    "SimilarityAttention",
    "guide_head",
    "inform_debias",
    "inform_debias_graph",
    "pairwise_fair_features",
]
