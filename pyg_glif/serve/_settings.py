"""Safety settings and limits of a service."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyg_glif._utils.disclosure import MIN_SHARED, Disclosure
from pyg_glif._utils.validation import check_choice, check_count, check_scalar

#: Names under which a machine calls itself.
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Safety and limits of a service; the keywords of :func:`create_app`.

    Args:
        token (str, optional): Secret of requests, 16 characters or more. Do not let
            other machines ask without one. (default: :obj:`None`)
        show_people (bool): Whether ids, features and outputs of the fitted samples
            may be shown, and answers be exact. (default: :obj:`False`)
        min_shared (int): Where samples are not shown, the effective number of
            fitted samples that a correction must rest on; new samples with fewer keep
            their output. (default: :obj:`5`)
        resolution (float): Where samples are not shown, the steps in which answers
            are computed: of the own share, and of the neighbors' average in standard
            deviations of the fitted outputs. Zero is exact. See :ref:`disclosure`.
            (default: :obj:`0.02`)
        hosts (sequence of str): Without a token, accepted names in 'Host' headers.
            (default: those of this machine)
        max_rows (int): New samples in a request. (default: :obj:`10000`)
        max_bytes (int): Size of a request's body. (default: 16 MiB)
        threshold (float, optional): A single output above it means yes.
            (default: :obj:`0.5` where all outputs are between 0 and 1)
        reload_seconds (float): Time between two looks for a newer fit; 0 never looks.
            (default: :obj:`2.0`)
    """

    token: str | None = field(default=None, repr=False)
    show_people: bool = False
    min_shared: int = MIN_SHARED
    resolution: float = 0.02
    hosts: Sequence[str] = LOOPBACK
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
        """Rule of what answers disclose; :obj:`None` where samples are shown."""
        if self.show_people or (self.min_shared == 1 and self.resolution == 0.0):
            return None
        return Disclosure(self.min_shared, self.resolution)

    @property
    def session(self) -> str:
        """Cookie that stands for the token in a browser."""
        key = (self.token or "").encode()
        return hmac.new(key, b"pyg_glif session", hashlib.sha256).hexdigest()

    def is_token(self, text: str) -> bool:
        """Whether a text is the token, in a time that does not depend on it."""
        return hmac.compare_digest(text.encode(), (self.token or "").encode())

    def is_session(self, text: str) -> bool:
        """Whether a text is the session of the token."""
        return hmac.compare_digest(text.encode(), self.session.encode())
