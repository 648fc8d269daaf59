from .certificates import NearbyBound, Sensitivity, certify, sensitivity

__all__ = ["NearbyBound", "Sensitivity", "certify", "sensitivity"]
