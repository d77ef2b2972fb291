//! An item under construction: memory that nobody else knows of, until an entry publishes it.
//!
//! A small draft takes its slot at once; a large one takes pieces as bytes arrive, so that
//! declaring a gigabyte and stalling reserves nothing. All writes into reused memory follow a
//! release fence: a reader that still looks at the slot's last item and sees one of our words must
//! then see that item's bucket changed, too.

use crate::{
    budget::{Budget, END, WAIT_STEPS},
    geometry::SMALL_RECORD_BYTES_MAX,
    hand::Hand,
    large::{PIECE_HEADER_BYTES, class_for_piece, owner_word, payload_bytes},
    location::{Location, Medium, size_class},
    mark::Mark,
    meter,
    moment::Moment,
    record::{self, BARE_RECORD_BYTES_MAX, Form, Header},
    store::{Record, Store},
    types::{Mode, Refused},
};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::{prim::Ordering::Relaxed, version::before_reuse, words};
use std::{fmt, ops::Deref, slice, sync::Arc};

/// An item under construction, visible to nobody. Dropped = memory returned. It keeps the store, or
/// borrows it where it does not outlive a request.
pub struct Draft<S: Deref<Target = Store> = Arc<Store>> {
    store: S,
    header: Header,
    /// Value bytes that are there.
    written: usize,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// A slot, by offset.
    Small(usize),
    Large(Large),
    /// Published: nothing to return.
    Gone,
}

#[derive(Debug)]
struct Large {
    descriptor: u32,
    key: Box<[u8]>,
    pieces: Vec<u64>,
    held_bytes: u64,
    /// Steps that were done for the next piece, and did not bring it.
    waited: usize,
}

impl<S: Deref<Target = Store>> fmt::Debug for Draft<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("header", &self.header)
            .field("written", &self.written)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Begin an item. Small ones take their slot at once (evicting in cache mode); large ones take
    /// blocks as bytes arrive.
    pub fn draft(
        self: &Arc<Self>,
        key: &[u8],
        flags: u32,
        expires: Moment,
        value_bytes: usize,
    ) -> Result<Draft, Refused> {
        let (header, body) = self.begin(None, key, flags, expires, value_bytes)?;
        Ok(Draft { store: self.clone(), header, written: 0, body })
    }

    /// The same for an item that is finished before its request ends: it borrows the store, and its
    /// slot may be one that the thread keeps.
    pub fn draft_at_once(
        &self,
        hand: Option<&Hand>,
        key: &[u8],
        flags: u32,
        expires: Moment,
        value_bytes: usize,
    ) -> Result<Draft<&Store>, Refused> {
        let (header, body) = self.begin(hand, key, flags, expires, value_bytes)?;
        Ok(Draft { store: self, header, written: 0, body })
    }

    fn begin(
        &self,
        hand: Option<&Hand>,
        key: &[u8],
        flags: u32,
        expires: Moment,
        value_bytes: usize,
    ) -> Result<(Header, Body), Refused> {
        // The limit is the client's, and the room for an end is not: no item is too large for the
        // sake of milliseconds, and none is small enough because it has no end.
        let asked = if flags == 0 { Form::Plain } else { Form::Wide };
        let bytes = asked.bytes() + key.len() + value_bytes;
        if bytes as u64 > self.item_bytes_max || key.len() > crate::types::KEY_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        let form = self.form_for(flags, expires, key.len() + value_bytes);
        let small = form.bytes() + key.len() + value_bytes;
        if meter::is_refused() {
            return Err(Refused::OutOfMemory);
        }
        let large = small > SMALL_RECORD_BYTES_MAX;
        let header = Header {
            seq: 0,
            expires,
            key_bytes: key.len(),
            value_bytes,
            flags,
            stale: false,
            token_sent: false,
            large,
            form: if large { Form::Wide } else { form },
            flush: 0,
        };
        let body = if large {
            let descriptor = self.large.take().ok_or(Refused::OutOfMemory)?;
            Body::Large(Large {
                descriptor,
                key: key.into(),
                pieces: Vec::new(),
                held_bytes: 0,
                waited: 0,
            })
        } else {
            let class = self.memory.class_for(small);
            let offset = self
                .allocate_in_window(key, small)
                .or_else(|| hand?.take(class))
                .or_else(|| self.allocate_small(class))
                .or_else(|| self.memory.take(self.memory.window_class_for(small)?))
                .or_else(|| {
                    hand.is_some_and(Hand::empty).then(|| self.allocate_small(class)).flatten()
                })
                .ok_or(Refused::OutOfMemory)?;
            before_reuse();
            let words = self.memory.items.words_at(offset, small).expect("a slot of ours");
            words::write(words, header.header_bytes(), key);
            Body::Small(offset)
        };
        Ok((header, body))
    }

    /// The form of the record of a small item with so many bytes of key and value. A store that may
    /// not evict keeps room for an end in every one: it may have no memory to write the item anew,
    /// nor let it go. So does one whose hook keeps items elsewhere, where they would stay.
    pub(crate) fn form_for(&self, flags: u32, expires: Moment, bytes: usize) -> Form {
        if flags != 0 || expires.millis() != 0 {
            return Form::Wide;
        }
        let is_short = Form::Bare.bytes() + bytes <= BARE_RECORD_BYTES_MAX;
        let may_be_bare = self.mode == Mode::Cache && self.hook.is_none();
        match is_short && may_be_bare && expires == Moment::NEVER {
            true => Form::Bare,
            false => Form::Plain,
        }
    }
}

impl<S: Deref<Target = Store>> Draft<S> {
    /// Value bytes still to come.
    pub fn missing(&self) -> usize {
        self.header.value_bytes - self.written
    }

    /// Bytes of the whole value.
    pub fn value_bytes(&self) -> usize {
        self.header.value_bytes
    }

    /// In pieces, to be received piece by piece.
    pub fn is_large(&self) -> bool {
        self.header.large
    }

    /// See to it by one bounded step that there is memory for the next bytes: for how many of them.
    /// `None`: not yet; to be called again after others had their turn. Who writes or receives
    /// without asking, or more, takes memory by whatever it takes.
    pub fn prepare(&mut self) -> Result<Option<usize>, Refused> {
        let missing = self.missing();
        let Body::Large(large) = &mut self.body else { return Ok(Some(missing)) };
        if meter::is_refused() {
            return Ok(None); // a step that brings nothing, as a full store has them
        }
        let payload = payload_bytes(&self.store.memory);
        let at = self.header.value_at() + self.written;
        while missing > 0 && large.pieces.len() <= at / payload {
            if !large.take_piece(&self.store, &self.header, payload, true)? {
                return Ok(None);
            }
        }
        Ok(Some(missing.min(payload - at % payload)))
    }

    /// Copy `bytes` in behind what is there; takes memory as needed. At most `missing()` bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        assert!(bytes.len() <= self.missing(), "more bytes than were announced");
        meter::bytes(bytes.len());
        if let Body::Small(offset) = self.body {
            let record_bytes = self.header.record_bytes();
            let words = self.store.memory.items.words_at(offset, record_bytes).expect("our slot");
            words::write(words, self.header.value_at() + self.written, bytes);
            self.written += bytes.len();
            return Ok(());
        }
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let (start, len) = self.place()?;
            let take = bytes.len().min(len);
            let inner = start % 8;
            let words = self.store.memory.items.words_at(start - inner, inner + take);
            words::write(words.expect("our piece"), inner, &bytes[..take]);
            self.written += take;
            bytes = &bytes[take..];
        }
        Ok(())
    }

    /// Room to receive into directly (large drafts): a piece of at most one block, taken now; then
    /// `advance`. Empty when nothing is missing.
    pub fn room(&mut self) -> Result<&mut [u8], Refused> {
        assert!(self.is_large(), "small drafts are written, not received into");
        if self.missing() == 0 {
            return Ok(&mut []);
        }
        let (start, len) = self.place()?;
        let pointer = self.store.memory.items.pointer(start, len);
        // SAFETY: `pointer` checked that the range is inside the region, which the store keeps
        // mapped, and the store is kept by `self`. The bytes are initialised (the kernel zeroes
        // fresh pages). The piece is this draft's alone: `allocate` gave it to nobody else, and
        // `&mut self` makes this the only slice into it. A reader that lost its race may still load
        // words of it atomically; it discards them (fence (M), bucket version). The intended writer
        // is the kernel (readv, recv), whose writes are outside the Rust machine; stores by Rust
        // code through this slice are torn at worst for such a reader, like the kernel's.
        Ok(unsafe { slice::from_raw_parts_mut(pointer, len) })
    }

    /// `bytes` of `room` were filled.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.missing(), "more bytes than were announced");
        meter::bytes(bytes);
        self.written += bytes;
    }

    /// Flags on the item to be: stale / token sent.
    pub fn set_marks(&mut self, stale: bool, token_sent: bool) {
        self.header.stale = stale;
        self.header.token_sent = token_sent;
    }

    /// Another end than the one it was begun with. Where that had no milliseconds, there may be no
    /// room for any: then it is the next full second (so what ends at a time that is told later is
    /// begun with [`Moment::LATER`]).
    ///
    /// # Panics
    /// If it was begun without an end, is to have one, and has no room for any.
    pub fn set_expires(&mut self, expires: Moment) {
        let form = self.header.form;
        let expires = if form.has_room_for(expires) { expires } else { expires.rounded_up() };
        assert!(form.has_room_for(expires), "an end where none was to be");
        self.header.expires = expires;
    }

    /// Where the next value byte goes, and how many fit there. Takes the pieces up to it.
    fn place(&mut self) -> Result<(usize, usize), Refused> {
        let Body::Large(large) = &mut self.body else {
            unreachable!("only large drafts have pieces")
        };
        let payload = payload_bytes(&self.store.memory);
        let at = self.header.value_at() + self.written;
        while large.pieces.len() <= at / payload {
            large.take_piece(&self.store, &self.header, payload, false)?;
        }
        let start = large.pieces[at / payload] as usize + PIECE_HEADER_BYTES + at % payload;
        let missing = self.header.value_bytes - self.written;
        Ok((start, missing.min(payload - at % payload)))
    }

    /// Finish: write the header, hand the memory over to the index. The caller is inside the key's
    /// bucket.
    pub(crate) fn into_record(
        mut self,
        store: &Store,
        now: Moment,
        seq: u64,
        flush: u32,
    ) -> Record {
        self.header.seq = seq;
        self.header.flush = flush;
        let header = self.header;
        let class = size_class(header.key_bytes + header.value_bytes);
        let (location, offset) = match std::mem::replace(&mut self.body, Body::Gone) {
            Body::Small(offset) => {
                store.memory.set_mark(offset, Mark::new(now));
                (Location::new(Medium::Arena, class, offset as u64 / 8), offset)
            }
            Body::Large(large) => {
                let number = large.descriptor;
                let descriptor = store.large.get(number).expect("our descriptor");
                store.counters.unpublished_bytes.fetch_sub(large.held_bytes, Relaxed);
                let offset = large.pieces[0] as usize + PIECE_HEADER_BYTES;
                descriptor.open_owner(large.pieces, large.held_bytes, now);
                (Location::new(Medium::Extent, class, u64::from(number)), offset)
            }
            Body::Gone => unreachable!("a draft is published once"),
        };
        record::write(&store.memory.items, offset, &header);
        Record { location, offset, header }
    }
}

impl Large {
    fn take_piece(
        &mut self,
        store: &Store,
        header: &Header,
        payload: usize,
        in_steps: bool,
    ) -> Result<bool, Refused> {
        let stream_left = header.record_bytes() - self.pieces.len() * payload;
        let alone = header.record_bytes() <= payload;
        let class = class_for_piece(&store.memory, stream_left.min(payload), alone);
        let slot_bytes = store.memory.class(class).slot_bytes as u64;
        let unpublished = &store.counters.unpublished_bytes;
        let most = store.unpublished_bytes_max();
        let with_it = unpublished.fetch_add(slot_bytes, Relaxed) + slot_bytes;
        if most < with_it || meter::is_refused() {
            unpublished.fetch_sub(slot_bytes, Relaxed);
            return Err(Refused::OutOfMemory);
        }
        let offset = match (in_steps, self.waited) {
            (false, _) => store.allocate(class),
            (true, 0) => store.allocate_bounded(class),
            (true, _) => store.allocate_step(class),
        };
        let Some(offset) = offset else {
            unpublished.fetch_sub(slot_bytes, Relaxed);
            self.waited += 1;
            if in_steps && store.mode == Mode::Cache && self.waited <= WAIT_STEPS {
                return Ok(false);
            }
            return Err(Refused::OutOfMemory);
        };
        self.waited = 0;
        self.held_bytes += slot_bytes;
        before_reuse();
        let words =
            store.memory.items.words_at(offset, slot_bytes as usize).expect("a slot of ours");
        words[0].store(owner_word(self.descriptor, self.pieces.len()).to_le(), Relaxed);
        if self.pieces.is_empty() {
            words::write(words, PIECE_HEADER_BYTES + header.header_bytes(), &self.key);
        } else {
            store.memory.class(class).pieces_behind.fetch_add(1, Relaxed);
        }
        self.pieces.push(offset as u64);
        meter::items(1);
        store.counters.piece_list_bytes.fetch_add(8, Relaxed);
        Ok(true)
    }
}

impl<S: Deref<Target = Store>> Drop for Draft<S> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.body, Body::Gone) {
            Body::Small(offset) => self.store.memory.give(offset),
            Body::Large(large) => {
                if is_planted(Bug::DraftLeaked) {
                    return;
                }
                self.store.counters.unpublished_bytes.fetch_sub(large.held_bytes, Relaxed);
                self.store.give_pieces(large.pieces, &mut Budget::of(END));
                self.store.large.give(large.descriptor);
            }
            Body::Gone => {}
        }
    }
}
