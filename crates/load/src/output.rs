//! Where results go: standard output, and files.

use std::io;

/// What became of output that may have fewer readers than lines: a pipe whose reader has gone, as
/// behind `head`, is no failure; a disk that is full is one.
pub fn unless_closed(told: io::Result<()>) -> io::Result<()> {
    match told {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}
