"""Safety settings and limits of a service."""

import hashlib
import hmac
from dataclasses import dataclass, field

from pyg_glif._utils.disclosure import MIN_SHARED, Disclosure
from pyg_glif._utils.validation import check_choice, check_count, check_scalar

#: Names under which a machine calls itself.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Safety and limits of a service; the arguments of ``create_app``."""

    token: str | None = field(default=None, repr=False)
    show_people: bool = False
    min_shared: int = MIN_SHARED
    resolution: float = 0.02
    hosts: tuple[str, ...] = LOOPBACK
    max_rows: int = 10_000
    max_bytes: int = 1 << 24
    threshold: float | None = None
    reload_seconds: float = 2.0

    def __post_init__(self) -> None:
        token, remedy = self.token, "Let 'secrets.token_urlsafe()' of Python make one"
        if token is not None and len(token) < 16:
            msg = "'token' must have at least 16 characters"
            raise ValueError(f"{msg} (got {len(token)}). {remedy}")
        # Headers have no others, and lose spaces at their ends.
        if token is not None and not (token.isascii() and token.isprintable()):
            msg = "'token' must be of printable ASCII characters (got others)"
            raise ValueError(f"{msg}. {remedy}")
        if token is not None and token != token.strip():
            msg = "'token' must not begin or end with a space (got one that does)"
            raise ValueError(f"{msg}. {remedy}")
        check_choice("show_people", self.show_people, (True, False))
        check_count("max_rows", self.max_rows)
        check_count("max_bytes", self.max_bytes)
        check_scalar("reload_seconds", self.reload_seconds, minimum=0.0)
        if self.threshold is not None:
            check_scalar("threshold", self.threshold)
        Disclosure(self.min_shared, self.resolution)  # checks them

    @property
    def disclosure(self) -> Disclosure | None:
        """What answers may tell about fitted samples; anything where they are shown."""
        if self.show_people or (self.min_shared == 1 and self.resolution == 0.0):
            return None
        return Disclosure(self.min_shared, self.resolution)

    @property
    def session(self) -> str:
        """What a browser keeps in place of the token, once it has shown it."""
        key = (self.token or "").encode()
        return hmac.new(key, b"pyg_glif session", hashlib.sha256).hexdigest()

    def is_token(self, text: str) -> bool:
        """Whether a text is the token, in a time that does not depend on it."""
        return hmac.compare_digest(text.encode(), (self.token or "").encode())

    def is_session(self, text: str) -> bool:
        """Whether a text is the session of the token."""
        return hmac.compare_digest(text.encode(), self.session.encode())
