from .bios import Bios
from .german import German
from .sensitive_graph import SensitiveGraph
from .toxicity import Toxicity

__all__ = ["Bios", "German", "SensitiveGraph", "Toxicity"]
