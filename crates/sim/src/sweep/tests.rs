use super::*;
use crate::machine::{Machine, Reach, Streams};
use crate::stats::US;
use crate::study::Effort;
use crate::workload::Sizes;
use laneway_policy::CostModel;

fn sweep(flags: &[(&str, &str)]) -> Result<Sweep, String> {
    let mut sweep = Sweep::default();
    for (name, values) in flags {
        sweep.set(name, values)?;
    }
    Ok(sweep)
}

#[test]
fn a_sweep_is_every_combination_in_the_order_of_the_axes() {
    let sweep = sweep(&[("load", "0.5,0.9"), ("design", "minos, lanes")]).expect("fits");
    let points = sweep.points().expect("few");
    let names: Vec<String> =
        points.iter().map(|(p, _)| p.row.text("design") + &p.row.text("load")).collect();
    assert_eq!(names, ["minos0.5", "minos0.9", "lanes0.5", "lanes0.9"]);
    assert_eq!(points[0].0.machine.settings.cost, CostModel::Packets);
    assert!(points[3].0.rate > 1.7 * points[2].0.rate);
}

#[test]
fn a_file_gives_what_no_flag_has_given() {
    let mut sweep = sweep(&[("k", "10")]).expect("fits");
    sweep.read("k = [1, 100]\nload = [0.3, 0.5]\nworkers = 4\nseeds = 2").expect("fits");
    let points = sweep.points().expect("few");
    assert_eq!(points.len(), 2);
    assert_eq!(points[0].0.mix.sizes, Sizes::Bimodal { large_frames: 10 });
    assert_eq!((points[0].0.machine.settings.workers, points[0].1), (4, 2));
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    for (name, value, words) in [
        ("load", "1.2", "--load 1.2: must be a number from"),
        ("workers", "0", "--workers 0: must be a whole number from 1 to 64"),
        ("design", "fifo", "must be one of lanes, minos"),
        ("wurst", "1", "--wurst: no such flag of run"),
        ("nic-gbit", "fast", "or none"),
        ("load", "", "--load : must be"),
        ("connections", "0", "--connections 0: must be a whole number from 1 to 65536"),
        ("connections", "65537", "must be a whole number from 1 to 65536"),
        ("depth", "1025", "--depth 1025: must be a whole number from 1 to 1024"),
        ("burst-factor", "0.5", "--burst-factor 0.5: must be a number from 1 to"),
        ("burst-share", "1", "--burst-share 1: must be a number from"),
        ("trace", "", "--trace : must be the name of a file"),
        ("rx-queue", "0", "--rx-queue 0: must be a whole number from 1 to 1000000, or none"),
        ("retry-us", "-1", "--retry-us -1: must be a number from"),
        ("numa", "0", "--numa 0: must be a whole number from 1 to 64"),
        ("numa-strays", "1.5", "--numa-strays 1.5: must be a number from 0 to 1"),
        ("numa-ns", "x", "--numa-ns x: must be a whole number from 0 to"),
        ("quantum-us", "0", "--quantum-us 0: must be a number from 0.001 to"),
        ("look-us", "0", "--look-us 0: must be a number from 0.1 to"),
        ("grant-us", "-1", "--grant-us -1: must be a number from 0 to"),
        ("search-us", "2e6", "--search-us 2e6: must be a number from 0 to 1000000"),
    ] {
        let error = sweep(&[(name, value)]).expect_err(value);
        assert!(error.contains(words), "{error}");
    }
    for (flags, words) in [
        (&[("service-file", "x"), ("k", "10")][..], "--k: --service-file has its own"),
        (&[("service-file", "x"), ("workload", "etc")], "--service-file: --workload has its"),
        (&[("trace", "x"), ("zipf", "1"), ("access", "erew")], "--zipf: --trace has its own"),
        (&[("access", "erew")], "--access: is of --design hkh alone"),
        (&[("design", "hkh"), ("keys", "9")], "--keys: keys have no owners; give --access"),
        (
            &[("design", "hkh"), ("access", "erew"), ("queue", "central")],
            "--access: a key's owner has a queue of its own in the one domain",
        ),
        (&[("nic-order", "small-first")], "--nic-order: there is no wire; give --nic-gbit"),
        (&[("standby", "epoch")], "--standby: is of --design minos alone"),
        (&[("depth", "4")], "--depth: there are no connections; give --connections"),
        (&[("urgency", "true")], "--urgency: there are no connections"),
        (&[("connections", "9"), ("way", "tcp")], "--way: --connections has its own"),
        (&[("connections", "9"), ("nic-gbit", "40")], "leave out --nic-gbit"),
        (&[("connections", "9"), ("rx-queue", "4")], "leave out --nic-gbit, --numa, --rx"),
        (&[("connections", "9"), ("design", "minos")], "--connections: knows --design lanes"),
        (&[("connections", "9"), ("design", "tq")], "--connections: knows --design lanes"),
        (
            &[("connections", "9"), ("depth", "100"), ("requests", "1999")],
            "--depth 100: a run must have 20 pipelines or more; give --requests 2000",
        ),
        (&[("trace", "x"), ("get-share", "1")], "--get-share: --trace has its own"),
        (&[("trace", "x"), ("service-file", "y")], "--trace: --service-file has its own"),
        (&[("service-file", "/no/such")], "--service-file /no/such: "),
        (&[("trace", "/no/such")], "--trace /no/such: "),
        (&[("design", "darc"), ("nic-gbit", "40")], "--nic-gbit: shinjuku, darc, tq, caladan have"),
        (&[("quantum-us", "2")], "--quantum-us: is of --design shinjuku or tq alone"),
        (
            &[("design", "darc,lanes"), ("preempt-ns", "2")],
            "--preempt-ns: is of --design shinjuku or tq alone",
        ),
        (&[("design", "tq"), ("search-us", "2")], "--search-us: is of --design caladan alone"),
        (&[("retry-us", "50")], "--retry-us: nothing is lost; give a --rx-queue"),
        (&[("numa-strays", "0.5")], "--numa-strays: there is one domain; give a --numa"),
        (&[("numa-ns", "0")], "--numa-ns: there is one domain"),
        (&[("numa", "3")], "--numa 3: must divide --workers (8)"),
        (&[("numa", "2"), ("nic-gbit", "40")], "and a wire, have no domains; leave it out"),
        (&[("numa", "2"), ("design", "tq")], "have no domains; leave it out"),
        (
            &[("rx-queue", "64"), ("design", "tq")],
            "--rx-queue: shinjuku, darc, tq have no RX queues; leave it out",
        ),
        (&[("extra-large", "true")], "--extra-large: is of --design minos alone"),
        (&[("burst-us", "5")], "--burst-us: there are no bursts; give a --burst-factor"),
        (
            &[("burst-factor", "5"), ("burst-us", "1e6"), ("rate", "1e6")],
            "--burst-us 1000000: a run must have 20 bursts or more; give --requests 200000000",
        ),
    ] {
        let error = sweep(flags).expect("each fits").points().expect_err(words);
        assert!(error.contains(words), "{error}");
    }
    let many: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
    let error = sweep(&[("k", &many.join(",")), ("seeds", &many.join(","))]);
    let error = error.expect("each fits").points().expect_err("too many");
    assert!(error.contains("a sweep of 40000 points: must be at most 10000"), "{error}");
    let error = sweep(&[("workers", "1"), ("design", "sho")]).expect("each fits");
    assert!(error.points().expect_err("no such machine").contains("needs --workers 2"));
    for (text, words) in [("load = {}", "a value or a list"), ("load = ", "TOML"), ("x = 1", "--x")]
    {
        let error = Sweep::default().read(text).expect_err(text);
        assert!(error.contains(words), "{error}");
    }
}

/// What only the policies' plans and queues have, a design with a scheduler would pass over.
#[test]
fn a_scheduler_takes_no_flags_of_plans_and_queues() {
    const FLAGS: &str = "queue=central batch=1 slice-bytes=16384 slice-order=in-turn slice-ns=0 \
        slices-unsent-max=2 steal-queue-min=2 steal-requests-max=2 steal-when-idle=true \
        threshold=1000 percentile=98 cost=bytes workers-large=2 reach=offered handoff-ns=0 \
        epoch-requests=1000 access=erew";
    for (flag, value) in FLAGS.split(' ').filter_map(|flag| flag.split_once('=')) {
        for design in ["shinjuku", "darc", "tq", "caladan", "tq,darc"] {
            let refused = sweep(&[("design", design), (flag, value)]).expect("each fits");
            let refused = refused.points().expect_err(flag);
            assert!(refused.starts_with(&format!("--{flag}: is of --design ")), "{refused}");
            assert!(refused.ends_with(" alone"), "{refused}");
        }
        // Beside a design that has it, the scheduler runs once.
        let both = [("design", "hkh,lanes,tq"), (flag, value), ("load", "0.5,0.9")];
        assert_eq!(sweep(&both).expect("fits").points().expect("few").len(), 6, "{flag}");
    }
}

#[test]
fn all_designs_have_a_name_together() {
    let designs = |names| {
        let points = sweep(&[("design", names)]).expect("fits").points().expect("few");
        points.iter().map(|(point, _)| point.row.text("design")).collect::<Vec<_>>()
    };
    assert_eq!(designs("all"), designs("lanes,minos,hkh,hkh-ws,sho,shinjuku,darc,tq,caladan"));
}

#[test]
fn a_keys_owner_has_all_requests_for_it() {
    let flags = [("design", "hkh"), ("rate", "8e5"), ("requests", "20000")];
    let p99 = |more: &[(&str, &str)]| {
        let row = rows_of_file("trace", "1,a,20,90,1,get,0\n", &[&flags[..], more].concat());
        row[0].number("p99").expect("each row has it")
    };
    let (any, owner) = (p99(&[]), p99(&[("access", "erew")]));
    // One core of eight is busy to 91 %, or each to 11.
    assert!(any < 4.0 && owner > 10.0, "{any}, {owner}");
    assert_eq!(p99(&[("access", "crew")]), any, "it is never written");
}

#[test]
fn a_rival_with_a_dispatcher_is_a_design_like_any() {
    let flags = [("design", "shinjuku,darc,lanes"), ("quantum-us", "2"), ("preempt-ns", "500")];
    let points = sweep(&flags).expect("fits").points().expect("few");
    let central: Vec<_> = points.iter().map(|(point, _)| point.machine.central).collect();
    let preempt = Central::Preempt { quantum: 2 * US, cost: US / 2 };
    assert_eq!(central, [Some(preempt), Some(Central::Reserve), None]);
    assert_eq!(points[1].0.row.text("design"), "darc");
}

#[test]
fn a_design_without_quanta_runs_once_whatever_they_are() {
    let flags = [("design", "lanes,tq"), ("quantum-us", "1,2"), ("load", "0.5,0.9")];
    let points = sweep(&flags).expect("fits").points().expect("few");
    let row = |(point, _): &(Point, u64)| {
        ["design", "quantum_us", "load"].map(|name| point.row.text(name)).join(" ")
    };
    let rows: Vec<String> = points.iter().map(row).collect();
    let of_tq = ["tq 1 0.5", "tq 1 0.9", "tq 2 0.5", "tq 2 0.9"];
    assert_eq!(rows[..2], ["lanes  0.5", "lanes  0.9"]);
    assert_eq!(rows[2..], of_tq);
}

#[test]
fn a_dispatcher_spares_nothing_of_times_that_were_measured() {
    let flags = [("design", "darc,shinjuku"), ("load", "0.9"), ("requests", "50000")];
    for row in rows_of_file("service-file", "100 500\n", &flags) {
        let busy = row.number("cpu_busy").expect("each row has it");
        assert!((0.87..0.93).contains(&busy), "{busy}");
    }
}

#[test]
fn rows_tell_losses_cores_and_what_all_domains_answer() {
    let rows = |flags: &[(&str, &str)]| {
        let all = [flags, &[("requests", "20000"), ("seeds", "1")]].concat();
        sweep(&all).expect("fits").run(&Study::new(Effort::Quick, 1, 2), None).expect("few")
    };
    let flags = [("design", "hkh"), ("rate", "3e6"), ("rx-queue", "1"), ("numa", "2")];
    let row = &rows(&flags)[0];
    let answered = row.number("answered_per_s").expect("each row has it");
    assert!((2.7e6..3.3e6).contains(&answered), "{answered}");
    assert!(row.number("lost").is_some_and(|lost| lost > 0.01));
    let row = &rows(&[("design", "caladan"), ("load", "0.3")])[0];
    assert!(row.number("cores_granted").is_some_and(|cores| (2.4..8.0).contains(&cores)));
    assert_eq!(row.number("lost"), None, "nothing could be");
}

/// Rows of a run of one seed on a file of this text.
fn rows_of_file(flag: &str, text: &str, flags: &[(&str, &str)]) -> Vec<Row> {
    let (pid, thread) = (std::process::id(), std::thread::current().id());
    let name = format!("laneway-{flag}-{pid}-{thread:?}");
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).expect("room for a few lines");
    let mut sweep = sweep(flags).expect("fits");
    sweep.set(flag, path.to_str().expect("plain")).expect("fits");
    sweep.set("seeds", "1").expect("fits");
    let rows = sweep.run(&Study::new(Effort::Quick, 1, 2), None);
    std::fs::remove_file(&path).expect("it is ours");
    rows.expect("few")
}

#[test]
fn a_load_is_that_of_the_part_of_a_trace_that_is_replayed() {
    // Twenty thousand small requests, then as many large ones, of which a run sees none.
    let rows = |key: char, bytes: u32| format!("1,{key},20,{bytes},1,get,0\n").repeat(20_000);
    let text = rows('a', 100) + &rows('b', 100_000);
    let flags = [("requests", "10000"), ("load", "0.7"), ("design", "hkh,lanes")];
    for row in rows_of_file("trace", &text, &flags) {
        let busy = row.number("cpu_busy").expect("each row has it");
        // Taught by the whole trace, `lanes` has large workers that take small requests.
        assert!((0.65..0.85).contains(&busy), "{}", row.json());
    }
}

#[test]
fn connections_are_those_of_the_pipelined_figure() {
    let flags = [
        ("connections", "32"),
        ("depth", "16"),
        ("workers", "1"),
        ("design", "hkh,lanes"),
        ("large-percent", "0.5"),
        ("load", "0.6"),
        ("requests", "40000"),
        ("seeds", "1"),
    ];
    let sweep = sweep(&flags).expect("fits");
    let points = sweep.points().expect("few");
    let streams = |urgency| Streams { connections: 32, burst: 16, turn: 7_680_000, urgency };
    let machines: Vec<_> = points.iter().map(|(point, _)| &point.machine).collect();
    assert_eq!([machines[0].streams, machines[1].streams], [false, true].map(streams).map(Some));
    for Machine { costs, reach, .. } in machines {
        assert_eq!((costs.request, costs.packet), (520_000, 300_000));
        assert_eq!(*reach, Reach::Offered);
    }
    let rows = sweep.run(&Study::new(Effort::Quick, 1, 2), None).expect("few");
    for row in &rows {
        // Where two pipelines meet on a connection, one turn is enough.
        let busy = row.number("cpu_busy").expect("each row has it");
        assert!((0.5..0.65).contains(&busy), "{}", row.json());
    }
    assert_eq!((&*rows[0].text("within_bound"), &*rows[1].text("within_bound")), ("", "true"));
}

#[test]
fn a_turn_costs_nothing_beside_times_that_were_measured_unless_it_is_said() {
    let flags = [("connections", "1"), ("workers", "4"), ("load", "0.5"), ("design", "hkh")];
    let flags = [&flags[..], &[("requests", "20000")]].concat();
    for (turn, own) in [(None, 0.125), (Some(("turn-ns", "500")), 0.125)] {
        let flags: Vec<_> = flags.iter().copied().chain(turn).collect();
        let row = &rows_of_file("service-file", "100 500", &flags)[0];
        // One connection is one worker's, so that a load of a half is an eighth of four.
        let busy = row.number("cpu_busy").expect("each row has it");
        assert!((busy - own).abs() < 0.03, "{turn:?}: {}", row.json());
    }
}

#[test]
fn a_run_has_a_row_for_each_point() {
    let flags = [("requests", "2000"), ("seeds", "2"), ("design", "hkh,lanes"), ("load", "0.2")];
    let study = Study::new(Effort::Quick, 1, 2);
    let rows = sweep(&flags).expect("fits").run(&study, None).expect("few");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.number("p99").is_some_and(|p99| p99 > 1.0)));
    assert_eq!(rows[0].number("seeds"), Some(2.0));
}

#[test]
fn a_sweep_that_was_broken_off_goes_on_where_it_stopped() {
    let folder = std::env::temp_dir().join(format!("laneway-run-{}", std::process::id()));
    let run = |loads: &str, seed: u64| {
        let flags = [("requests", "2000"), ("seeds", "2"), ("load", loads), ("k", "10")];
        let study = Study::new(Effort::Quick, seed, 2);
        let rows = sweep(&flags).expect("fits").run(&study, Some(&folder))?;
        Ok((rows.len(), study.speed().0))
    };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    let write = |text: &str| std::fs::write(folder.join("run.json"), text).expect("room");
    let (rows, simulated) = run("0.2,0.3,0.4,0.123456789", 1).expect("a whole run");
    let (json, csv) = (read("run.json"), read("run.csv"));
    assert_eq!((rows, json.lines().count()), (4, 4));
    // The rows of two points, in the order in which they ended, and a part of a third.
    let lines: Vec<&str> = json.lines().collect();
    write(&format!("{}\n{}\n{}", lines[3], lines[1], &lines[0][..90]));
    let again = run("0.2,0.3,0.4,0.123456789", 1).expect("the rest of it");
    assert_eq!(again.0, 4);
    assert!((simulated / 3..simulated * 2 / 3).contains(&again.1), "{again:?} of {simulated}");
    assert_eq!((&read("run.json"), &read("run.csv")), (&json, &csv));
    assert_eq!(run("0.2,0.3,0.4,0.123456789", 1).expect("all there"), (4, 0));
    for (loads, seed, text, words) in [
        ("0.2,0.3", 1, json.clone(), "line 1: a row of another sweep"),
        ("0.2,0.3,0.4,0.123456789", 2, json.clone(), "line 1: a row of another sweep"),
        ("0.2", 1, json.replace("run/1", "run/0"), "form \"laneway-sim-run/0\", not"),
        ("0.2", 1, "{\"figure\":\"run\"}\n".to_owned(), "form \"\", not"),
        ("0.2", 1, "once upon a time\n".to_owned(), "line 1: no row"),
        (
            "0.2,0.3,0.4,0.123456789",
            1,
            json.replace("\"point\":3", "\"point\":2"),
            "line 4: a row of no point of this sweep: point 2",
        ),
    ] {
        write(&text);
        let refused: String = run(loads, seed).expect_err(words);
        assert!(refused.contains(words) && refused.contains("another folder"), "{refused}");
        assert_eq!(read("run.json"), text, "nothing is mixed");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
