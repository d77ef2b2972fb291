//! One connection without a socket: bytes in, parsed, executed, replies out.

use crate::script::Case;
use laneway_server::counts::counters::StatsRegistry;
use laneway_server::durable::backup;
use laneway_server::execute::{self, Body, Context, ExecuteSettings, Incoming, Outcome};
use laneway_server::stats::{self, GeneralSnapshot, Question, SettingsSnapshot};
use laneway_store::{Config, ListBudget, Listing, Mode, Moment, Store};
use laneway_wire::reply::{OK, RESET};
use laneway_wire::{Limits, Request, Then, parse};
use std::cell::Cell;
use std::sync::Arc;

const START_SECONDS: u32 = 1_800_000_000;
const ITEM_BYTES_MAX: usize = 1 << 20;
const VALUE_END_BYTES: usize = 2;

/// How input arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// All at once; values are stored from the input.
    Whole,
    /// So many bytes at a time; values are streamed.
    Pieces(usize),
}

pub struct Session {
    pub out: Vec<u8>,
    pub closed: bool,
    store: Arc<Store>,
    settings: ExecuteSettings,
    board: StatsRegistry,
    now: Moment,
    flush_at: u32,
    input: Vec<u8>,
    swallow: usize,
    incoming: Option<Incoming>,
    delivery: Delivery,
}

impl Session {
    pub fn new(case: &Case, delivery: Delivery) -> Session {
        let mode = if case.has("mode=store") { Mode::Store } else { Mode::Cache };
        let item_bytes_max = ITEM_BYTES_MAX as u64;
        let store = Store::new(Config { mode, item_bytes_max, ..Config::default() });
        Session {
            out: Vec::new(),
            closed: false,
            store: store.expect("memory for a store"),
            settings: ExecuteSettings {
                cas_enabled: !case.has("cas=off"),
                flush_enabled: !case.has("flush=off"),
                shutdown_enabled: case.has("shutdown=on"),
                tls_enabled: false,
            },
            board: StatsRegistry::new(1),
            now: Moment::from_seconds(START_SECONDS),
            flush_at: 0,
            input: Vec::new(),
            swallow: 0,
            incoming: None,
            delivery,
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let size = match self.delivery {
            Delivery::Whole => bytes.len(),
            Delivery::Pieces(size) => size,
        };
        for piece in bytes.chunks(size.max(1)) {
            self.input.extend_from_slice(piece);
            while !self.closed && self.step() {}
        }
    }

    pub fn pass(&mut self, seconds: u32) {
        self.now = self.now.plus_seconds(seconds);
        if self.flush_at != 0 && self.flush_at <= self.now.seconds() {
            self.flush_at = 0;
            assert!(self.store.flush_all());
        }
    }

    /// One request, or as much of one as there is. False if more input is needed.
    fn step(&mut self) -> bool {
        if self.swallow > 0 {
            let taken = self.swallow.min(self.input.len());
            self.input.drain(..taken);
            self.swallow -= taken;
            return self.swallow == 0;
        }
        if let Some(incoming) = self.incoming.take() {
            return self.receive(incoming);
        }
        let input = std::mem::take(&mut self.input);
        let consumed = self.request(&input);
        self.input = input;
        self.input.drain(..consumed);
        consumed > 0
    }

    /// The request at the front of `input`; the bytes consumed.
    #[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
    fn request(&mut self, input: &[u8]) -> usize {
        let touched = Cell::new(0);
        let context = Context {
            store: &self.store,
            others: &[],
            hand: None,
            now: self.now,
            counters: self.board.worker(0),
            settings: &self.settings,
            touched: &touched,
            large_from: u64::MAX,
            large_lane_from: u64::MAX,
            pending_writes: None,
            read_only: false,
            log: None,
            by: 0,
        };
        let limits = Limits { item_bytes_max: ITEM_BYTES_MAX, line_bytes_max: 1 << 20 };
        let frame = match parse(input, &limits) {
            Ok(Some(frame)) => frame,
            Ok(None) => return 0,
            Err(malformed) => {
                self.out.extend_from_slice(malformed.reply);
                execute::refused_by_size(&context, &malformed);
                match malformed.then {
                    Then::Continue => {}
                    Then::Swallow(bytes) => self.swallow = bytes,
                    Then::Close => self.closed = true,
                }
                return malformed.head_bytes;
            }
        };
        let head = frame.head_bytes;
        let value_bytes = match &frame.request {
            Request::Store(store) => Some(store.value_bytes),
            Request::MetaSet(set) => Some(set.value_bytes),
            _ => None,
        };
        if let Some(value_bytes) = value_bytes {
            if self.delivery == Delivery::Whole {
                let whole = head + value_bytes + VALUE_END_BYTES;
                if input.len() < whole {
                    return 0;
                }
                let body = Body::of(&input[head..whole]);
                execute::store_whole(&context, &frame.request, body, &mut self.out);
                return whole;
            }
            match execute::begin(&context, &frame.request, &mut self.out) {
                Some(incoming) => self.incoming = Some(incoming),
                None => self.swallow = value_bytes + VALUE_END_BYTES,
            }
            return head;
        }
        // Key by key, as a connection does it, or all keys at once.
        if let (Request::Get(get), Delivery::Whole) = (&frame.request, self.delivery) {
            let expires = execute::expires_at(get.exptime, self.now);
            for key in get.keys {
                let hash = self.store.hash(key);
                let out = &mut self.out;
                if let Outcome::Transfer(rest) =
                    execute::get_key(&context, get.verb, expires, key, hash, out)
                {
                    rest.value.copy_into(out);
                    out.extend_from_slice(rest.tail);
                }
            }
            self.out.extend_from_slice(b"END\r\n");
            return head;
        }
        let outcome = execute::command(&context, &frame.request, &mut self.out);
        self.conclude(outcome);
        head
    }

    fn conclude(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done | Outcome::Verbosity(_) => {}
            Outcome::Elsewhere | Outcome::Again => panic!("nothing is too large here"),
            Outcome::Kept => panic!("nothing is kept durably here"),
            Outcome::Transfer(rest) => {
                rest.value.copy_into(&mut self.out);
                self.out.extend_from_slice(rest.tail);
            }
            Outcome::Close | Outcome::Shutdown { .. } => self.closed = true,
            Outcome::FlushAt(at) => self.flush_at = at,
            Outcome::Stats(question) => self.stats(question),
            Outcome::Watch(_) => self.out.extend_from_slice(b"OK\r\n"),
            Outcome::Backup(_) => self.out.extend_from_slice(backup::DISABLED),
            Outcome::Tier(_) => self.out.extend_from_slice(backup::NOT_KEPT),
            Outcome::ClientLimit(..) => self.out.extend_from_slice(b"OK\r\n"),
        }
    }

    fn stats(&mut self, question: Question) {
        let classes = self.store.class_stats();
        let store = self.store.stats();
        let out = &mut self.out;
        match question {
            Question::Settings => {
                let snapshot = SettingsSnapshot {
                    item_bytes_max: ITEM_BYTES_MAX as u64,
                    cas: self.settings.cas_enabled,
                    flush: self.settings.flush_enabled,
                    ..SettingsSnapshot::default()
                };
                stats::write_settings(&snapshot, out);
            }
            Question::Items => stats::write_items(&classes, out),
            Question::Slabs => stats::write_slabs(&classes, &store, out),
            Question::Sizes => stats::write_sizes(&classes, out),
            Question::Reset => {
                self.board.reset();
                out.extend_from_slice(RESET);
            }
            Question::Detail(_) => out.extend_from_slice(OK),
            Question::General => {
                let counters = self.board.totals();
                let snapshot = GeneralSnapshot { counters, store, ..GeneralSnapshot::default() };
                stats::write_general(&snapshot, out);
            }
            // These need a server; `ours` cases only look at their form.
            Question::Kernel => stats::write_kernel(&Default::default(), out),
            Question::Lanes => out.extend_from_slice(b"STAT threshold_bytes 1456\r\nEND\r\n"),
            Question::Cachedump { class, limit: _ } => {
                let (mut walk, mut is_over) = (Listing::default(), false);
                while !is_over {
                    let step = (&mut walk, &mut ListBudget::default());
                    is_over = self.store.list(1 << class, step, self.now, |key, meta, _| {
                        stats::write_item(key, meta, out);
                    });
                }
                out.extend_from_slice(b"END\r\n");
            }
            Question::Tier => stats::write_tier(None, out),
            Question::Backup => stats::write_backup(None, out),
            Question::Topology => out.extend_from_slice(b"STAT workers 1\r\nEND\r\n"),
            Question::HotKeys => stats::write_hot_keys(None, |_| None, out),
            Question::Balance => stats::write_balance(&[], None, out),
            Question::Latency
            | Question::Buckets
            | Question::Large
            | Question::Dump { .. }
            | Question::Clients
            | Question::Connections
            | Question::Udp
            | Question::Shm
            | Question::Tls
            | Question::Rdma => {
                out.extend_from_slice(b"END\r\n");
            }
        }
    }

    /// More of a value.
    fn receive(&mut self, mut incoming: Incoming) -> bool {
        let touched = Cell::new(0);
        let context = Context {
            store: &self.store,
            others: &[],
            hand: None,
            now: self.now,
            counters: self.board.worker(0),
            settings: &self.settings,
            touched: &touched,
            large_from: u64::MAX,
            large_lane_from: u64::MAX,
            pending_writes: None,
            read_only: false,
            log: None,
            by: 0,
        };
        let landing = incoming.draft();
        let taken = landing.missing().min(self.input.len());
        if landing.write(&self.input[..taken]).is_err() {
            self.swallow = landing.missing() + VALUE_END_BYTES;
            incoming.out_of_memory(&context, &mut self.out);
            return true;
        }
        self.input.drain(..taken);
        if incoming.draft().missing() > 0 || self.input.len() < VALUE_END_BYTES {
            self.incoming = Some(incoming);
            return false;
        }
        let end: Vec<u8> = self.input.drain(..VALUE_END_BYTES).collect();
        if end == b"\r\n" {
            assert!(incoming.finish(&context, &mut self.out).is_ok(), "no executor executes");
        } else {
            incoming.abandon_bad_chunk(&context, &mut self.out);
        }
        true
    }
}
