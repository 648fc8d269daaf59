from .adult import Adult
from .bios import Bios
from .fair_graph import FairGraph
from .german import German
from .sentiment import Sentiment
from .toxicity import Toxicity

__all__ = ["Adult", "Bios", "FairGraph", "German", "Sentiment", "Toxicity"]
