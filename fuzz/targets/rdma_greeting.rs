//! What a client and a server tell each other before either writes over RDMA: whatever comes, it is
//! heard without a panic, cut anywhere it says the same, and what was understood is said again in
//! words that are understood alike.
#![no_main]

use laneway_rdma::verbs::greeting::{Heard, Hello, LINE_BYTES_MAX, Welcome};
use libfuzzer_sys::fuzz_target;

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
    // Nobody is waited for who says more than a line.
    let longest = said.len() >= LINE_BYTES_MAX;
    assert!(!longest || Hello::hear(said) != Heard::More && Welcome::hear(said) != Heard::More);
});
