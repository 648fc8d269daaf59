from .bios import Bios
from .sentiment import Sentiment
from .toxicity import Toxicity

__all__ = ["Bios", "Sentiment", "Toxicity"]
