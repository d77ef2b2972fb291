//! Keys and values as Python has them. `bytes` never change, so they are read where they lie and
//! without the GIL; what may change (bytearray, memoryview, arrays) is copied once, under the GIL.

use crate::errors;
use laneway_client::{Found, Request};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyString};
use std::cell::Cell;
use std::sync::Arc;

/// A key: `str`, as UTF-8, or `bytes`.
pub struct Key(pub Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Key> {
        if let Ok(text) = given.cast::<PyString>() {
            return Ok(Key(text.to_str()?.as_bytes().to_vec()));
        }
        match given.cast::<PyBytes>() {
            Ok(bytes) => Ok(Key(bytes.as_bytes().to_vec())),
            Err(_) => Err(PyTypeError::new_err("a key is str or bytes")),
        }
    }
}

/// The bytes of a value that is to be stored.
pub enum Bytes {
    /// A `bytes` object, held.
    Held(PyBackedBytes),
    /// A copy of something else.
    Copied(Vec<u8>),
}

impl Bytes {
    /// The request with this value.
    pub fn within(self, request: impl FnOnce(Vec<u8>) -> Request) -> Request {
        match self {
            Bytes::Held(held) => request(Vec::new()).shared(Arc::new(held)),
            Bytes::Copied(copied) => request(copied),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Bytes> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Bytes::Held(bytes.to_owned().into()));
        }
        if given.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a value is bytes-like; encode a str before"));
        }
        copied(&given).map(Bytes::Copied)
    }
}

/// A copy of the bytes that an object with the buffer protocol exposes, in C order.
fn copied(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = PyUntypedBuffer::get(given)?;
    if buffer.len_bytes() == 0 {
        return Ok(Vec::new());
    }
    match buffer.into_typed::<u8>() {
        Ok(buffer) => buffer.to_vec(given.py()),
        // Numbers of more than a byte.
        Err(_) => PyBuffer::<u8>::get(&view(given)?)?.to_vec(given.py()),
    }
}

/// The bytes of an object in one row. It must lie in one piece.
fn view<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    PyMemoryView::from(given)?.call_method1("cast", ("B",))
}

/// A value that was found as an object of its own. It runs no Python code.
pub fn bytes(py: Python<'_>, found: &Found<'_>) -> PyResult<Py<PyBytes>> {
    let made = match found.as_slice() {
        Some(bytes) => PyBytes::new(py, bytes),
        None => PyBytes::new_with(py, found.bytes(), |room| {
            found.copy(0, room);
            Ok(())
        })?,
    };
    Ok(made.unbind())
}

/// What a thread keeps of [`Scratch`]. A longer one is given back.
const KEPT_BYTES_MAX: usize = 16 << 20;

thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory of this thread's into which a value is copied on its way to a buffer: a view of as much
/// of that as the value has can be made only when its length is known, and while a view is made
/// Python code may run, which may ask the client.
pub struct Scratch {
    memory: Vec<u8>,
    bytes: usize,
}

impl Scratch {
    /// Gives an empty buffer. It is the one that this thread used last, whose memory has its pages.
    pub fn of_this_thread() -> Scratch {
        Scratch { memory: KEPT.take(), bytes: 0 }
    }

    /// Copies a value, in the place of what was there.
    pub fn copy(&mut self, found: &Found<'_>) {
        self.bytes = found.bytes();
        if self.memory.len() < self.bytes {
            // Not made longer: that would copy what is in it, and take more than is asked for.
            self.memory = vec![0; self.bytes];
        }
        found.copy(0, &mut self.memory[..self.bytes]);
    }

    /// The value.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.memory.len() <= KEPT_BYTES_MAX {
            KEPT.set(std::mem::take(&mut self.memory));
        }
    }
}

/// Memory of the caller's into which a value is to be written. As long as this is held nobody can
/// change its size.
pub struct Room<'py> {
    view: Bound<'py, PyAny>,
    bytes: usize,
}

impl<'py> Room<'py> {
    /// Refuses at once what cannot be written to.
    pub fn of(given: &Bound<'py, PyAny>) -> PyResult<Room<'py>> {
        let buffer = PyUntypedBuffer::get(given)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        let bytes = buffer.len_bytes();
        // An empty one cannot be cast, and need not be: it is a row of no bytes.
        let view = match bytes {
            0 => PyMemoryView::from(given)?.into_any(),
            _ => view(given)?,
        };
        Ok(Room { view, bytes })
    }

    /// Writes a value to its beginning, or nothing if it is too short; how long the value is.
    pub fn fill(&self, value: &[u8]) -> PyResult<usize> {
        let (py, bytes) = (self.view.py(), value.len());
        if self.bytes < bytes {
            return Err(errors::BufferTooSmall::new_err((bytes, self.bytes)));
        }
        if bytes > 0 {
            let start = self.view.get_item(PySlice::new(py, 0, bytes as isize, 1))?;
            PyBuffer::<u8>::get(&start)?.copy_from_slice(py, value)?;
        }
        Ok(bytes)
    }
}
