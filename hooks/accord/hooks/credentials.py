"""What an engine shows to the API, and which authorities it trusts; files are read when they are needed."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Self

from accord.learner.bounds import MAX_TOKEN_BYTES
from accord.learner.errors import AccordError

from .settings import TOKEN_PATTERN, VARIABLES, AgentSettings

MAX_FILE_BYTES = 8 << 10


class CredentialError(AccordError):
    """A file of a token or of an authority cannot be used; the message names it, and never shows what is in it."""


@dataclass(frozen=True)
class Credentials:
    """A token, and whom to trust.

    Attributes:
        fixed: the token itself, or None.
        token_file: the file that holds it, preferred to `fixed`; it may be replaced at any time.
        ca_file: PEM file of the authorities that may have signed the API's certificate; those of certifi by default.

    >>> Credentials("t0ken").token()
    't0ken'
    """

    fixed: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None

    @classmethod
    def of(cls, settings: AgentSettings) -> Self:
        """Those that the settings name."""
        fixed = settings.api_token.get_secret_value() if settings.api_token is not None else None
        return cls(fixed, settings.api_token_file, settings.api_ca_file)

    @property
    def source(self) -> str:
        """The variable that the token comes from, or that should be set."""
        return VARIABLES["api_token" if self.fixed is not None and self.token_file is None else "api_token_file"]

    @property
    def given(self) -> bool:
        """Whether there is a token to show."""
        return self.fixed is not None or self.token_file is not None

    def token(self) -> str | None:
        """The token as it is now, None where there is none.

        Raises:
            CredentialError: for a file that cannot be read, or that holds no token.
        """
        if self.token_file is None:
            return self.fixed
        named = f"{VARIABLES['api_token_file']} = {self.token_file!r:.120}"
        try:
            with open(self.token_file, "rb") as file:
                text = file.read(MAX_FILE_BYTES + 1).decode("ascii", "replace").strip()
        except OSError as error:
            raise CredentialError(f"{named}: {error.strerror or type(error).__name__}") from None
        if not re.fullmatch(TOKEN_PATTERN, text):
            raise CredentialError(f"{named}: must hold one token of 1 to {MAX_TOKEN_BYTES} printable ASCII characters")
        return text

    def verify(self, url: str) -> bool | ssl.SSLContext:
        """How an HTTP client should verify certificates; loading authorities stalls every thread for a while.

        Raises:
            CredentialError: for a file without a certificate.
        """
        if not url.startswith("https://"):
            return False
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            why = "no certificate in it" if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
            raise CredentialError(
                f"{VARIABLES['api_ca_file']} = {self.ca_file!r:.120}: {why or type(error).__name__}"
            ) from None
