//! Streams of which some are encrypted, and a transport of them over one of plain streams. What a
//! listener brings is plain; encrypted streams come from [`Handshakes`](crate::Handshakes).

use crate::TlsStream;
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::datagram::Path;
use laneway_transport::{Interest, Ready, Stream, Token, Transport, Wait, Wake};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// A plain stream, or an encrypted one.
pub enum EitherStream<S: Stream> {
    /// As its bytes are.
    Plain(S),
    /// Encrypted on its way.
    Tls(Box<TlsStream<S>>),
}

impl<S: Stream> EitherStream<S> {
    /// The plain stream that it is, or is over.
    #[inline]
    fn below(&self) -> &S {
        match self {
            EitherStream::Plain(stream) => stream,
            EitherStream::Tls(stream) => stream.inner(),
        }
    }
}

impl<S: Stream> Stream for EitherStream<S> {
    #[inline]
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            EitherStream::Plain(stream) => stream.read(room),
            EitherStream::Tls(stream) => stream.read(room),
        }
    }

    #[inline]
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            EitherStream::Plain(stream) => stream.write(pieces),
            EitherStream::Tls(stream) => stream.write(pieces),
        }
    }

    #[inline]
    fn has_more(&self) -> bool {
        match self {
            EitherStream::Plain(_) => false,
            EitherStream::Tls(stream) => stream.has_more(),
        }
    }

    fn limit_unsent(&mut self, bytes_max: Option<usize>) {
        match self {
            EitherStream::Plain(stream) => stream.limit_unsent(bytes_max),
            EitherStream::Tls(stream) => stream.limit_unsent(bytes_max),
        }
    }

    fn peer(&self) -> String {
        self.below().peer()
    }

    fn local(&self) -> Option<String> {
        self.below().local()
    }
}

/// A transport of such streams. What lies decrypted in a stream when it is attached, or waits for
/// something to read again, is told as its socket tells of what lies there.
pub struct EitherTransport<T> {
    inner: T,
    /// Streams to tell of.
    told: Vec<Token>,
}

impl<T: Transport> EitherTransport<T> {
    /// Over a transport of plain streams.
    pub fn new(inner: T) -> EitherTransport<T> {
        EitherTransport { inner, told: Vec::new() }
    }

    /// The transport below.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Whether the next poll tells of streams without a look at the transport below.
    pub fn has_to_tell(&self) -> bool {
        !self.told.is_empty()
    }

    fn waits(&mut self, stream: &EitherStream<T::Stream>, token: Token, interest: Interest) {
        // What it waited for before is of no meaning any more.
        if !self.told.is_empty() {
            self.told.retain(|told| *told != token);
        }
        let has_more = stream.has_more() && !is_planted(Bug::DecryptedUntold);
        if interest == Interest::Read && has_more {
            self.told.push(token);
        }
    }
}

impl<T: Transport> Transport for EitherTransport<T> {
    type Stream = EitherStream<T::Stream>;

    #[inline]
    fn poll(&mut self, ready: &mut Vec<Ready>, burst: usize, wait: Wait) -> io::Result<()> {
        if self.told.is_empty() {
            return self.inner.poll(ready, burst, wait);
        }
        // Half of the places are the sockets': many streams that come with something decrypted, as
        // when workers change roles, would keep what others ask from being heard.
        let most = burst.div_ceil(2);
        let told: Vec<Token> = self.told.drain(..self.told.len().min(most)).collect();
        let from = ready.len();
        let polled = match burst - told.len() {
            0 => Ok(()),
            burst => self.inner.poll(ready, burst, Wait::No),
        };
        // Each is told of once: who is told a second time takes it for the end of the stream.
        let is_new = |token: &Token, ready: &[Ready]| {
            !ready.iter().any(|ready| match ready {
                Ready::Stream(other) | Ready::Ending(other) => token == other,
                _ => false,
            })
        };
        let new: Vec<Token> =
            told.into_iter().filter(|told| is_new(told, &ready[from..])).collect();
        ready.extend(new.into_iter().map(Ready::Stream));
        polled
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<Self::Stream>> {
        Ok(self.inner.accept(listener)?.map(EitherStream::Plain))
    }

    fn watch_listeners(&mut self, watch: bool) -> io::Result<()> {
        self.inner.watch_listeners(watch)
    }

    fn attach(
        &mut self,
        stream: &Self::Stream,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.inner.attach(stream.below(), token, interest)?;
        self.waits(stream, token, interest);
        Ok(())
    }

    fn rearm(&mut self, stream: &Self::Stream, token: Token, interest: Interest) -> io::Result<()> {
        self.inner.rearm(stream.below(), token, interest)?;
        self.waits(stream, token, interest);
        Ok(())
    }

    fn detach(&mut self, stream: &Self::Stream) -> io::Result<()> {
        self.inner.detach(stream.below())
    }

    fn watch_datagrams(&mut self, queue: usize, watch: bool) -> io::Result<()> {
        self.inner.watch_datagrams(queue, watch)
    }

    fn watch_room(&mut self, queue: usize, path: Path, watch: bool) -> io::Result<()> {
        self.inner.watch_room(queue, path, watch)
    }

    fn set_alarm(&mut self, after: Duration) -> bool {
        self.inner.set_alarm(after)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }
}
