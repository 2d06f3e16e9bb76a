"""What must not be written down: tokens and passwords, in command lines, settings and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_LAST_WORDS = {"token", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
_KINDS_OF_KEY = {"api", "access", "secret", "private", "auth", "account"}
_TOKENS = re.compile(r"\b(hf_|sk-|ghp_|github_pat_|glpat-|xox[abp]-)[A-Za-z0-9_-]{16,}")
_SIGNATURES = re.compile(
    r"([?&](?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|Signature|sig|(?:access_)?token)=)[^&\s\"']+", re.I
)
_LOGINS = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret: hub_token, --api-key, wandb_api_key; not token_budget."""
    words = re.split(r"[^a-z0-9]+", name.lower().strip("-_ "))
    if words[-1] in ("key", "keys"):
        return len(words) > 1 and words[-2] in _KINDS_OF_KEY
    return words[-1] in _LAST_WORDS or words[-1] == "apikey"


def mask(name: str) -> str:
    """What stands for the value of a secret."""
    return f"<{name.strip('-').replace('-', '_').upper()}>"


def hidden(value: Any) -> Any:
    """A value without the secrets in it: those under telling names in nested dicts, and tokens of known forms."""
    if isinstance(value, Mapping):
        return {
            name: mask(str(name)) if part is not None and is_secret(str(name)) else hidden(part)
            for name, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [hidden(part) for part in value]
    return hidden_in_text(value) if isinstance(value, str) else value


def hidden_in_text(text: str) -> str:
    """A text without tokens of the hub and of other services, and without the logins and signatures in addresses."""
    return _SIGNATURES.sub(r"\1<SIGNATURE>", _LOGINS.sub("<LOGIN>", _TOKENS.sub("<TOKEN>", text)))


def hidden_in_words(words: Sequence[str]) -> list[str]:
    """A command line without the values of flags such as ``--hub_token X`` and ``--api-key=X``."""
    found: list[str] = []
    secret = None
    for word in words:
        flag, has_value, _ = word.partition("=")
        if secret is not None and not word.startswith("--"):
            found.append(mask(secret))
        elif word.startswith("-") and has_value and is_secret(flag):
            found.append(f"{flag}={mask(flag)}")
        else:
            found.append(hidden_in_text(word))
        secret = word if word.startswith("-") and not has_value and is_secret(word) else None
    return found
