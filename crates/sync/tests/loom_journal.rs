//! The journal under loom: what is read under a number is that entry, whole; and once its writers
//! are done, each entry is read, or known to be lost, or was left out.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_journal`
#![cfg(loom)]

use laneway_sync::journal::{Found, Journal};
use loom::{sync::Arc, thread};

/// Reads an entry of two words, the second of which repeats the first in another way.
fn read(journal: &Journal, number: u64) -> Found {
    let mut copy = Vec::new();
    let found = journal.read(number, &mut copy);
    if found == Found::Entry {
        assert_eq!(copy.len(), 2);
        assert!(copy[0] == number && [7, 8].contains(&copy[1]), "torn: {copy:?}");
    }
    found
}

#[test]
fn entries_of_two_writers_do_not_mix_and_none_is_lost_where_there_is_room() {
    loom::model(|| {
        let journal = Arc::new(Journal::new(2, 2));
        let other = {
            let journal = journal.clone();
            thread::spawn(move || journal.write(&mut [0, 7]))
        };
        journal.write(&mut [0, 8]);
        read(&journal, 0);
        other.join().unwrap();
        assert_eq!(
            (journal.end(), read(&journal, 0), read(&journal, 1)),
            (2, Found::Entry, Found::Entry)
        );
    });
}

#[test]
fn of_a_place_that_is_written_again_a_reader_has_one_entry_or_none() {
    loom::model(|| {
        let journal = Arc::new(Journal::new(1, 2));
        let other = {
            let journal = journal.clone();
            thread::spawn(move || journal.write(&mut [0, 7]))
        };
        journal.write(&mut [0, 8]);
        let early = read(&journal, 1);
        other.join().unwrap();
        let late = [read(&journal, 0), read(&journal, 1)];
        // Nobody is left to write the one that is not there: its writer has met the other one.
        assert!(late.contains(&Found::Entry), "{early:?}, {late:?}");
    });
}
