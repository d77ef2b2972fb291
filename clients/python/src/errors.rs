//! From the client library's errors to the exceptions of `laneway.errors`.

use laneway_client::Error;
use pyo3::PyErr;
use std::io::ErrorKind;

pyo3::import_exception!(laneway.errors, BadReply);
pyo3::import_exception!(laneway.errors, BadRequest);
pyo3::import_exception!(laneway.errors, BufferTooSmall);
pyo3::import_exception!(laneway.errors, Closed);
pyo3::import_exception!(laneway.errors, OutcomeUnknown);
pyo3::import_exception!(laneway.errors, Refused);
pyo3::import_exception!(laneway.errors, TimedOut);
pyo3::import_exception!(laneway.errors, Unreachable);

/// The exception for what went wrong.
pub fn told(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::BadKey | Error::BadExpiry | Error::BadWords => BadRequest::new_err(text),
        Error::RequestTooLong { .. } => BadRequest::new_err(text),
        // A place that cannot be one, such as an address without a port.
        Error::Io(error) if error.kind() == ErrorKind::InvalidInput => BadRequest::new_err(text),
        Error::Io(_) | Error::NoTopology(_) => Unreachable::new_err(text),
        // Full is told only to those who push requests into a core themselves.
        Error::TimedOut { .. } | Error::Full => TimedOut::new_err(text),
        Error::OutcomeUnknown { .. } => OutcomeUnknown::new_err(text),
        Error::Refused(_) => Refused::new_err(text),
        Error::Garbled | Error::ReplyTooLong => BadReply::new_err(text),
    }
}
