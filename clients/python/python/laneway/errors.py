"""What can go wrong, told apart by what the caller can do about it."""


class LanewayError(Exception):
    """The root of all of them."""


class BadRequest(LanewayError, ValueError):
    """Nothing was sent: a key, an expiry, an address or a length that cannot be."""


class BufferTooSmall(LanewayError, ValueError):
    """The value is longer than the buffer of `get_into`, to which nothing was written.

    `needed` is the value's length in bytes, `given` the buffer's.
    """

    def __init__(self, needed: int, given: int) -> None:
        super().__init__(needed, given)
        self.needed = needed
        self.given = given

    def __str__(self) -> str:
        return f"the value has {self.needed} bytes, the buffer {self.given}"


class TimedOut(LanewayError, TimeoutError):
    """No answer in time, and nothing was changed."""


class OutcomeUnknown(LanewayError, TimeoutError):
    """No answer in time to a request that changes something: it may have been carried out."""


class Unreachable(LanewayError, ConnectionError):
    """There is no server, it takes no datagrams, or it has gone; nothing was changed."""


class Refused(LanewayError):
    """The server said no, in the words of the message: too large, out of memory, no number."""


class BadReply(LanewayError):
    """A reply came that is no answer to the request."""


class Closed(LanewayError, RuntimeError):
    """The client was closed, or belongs to the process that this one was forked from."""
