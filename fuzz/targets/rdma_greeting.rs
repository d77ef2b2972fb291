//! What a client and a server tell each other over RDMA: whatever comes, it is heard without a
//! panic, cut anywhere it says the same, and what was understood is said again in words that are
//! understood alike. And what either says of a long message: a sealed descriptor opens by its own
//! bytes alone, and what it is made of lies within the memory.
#![no_main]

use laneway_rdma::contract::Moved;
use laneway_rdma::long::rendezvous::{Counts, RendezvousBuffer};
use laneway_rdma::long::sealed_descriptor::{SEALED_DESCRIPTOR_BYTES, PIECE_BYTES, SealedDescriptor};
use laneway_rdma::long::twin::{self, Twin};
use laneway_rdma::verbs::greeting::{
    Chosen, Heard, Hello, LINE_BYTES_MAX, MAILBOXES_BYTES_MAX, Mailboxes, Welcome,
};
use laneway_sync::words;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Memory that holds what is said, and little more.
const MEMORY_BYTES: usize = 4096;

/// The first bytes say where the rest lies; or they are the memory, too.
fn sealed(said: &[u8]) {
    let Some((head, rest)) = said.split_at_checked(SEALED_DESCRIPTOR_BYTES) else {
        return assert_eq!(SealedDescriptor::parse(said), None);
    };
    let sealed = SealedDescriptor::parse(head).expect("it is as long as one");
    assert_eq!(sealed.to_bytes(), head);
    let memory = twin::memory(MEMORY_BYTES);
    let rest = &rest[..rest.len().min(MEMORY_BYTES)];
    words::write(&memory, 0, rest);
    let mut out = Vec::new();
    if sealed.open(&memory, &mut out) {
        assert_eq!(
            (out.len(), SealedDescriptor::of(sealed.number, sealed.offset, &out)),
            (sealed.bytes as usize, sealed)
        );
    }
    assert!(SealedDescriptor::of(sealed.number, 0, rest).open(&memory, &mut Vec::new()));
    let card = Twin::new(&memory, &memory, sealed.seal, 0);
    let rendezvous =
        RendezvousBuffer::new(card, MEMORY_BYTES, MEMORY_BYTES, Arc::new(Counts::default()));
    let Some(mut lent) = rendezvous.claim(sealed, false) else { return };
    assert!(sealed.fits(MEMORY_BYTES) && rendezvous.claim(sealed, false).is_none());
    let mut copy = Vec::new();
    while copy.len() < lent.bytes() {
        let bytes = PIECE_BYTES.min(lent.bytes() - copy.len());
        assert_ne!(lent.read(copy.len(), bytes, &mut copy), Moved::Gone, "it lies within");
    }
    assert_eq!(lent.is_right(), copy == out && sealed.open(&memory, &mut Vec::new()));
}

fuzz_target!(|said: &[u8]| {
    if let Heard::Whole(hello) = Hello::hear(said) {
        assert_eq!(Hello::hear(hello.to_string().as_bytes()), Heard::Whole(hello));
        assert!((0..said.len()).all(|cut| Hello::hear(&said[..cut]) == Heard::More));
    }
    if let Heard::Whole(welcome) = Welcome::hear(said) {
        assert_eq!(Welcome::hear(welcome.to_string().as_bytes()), Heard::Whole(welcome));
        assert!((0..said.len()).all(|cut| Welcome::hear(&said[..cut]) == Heard::More));
        assert!(welcome.bounds.check().is_ok());
    }
    if let Heard::Whole(mailboxes) = Mailboxes::hear(said) {
        assert_eq!(
            (mailboxes.numbers.len(), mailboxes.bounds.check().is_ok()),
            (mailboxes.bounds.lanes, true)
        );
        assert_eq!(Mailboxes::hear(mailboxes.to_string().as_bytes()), Heard::Whole(mailboxes));
        assert!((0..said.len()).all(|cut| Mailboxes::hear(&said[..cut]) == Heard::More));
    }
    assert!(said.len() < MAILBOXES_BYTES_MAX || Mailboxes::hear(said) != Heard::More);
    if let Heard::Whole(chosen) = Chosen::hear(said) {
        assert!((0..said.len()).all(|cut| Chosen::hear(&said[..cut]) == Heard::More));
        assert_eq!(Chosen::hear(chosen.to_string().as_bytes()), Heard::Whole(chosen));
    }
    assert!(said.len() < MAILBOXES_BYTES_MAX || Chosen::hear(said) != Heard::More);
    sealed(said);
    // Nobody is waited for who says more than a line.
    let longest = said.len() >= LINE_BYTES_MAX;
    assert!(!longest || Hello::hear(said) != Heard::More && Welcome::hear(said) != Heard::More);
});
