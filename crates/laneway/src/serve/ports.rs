//! The file that tells a script which ports the server has, where it asked the kernel to choose
//! (`-p 0`): the environment variable `MEMCACHED_PORT_FILENAME` names it, as memcached's does.

use laneway_server::boot::Server;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Names the file.
const VARIABLE: &str = "MEMCACHED_PORT_FILENAME";

/// Which file that is, if one is wanted.
pub fn path() -> Option<PathBuf> {
    env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Write the file, where one is asked for.
pub fn tell(server: &Server) {
    if let Some(Err(error)) = path().map(|path| write(&path, server)) {
        log::error!("{VARIABLE}: the ports cannot be written: {error}");
    }
}

/// Write the ports. The file is there, whole, as soon as it is there at all.
fn write(path: &Path, server: &Server) -> io::Result<()> {
    let mut datagrams: Vec<SocketAddr> =
        server.queues().iter().filter(|queue| !queue.chosen).map(|queue| queue.address).collect();
    datagrams.dedup();
    let mut unfinished = OsString::from(path);
    unfinished.push(".lck");
    let streams = [server.addresses(), server.tls_addresses()].concat();
    fs::write(&unfinished, text(&streams, &datagrams))?;
    fs::rename(&unfinished, path)
}

fn text(streams: &[SocketAddr], datagrams: &[SocketAddr]) -> String {
    let line = |kind: &str, address: &SocketAddr| {
        let family = if address.is_ipv6() { "INET6" } else { "INET" };
        format!("{kind} {family}: {}\n", address.port())
    };
    let streams = streams.iter().map(|address| line("TCP", address));
    streams.chain(datagrams.iter().map(|address| line("UDP", address))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_memcached_writes_them() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let streams = [address("127.0.0.1:11211"), address("[::1]:11212")];
        let told = text(&streams, &[address("127.0.0.1:11213")]);
        assert_eq!(told, "TCP INET: 11211\nTCP INET6: 11212\nUDP INET: 11213\n");
        assert_eq!(text(&[], &[]), "");
    }
}
