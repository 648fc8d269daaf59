from .adult import Adult
from .sentiment import Sentiment

__all__ = ["Adult", "Sentiment"]
