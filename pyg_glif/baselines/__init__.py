"""What GLIF is compared with: other ways to treat similar people alike."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
