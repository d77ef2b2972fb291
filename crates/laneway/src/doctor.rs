//! `laneway doctor`: what this machine and this build offer of the layers in the kernel, layer by
//! layer, and what to do about those that are missing. Looks by trying: programs are loaded and let
//! go again, nothing is attached and nothing changed.

use crate::STATUS_USAGE;
use laneway_server::kernel::layers;
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
laneway doctor: what this machine offers, layer by layer, and what to do

Usage: laneway doctor

A layer that is missing takes nothing from the rest: serve works without any of
them. --kernel-lane needs the GET lane at tc ingress (or at XDP, with
--kernel-lane-hook xdp), --steer the key steering. Exit status 1 if something is
missing.
";

/// Look, and tell.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match args.first().map(|word| word.to_string_lossy().into_owned()).as_deref() {
        None => {}
        Some("-h" | "--help") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(word) => {
            eprintln!("laneway doctor: {word}: it takes no argument; see laneway doctor --help");
            return ExitCode::from(STATUS_USAGE);
        }
    }
    let layers = layers();
    for layer in &layers {
        println!("{layer}");
    }
    let missing = layers.iter().filter(|layer| layer.missing.is_some()).count();
    if missing == 0 {
        println!("everything is there: laneway serve -U 11211 --kernel-lane lo --steer");
        return ExitCode::SUCCESS;
    }
    println!("{missing} missing; laneway serve works without, by sockets alone");
    ExitCode::FAILURE
}
