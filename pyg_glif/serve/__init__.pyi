from ._settings import ServiceSettings
from .app import create_app
from .sample_metadata import SampleMetadata

__all__ = ["SampleMetadata", "ServiceSettings", "create_app"]
