//! Store, read, touch, delete; and what the server says of itself.
//!
//! `laneway serve --udp-base 11300` in another terminal, then
//! `cargo run -p laneway-client --example quick [HOST:PORT]`.
use laneway_client::{Answer, Client, Error, Expiry, Request, Settings};

fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:11211".into());
    run(&address, Settings::default())
}

/// Everything, against the server whose TCP address this is, with this patience.
pub fn run(address: &str, settings: Settings) -> Result<(), Error> {
    let mut client = Client::connect_with(address, settings)?;
    println!(
        "{} queues, the first at UDP port {}",
        client.topology().count(),
        client.topology().port(0)
    );

    client.set("user:7", "Ada")?;
    let value = client.get("user:7")?;
    println!(
        "user:7 is {:?}",
        value.map(|value| String::from_utf8_lossy(&value.data).into_owned())
    );

    let page = vec![b'x'; 500_000];
    client.ask(Request::set("page", page).flags(3).expiry(Expiry::Seconds(60)))?;
    let value = client.get("page")?.expect("it was stored a moment ago");
    println!("page has {} bytes and flags {}", value.data.len(), value.flags);

    if let Answer::Value(value) = client.ask(Request::gets("user:7"))? {
        let id = value.cas.unwrap_or_default();
        println!("cas: {:?}", client.ask(Request::cas("user:7", "Grace", id))?);
        println!("cas with the old id: {:?}", client.ask(Request::cas("user:7", "Mary", id))?);
    }
    println!("touched: {}", client.touch("user:7", Expiry::Seconds(30))?);
    println!("deleted: {}, again: {}", client.delete("user:7")?, client.delete("user:7")?);
    for (name, value) in client.stats("topology")? {
        println!("{name} {value}");
    }
    Ok(())
}
