//! A bare epoll loop: one read and one write for whatever one readable connection has.

use super::{Template, answer_question};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 64;
const READ_BYTES: usize = 16 << 10;

struct Line {
    stream: TcpStream,
    /// The beginning of a request whose end has not come.
    begun: Vec<u8>,
    /// What the kernel had no room for.
    unsent: Vec<u8>,
}

/// Serves until `listener` breaks.
pub fn serve(listener: &TcpListener, template: &Template) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |fd: &dyn AsFd, word| {
        epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(word), epoll::EventFlags::IN)
    };
    watch(listener, LISTENER)?;
    let mut lines: HashMap<u64, Line> = HashMap::new();
    let mut next = 0;
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut out = Vec::new();
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let word = event.data.u64();
            if word == LISTENER {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        watch(&stream, next)?;
                        let (begun, unsent) = (Vec::new(), Vec::new());
                        lines.insert(next, Line { stream, begun, unsent });
                        next += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            } else if let Some(line) = lines.get_mut(&word)
                && !line.serve(template, &mut out, |line, wants_room| {
                    let mut flags = epoll::EventFlags::IN;
                    flags.set(epoll::EventFlags::OUT, wants_room);
                    epoll::modify(&epoll, line, epoll::EventData::new_u64(word), flags)
                })
            {
                lines.remove(&word);
            }
        }
    }
}

impl Line {
    /// Serves a ready connection; false if it is over.
    fn serve(
        &mut self,
        template: &Template,
        out: &mut Vec<u8>,
        watch: impl FnOnce(&TcpStream, bool) -> rustix::io::Result<()>,
    ) -> bool {
        let waited = !self.unsent.is_empty();
        if !waited {
            let mut buffer = [0; READ_BYTES];
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => self.answer(&buffer[..read], template, out),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            // The buffer is swapped, not copied: what does not leave now stays here.
            std::mem::swap(&mut self.unsent, out);
        }
        match self.stream.write(&self.unsent) {
            Ok(sent) if sent == self.unsent.len() => self.unsent.clear(),
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        let waits = !self.unsent.is_empty();
        if !waits {
            std::mem::swap(&mut self.unsent, out);
        }
        waits == waited || watch(&self.stream, waits).is_ok()
    }

    /// Appends the replies to the whole requests in what was read.
    fn answer(&mut self, read: &[u8], template: &Template, out: &mut Vec<u8>) {
        let joined;
        let mut input = if self.begun.is_empty() {
            read
        } else {
            self.begun.extend_from_slice(read);
            joined = std::mem::take(&mut self.begun);
            &joined
        };
        loop {
            if input.starts_with(b"get ") {
                let Some(taken) = template.answer_line(input, out) else { break };
                input = &input[taken..];
            } else {
                let Some(newline) = input.iter().position(|&byte| byte == b'\n') else { break };
                out.extend_from_slice(answer_question(&input[..newline]));
                input = &input[newline + 1..];
            }
        }
        self.begun = input.to_vec();
    }
}
