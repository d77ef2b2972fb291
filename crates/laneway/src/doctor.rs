//! `laneway doctor`: which Cargo features this build has, what it and this machine offer of the
//! layers in the kernel and of RDMA, layer by layer, and what to do about those that are missing.
//! It looks by trying: programs are loaded and let go again, devices opened and closed, nothing is
//! attached and nothing changed.

use crate::{STATUS_USAGE, built};
use laneway_load::output::unless_closed;
use laneway_server::kernel::layers;
use laneway_server::settings::look;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// What `--help` prints.
pub const HELP: &str = "\
laneway doctor: what this machine offers, layer by layer, and what to do

Usage: laneway doctor [kernel | rdma]

First come the Cargo features of this build. A layer that is missing takes
nothing from the rest: serve works without any of them. --kernel-lane needs the
GET lane at tc ingress (or at XDP, with --kernel-lane-hook xdp), --steer the key
steering, --af-xdp AF_XDP, --rdma libibverbs, a device and memory that may be
locked; rdma_rxe makes a device of any network interface.
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
    let mut out = Told::default();
    built::lines().iter().for_each(|line| out.line(line));
    let mut missing = 0;
    if asked.kernel {
        missing += kernel(&mut out);
    }
    if asked.rdma {
        let lacking = rdma(&mut out);
        // Few machines have it, and only who asks for it wants it.
        missing += if asked.kernel { 0 } else { lacking };
    }
    if let Some(error) = out.failed {
        eprintln!("laneway doctor: standard output: {error}");
        return ExitCode::FAILURE;
    }
    if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Standard output, line by line, as a look may take a while. Whoever reads no further than the
/// first lines is told by the status all the same.
#[derive(Default)]
struct Told {
    failed: Option<io::Error>,
}

impl Told {
    fn line(&mut self, line: impl Display) {
        let told = unless_closed(writeln!(io::stdout(), "{line}"));
        self.failed = self.failed.take().or(told.err());
    }
}

fn kernel(out: &mut Told) -> usize {
    let layers = layers();
    for layer in &layers {
        out.line(layer);
    }
    let missing = layers.iter().filter(|layer| layer.missing.is_some()).count();
    out.line(match missing {
        0 => "everything is there: laneway serve -U 11211 --kernel-lane lo --steer".to_owned(),
        _ => format!("{missing} missing; laneway serve works without, by sockets alone"),
    });
    missing
}

fn rdma(out: &mut Told) -> usize {
    let needs = look();
    for need in &needs {
        out.line(need);
    }
    // A machine with a card needs no device in software.
    let is_lacking =
        |name: &str| needs.iter().any(|need| need.name == name && need.missing.is_some());
    let lacking = ["RDMA in this build", "libibverbs", "RDMA device", "RDMA port", "locked memory"];
    let lacking = lacking.into_iter().filter(|name| is_lacking(name)).count();
    out.line(match lacking {
        0 => "RDMA is there; laneway serve --rdma DEVICE",
        _ => "no RDMA; laneway serve works without, and --shm serves this host alike",
    });
    lacking
}
