"""URIs of object stores: s3://BUCKET/KEY, gs://BUCKET/KEY (Google) and az://CONTAINER/KEY (Azure)."""

from __future__ import annotations

PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
"""Prefix of the environment variables with the credentials and the endpoint, by scheme."""


def is_object(uri: str) -> bool:
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme in PREFIXES


def split(uri: str) -> tuple[str, str]:
    """Returns the bucket, with its scheme, and the key."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def variable_prefix(uri: str) -> str:
    return PREFIXES[uri.partition("://")[0]]
