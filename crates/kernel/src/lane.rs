//! The GET lane: loading its program, its arrays, attaching it to interfaces.
//!
//! The program is loaded once; each interface it is attached to has a link, a file descriptor
//! inside [`Lane`]. Dropping the lane, or any end of the process, detaches it.

use crate::counts::Counts;
use crate::error::Error;
use crate::layout::{Control, ITEMS_ELEMENT_BYTES, MARK_GRANULE_BYTES, RECORD_BYTES_MAX};
use crate::mapped::{Mapped, Shared};
use crate::program;
use aya::maps::{Map, MapData, PerCpuArray};
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, TestRun, TestRunOptions};
use aya::programs::{Xdp, XdpMode, xdp::XdpLinkId};
use aya::{Ebpf, EbpfLoader};
use laneway_store::layout::{Bucket, Overflow};
use laneway_store::{Onlooker, SharedArray, WINDOW_RECORD_BYTES_MAX, WINDOW_TAIL_BYTES, Window};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

// Where the store puts a record the program may read it.
const _: () = assert!(WINDOW_TAIL_BYTES >= RECORD_BYTES_MAX);
const _: () = assert!(WINDOW_RECORD_BYTES_MAX <= RECORD_BYTES_MAX);

/// Which of the built programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// For the ingress of tc (tcx links: Linux 6.6): any interface, loopback too.
    TrafficControl,
    /// For the driver's hook: the cheapest place, on network cards.
    Xdp,
    /// As `TrafficControl`, but believing what it read without looking at the version again. It
    /// returns torn values; only a test that must find them has a use for it.
    Unvalidated,
}

impl Program {
    fn object(self) -> &'static [u8] {
        match self {
            Program::TrafficControl => {
                aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lane_tc.o"))
            }
            Program::Xdp => aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lane_xdp.o")),
            Program::Unvalidated => {
                aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lane_unvalidated.o"))
            }
        }
    }
}

/// How large the arrays are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Primary buckets, by their places in the index.
    pub buckets: u32,
    /// Overflow buckets.
    pub overflows: u32,
    /// Bytes of items; rounded up to [`ITEMS_ELEMENT_BYTES`].
    pub items_bytes: usize,
}

/// The name of the program in its object, and of its arrays.
const NAME: &str = "lane";
/// The kernel's answer "go on as if I were not there" at tc, and at XDP.
const TC_ACT_UNSPEC: u32 = u32::MAX;
const XDP_PASS: u32 = 2;
/// The loopback's number in every network namespace.
const LOOPBACK: u32 = 1;
/// Larger than any reply.
const FRAME_BYTES_MAX: usize = 2048;

#[derive(Debug)]
enum Link {
    TrafficControl(SchedClassifierLinkId),
    Xdp(XdpLinkId),
}

/// What the program is told, and the hits it marks.
#[derive(Debug)]
struct Eyes {
    control: Mapped<Control>,
    marks: Mapped<AtomicU8>,
}

impl Onlooker for Eyes {
    fn set_buckets(&self, partition: usize, buckets: u64) {
        self.control[0].set_buckets(partition, buckets);
    }

    fn set_flush(&self, generation: u32) {
        self.control[0].set_flush(generation);
    }

    fn take_hits(&self, offset: usize) -> u8 {
        let Some(mark) = self.marks.get(offset / MARK_GRANULE_BYTES) else { return 0 };
        // Most are 0, and a line that is only read stays with those who read it. A hit that the
        // program marks in between is lost: marks are hints.
        if mark.load(Relaxed) == 0 { 0 } else { mark.swap(0, Relaxed) }
    }
}

/// The arrays of items and buckets, mapped.
#[derive(Debug)]
pub struct Memory {
    /// Primary buckets.
    pub buckets: Mapped<Bucket>,
    /// Overflow buckets.
    pub overflows: Mapped<Overflow>,
    /// Records, as words.
    pub items: Mapped<AtomicU64>,
}

/// What the program did with a frame in a trial run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Whether it was answered; if not, it would go on upwards.
    pub hit: bool,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Mean time of one run, by the kernel's clock.
    pub run_ns: u64,
}

/// The lane.
#[derive(Debug)]
pub struct Lane {
    program: Program,
    eyes: Arc<Eyes>,
    links: Vec<(String, Link)>,
    ebpf: Ebpf,
}

impl Lane {
    /// Load a program and its arrays. It serves nothing until it is attached and
    /// [`Control::open`]ed.
    pub fn load(program: Program, room: &Room) -> Result<Lane, Error> {
        if cfg!(not(target_arch = "x86_64")) {
            let why = "its reads are ordered for x86-64 only";
            return Err(Error::said("loading the kernel lane", why));
        }
        crate::realtime::refuse("loading the kernel lane")?;
        let elements = room.items_bytes.div_ceil(ITEMS_ELEMENT_BYTES).max(1);
        let what = || format!("making room for {} MiB of items", elements);
        let elements = u32::try_from(elements).map_err(|why| Error::new(what(), &why))?;
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("buckets", room.buckets.max(1))
            .map_max_entries("overflows", room.overflows.max(1))
            .map_max_entries("items", elements)
            .map_max_entries("marks", elements)
            .load(program.object())
            .map_err(|why| Error::new("creating the kernel lane's arrays", &why))?;
        let loaded = match program {
            Program::Xdp => {
                let program = program::find::<Xdp>(&mut ebpf, NAME)?;
                program::load(|| program.load())
            }
            Program::TrafficControl | Program::Unvalidated => {
                let program = program::find::<SchedClassifier>(&mut ebpf, NAME)?;
                program::load(|| program.load())
            }
        };
        loaded.map_err(|why| Error::new("loading the kernel lane's program", &why))?;
        let eyes = Eyes { control: mapped(&ebpf, "control")?, marks: mapped(&ebpf, "marks")? };
        Ok(Lane { program, eyes: Arc::new(eyes), links: Vec::new(), ebpf })
    }

    /// Attach to an interface of the calling thread's network namespace, behind the programs that
    /// are there already.
    pub fn attach(&mut self, interface: &str) -> Result<(), Error> {
        let what = || format!("attaching the kernel lane to `{interface}`");
        let link = match self.program {
            Program::Xdp => program::find::<Xdp>(&mut self.ebpf, NAME)?
                .attach(interface, XdpMode::Driver)
                .map(Link::Xdp)
                .map_err(|why| Error::new(what(), &why))?,
            Program::TrafficControl | Program::Unvalidated => {
                let order = TcAttachOptions::TcxOrder(LinkOrder::default());
                program::find::<SchedClassifier>(&mut self.ebpf, NAME)?
                    .attach_with_options(interface, TcAttachType::Ingress, order)
                    .map(Link::TrafficControl)
                    .map_err(|why| Error::new(what(), &why))?
            }
        };
        self.links.push((interface.to_string(), link));
        Ok(())
    }

    /// Detach from an interface. False if it was not attached there.
    pub fn detach(&mut self, interface: &str) -> Result<bool, Error> {
        let Some(at) = self.links.iter().position(|(name, _)| name == interface) else {
            return Ok(false);
        };
        let detached = match self.links.swap_remove(at).1 {
            Link::Xdp(id) => program::find::<Xdp>(&mut self.ebpf, NAME)?.detach(id),
            Link::TrafficControl(id) => {
                program::find::<SchedClassifier>(&mut self.ebpf, NAME)?.detach(id)
            }
        };
        let what = || format!("detaching the kernel lane from `{interface}`");
        detached.map(|()| true).map_err(|why| Error::new(what(), &why))
    }

    /// Which program it is.
    pub fn program(&self) -> Program {
        self.program
    }

    /// What the program is told.
    pub fn control(&self) -> &Control {
        &self.eyes.control[0]
    }

    /// The arrays, for a store to write: the program sees what it does.
    pub fn window(&self) -> Result<Window, Error> {
        Ok(Window {
            buckets: self.array("buckets")?,
            overflows: self.array("overflows")?,
            items: self.array("items")?,
            onlooker: self.eyes.clone(),
        })
    }

    fn array(&self, name: &str) -> Result<SharedArray, Error> {
        let what = || format!("handing over the array `{name}`");
        let map = self.ebpf.map(name).and_then(data_of);
        let map = map.ok_or_else(|| Error::said(what(), "it is not in its object"))?;
        let info = map.info().map_err(|why| Error::new(what(), &why))?;
        let file = map.fd().as_fd().try_clone_to_owned().map_err(|why| Error::new(what(), &why))?;
        let bytes = info.value_size() as usize * info.max_entries() as usize;
        Ok(SharedArray { file: Arc::new(file), bytes })
    }

    /// The arrays mapped, for whoever writes them without a store.
    pub fn memory(&self) -> Result<Memory, Error> {
        Ok(Memory {
            buckets: mapped(&self.ebpf, "buckets")?,
            overflows: mapped(&self.ebpf, "overflows")?,
            items: mapped(&self.ebpf, "items")?,
        })
    }

    /// Hit marks, one for [`MARK_GRANULE_BYTES`] bytes of items: how often a record that begins
    /// there was hit, up to [`crate::layout::MARK_MAX`]. Whoever evicts takes them down.
    pub fn marks(&self) -> &[AtomicU8] {
        &self.eyes.marks
    }

    /// What was counted since the program was loaded.
    pub fn counts(&self) -> Result<Counts, Error> {
        let what = "reading the kernel lane's counters";
        let map = self.ebpf.map("counts").ok_or_else(|| Error::said(what, "no such array"))?;
        let array = PerCpuArray::try_from(map).map_err(|why| Error::new(what, &why))?;
        let cpus = array.get(&0, 0).map_err(|why| Error::new(what, &why))?;
        Ok(Counts::sum(cpus.iter().copied()))
    }

    /// Runs so far and the time they took, if the kernel keeps such statistics now
    /// (`kernel.bpf_stats_enabled`).
    pub fn run_statistics(&self) -> Option<(u64, Duration)> {
        let info = self.ebpf.program(NAME)?.info().ok()?;
        Some((info.run_count(), info.run_time()))
    }

    /// Instructions that the verifier walked through to accept the program.
    pub fn verified_instructions(&self) -> Option<u32> {
        let program = self.ebpf.program(NAME)?;
        program.info().ok()?.verified_instruction_count()
    }

    /// Run the program on a frame `repeat` times, sending nothing. Only the first run sees the
    /// frame as given.
    pub fn try_frame(&self, frame: &[u8], repeat: u32) -> Result<Answered, Error> {
        self.try_frame_at(LOOPBACK, frame, repeat)
    }

    /// The same of a frame that came by the interface of this number, in the calling thread's
    /// network namespace.
    pub fn try_frame_at(
        &self,
        interface: u32,
        frame: &[u8],
        repeat: u32,
    ) -> Result<Answered, Error> {
        let what = "a trial run of the kernel lane";
        let mut out = vec![0; FRAME_BYTES_MAX];
        // What stands before a packet, as far as it says where it came from: `struct __sk_buff`
        // and `struct xdp_md` in `bpf/bpf.h`.
        let mut context = match self.program {
            Program::Xdp => vec![0, frame.len() as u32, 0, interface, 0, 0],
            _ => vec![0; 11],
        };
        if self.program != Program::Xdp {
            context[10] = interface;
        }
        let context: Vec<u8> = context.into_iter().flat_map(u32::to_ne_bytes).collect();
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            repeat,
            ..TestRunOptions::new()
        };
        let program = self.ebpf.program(NAME).ok_or_else(|| Error::said(what, "no program"))?;
        let (result, pass) = match self.program {
            Program::Xdp => {
                let program: &Xdp = program.try_into().map_err(|why| Error::new(what, &why))?;
                (program.test_run(options), XDP_PASS)
            }
            Program::TrafficControl | Program::Unvalidated => {
                let program: &SchedClassifier =
                    program.try_into().map_err(|why| Error::new(what, &why))?;
                (program.test_run(options), TC_ACT_UNSPEC)
            }
        };
        let result = result.map_err(|why| Error::new(what, &why))?;
        out.truncate(result.data_size_out as usize);
        let run_ns = result.duration.as_nanos() as u64;
        Ok(Answered { hit: result.return_value != pass, frame: out, run_ns })
    }
}

/// Map one of the arrays.
pub(crate) fn mapped<T: Shared>(ebpf: &Ebpf, name: &str) -> Result<Mapped<T>, Error> {
    let map = ebpf.map(name).and_then(data_of);
    Mapped::of(name, map.ok_or_else(|| Error::said(name, "is not in its object"))?)
}

fn data_of(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) => Some(data),
        _ => None,
    }
}
