//! What stands in for the way past the kernel's stack in a build without the feature `af-xdp`: the
//! part of a worker's transport, of which there is none.

/// A worker's watch.
pub mod watch {
    use crate::datagram::Path;
    use crate::{Ready, Wait};
    use rustix::fd::OwnedFd;
    use std::io;

    /// A worker's watch, which this build cannot make.
    #[derive(Debug)]
    pub enum Watch {}

    impl Watch {
        pub(crate) fn watch(
            &mut self,
            _queue: usize,
            _watch: bool,
            _set: &OwnedFd,
            _word: u64,
        ) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn watch_room(&mut self, _queue: usize, _path: Path, _watch: bool) -> bool {
            match *self {}
        }

        pub(crate) fn told(&self, _place: usize, _ready: &mut Vec<Ready>) {
            match *self {}
        }

        pub(crate) fn told_by_socket(&self, _queue: usize, _ready: &mut Vec<Ready>) {
            match *self {}
        }

        pub(crate) fn look(&mut self, _ready: &mut Vec<Ready>, _wait: Wait) -> Wait {
            match *self {}
        }
    }
}
