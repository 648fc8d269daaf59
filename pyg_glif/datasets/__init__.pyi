from .adult import Adult
from .bios import Bios
from .german import German
from .sensitive_graph import SensitiveGraph
from .sentiment import Sentiment
from .toxicity import Toxicity

__all__ = ["Adult", "Bios", "German", "SensitiveGraph", "Sentiment", "Toxicity"]
