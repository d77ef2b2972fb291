//! Stores and reads values of many sizes over RDMA, and looks at every byte of them.
//!
//! `laneway serve --rdma rxe0` on one host, then
//! `cargo run -p laneway-client --example rdma_check HOST:18515 rxe0 uc 2000` on another, or on the
//! same. Ends with status 1 at the first value that is wrong. With `long` behind it all values are
//! long, 16 KiB to 1 MiB. With `outside` in place of `uc 2000` it writes where it may not, with
//! `neighbour` where another client may, by that one's keys, over `rc` and over `uc`, and with
//! `lies` it lends what is not its own, and sees that it is refused. Over `ud` it sends with
//! `strangers` under a wrong key, and when it is no client any more, and with `flood` more than it
//! may. With `idle` in place of `2000` it asks for nothing, until it is ended. `any` in place of
//! `uc` leaves the choice to the server.
use laneway_client::{Client, RdmaPlace, RdmaService, Request, Settings};
use laneway_rdma::contract::{Lend, LongRequester as _, Requester as _};
use laneway_rdma::verbs::{self, Lending, VerbsRequester};
use laneway_wire::udp::{Header, Kind};
use std::error::Error;
use std::net::TcpStream;
use std::time::Duration;

/// Values of HERD's figures, one slot's most, and some that go in frames.
const BYTES: [usize; 8] = [16, 32, 48, 256, 1_000, 1_024, 1_300, 6_000];
/// Of how many values one is long.
const LONG_EVERY: usize = 500;
const LONG_BYTES: usize = 200_000;
/// How long an answer may take: emulated machines are slow.
const PATIENCE_NANOS: u64 = 120_000_000_000;
/// Requests under way together.
const TOGETHER: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [door, place, word] = &words[..] {
        match word.as_str() {
            "outside" => return outside(door, &place.parse()?),
            "neighbour" => return neighbour(door, &place.parse()?),
            "lies" => return lies(door, &place.parse()?),
            "strangers" => return strangers(door, &place.parse()?),
            "flood" => return flood(door, &place.parse()?),
            _ => {}
        }
    }
    if let [door, place, service, word] = &words[..]
        && word == "idle"
    {
        return idle(door, &place.parse()?, RdmaService::wanted(service)?);
    }
    let (words, value): (_, fn(usize) -> Vec<u8>) = match words.split_last() {
        Some((last, words)) if last == "long" => (words, long_value),
        _ => (&words[..], value),
    };
    let [door, place, service, count] = words else {
        return Err(
            "rdma_check HOST:PORT DEVICE[:PORT[:GID]] any|uc|rc|ud COUNT [long] or idle, or \
                    outside, neighbour, lies, strangers or flood"
                .into(),
        );
    };
    run(door, &place.parse()?, RdmaService::wanted(service)?, count.parse()?, value)
}

fn connect(
    door: &str,
    place: &RdmaPlace,
    service: impl Into<Option<RdmaService>>,
) -> Result<Client, Box<dyn Error>> {
    let settings = Settings {
        deadline_nanos: PATIENCE_NANOS,
        topology_nanos: PATIENCE_NANOS,
        ..Settings::in_memory()
    };
    Ok(Client::connect_rdma(door, place, service, settings)?)
}

fn run(
    door: &str,
    place: &RdmaPlace,
    service: Option<RdmaService>,
    count: usize,
    value: fn(usize) -> Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    let mut client = connect(door, place, service)?;
    println!("{} queues by {place}", client.topology().count());
    for first in (0..count).step_by(TOGETHER) {
        let numbers = first..count.min(first + TOGETHER);
        let sets = numbers.clone().map(|number| Request::set(key(number), value(number)));
        for answer in client.ask_many(sets) {
            answer?;
        }
        let found = client.get_many(numbers.clone().map(key));
        for (number, found) in numbers.zip(found) {
            let found = found?.ok_or_else(|| format!("{} is not there", key(number)))?;
            if found.data != value(number) {
                return Err(format!("{} is another value", key(number)).into());
            }
        }
    }
    // Those of before are still what they were.
    let last = count - 1;
    if client.get(key(last))?.is_none_or(|found| found.data != value(last)) {
        return Err("the last value is another".into());
    }
    println!("{count} SETs and {count} GETs, every byte right; {:?}", client.counts());
    Ok(())
}

/// A client that lends what is not its own: the server's card is refused by the client's, which
/// breaks their connection, and none of the others.
fn lies(door: &str, place: &RdmaPlace) -> Result<(), Box<dyn Error>> {
    let mut other = connect(door, place, RdmaService::Unreliable)?;
    other.set(key(0), value(0))?;
    let mut liar = enter(door, place, RdmaService::Reliable, Lending::USUAL)?;
    let message = vec![7; 100_000];
    let Lend::Lent(sealed_descriptor) = liar.lend(1, &message) else {
        return Err("no room".into());
    };
    liar.take_away();
    let header = Header { kind: Kind::Lent, ..Header::whole(1) };
    let said = [&header.to_bytes()[..], &sealed_descriptor.to_bytes()].concat();
    liar.post_request(0, &said);
    liar.pump()?;
    let mut looks = 0;
    while !liar.is_server_gone() {
        looks += 1;
        if looks > LOOKS {
            return Err("nobody refused a read of what was not lent".into());
        }
        liar.poll_replies(LOOKS as usize, &mut |_, _| ()); // the server says that there is room
        liar.sleep(Duration::from_millis(100))?;
    }
    println!("the device refused it, and the server sent its client away");
    still_served(&mut other)
}

/// Looks at a broken connection so often, and sleeps a tenth of a second each time.
const LOOKS: u32 = 300;

fn enter(
    door: &str,
    place: &RdmaPlace,
    service: impl Into<Option<RdmaService>>,
    lending: Lending,
) -> Result<VerbsRequester, Box<dyn Error>> {
    Ok(verbs::enter(TcpStream::connect(door)?, place, service.into(), lending)?)
}

/// A write behind the memory that the server gave breaks the connection, and none of the others.
fn outside(door: &str, place: &RdmaPlace) -> Result<(), Box<dyn Error>> {
    let mut other = connect(door, place, RdmaService::Unreliable)?;
    other.set(key(0), value(0))?;
    let hostile = enter(door, place, RdmaService::Reliable, Lending::NOTHING)?;
    let (address, bytes, rkey) = hostile.slots();
    is_cut_off_for(hostile, address + bytes, rkey)?;
    println!("the device refused it");
    still_served(&mut other)
}

/// A write to what the server gave a neighbour, its slots or its grant, by the neighbour's own key
/// reaches neither. Over RC it breaks the connection. Over UC the device says nothing, so the
/// neighbour's memory has to tell: what is tried is the word by which a client asks for room, which
/// the server answers to whose memory it is in.
fn neighbour(door: &str, place: &RdmaPlace) -> Result<(), Box<dyn Error>> {
    let mut other = connect(door, place, RdmaService::Unreliable)?;
    other.set(key(0), value(0))?;
    let mut victim = enter(door, place, RdmaService::Unreliable, Lending::USUAL)?;
    let (slots, grant) = (victim.slots(), victim.granted());
    if grant.1 == 0 {
        return Err("the server granted its client nothing".into());
    }
    for (address, _, rkey) in [slots, grant] {
        let hostile = enter(door, place, RdmaService::Reliable, Lending::NOTHING)?;
        is_cut_off_for(hostile, address, rkey)?;
    }
    println!("the device refused slots and grant of a neighbour over RC");
    let mut hostile = enter(door, place, RdmaService::Unreliable, Lending::NOTHING)?;
    // Each has asked once, as it came.
    told(&mut victim, 1)?;
    told(&mut hostile, 1)?;
    hostile.write_anywhere(slots.0, slots.2);
    // The same word to where it may: a connection keeps its order, so when it is answered the other
    // had its turn. Twice, for the poll that finds the first may have been at the neighbour before.
    let own = hostile.slots();
    for times in 2..=3 {
        hostile.write_anywhere(own.0, own.2);
        hostile.pump()?;
        told(&mut hostile, times)?;
    }
    victim.poll_replies(LOOKS as usize, &mut |_, _| ());
    match victim.verbs().receives {
        1 => println!("what it wrote there over UC did not arrive"),
        more => return Err(format!("a neighbour's write arrived: {more} answers").into()),
    }
    still_served(&mut other)
}

/// What is sent under a wrong key does not arrive, and what somebody sends who has left is thrown
/// away: the server counts it, and serves the others.
fn strangers(door: &str, place: &RdmaPlace) -> Result<(), Box<dyn Error>> {
    let mut other = connect(door, place, RdmaService::Datagrams)?;
    other.set(key(0), value(0))?;
    let mut hostile = enter(door, place, RdmaService::Datagrams, Lending::NOTHING)?;
    let set = |id: u16, key: &str| {
        let command = format!("set {key} 0 0 1\r\nx\r\n");
        [&Header::whole(id).to_bytes()[..], command.as_bytes()].concat()
    };
    let right = hostile.replace_key(0);
    hostile.replace_key(right ^ 1);
    hostile.post_request(0, &set(1, "wrong"));
    hostile.pump()?;
    hostile.replace_key(right);
    hostile.post_request(0, &set(2, "right"));
    hostile.pump()?;
    // A queue pair keeps its order: when the second has come, the first had its turn.
    let mut looks = 0;
    while other.get("right")?.is_none() {
        looks += 1;
        if looks > LOOKS {
            return Err("what was sent under the right key did not arrive".into());
        }
        hostile.sleep(Duration::from_millis(100))?;
    }
    if other.get("wrong")?.is_some() {
        return Err("what was sent under a wrong key arrived".into());
    }
    println!("nothing arrived under a wrong key");
    hostile.shut_door()?;
    // The door sees it in a moment, and nobody tells us when.
    for _ in 0..STRANGE {
        hostile.ask(0);
        hostile.pump()?;
        hostile.poll_replies(LOOKS as usize, &mut |_, _| ());
        hostile.sleep(Duration::from_millis(100))?;
        other.get(key(0))?;
    }
    still_served(&mut other)
}

/// Datagrams of somebody who has left, a tenth of a second apart.
const STRANGE: u32 = 50;

/// A client that sends what it may not, on and on, is sent away; every request of another is
/// answered meanwhile.
fn flood(door: &str, place: &RdmaPlace) -> Result<(), Box<dyn Error>> {
    let mut other = connect(door, place, RdmaService::Datagrams)?;
    other.set(key(0), value(0))?;
    let mut hostile = enter(door, place, RdmaService::Datagrams, Lending::NOTHING)?;
    for _ in 0..LOOKS {
        hostile.flood(0, 64);
        hostile.pump()?;
        still_served(&mut other)?;
        if hostile.is_server_gone() {
            println!("the server sent its client away");
            return still_served(&mut other);
        }
        hostile.poll_replies(LOOKS as usize, &mut |_, _| ());
        hostile.sleep(Duration::from_millis(100))?;
    }
    Err("a client that sends too much was not sent away".into())
}

/// Be a client that asks for nothing.
fn idle(door: &str, place: &RdmaPlace, service: Option<RdmaService>) -> Result<(), Box<dyn Error>> {
    let mut client = enter(door, place, service, Lending::NOTHING)?;
    while !client.is_server_gone() {
        client.poll_replies(LOOKS as usize, &mut |_, _| ());
        client.sleep(Duration::from_secs(1))?;
    }
    Ok(())
}

/// Write to an address by a key over a reliable connection, and see it broken for it.
fn is_cut_off_for(
    mut hostile: VerbsRequester,
    address: u64,
    rkey: u32,
) -> Result<(), Box<dyn Error>> {
    hostile.write_anywhere(address, rkey);
    hostile.pump()?;
    for _ in 0..LOOKS {
        if hostile.is_server_gone() {
            return Ok(());
        }
        hostile.poll_replies(LOOKS as usize, &mut |_, _| ()); // the server says that there is room
        hostile.sleep(Duration::from_millis(100))?;
    }
    Err("nobody refused a write outside of what was given".into())
}

/// Wait until the server has answered so often.
fn told(client: &mut VerbsRequester, times: u64) -> Result<(), Box<dyn Error>> {
    for _ in 0..LOOKS {
        client.poll_replies(LOOKS as usize, &mut |_, _| ());
        if client.verbs().receives >= times {
            return Ok(());
        }
        client.sleep(Duration::from_millis(100))?;
    }
    Err("the server does not answer who asks for room".into())
}

fn still_served(other: &mut Client) -> Result<(), Box<dyn Error>> {
    match other.get(key(0))? {
        Some(found) if found.data == value(0) => Ok(()),
        _ => Err("and another client lost its value".into()),
    }
}

/// Keys are used again before their long values fill the memory of a server of tests, which would
/// throw away what was stored last.
const KEYS: usize = 256;

fn key(number: usize) -> String {
    format!("rdma:{}", number % KEYS)
}

/// 16 KiB to 1 MiB, few of them very long: an emulated machine takes its time.
fn long_value(number: usize) -> Vec<u8> {
    let bytes = (16 << 10) << [0, 0, 0, 1, 0, 1, 2, 0, 1, 0, 3, 0, 4, 2, 0, 5][number % 16];
    filled(number, if number % 64 == 63 { (1 << 20) - 512 } else { bytes + number % 97 })
}

fn value(number: usize) -> Vec<u8> {
    let is_long = number % LONG_EVERY == LONG_EVERY - 1;
    filled(number, if is_long { LONG_BYTES } else { BYTES[number % BYTES.len()] })
}

/// Bytes that differ from those of any other number.
fn filled(number: usize, bytes: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
