from .app import create_app
from .sample_metadata import SampleMetadata

__all__ = ["SampleMetadata", "create_app"]
