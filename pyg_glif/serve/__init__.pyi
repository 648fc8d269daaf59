from .app import create_app
from .sample_metadata import Register

__all__ = ["Register", "create_app"]
