"""A client for Laneway over memory that the server shares with this host, or over UDP.

    import laneway

    with laneway.Client.shm("/run/laneway/shm") as client:
        client.set("key", b"value", expire=60)
        assert client.get("key") == b"value"
"""

from laneway._laneway import Client, __version__
from laneway.errors import (
    BadReply,
    BadRequest,
    BufferTooSmall,
    Closed,
    LanewayError,
    OutcomeUnknown,
    Refused,
    TimedOut,
    Unreachable,
)

__all__ = [
    "BadReply",
    "BadRequest",
    "BufferTooSmall",
    "Client",
    "Closed",
    "LanewayError",
    "OutcomeUnknown",
    "Refused",
    "TimedOut",
    "Unreachable",
    "__version__",
]
