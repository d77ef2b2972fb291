//! Asynchronous reads: submit, go on, complete later.
//!
//! A few threads do the waiting. Completions come in any order, each with the token it was
//! submitted with; `wake` is called after each, from a thread of the pool, so that a
//! sleeping caller hears of it. Dropping the pool finishes what was submitted.

use crate::media::priority::drop_priority;
use crate::reading::read::LargeReader;
use crate::store::Shared;
use crate::types::{Error, Item, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// What to read.
pub enum Request {
    /// An item, whole.
    Item(Box<[u8]>),
    /// A large value, to be read piece by piece.
    Open(Box<[u8]>),
    /// One piece of a large value.
    Piece(Arc<LargeReader>, usize),
}

impl Request {
    /// Reads.
    pub(crate) fn carry_out(self, shared: &Arc<Shared>) -> Answer {
        match self {
            Request::Item(key) => Answer::Item(shared.get(&key)),
            Request::Open(key) => Answer::Open(shared.open_large(&key)),
            Request::Piece(large, index) => Answer::Piece(large.piece(index)),
        }
    }
}

/// What was read.
pub enum Answer {
    /// The item, if there is one.
    Item(Result<Option<Item>>),
    /// The large value; `None` if the key holds none any more.
    Open(Result<Option<LargeReader>>),
    /// The piece.
    Piece(Result<Vec<u8>>),
}

#[derive(Default)]
struct Queues {
    submitted: VecDeque<(u64, Request)>,
    completed: Vec<(u64, Answer)>,
    closed: bool,
}

struct Inner {
    queues: Mutex<Queues>,
    work: Condvar,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("nobody panics inside")
    }
}

/// A pool of reading threads with one queue in and one out.
pub struct Reads {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

/// Called after each completion.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

impl Reads {
    /// Starts `threads` threads: as many reads as the device shall see at once.
    pub fn start(shared: &Arc<Shared>, threads: usize, wake: &Wake) -> Result<Reads> {
        let inner = Arc::new(Inner { queues: Mutex::default(), work: Condvar::new() });
        let mut reads = Reads { inner, threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let (inner, shared, wake) = (reads.inner.clone(), shared.clone(), wake.clone());
            let thread = std::thread::Builder::new()
                .name("tier-read".into())
                .spawn(move || serve(&inner, &shared, &*wake))
                .map_err(|source| Error::Io { what: "start a reading thread", source })?;
            reads.threads.push(thread);
        }
        Ok(reads)
    }

    /// Asks for something; `token` comes back with the answer.
    pub fn submit(&self, token: u64, request: Request) {
        self.inner.lock().submitted.push_back((token, request));
        self.inner.work.notify_one();
    }

    /// Takes what is ready, without waiting.
    pub fn complete(&self, answers: &mut Vec<(u64, Answer)>) {
        answers.append(&mut self.inner.lock().completed);
    }
}

fn serve(inner: &Inner, shared: &Arc<Shared>, wake: &(dyn Fn() + Send + Sync)) {
    drop_priority();
    let mut queues = inner.lock();
    loop {
        let Some((token, request)) = queues.submitted.pop_front() else {
            if queues.closed {
                return;
            }
            queues = inner.work.wait(queues).expect("nobody panics inside");
            continue;
        };
        drop(queues);
        let answer = request.carry_out(shared);
        inner.lock().completed.push((token, answer));
        wake();
        queues = inner.lock();
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.inner.lock().closed = true;
        self.inner.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; there is nobody here to tell again.
            let _ = thread.join();
        }
    }
}
