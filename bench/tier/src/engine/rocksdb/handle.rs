//! An open RocksDB: each call of the library in one place, and safe from there on.
//!
//! Set as its guides advise for point reads: as many background threads as CPUs, a Bloom filter of
//! 10 bits a key, a block cache of the size given beside the kernel's page cache. Values are random
//! bytes, so compression is off. Files of its log are used again, since the tier's log has its
//! blocks from the start, too: a flush behind a write then has no new blocks to make durable. With
//! `rocksdb-direct` it reads, flushes and compacts past the page cache; its log it always writes
//! through that. Otherwise its defaults. With `--backend emu` its log lies in memory (the place
//! that NoveLSM gives persistent memory).

#![allow(unsafe_code)]

use super::library::{Library, Opaque};
use crate::engine::{Each, Result};
use crate::plan::{EngineKind, Plan};
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

/// `rocksdb_no_compression`.
const NO_COMPRESSION: i32 = 0;
/// Files of its log that are kept to be used again: as many as it has memtables.
const LOGS_KEPT: usize = 2;
/// `WALRecoveryMode::kSkipAnyCorruptedRecords`. RocksDB 7.8 sets the number of kept files back to 0
/// in all other modes, its default among them. The mode decides nothing before a start; then it is
/// the laxest, and what an earlier log has left in a file is passed over.
const RECOVERY_WITH_LOGS_KEPT: i32 = 3;
const FILTER_BITS_PER_KEY: f64 = 10.0;
/// Values from here on go to blob files, where there are any: between the two sizes of the
/// workload.
const BLOB_BYTES_MIN: u64 = 1024;

/// An open database.
pub struct Handle {
    database: Opaque,
    reads: Opaque,
    writes: Opaque,
    writes_synced: Opaque,
    // Unloaded last.
    library: Library,
}

// SAFETY: a database may be used and closed by any thread (rocksdb/db.h: "all operations are
// thread-safe"); the options are not changed once they are made.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Opens `path`, or makes it; with its log elsewhere if that is given.
    pub fn open(plan: &Plan, path: &Path, log: Option<&Path>) -> Result<Handle> {
        let library = Library::load()?;
        let options = Options::new(&library, plan, log)?;
        let path = c_path(path)?;
        let mut error = ptr::null_mut();
        // SAFETY: `options` are alive, `path` is a C string, `error` is null.
        let database = unsafe { (library.open)(options.all, path.as_ptr(), &raw mut error) };
        drop(options);
        told(&library, error)?;
        // SAFETY: these take nothing and give options of their own, which `drop` gives back.
        let (reads, writes, writes_synced) = unsafe {
            let synced = (library.write_create)();
            (library.write_sync)(synced, 1);
            ((library.read_create)(), (library.write_create)(), synced)
        };
        Ok(Handle { database, reads, writes, writes_synced, library })
    }

    /// Writes an item.
    pub fn put(&self, key: &[u8], value: &[u8], synced: bool) -> Result<()> {
        let how = if synced { self.writes_synced } else { self.writes };
        let mut error = ptr::null_mut();
        // SAFETY: database and options live as long as `self`; key and value are as long as told
        // and are copied; `error` is null.
        unsafe {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            let put = self.library.put;
            put(self.database, how, key_at, key.len(), value_at, value.len(), &raw mut error);
        }
        told(&self.library, error)
    }

    /// Deletes an item.
    pub fn delete(&self, key: &[u8], synced: bool) -> Result<()> {
        let how = if synced { self.writes_synced } else { self.writes };
        let mut error = ptr::null_mut();
        // SAFETY: as in `put`.
        unsafe {
            let key_at = key.as_ptr().cast();
            (self.library.delete)(self.database, how, key_at, key.len(), &raw mut error);
        }
        told(&self.library, error)
    }

    /// Reads an item over `out`; false if there is none.
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let mut error = ptr::null_mut();
        let (library, key_at) = (&self.library, key.as_ptr().cast());
        // SAFETY: as in `put`.
        let pinned =
            unsafe { (library.get)(self.database, self.reads, key_at, key.len(), &raw mut error) };
        told(library, error)?;
        if pinned.is_null() {
            return Ok(false);
        }
        let mut bytes = 0;
        // SAFETY: `pinned` was given to us and is given back here; until then its value stays where
        // it is, as long as `bytes` says.
        unsafe {
            let value = (library.pinned_value)(pinned, &raw mut bytes);
            out.extend_from_slice(lent(value, bytes));
            (library.pinned_destroy)(pinned);
        }
        Ok(true)
    }

    /// The first `limit` items from `from` on.
    pub fn scan(&self, from: &[u8], limit: usize, each: Each<'_>) -> Result<()> {
        let library = &self.library;
        // SAFETY: database and options live as long as `self`, and the iterator no longer than
        // this call.
        let iterator = unsafe { (library.iterator_create)(self.database, self.reads) };
        let cursor = Cursor { library, iterator };
        cursor.visit(from, limit, each)
    }

    /// Syncs the log.
    pub fn sync_log(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the database is open; `error` is null.
        unsafe { (self.library.sync_log)(self.database, 1, &raw mut error) };
        told(&self.library, error)
    }

    /// What the database says of itself.
    pub fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is open, `name` is a C string.
        let text = unsafe { (self.library.property)(self.database, name.as_ptr()) };
        (!text.is_null()).then(|| taken(&self.library, text))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `&mut self` is the last access; each of them was made by the library and is given
        // back once.
        unsafe {
            (self.library.close)(self.database);
            (self.library.read_destroy)(self.reads);
            (self.library.write_destroy)(self.writes);
            (self.library.write_destroy)(self.writes_synced);
        }
    }
}

/// Options to open with; what opens copies them.
struct Options<'a> {
    library: &'a Library,
    all: Opaque,
    tables: Opaque,
    cache: Opaque,
}

impl<'a> Options<'a> {
    fn new(library: &'a Library, plan: &Plan, log: Option<&Path>) -> Result<Options<'a>> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let log = log.map(c_path).transpose()?;
        // SAFETY: each function takes what an earlier one gave, or plain values; a filter is owned
        // by the table options it is given to; the string is copied.
        unsafe {
            let all = (library.options_create)();
            (library.options_create_if_missing)(all, 1);
            (library.options_parallelism)(all, threads as i32);
            (library.options_compression)(all, NO_COMPRESSION);
            (library.options_logs_kept)(all, LOGS_KEPT);
            (library.options_recovery)(all, RECOVERY_WITH_LOGS_KEPT);
            if plan.engine == EngineKind::RocksDbDirect {
                (library.options_direct_reads)(all, 1);
                (library.options_direct_writes)(all, 1);
            }
            if let Some(log) = &log {
                (library.options_wal_dir)(all, log.as_ptr());
            }
            if plan.engine == EngineKind::RocksDbBlob {
                (library.options_blob_files)(all, 1);
                (library.options_blob_bytes_min)(all, BLOB_BYTES_MIN);
                (library.options_blob_gc)(all, 1);
            }
            let tables = (library.tables_create)();
            let cache = (library.cache_create)((plan.cache_mb as usize) << 20);
            (library.tables_cache)(tables, cache);
            (library.tables_filter)(tables, (library.filter_create)(FILTER_BITS_PER_KEY));
            (library.options_tables)(all, tables);
            Ok(Options { library, all, tables, cache })
        }
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: each was made by the library and is given back once; an open database has
        // references of its own to cache and filter.
        unsafe {
            (self.library.tables_destroy)(self.tables);
            (self.library.cache_destroy)(self.cache);
            (self.library.options_destroy)(self.all);
        }
    }
}

struct Cursor<'a> {
    library: &'a Library,
    iterator: Opaque,
}

impl Cursor<'_> {
    fn visit(&self, from: &[u8], limit: usize, each: Each<'_>) -> Result<()> {
        let Cursor { library, iterator } = *self;
        // SAFETY: the iterator is alive; `from` is as long as told and is copied.
        unsafe { (library.iterator_seek)(iterator, from.as_ptr().cast(), from.len()) };
        for _ in 0..limit {
            let (mut key_bytes, mut value_bytes) = (0, 0);
            // SAFETY: the iterator is alive, and is asked for key and value only where it is valid;
            // these stay where they are until it moves on, after `each`.
            unsafe {
                if (library.iterator_valid)(iterator) == 0 {
                    break;
                }
                let key = (library.iterator_key)(iterator, &raw mut key_bytes);
                let value = (library.iterator_value)(iterator, &raw mut value_bytes);
                each(lent(key, key_bytes), lent(value, value_bytes))?;
                (library.iterator_next)(iterator);
            }
        }
        let mut error = ptr::null_mut();
        // SAFETY: the iterator is alive; `error` is null.
        unsafe { (library.iterator_error)(iterator, &raw mut error) };
        told(library, error)
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by the library and is given back once.
        unsafe { (self.library.iterator_destroy)(self.iterator) };
    }
}

/// # Safety
/// `start` points at `bytes` bytes that nobody changes or takes away during `'a`; it may be
/// anything where there are none.
unsafe fn lent<'a>(start: *const c_char, bytes: usize) -> &'a [u8] {
    match bytes {
        0 => &[],
        // SAFETY: the caller's.
        _ => unsafe { slice::from_raw_parts(start.cast(), bytes) },
    }
}

/// An error that the library told, if it did.
fn told(library: &Library, error: *mut c_char) -> Result<()> {
    match error.is_null() {
        true => Ok(()),
        false => Err(format!("RocksDB: {}", taken(library, error))),
    }
}

/// A string that the library gave us, which is given back here.
fn taken(library: &Library, text: *mut c_char) -> String {
    // SAFETY: only called with a C string that the library gave us to free, and once.
    unsafe {
        let words = CStr::from_ptr(text).to_string_lossy().into_owned();
        (library.free)(text.cast());
        words
    }
}

fn c_path(path: &Path) -> Result<CString> {
    let bytes = path.as_os_str().as_bytes();
    CString::new(bytes).map_err(|_| format!("{}: a zero byte in a path", path.display()))
}
