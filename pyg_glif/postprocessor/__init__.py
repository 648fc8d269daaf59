"""The post-processor people deploy, its explanations and its audit."""

from pyg_glif.postprocessor.audit import audit
from pyg_glif.postprocessor.explanation import Explanation
from pyg_glif.postprocessor.fitted import TransformInfo
from pyg_glif.postprocessor.glif_post_processor import GLIFPostProcessor
from pyg_glif.postprocessor.report import AuditReport, Estimate, Measure, Pair, Person

__all__ = [
    "AuditReport",
    "Estimate",
    "Explanation",
    "GLIFPostProcessor",
    "Measure",
    "Pair",
    "Person",
    "TransformInfo",
    "audit",
]
