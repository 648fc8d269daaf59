"""Estimators for scikit-learn: a model and its correction in one object."""

from pyg_glif.sklearn.classifier import GLIFClassifier
from pyg_glif.sklearn.regressor import GLIFRegressor

__all__ = ["GLIFClassifier", "GLIFRegressor"]
