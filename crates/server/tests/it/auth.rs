//! Servers with users (`-Y`): through the whole server over memory, in every design, nothing is
//! served before a connection has said who it is, and everything after it.

use laneway_rig::{self as rig, Plan, Rig};
use laneway_transport::memory::Faults;

const USERS: &str = "alice:secret\nbob:other";
const ALICE: &[u8] = b"set anything 0 0 12\r\nalice secret\r\n";

fn plans() -> Vec<Plan> {
    let plans = rig::plans().into_iter().enumerate().map(|(number, plan)| {
        let cut = Faults { seed: 7, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let faults = if number % 2 == 0 { Faults::NONE } else { cut };
        Plan { users: Some(USERS), faults, ..plan }
    });
    plans.collect()
}

/// Sends it, and reads until as much has come as is wanted.
fn check(rig: &mut Rig, client: &laneway_transport::memory::Client, request: &[u8], wanted: &str) {
    let back = rig.send(client, request);
    let got = rig.until(client, back, |got| got.len() >= wanted.len());
    assert_eq!(String::from_utf8_lossy(&got), wanted, "{}", request.escape_ascii());
}

#[test]
fn nothing_is_served_before_a_password_and_everything_behind_it() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let (first, second) = (rig.net.connect(), rig.net.connect());
        check(
            &mut rig,
            &first,
            b"set k 0 0 1\r\nv\r\n",
            "CLIENT_ERROR bad authentication token format\r\n",
        );
        check(&mut rig, &first, b"get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
        check(&mut rig, &first, b"mn\r\n", "CLIENT_ERROR unauthenticated\r\n");
        // What is pipelined behind a password is served, a large value included.
        let value = rig::value(100_000, 1);
        let large = [b"set large 0 0 100000\r\n", &value[..], b"\r\n"].concat();
        let pipeline = [ALICE, &large, b"get k\r\nset anything 0 0 1\r\nx\r\n"].concat();
        check(&mut rig, &first, &pipeline, "STORED\r\nSTORED\r\nEND\r\nSTORED\r\n");
        check(&mut rig, &first, b"get anything\r\n", "VALUE anything 0 1\r\nx\r\nEND\r\n");
        check(&mut rig, &second, b"get anything\r\n", "CLIENT_ERROR unauthenticated\r\n");
        check(&mut rig, &second, b"set a 0 0 9\r\nbob other\r\n", "STORED\r\n");
        check(&mut rig, &second, b"get anything\r\n", "VALUE anything 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn a_client_of_redis_says_who_it_is_and_may_say_so_again() {
    const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        check(&mut rig, &client, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", NO_AUTH);
        check(&mut rig, &client, b"AUTH alice no\r\n", WRONG);
        check(&mut rig, &client, b"AUTH alice secret\r\nSET k v\r\n", "+OK\r\n+OK\r\n");
        check(&mut rig, &client, b"AUTH alice no\r\nGET k\r\n", &format!("{WRONG}$1\r\nv\r\n"));
        check(&mut rig, &client, b"AUTH bob other\r\n", "+OK\r\n");
        check(&mut rig, &client, b"AUTH other\r\n", WRONG);
        check(&mut rig, &client, b"HELLO 2 AUTH bob no\r\n", WRONG);
        // By line and as an array: it has to say so anew.
        check(&mut rig, &client, b"RESET\r\nGET k\r\n", &format!("+RESET\r\n{NO_AUTH}"));
        check(&mut rig, &client, b"AUTH bob other\r\n", "+OK\r\n");
        let reset = b"*1\r\n$5\r\nRESET\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        check(&mut rig, &client, reset, &format!("+RESET\r\n{NO_AUTH}"));
        check(&mut rig, &client, b"AUTH bob other\r\nGET k\r\n", "+OK\r\n$1\r\nv\r\n");
    }
}

#[test]
fn who_is_refused_too_often_is_let_go_and_hurts_nobody() {
    for plan in rig::one_of_each_design() {
        let mut rig = Rig::new(&Plan { users: Some(USERS), ..plan });
        let good = rig.net.connect();
        check(&mut rig, &good, ALICE, "STORED\r\n");
        let bad = rig.net.connect();
        let many = b"get k\r\n".repeat(40);
        check(&mut rig, &bad, &many, &"CLIENT_ERROR unauthenticated\r\n".repeat(16));
        rig.turns(10);
        assert!(bad.ended(), "{}", rig_name(&rig));
        let long = rig.net.connect();
        rig.send(&long, &[b'x'; 4000]);
        rig.turns(10);
        assert!(long.ended(), "a line without end");
        check(&mut rig, &good, b"get k\r\n", "END\r\n");
        drop((bad, long));
        rig.turns(10);
        let told = rig.ask(&good, b"stats\r\n", b"END\r\n");
        let told = String::from_utf8_lossy(&told);
        for line in ["auth_cmds 1", "auth_errors 0", "auth_missing 16", "curr_connections 1"] {
            assert!(told.contains(&format!("STAT {line}\r\n")), "{line}: {told}");
        }
    }
}

#[test]
fn who_does_not_say_who_it_is_in_time_is_closed_whatever_it_sends() {
    for plan in plans() {
        let mut rig = Rig::new(&plan);
        let good = rig.net.connect();
        check(&mut rig, &good, ALICE, "STORED\r\n");
        let again = rig.net.connect();
        check(&mut rig, &again, b"AUTH alice secret\r\n", "+OK\r\n");
        let (drip, silent) = (rig.net.connect(), rig.net.connect());
        let seconds = |rig: &mut Rig, count: u32| {
            for _ in 0..count {
                rig.clock.advance(1_000_000_000);
                drip.send(b"x");
                rig.turns(20);
            }
            (drip.ended(), silent.ended())
        };
        rig.turns(20);
        assert_eq!(seconds(&mut rig, 9), (false, false), "{}", plan.what());
        assert_eq!(seconds(&mut rig, 4), (true, true), "{}", plan.what());
        // Whoever has said so stays, and after `RESET` it has as long again.
        check(&mut rig, &good, b"get k\r\n", "END\r\n");
        check(&mut rig, &again, b"RESET\r\n", "+RESET\r\n");
        seconds(&mut rig, 9);
        assert!(!again.ended(), "{}", plan.what());
        check(&mut rig, &again, b"AUTH alice secret\r\nRESET\r\n", "+OK\r\n+RESET\r\n");
        seconds(&mut rig, 9);
        assert!(!again.ended(), "{}", plan.what());
        seconds(&mut rig, 4);
        assert!(again.ended(), "{}", plan.what());
        check(&mut rig, &good, b"get k\r\n", "END\r\n");
    }
}

fn rig_name(rig: &Rig) -> String {
    format!("{} workers", rig.workers.len())
}
