//! `laneway._laneway`, the part of the Python package that is compiled: [`client::Client`] around
//! [`laneway_client::Client`].
//!
//! What Python gives and takes is in `buffers`, what goes wrong in `errors`. Every wait is without
//! the GIL, and every access to bytes that may change with it.
#![forbid(unsafe_code)]

mod buffers;
mod client;
mod errors;

/// The module. Its exceptions are written in Python: `laneway.errors`.
// Bytes of a bytearray are read under the GIL, which an interpreter without one is to take, too.
#[pyo3::pymodule(gil_used = true)]
mod _laneway {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::client::Client;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
