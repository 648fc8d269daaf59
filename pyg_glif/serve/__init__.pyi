from .app import create_app
from .register import Register

__all__ = ["Register", "create_app"]
