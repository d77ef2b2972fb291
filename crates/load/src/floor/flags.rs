//! Reads the command line of `laneway bench floor`.

use super::{Template, VALUE_BYTES_MAX, tcp, udp};
use crate::arguments::{carry_out, number, within};
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::ExitCode;

/// What `laneway bench floor --help` prints.
pub const HELP: &str = include_str!("help.txt");

const PORT: u16 = 11_211;
const VALUE_BYTES: usize = 100;

/// Runs with these arguments, `floor` not among them; returns only with an error, or after
/// `--help`.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    carry_out("bench floor", HELP, parse(arguments), |(port, value_bytes)| {
        let failed = |error: io::Error| format!("port {port}: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        serve(&listener, &socket, &Template::new(value_bytes)).map(|()| true).map_err(failed)
    })
}

/// The port, and the length of every value; nothing where help is asked for.
fn parse(arguments: Vec<OsString>) -> Result<Option<(u16, usize)>, String> {
    let (mut port, mut value_bytes) = (PORT, VALUE_BYTES);
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long("port") => port = number("port", &mut parser)?,
            Arg::Long("value-bytes") => value_bytes = number("value-bytes", &mut parser)?,
            other => return Err(other.unexpected().to_string()),
        }
    }
    within("value-bytes", value_bytes, 0..=VALUE_BYTES_MAX)?;
    Ok(Some((port, value_bytes)))
}

/// Serves both until one of them breaks.
pub fn serve(listener: &TcpListener, socket: &UdpSocket, template: &Template) -> io::Result<()> {
    std::thread::scope(|scope| {
        let datagrams = scope.spawn(|| udp::serve(socket, template));
        tcp::serve(listener, template)?;
        datagrams.join().unwrap_or_else(|_| Err(io::Error::other("the UDP loop panicked")))
    })
}
