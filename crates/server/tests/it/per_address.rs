//! An address has as many connections as it may (the rig's clients all have the same address).

use laneway_rig as rig;

use rig::{Plan, Rig, plans};

#[test]
fn who_has_as_many_as_an_address_may_is_told_and_turned_away_until_one_closes() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { connections_per_address: 2, ..plan });
        rig.domains.iter().for_each(|shared| assert!(shared.resp_from.set(2).is_ok()));
        let first = rig.net.connect();
        let second = rig.net.connect();
        rig.ask(&first, b"mn\r\n", b"MN\r\n");
        rig.ask(&second, b"mn\r\n", b"MN\r\n");
        for (listener, words) in [
            (0, &b"ERROR Too many open connections of this address\r\n"[..]),
            (2, b"-ERR max number of clients of this address reached\r\n"),
        ] {
            let third = rig.net.connect_at(listener);
            rig.turns(20);
            assert_eq!(
                (third.receive(usize::MAX), third.ended()),
                (words.to_vec(), true),
                "{what}"
            );
        }
        let connections = rig.shared.watch(0).connections;
        assert_eq!((connections.open, connections.rejected), (2, 0), "{what}");
        assert_eq!(connections.rejected_by_address, 2, "{what}");
        let stats = rig.ask(&first, b"stats\r\n", b"END\r\n");
        let stats = String::from_utf8(stats).expect("stats are text");
        assert!(stats.contains("STAT rejected_by_address 2\r\n"), "{what}");
        second.finish();
        rig.turns(20);
        let third = rig.net.connect();
        assert_eq!(rig.ask(&third, b"mn\r\n", b"MN\r\n"), b"MN\r\n", "{what}");
        assert_eq!(rig.shared.connections.per_address.open(), 2, "{what}");
    }
}

#[test]
fn where_all_places_are_taken_the_address_is_not_blamed() {
    let plan = Plan { connections_max: 1, connections_per_address: 1, ..plans().remove(0) };
    let mut rig = Rig::new(&plan);
    let first = rig.net.connect();
    rig.ask(&first, b"mn\r\n", b"MN\r\n");
    let second = rig.net.connect();
    rig.turns(20);
    assert_eq!(second.receive(usize::MAX), b"ERROR Too many open connections\r\n");
    let connections = rig.shared.watch(0).connections;
    assert_eq!((connections.rejected, connections.rejected_by_address), (1, 0));
}
