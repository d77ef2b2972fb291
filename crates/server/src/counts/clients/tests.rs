//! Places are given, kept while somebody is there, and given anew.

use super::*;

fn enter(clients: &Clients, address: &str, before: u64) -> u16 {
    clients.enter(address, |_| ClientSums { requests: before, ..ClientSums::default() })
}

#[test]
fn connections_of_one_address_share_a_place_and_ports_do_not_matter() {
    let clients = Clients::default();
    let first = enter(&clients, "tcp:10.0.0.1:5000", 0);
    let other = enter(&clients, "tcp6:[::1]:5000", 0);
    let unix = enter(&clients, "unix:/run/a:b", 0);
    assert_eq!(enter(&clients, "tcp:10.0.0.1:5001", 0), first);
    assert_eq!([first, other, unix], [1, 2, 3]);
    clients.leave(first);
    let counted = |place: u16| ClientSums { requests: 10 * u64::from(place), ..Default::default() };
    let told = clients.read(counted);
    let told: Vec<_> = told
        .iter()
        .map(|one| (one.address.as_str(), one.connections, one.opened, one.sums.requests))
        .collect();
    assert_eq!(told, [("10.0.0.1", 1, 2, 10), ("[::1]", 1, 1, 20), ("unix:/run/a:b", 1, 1, 30)]);
}

#[test]
fn a_place_is_given_anew_when_its_client_left_longest_ago_and_counts_from_there() {
    let clients = Clients::default();
    let name = |number: usize| format!("tcp:10.0.{}.{}:1", number / 256, number % 256);
    let places: Vec<u16> = (1..PLACES).map(|one| enter(&clients, &name(one), 0)).collect();
    assert_eq!(enter(&clients, &name(PLACES), 0), 0, "nobody has left: with the others");
    clients.leave(places[7]);
    clients.leave(places[3]);
    assert_eq!(enter(&clients, &name(8), 0), places[7], "it is known still");
    assert_eq!(enter(&clients, &name(999), 500), places[3]);
    assert_eq!(enter(&clients, &name(998), 0), 0, "all are there again");
    let told = clients.read(|_| ClientSums { requests: 600, ..ClientSums::default() });
    assert_eq!(told.len(), PLACES);
    let of = |address: &str| told.iter().find(|one| one.address == address);
    assert_eq!(of("10.0.3.231").map(|one| (one.sums.requests, one.opened)), Some((100, 1)));
    assert_eq!(of(OTHERS).map(|one| (one.sums.requests, one.connections)), Some((600, 2)));
    assert_eq!(of("10.0.0.4"), None, "it lost its place");
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let clients = Clients::default();
    let long = format!("unix:{}é", "x".repeat(NAME_BYTES_MAX - 6));
    enter(&clients, &long, 0);
    let told = clients.read(|_| ClientSums::default());
    assert_eq!(told[0].address, long[..NAME_BYTES_MAX - 1]);
}
