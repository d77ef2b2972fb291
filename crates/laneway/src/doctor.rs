//! `laneway doctor`: what this machine and this build offer of the layers in the kernel and of
//! RDMA, layer by layer, and what to do about those that are missing. Looks by trying: programs are
//! loaded and let go again, devices opened and closed, nothing is attached and nothing changed.

use crate::STATUS_USAGE;
use laneway_server::kernel::layers;
use laneway_server::settings::look;
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
laneway doctor: what this machine offers, layer by layer, and what to do

Usage: laneway doctor [kernel | rdma]

A layer that is missing takes nothing from the rest: serve works without any of
them. --kernel-lane needs the GET lane at tc ingress (or at XDP, with
--kernel-lane-hook xdp), --steer the key steering, --af-xdp AF_XDP, --rdma
libibverbs, a device and memory that may be locked; rdma_rxe makes a device of
any network interface.
Exit status 1 if something is missing of what is asked for (of the kernel's, if
nothing is).
";

/// What is looked at, and whether what it lacks is a failure.
struct Asked {
    kernel: bool,
    rdma: bool,
}

/// Look, and tell.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let words: Vec<String> = args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let asked = match words[..] {
        [] => Asked { kernel: true, rdma: true },
        ["kernel"] => Asked { kernel: true, rdma: false },
        ["rdma"] => Asked { kernel: false, rdma: true },
        ["-h" | "--help"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        [word, ..] => {
            eprintln!("laneway doctor: {word}: it takes kernel or rdma; see laneway doctor --help");
            return ExitCode::from(STATUS_USAGE);
        }
    };
    let mut missing = 0;
    if asked.kernel {
        missing += kernel();
    }
    if asked.rdma {
        let lacking = rdma();
        // Few machines have it, and only who asks for it wants it.
        missing += if asked.kernel { 0 } else { lacking };
    }
    if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn kernel() -> usize {
    let layers = layers();
    for layer in &layers {
        println!("{layer}");
    }
    let missing = layers.iter().filter(|layer| layer.missing.is_some()).count();
    match missing {
        0 => println!("everything is there: laneway serve -U 11211 --kernel-lane lo --steer"),
        _ => println!("{missing} missing; laneway serve works without, by sockets alone"),
    }
    missing
}

fn rdma() -> usize {
    let needs = look();
    for need in &needs {
        println!("{need}");
    }
    // A machine with a card needs no device in software.
    let is_lacking =
        |name: &str| needs.iter().any(|need| need.name == name && need.missing.is_some());
    let lacking = ["libibverbs", "RDMA device", "RDMA port", "locked memory"];
    let lacking = lacking.into_iter().filter(|name| is_lacking(name)).count();
    match lacking {
        0 => println!("RDMA is there; laneway serve --rdma DEVICE"),
        _ => println!("no RDMA; laneway serve works without, and --shm serves this host alike"),
    }
    lacking
}
