from .explanation import Contribution, Difference, Explanation

__all__ = ["Contribution", "Difference", "Explanation"]
