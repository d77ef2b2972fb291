//! `laneway.Client`: the blocking client of the Rust library, for many threads that take turns.

use crate::buffers::{self, Bytes, Key, Room, Scratch};
use crate::errors::{self, told};
use laneway_client::{Answer, Error, Expiry, Found, Got, Request, Settings, Value};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString};
use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// A client of one server, over memory that it shares with this process (`Client.shm`) or over UDP
/// (`Client.udp`). Threads may share one: their calls take turns. It closes at the end of a `with`.
#[pyclass(module = "laneway", frozen)]
pub struct Client {
    held: Mutex<Option<laneway_client::Client>>,
    /// Of the process that made it: a fork shares its memory and its socket, and may use neither.
    process: u32,
    place: String,
}

/// Where a server takes datagrams: `"host:port"` or `("host", port)`.
#[derive(FromPyObject)]
enum Address {
    Text(String),
    Pair((String, u16)),
}

/// Bounds and patience with a timeout in seconds.
fn patient(settings: Settings, timeout: f64) -> PyResult<Settings> {
    let nanos = Duration::try_from_secs_f64(timeout).ok().map(|timeout| timeout.as_nanos());
    match nanos.and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0) {
        Some(nanos) => Ok(Settings { deadline_nanos: nanos, topology_nanos: nanos, ..settings }),
        None => Err(PyValueError::new_err("a timeout is a number of seconds above 0")),
    }
}

/// memcached's exptime: 0 is never, up to thirty days are seconds from now, more is a unix time.
fn expiry(expire: i64) -> PyResult<Expiry> {
    const RELATIVE_SECONDS_MAX: u32 = 30 * 24 * 60 * 60;
    match u32::try_from(expire) {
        Ok(0) => Ok(Expiry::Never),
        Ok(seconds @ 1..=RELATIVE_SECONDS_MAX) => Ok(Expiry::Seconds(seconds)),
        Ok(time) => Ok(Expiry::At(time)),
        Err(_) => Err(told(Error::BadExpiry)),
    }
}

/// The error for an answer that does not fit its request.
fn wrong() -> PyErr {
    told(Error::Garbled)
}

fn closed(why: &str) -> PyErr {
    errors::Closed::new_err(why.to_owned())
}

impl Client {
    fn of(held: Result<laneway_client::Client, Error>, place: String) -> PyResult<Client> {
        let held = Mutex::new(Some(held.map_err(told)?));
        Ok(Client { held, process: std::process::id(), place })
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Has `ask` talk to the server, alone and without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut laneway_client::Client) -> T + Send,
    ) -> PyResult<T> {
        // Before the lock: a thread that held it in the parent does not exist in its fork.
        if !self.is_here() {
            return Err(closed("the client was made before a fork; make one in each process"));
        }
        let asked = py.detach(|| match self.held.lock() {
            Ok(mut held) => held.as_mut().map(ask).ok_or("the client is closed"),
            Err(_) => Err("a call before ended in a panic"),
        });
        asked.map_err(closed)
    }

    fn ask(&self, py: Python<'_>, request: Request) -> PyResult<Answer> {
        self.with(py, |client| client.ask(request))?.map_err(told)
    }

    /// One request with a value.
    fn store(
        &self,
        py: Python<'_>,
        request: fn(Vec<u8>, Vec<u8>) -> Request,
        (key, value): (Key, Bytes),
        (expire, flags): (i64, u32),
    ) -> PyResult<Answer> {
        let expiry = expiry(expire)?;
        let request = value.within(|value| request(key.0, value));
        self.ask(py, request.flags(flags).expiry(expiry))
    }

    /// Whether the condition of a request held.
    fn stored(answer: Answer) -> PyResult<bool> {
        match answer {
            Answer::Done => Ok(true),
            Answer::NotStored | Answer::Missing => Ok(false),
            _ => Err(wrong()),
        }
    }

    fn number(answer: Answer) -> PyResult<Option<u64>> {
        match answer {
            Answer::Number(number) => Ok(Some(number)),
            Answer::Missing => Ok(None),
            _ => Err(wrong()),
        }
    }

    /// Has `take` copy the value that a request finds out of where it lies, with the GIL. Nothing
    /// that `take` does may run Python code: that could ask the client, which is not free before.
    fn take<T: Send>(
        &self,
        py: Python<'_>,
        request: Request,
        take: impl Fn(Python<'_>, &Found<'_>) -> PyResult<T> + Send,
    ) -> PyResult<Option<Got<T>>> {
        let got = self.with(py, move |client| {
            client.get_to(request, |found| Python::attach(|py| take(py, found)))
        })?;
        let Some(Got { taken, flags, cas }) = got.map_err(told)? else { return Ok(None) };
        Ok(Some(Got { taken: taken?, flags, cas }))
    }
}

fn value(answer: Answer) -> PyResult<Option<Value>> {
    match answer {
        Answer::Value(value) => Ok(Some(value)),
        Answer::Missing => Ok(None),
        _ => Err(wrong()),
    }
}

#[pymethods]
impl Client {
    /// A client of the server on this host that was started with `--shm path`.
    ///
    /// A call waits at most `timeout` seconds for its answer, once its turn has come. Where the
    /// call before got none it first looks where the server is now: up to as long to connect, and
    /// as long to be told.
    #[staticmethod]
    #[pyo3(signature = (path, *, timeout = 5.0))]
    fn shm(py: Python<'_>, path: PathBuf, timeout: f64) -> PyResult<Client> {
        let settings = patient(Settings::in_memory(), timeout)?;
        let held = py.detach(|| laneway_client::Client::connect_shm(&path, settings));
        Client::of(held, format!("shm {}", path.display()))
    }

    /// A client of the server at `address`, "host:port" or (host, port), by UDP. It is asked over
    /// TCP where it takes datagrams, or by UDP if it has no TCP port there.
    ///
    /// A call waits at most `timeout` seconds for its answer, once its turn has come. Where the
    /// call before got none it first looks where the server is now: up to as long to connect, and
    /// as long to be told.
    #[staticmethod]
    #[pyo3(signature = (address, *, timeout = 5.0))]
    fn udp(py: Python<'_>, address: Address, timeout: f64) -> PyResult<Client> {
        let settings = patient(Settings::default(), timeout)?;
        let (held, place) = py.detach(|| match address {
            Address::Text(text) => {
                (laneway_client::Client::connect_with(text.as_str(), settings), text)
            }
            Address::Pair((host, port)) => {
                let held = laneway_client::Client::connect_with((host.as_str(), port), settings);
                (held, format!("{host}:{port}"))
            }
        });
        Client::of(held, format!("udp {place}"))
    }

    /// The value of `key` as bytes, or `default`.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.take(py, Request::get(key.0), buffers::bytes)?;
        Ok(found.map(|got| got.taken.into_bound(py).into_any()).or(default))
    }

    /// Writes the value of `key` to the beginning of `buffer`, a writable object with the buffer
    /// protocol in one piece; how many bytes that were, or None if there is no such item.
    ///
    /// Raises BufferTooSmall, and writes nothing, if the value is longer. The buffer's size cannot
    /// change meanwhile.
    fn get_into(
        &self,
        py: Python<'_>,
        key: Key,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Option<usize>> {
        let room = Room::of(buffer)?;
        let mut scratch = Scratch::of_this_thread();
        let got = self
            .with(py, |client| client.get_to(Request::get(key.0), |found| scratch.copy(found)))?;
        got.map_err(told)?.map(|_| room.fill(scratch.bytes())).transpose()
    }

    /// The value of `key` and the number that was stored with it as `flags`, or None.
    fn get_with_flags<'py>(
        &self,
        py: Python<'py>,
        key: Key,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u32)>> {
        let found = self.take(py, Request::get(key.0), buffers::bytes)?;
        Ok(found.map(|got| (got.taken.into_bound(py), got.flags)))
    }

    /// The value of `key` and its CAS id, for `cas`; (default, None) if there is no such item.
    #[pyo3(signature = (key, default = None))]
    fn gets<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, Option<u64>)> {
        Ok(match self.take(py, Request::gets(key.0), buffers::bytes)? {
            Some(got) => (Some(got.taken.into_bound(py).into_any()), got.cas),
            None => (default, None),
        })
    }

    /// The values of those of `keys` that there are, by key. They are asked for together.
    ///
    /// Raises the first error there was; the values of the others are lost then.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        if keys.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("many keys are a list or the like, no str"));
        }
        let given: Vec<Bound<'py, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let keys: Vec<Key> = given.iter().map(|key| key.extract()).collect::<PyResult<_>>()?;
        let requests = keys.into_iter().map(|key| Request::get(key.0));
        let answers = self.with(py, |client| client.ask_many(requests))?;
        let found = PyDict::new(py);
        for (key, answer) in given.into_iter().zip(answers) {
            if let Some(value) = value(answer.map_err(told)?)? {
                found.set_item(key, PyBytes::new(py, &value.data))?;
            }
        }
        Ok(found)
    }

    /// Stores a value, whatever was there. It ends `expire` seconds from now, at that unix time if
    /// it is more than thirty days, or never (0).
    #[pyo3(signature = (key, value, expire = 0, *, flags = 0))]
    fn set(
        &self,
        py: Python<'_>,
        key: Key,
        value: Bytes,
        expire: i64,
        flags: u32,
    ) -> PyResult<bool> {
        match self.store(py, Request::set, (key, value), (expire, flags))? {
            Answer::Done => Ok(true),
            _ => Err(wrong()),
        }
    }

    /// Stores all values of a mapping, many at once; the keys that the server refused.
    ///
    /// Raises the first error of another kind; the others may have been stored then.
    #[pyo3(signature = (values, expire = 0, *, flags = 0))]
    fn set_many<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyMapping>,
        expire: i64,
        flags: u32,
    ) -> PyResult<Bound<'py, PyList>> {
        let expiry = expiry(expire)?;
        let (mut given, mut requests) = (Vec::new(), Vec::new());
        for item in values.items()? {
            let (key, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = item.extract()?;
            let name = key.extract::<Key>()?;
            let request = value.extract::<Bytes>()?.within(|value| Request::set(name.0, value));
            requests.push(request.flags(flags).expiry(expiry));
            given.push(key);
        }
        let answers = self.with(py, |client| client.ask_many(requests))?;
        let refused = PyList::empty(py);
        for (key, answer) in given.into_iter().zip(answers) {
            match answer {
                Ok(Answer::Done) => {}
                Ok(_) => return Err(wrong()),
                Err(Error::Refused(_)) => refused.append(key)?,
                Err(error) => return Err(told(error)),
            }
        }
        Ok(refused)
    }

    /// Stores a value if there is none; whether it was stored.
    #[pyo3(signature = (key, value, expire = 0, *, flags = 0))]
    fn add(
        &self,
        py: Python<'_>,
        key: Key,
        value: Bytes,
        expire: i64,
        flags: u32,
    ) -> PyResult<bool> {
        Client::stored(self.store(py, Request::add, (key, value), (expire, flags))?)
    }

    /// Stores a value if there is one; whether it was stored.
    #[pyo3(signature = (key, value, expire = 0, *, flags = 0))]
    fn replace(
        &self,
        py: Python<'_>,
        key: Key,
        value: Bytes,
        expire: i64,
        flags: u32,
    ) -> PyResult<bool> {
        Client::stored(self.store(py, Request::replace, (key, value), (expire, flags))?)
    }

    /// Puts bytes behind the value that is there; False if there is none.
    fn append(&self, py: Python<'_>, key: Key, value: Bytes) -> PyResult<bool> {
        Client::stored(self.store(py, Request::append, (key, value), (0, 0))?)
    }

    /// Puts bytes before the value that is there; False if there is none.
    fn prepend(&self, py: Python<'_>, key: Key, value: Bytes) -> PyResult<bool> {
        Client::stored(self.store(py, Request::prepend, (key, value), (0, 0))?)
    }

    /// Stores a value if the item's CAS id is still the one that `gets` returned: True if so,
    /// False if it has changed, None if there is no such item.
    #[pyo3(signature = (key, value, cas, expire = 0, *, flags = 0))]
    fn cas(
        &self,
        py: Python<'_>,
        key: Key,
        value: Bytes,
        cas: u64,
        expire: i64,
        flags: u32,
    ) -> PyResult<Option<bool>> {
        let expiry = expiry(expire)?;
        let request = value.within(|value| Request::cas(key.0, value, cas));
        match self.ask(py, request.flags(flags).expiry(expiry))? {
            Answer::Done => Ok(Some(true)),
            Answer::Exists => Ok(Some(false)),
            Answer::Missing => Ok(None),
            _ => Err(wrong()),
        }
    }

    /// Deletes an item; False if there was none.
    fn delete(&self, py: Python<'_>, key: Key) -> PyResult<bool> {
        Client::stored(self.ask(py, Request::delete(key.0))?)
    }

    /// Gives an item another end, as for `set`; False if there is none.
    #[pyo3(signature = (key, expire = 0))]
    fn touch(&self, py: Python<'_>, key: Key, expire: i64) -> PyResult<bool> {
        Client::stored(self.ask(py, Request::touch(key.0, expiry(expire)?))?)
    }

    /// Adds to a number that is stored as decimal digits; what it is now, or None if there is none.
    #[pyo3(signature = (key, value = 1))]
    fn incr(&self, py: Python<'_>, key: Key, value: u64) -> PyResult<Option<u64>> {
        Client::number(self.ask(py, Request::increment(key.0, value))?)
    }

    /// Subtracts from a number, which stops at 0; what it is now, or None if there is none.
    #[pyo3(signature = (key, value = 1))]
    fn decr(&self, py: Python<'_>, key: Key, value: u64) -> PyResult<Option<u64>> {
        Client::number(self.ask(py, Request::decrement(key.0, value))?)
    }

    /// The server's statistics, by name; `words` is what stands behind `stats`.
    #[pyo3(signature = (words = ""))]
    fn stats<'py>(&self, py: Python<'py>, words: &str) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        match self.ask(py, Request::stats(words))? {
            Answer::Stats(stats) => {
                for (name, value) in stats {
                    told.set_item(name, value)?;
                }
            }
            Answer::Done => {}
            _ => return Err(wrong()),
        }
        Ok(told)
    }

    /// Lets go of the server, once the calls of other threads are over. Every call raises Closed
    /// from then on, but for another `close`.
    fn close(&self, py: Python<'_>) {
        // A forked process drops its own copy when it ends.
        if self.is_here() {
            // Whatever a call that ended in a panic left is let go of as well.
            py.detach(|| drop(self.held.lock().unwrap_or_else(|held| held.into_inner()).take()));
        }
    }

    fn __enter__(this: Py<Client>) -> Py<Client> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> bool {
        self.close(py);
        false
    }

    fn __repr__(&self) -> String {
        let is_closed = match self.held.try_lock() {
            Ok(held) => held.is_none(),
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Poisoned(_)) => true,
        };
        let state = if is_closed || !self.is_here() { ", closed" } else { "" };
        format!("<laneway.Client {}{state}>", self.place)
    }
}
