//! The part of RocksDB's C interface (`rocksdb/c.h`) that is used here, loaded when it is asked
//! for: who has no RocksDB builds and runs everything else. The system's own library is what its
//! users have; compiling RocksDB from a crate would take half an hour.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_double, c_int, c_uchar, c_void};

/// What the library is called: by its development package, and by its versions in Debian 12, Ubuntu
/// 24.04 and Debian 13, whose C interface is the same in what is used.
const NAMES: [&str; 4] =
    ["librocksdb.so", "librocksdb.so.7.8", "librocksdb.so.8.9", "librocksdb.so.9.10"];

/// Something of the library's, which only it looks into.
pub type Opaque = *mut c_void;

macro_rules! library {
    ($($name:ident: $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library that is loaded.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            // Unloaded after the functions are gone.
            _loaded: libloading::Library,
        }

        impl Library {
            /// Loads it.
            pub fn load() -> Result<Library, String> {
                let loaded = loaded()?;
                // SAFETY: each symbol is one of rocksdb/c.h, and has the type that it has there in
                // every version of `NAMES`. The functions are called only while `_loaded`, which
                // lies in the same value, keeps the library where it is.
                unsafe {
                    $(let $name = *loaded
                        .get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            concat!($symbol, "\0").as_bytes(),
                        )
                        .map_err(|error| format!("librocksdb: {error}"))?;)*
                    Ok(Library { $($name,)* _loaded: loaded })
                }
            }
        }
    };
}

fn loaded() -> Result<libloading::Library, String> {
    let mut why = String::new();
    for name in NAMES {
        // SAFETY: what a library of the system does when it is loaded and unloaded is its own
        // affair; RocksDB's initialises its statics and starts nothing.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) if why.is_empty() => why = error.to_string(),
            Err(_) => {}
        }
    }
    Err(format!(
        "no RocksDB here: {why}; install librocksdb-dev, as cargo xtask bench does as root"
    ))
}

library! {
    options_create: "rocksdb_options_create" fn() -> Opaque;
    options_destroy: "rocksdb_options_destroy" fn(Opaque);
    options_create_if_missing: "rocksdb_options_set_create_if_missing" fn(Opaque, c_uchar);
    options_parallelism: "rocksdb_options_increase_parallelism" fn(Opaque, c_int);
    options_compression: "rocksdb_options_set_compression" fn(Opaque, c_int);
    options_logs_kept: "rocksdb_options_set_recycle_log_file_num" fn(Opaque, usize);
    options_recovery: "rocksdb_options_set_wal_recovery_mode" fn(Opaque, c_int);
    options_direct_reads: "rocksdb_options_set_use_direct_reads" fn(Opaque, c_uchar);
    options_direct_writes: "rocksdb_options_set_use_direct_io_for_flush_and_compaction"
        fn(Opaque, c_uchar);
    options_wal_dir: "rocksdb_options_set_wal_dir" fn(Opaque, *const c_char);
    options_blob_files: "rocksdb_options_set_enable_blob_files" fn(Opaque, c_uchar);
    options_blob_bytes_min: "rocksdb_options_set_min_blob_size" fn(Opaque, u64);
    options_blob_gc: "rocksdb_options_set_enable_blob_gc" fn(Opaque, c_uchar);
    options_tables: "rocksdb_options_set_block_based_table_factory" fn(Opaque, Opaque);
    tables_create: "rocksdb_block_based_options_create" fn() -> Opaque;
    tables_destroy: "rocksdb_block_based_options_destroy" fn(Opaque);
    tables_cache: "rocksdb_block_based_options_set_block_cache" fn(Opaque, Opaque);
    tables_filter: "rocksdb_block_based_options_set_filter_policy" fn(Opaque, Opaque);
    cache_create: "rocksdb_cache_create_lru" fn(usize) -> Opaque;
    cache_destroy: "rocksdb_cache_destroy" fn(Opaque);
    filter_create: "rocksdb_filterpolicy_create_bloom_full" fn(c_double) -> Opaque;
    read_create: "rocksdb_readoptions_create" fn() -> Opaque;
    read_destroy: "rocksdb_readoptions_destroy" fn(Opaque);
    write_create: "rocksdb_writeoptions_create" fn() -> Opaque;
    write_sync: "rocksdb_writeoptions_set_sync" fn(Opaque, c_uchar);
    write_destroy: "rocksdb_writeoptions_destroy" fn(Opaque);
    open: "rocksdb_open" fn(Opaque, *const c_char, *mut *mut c_char) -> Opaque;
    close: "rocksdb_close" fn(Opaque);
    put: "rocksdb_put" fn(
        Opaque, Opaque, *const c_char, usize, *const c_char, usize, *mut *mut c_char
    );
    delete: "rocksdb_delete" fn(Opaque, Opaque, *const c_char, usize, *mut *mut c_char);
    get: "rocksdb_get_pinned" fn(
        Opaque, Opaque, *const c_char, usize, *mut *mut c_char
    ) -> Opaque;
    pinned_value: "rocksdb_pinnableslice_value" fn(Opaque, *mut usize) -> *const c_char;
    pinned_destroy: "rocksdb_pinnableslice_destroy" fn(Opaque);
    iterator_create: "rocksdb_create_iterator" fn(Opaque, Opaque) -> Opaque;
    iterator_destroy: "rocksdb_iter_destroy" fn(Opaque);
    iterator_seek: "rocksdb_iter_seek" fn(Opaque, *const c_char, usize);
    iterator_valid: "rocksdb_iter_valid" fn(Opaque) -> c_uchar;
    iterator_next: "rocksdb_iter_next" fn(Opaque);
    iterator_key: "rocksdb_iter_key" fn(Opaque, *mut usize) -> *const c_char;
    iterator_value: "rocksdb_iter_value" fn(Opaque, *mut usize) -> *const c_char;
    iterator_error: "rocksdb_iter_get_error" fn(Opaque, *mut *mut c_char);
    sync_log: "rocksdb_flush_wal" fn(Opaque, c_uchar, *mut *mut c_char);
    property: "rocksdb_property_value" fn(Opaque, *const c_char) -> *mut c_char;
    free: "rocksdb_free" fn(*mut c_void);
}
