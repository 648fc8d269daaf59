from .bios import Bios
from .german import German
from .sensitive_graph import SensitiveGraph
from .sentiment_variant import SentimentVariant
from .toxicity import Toxicity

__all__ = ["Bios", "German", "SensitiveGraph", "SentimentVariant", "Toxicity"]
