//! What is told of each client is what it asked for, whoever served it.

use laneway_rig as rig;

use laneway_server::counts::clients::ClientWatch;
use rig::{Plan, Rig, plans, value};

const LARGE: usize = 300_000;

fn told(rig: &Rig, address: &str) -> ClientWatch {
    let clients = rig.shared.watch(0).clients;
    clients.into_iter().find(|client| client.address == address).expect("it has come")
}

/// The address that the rig's clients have, by the order of their coming.
fn addresses(rig: &Rig) -> Vec<String> {
    rig.shared.watch(0).clients.into_iter().map(|client| client.address).collect()
}

#[test]
fn each_client_is_told_its_requests_and_bytes_in_every_design() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (quiet, noisy) = (rig.net.connect(), rig.net.connect());
        rig.ask(&quiet, b"mn\r\n", b"MN\r\n");
        rig.ask(&noisy, b"mn\r\n", b"MN\r\n");
        let [quiet_address, noisy_address] = &addresses(&rig)[..] else { panic!("two came") };
        let (mut sent, mut got) = (4, 4); // mn and MN, with their line ends
        let mut requests = 1;
        for round in 0..5 {
            let key = format!("big{round}");
            rig.set(&noisy, &key, &value(LARGE, round));
            sent += format!("set {key} 0 0 {LARGE}\r\n").len() + LARGE + 2;
            let line = format!("get {key} none {key}\r\n");
            sent += line.len();
            got += b"STORED\r\n".len() + rig.ask(&noisy, line.as_bytes(), b"END\r\n").len();
            requests += 4;
        }
        rig.turns(10);
        let noisy_told = told(&rig, noisy_address);
        let sums = noisy_told.sums;
        assert_eq!((sums.bytes_in, sums.bytes_out), (sent as u64, got as u64), "{what}");
        assert_eq!((sums.requests, sums.requests_large), (requests, 15), "{what}");
        let sums = told(&rig, quiet_address).sums;
        assert_eq!((sums.requests, sums.requests_large, sums.bytes_in), (1, 0, 4), "{what}");
        noisy.finish();
        rig.turns(20);
        let gone = told(&rig, noisy_address);
        assert_eq!((gone.connections, gone.opened, gone.sums), (0, 1, noisy_told.sums), "{what}");
    }
}

#[test]
fn stats_clients_names_the_one_with_most_bytes_first() {
    let mut rig = Rig::new(&Plan::of(1, laneway_policy::Form::TimeShare));
    let (quiet, noisy) = (rig.net.connect(), rig.net.connect());
    rig.ask(&quiet, b"mn\r\n", b"MN\r\n");
    rig.set(&noisy, "big", &value(LARGE, 1));
    let stats = rig.ask(&quiet, b"stats clients\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("stats are text");
    let lines: Vec<&str> = stats.lines().collect();
    assert_eq!(lines.len(), 2 * 8 + 1, "{stats}");
    let number = |line: &str| line.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok());
    assert!(lines[4].contains(":bytes_in ") && number(lines[4]) > Some(LARGE as u64), "{stats}");
    assert!(lines[12].contains(":bytes_in ") && number(lines[12]) < Some(100), "{stats}");
}
