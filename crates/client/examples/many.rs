//! Many requests under way at once: ten thousand values written and read back.
//!
//! `laneway serve --udp-base 11300` in another terminal, then
//! `cargo run --release -p laneway-client --example many [HOST:PORT]`.
#![allow(clippy::disallowed_methods, reason = "it tells how long it took")]
use laneway_client::{Answer, Client, Error, Request, Settings};
use std::time::Instant;

const KEYS: usize = 10_000;

fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:11211".into());
    run(&address, Settings::default())
}

/// Everything, against the server whose TCP address this is, with this patience.
pub fn run(address: &str, settings: Settings) -> Result<(), Error> {
    let mut client = Client::connect_with(address, settings)?;
    let key = |number: usize| format!("many:{number}");
    // One in a hundred is large.
    let length =
        |number: usize| if number.is_multiple_of(100) { 200_000 } else { 10 + number % 300 };

    let begun = Instant::now();
    let sets = (0..KEYS).map(|n| Request::set(key(n), vec![n as u8; length(n)]));
    let stored = client.ask_many(sets);
    let failed = stored.iter().filter(|answer| !matches!(answer, Ok(Answer::Done))).count();
    println!("{KEYS} values stored in {:?}, {failed} failed", begun.elapsed());

    let begun = Instant::now();
    let values = client.get_many((0..KEYS).map(key));
    let mut wrong = 0;
    for (number, value) in values.into_iter().enumerate() {
        let right = value?.is_some_and(|value| value.data == vec![number as u8; length(number)]);
        wrong += usize::from(!right);
    }
    println!("{KEYS} values read in {:?}, {wrong} missing or wrong", begun.elapsed());
    println!("{:?}", client.counts());
    if failed + wrong > 0 { Err(Error::Garbled) } else { Ok(()) }
}
