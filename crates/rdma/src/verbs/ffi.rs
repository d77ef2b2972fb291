//! The part of libibverbs that is used here, loaded when it is asked for: one program runs with and
//! without RDMA, and is built without any of its headers.
//!
//! The layouts are those of `infiniband/verbs.h` on machines of 64 bits, which the library's symbol
//! version `IBVERBS_1.1` has kept since 2006; each is held to its size and offsets by assertions.
//! What C has as inline functions (post, poll, request notice) goes through the table of operations
//! that stands in a context, as it does there. Written out here rather than taken from a crate of
//! bindings: those that load at run time need cmake and libclang wherever this is built.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "layouts are whole, whether all of one is used or not")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::OnceLock;

/// What the library is called. The number is its ABI.
pub const LIBRARY: &CStr = c"libibverbs.so.1";

/// Access to registered memory, and of a queue pair to it.
pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 2;
pub const ACCESS_REMOTE_READ: c_int = 4;

/// Kinds of queue pairs.
pub const QP_RC: c_int = 2;
pub const QP_UC: c_int = 3;
pub const QP_UD: c_int = 4;

/// States of queue pairs.
pub const STATE_RESET: c_int = 0;
pub const STATE_INIT: c_int = 1;
pub const STATE_READY_TO_RECEIVE: c_int = 2;
pub const STATE_READY_TO_SEND: c_int = 3;

/// Which attributes of a queue pair are set.
pub const SET_STATE: c_int = 1;
pub const SET_ACCESS: c_int = 1 << 3;
pub const SET_PKEY_INDEX: c_int = 1 << 4;
pub const SET_PORT: c_int = 1 << 5;
pub const SET_QKEY: c_int = 1 << 6;
pub const SET_PATH: c_int = 1 << 7;
pub const SET_PATH_MTU: c_int = 1 << 8;
pub const SET_TIMEOUT: c_int = 1 << 9;
pub const SET_RETRIES: c_int = 1 << 10;
pub const SET_RNR_RETRIES: c_int = 1 << 11;
pub const SET_RQ_PSN: c_int = 1 << 12;
pub const SET_READS: c_int = 1 << 13;
pub const SET_RNR_TIMER: c_int = 1 << 15;
pub const SET_SQ_PSN: c_int = 1 << 16;
pub const SET_READS_REMOTE: c_int = 1 << 17;
pub const SET_REMOTE_QPN: c_int = 1 << 20;

/// Verbs.
pub const OP_WRITE: c_int = 0;
pub const OP_SEND_WITH_IMMEDIATE: c_int = 3;
pub const OP_READ: c_int = 4;

/// How a work request is done.
pub const FLAG_SIGNALED: c_uint = 2;
pub const FLAG_INLINE: c_uint = 8;

/// What a completion says beside.
pub const WITH_ROUTE: c_uint = 1;
pub const WITH_IMMEDIATE: c_uint = 2;

/// `link_layer` of a port that is Ethernet (RoCE).
pub const LINK_ETHERNET: u8 = 2;
/// `state` of a port that is up.
pub const PORT_ACTIVE: c_int = 4;

/// Places of operations in a context's table.
const POLL_CQ: usize = 11;
const REQUEST_NOTICE: usize = 12;
const POST_SEND: usize = 25;
const POST_RECEIVE: usize = 26;
const OPERATIONS: usize = 32;

/// Things that only the library looks into.
#[repr(C)]
pub struct Device {
    private: [u8; 0],
}
#[repr(C)]
pub struct AddressHandle {
    private: [u8; 0],
}
#[repr(C)]
pub struct Domain {
    private: [u8; 0],
}

#[repr(C)]
pub struct Context {
    device: *mut Device,
    operations: [*const c_void; OPERATIONS],
}

/// Its beginning; the library has more behind it.
#[repr(C)]
pub struct Channel {
    context: *mut Context,
    pub fd: c_int,
}

/// Its beginning.
#[repr(C)]
pub struct CompletionQueue {
    context: *mut Context,
}

/// Its beginning.
#[repr(C)]
pub struct QueuePair {
    context: *mut Context,
    own: *mut c_void,
    domain: *mut Domain,
    send_cq: *mut CompletionQueue,
    receive_cq: *mut CompletionQueue,
    shared_receive_queue: *mut c_void,
    handle: u32,
    pub number: u32,
}

#[repr(C)]
pub struct MemoryRegion {
    context: *mut Context,
    domain: *mut Domain,
    address: *mut c_void,
    length: usize,
    handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Gid(pub [u8; 16]);

/// The beginning of a port's attributes; what newer libraries write behind it has room.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PortAttributes {
    pub state: c_int,
    pub mtu_max: c_int,
    pub mtu_active: c_int,
    pub gids: c_int,
    flags: u32,
    message_bytes_max: u32,
    bad_pkeys: u32,
    bad_qkeys: u32,
    pkeys: u16,
    pub lid: u16,
    subnet_manager_lid: u16,
    several: [u8; 8],
    pub link_layer: u8,
    behind: [u8; 17],
    room: [u64; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    pub destination: Gid,
    pub flow_label: u32,
    pub source_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AddressVector {
    pub route: GlobalRoute,
    pub lid: u16,
    pub service_level: u8,
    pub source_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Capacity {
    pub sends: u32,
    pub receives: u32,
    pub pieces_per_send: u32,
    pub pieces_per_receive: u32,
    pub inline_bytes: u32,
}

#[repr(C)]
pub struct QueuePairWanted {
    pub own: *mut c_void,
    pub send_cq: *mut CompletionQueue,
    pub receive_cq: *mut CompletionQueue,
    pub shared_receive_queue: *mut c_void,
    pub capacity: Capacity,
    pub kind: c_int,
    pub signal_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QueuePairAttributes {
    pub state: c_int,
    pub state_now: c_int,
    pub path_mtu: c_int,
    pub migration: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub remote_qpn: u32,
    pub access: c_uint,
    pub capacity: Capacity,
    pub path: AddressVector,
    pub path_other: AddressVector,
    pub pkey_index: u16,
    pub pkey_index_other: u16,
    pub drained_notice: u8,
    pub draining: u8,
    pub reads: u8,
    pub reads_remote: u8,
    pub rnr_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub port_other: u8,
    pub timeout_other: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    pub address: u64,
    pub bytes: u32,
    pub lkey: u32,
}

/// Where a work request goes: for WRITE the address and, in the low half of the second word, the
/// key; for SEND of a datagram the handle's address, then the number of the queue pair and its key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Target {
    pub address: u64,
    pub key: u32,
    pub datagram_qkey: u32,
    pub more: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendRequest {
    pub id: u64,
    pub next: *mut SendRequest,
    pub pieces: *mut Piece,
    pub pieces_count: c_int,
    pub operation: c_int,
    pub flags: c_uint,
    /// In the network's order.
    pub immediate: u32,
    pub target: Target,
    pub extended: u64,
    pub bound: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReceiveRequest {
    pub id: u64,
    pub next: *mut ReceiveRequest,
    pub pieces: *mut Piece,
    pub pieces_count: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Completion {
    pub id: u64,
    pub status: c_int,
    pub operation: c_int,
    pub vendor_error: u32,
    pub bytes: u32,
    /// In the network's order.
    pub immediate: u32,
    pub number: u32,
    pub source: u32,
    pub flags: c_uint,
    pkey_index: u16,
    pub source_lid: u16,
    service_level: u8,
    path_bits: u8,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Context, operations) == 8);
    assert!(offset_of!(Channel, fd) == 8);
    assert!(offset_of!(QueuePair, number) == 52);
    assert!(offset_of!(MemoryRegion, lkey) == 36 && offset_of!(MemoryRegion, rkey) == 40);
    assert!(offset_of!(PortAttributes, lid) == 34 && offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<GlobalRoute>() == 24 && size_of::<AddressVector>() == 32);
    assert!(offset_of!(AddressVector, port) == 30);
    assert!(offset_of!(QueuePairWanted, kind) == 52 && size_of::<QueuePairWanted>() == 64);
    assert!(offset_of!(QueuePairAttributes, path) == 56);
    assert!(offset_of!(QueuePairAttributes, pkey_index) == 120);
    assert!(offset_of!(QueuePairAttributes, port) == 129);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(SendRequest, target) == 40 && size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, bound) == 80);
    assert!(size_of::<ReceiveRequest>() == 32 && size_of::<Piece>() == 16);
    assert!(offset_of!(Completion, flags) == 36 && size_of::<Completion>() == 48);
};

impl SendRequest {
    /// Nothing yet.
    pub const EMPTY: SendRequest = SendRequest {
        id: 0,
        next: std::ptr::null_mut(),
        pieces: std::ptr::null_mut(),
        pieces_count: 0,
        operation: 0,
        flags: 0,
        immediate: 0,
        target: Target { address: 0, key: 0, datagram_qkey: 0, more: [0; 2] },
        extended: 0,
        bound: [0; 6],
    };
}

type PollCq = unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int;
type RequestNotice = unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int;
type PostSend =
    unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int;
type PostReceive =
    unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// # Safety
/// `context` is one that the library opened and has not closed.
unsafe fn operation(context: *mut Context, place: usize) -> *const c_void {
    // SAFETY: the caller's; a context begins as `Context` says.
    unsafe { (&raw const (*context).operations[place]).read() }
}

/// # Safety
/// `queue` is alive, `room` has places for `most`.
pub unsafe fn poll_cq(queue: *mut CompletionQueue, most: c_int, room: *mut Completion) -> c_int {
    // SAFETY: the caller's; place POLL_CQ of the table is a function of this kind, and every
    // provider has one.
    unsafe {
        let poll = operation((*queue).context, POLL_CQ);
        std::mem::transmute::<*const c_void, PollCq>(poll)(queue, most, room)
    }
}

/// # Safety
/// `queue` is alive.
pub unsafe fn request_notice(queue: *mut CompletionQueue) -> c_int {
    // SAFETY: as in `poll_cq`.
    unsafe {
        let request = operation((*queue).context, REQUEST_NOTICE);
        std::mem::transmute::<*const c_void, RequestNotice>(request)(queue, 0)
    }
}

/// # Safety
/// `pair` is alive; `first` begins a list that ends, of requests whose pieces lie in registered
/// memory, or in any where they are inline.
pub unsafe fn post_send(pair: *mut QueuePair, first: *mut SendRequest) -> c_int {
    let mut bad = std::ptr::null_mut();
    // SAFETY: as in `poll_cq`.
    unsafe {
        let post = operation((*pair).context, POST_SEND);
        std::mem::transmute::<*const c_void, PostSend>(post)(pair, first, &raw mut bad)
    }
}

/// # Safety
/// As for [`post_send`], and nobody else uses the memory until the request has completed.
pub unsafe fn post_receive(pair: *mut QueuePair, first: *mut ReceiveRequest) -> c_int {
    let mut bad = std::ptr::null_mut();
    // SAFETY: as in `poll_cq`.
    unsafe {
        let post = operation((*pair).context, POST_RECEIVE);
        std::mem::transmute::<*const c_void, PostReceive>(post)(pair, first, &raw mut bad)
    }
}

macro_rules! library {
    ($($name:ident: $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library that is loaded.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn load() -> Result<Library, String> {
                // SAFETY: the name is a C string; what the library does when it is loaded is its
                // own affair, as for every library of the system. It is never unloaded.
                let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
                if handle.is_null() {
                    return Err(why());
                }
                Ok(Library {
                    $($name: {
                        // SAFETY: the handle is open, the name a C string.
                        let found = unsafe { libc::dlsym(handle, $symbol.as_ptr()) };
                        if found.is_null() {
                            return Err(why());
                        }
                        // SAFETY: the symbol of this name is a function of this kind in every
                        // library of this ABI, and a pointer to one is as long as one to data.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    get_device_list: c"ibv_get_device_list" fn(*mut c_int) -> *mut *mut Device;
    free_device_list: c"ibv_free_device_list" fn(*mut *mut Device);
    get_device_name: c"ibv_get_device_name" fn(*mut Device) -> *const c_char;
    open_device: c"ibv_open_device" fn(*mut Device) -> *mut Context;
    close_device: c"ibv_close_device" fn(*mut Context) -> c_int;
    query_port: c"ibv_query_port" fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gid: c"ibv_query_gid" fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    alloc_pd: c"ibv_alloc_pd" fn(*mut Context) -> *mut Domain;
    dealloc_pd: c"ibv_dealloc_pd" fn(*mut Domain) -> c_int;
    reg_mr: c"ibv_reg_mr" fn(*mut Domain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    dereg_mr: c"ibv_dereg_mr" fn(*mut MemoryRegion) -> c_int;
    create_comp_channel: c"ibv_create_comp_channel" fn(*mut Context) -> *mut Channel;
    destroy_comp_channel: c"ibv_destroy_comp_channel" fn(*mut Channel) -> c_int;
    create_cq: c"ibv_create_cq"
        fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut CompletionQueue;
    destroy_cq: c"ibv_destroy_cq" fn(*mut CompletionQueue) -> c_int;
    get_cq_event: c"ibv_get_cq_event"
        fn(*mut Channel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ack_cq_events: c"ibv_ack_cq_events" fn(*mut CompletionQueue, c_uint);
    create_qp: c"ibv_create_qp" fn(*mut Domain, *mut QueuePairWanted) -> *mut QueuePair;
    modify_qp: c"ibv_modify_qp" fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    destroy_qp: c"ibv_destroy_qp" fn(*mut QueuePair) -> c_int;
    create_ah: c"ibv_create_ah" fn(*mut Domain, *mut AddressVector) -> *mut AddressHandle;
    destroy_ah: c"ibv_destroy_ah" fn(*mut AddressHandle) -> c_int;
}

/// The loader's last words.
fn why() -> String {
    // SAFETY: `dlerror` returns null or a C string that lasts until this thread's next call of it.
    unsafe {
        let said = libc::dlerror();
        if said.is_null() {
            return format!("{} cannot be loaded", LIBRARY.to_string_lossy());
        }
        CStr::from_ptr(said).to_string_lossy().into_owned()
    }
}

/// The library, loaded by the first who asks; or why it cannot be.
pub fn library() -> Result<&'static Library, &'static str> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    LOADED.get_or_init(Library::load).as_ref().map_err(String::as_str)
}
