//! A departure's bytes, in pieces as its sender has them, cut into the datagrams that leave.

use crate::datagram::Departure;
use std::io::IoSlice;

/// Has `post` post the datagrams of a departure one by one, until it does not: behind how many, and
/// why.
pub(crate) fn each_datagram<E>(
    departure: &Departure<'_>,
    mut post: impl FnMut(&[IoSlice<'_>]) -> Result<(), E>,
) -> Result<(), (usize, E)> {
    let Some(length) = departure.segment_bytes else {
        return post(departure.pieces).map_err(|why| (0, why));
    };
    let mut cut = Cut::new(departure.pieces);
    let mut datagram = Vec::with_capacity(4);
    for datagrams in 0_usize.. {
        datagram.clear();
        cut.next(length.into(), &mut datagram);
        if datagram.is_empty() {
            break;
        }
        post(&datagram).map_err(|why| (datagrams, why))?;
    }
    Ok(())
}

/// Bytes in pieces, cut anew.
struct Cut<'a> {
    pieces: &'a [IoSlice<'a>],
    /// How much of the first piece is gone.
    at: usize,
}

impl<'a> Cut<'a> {
    /// Nothing is cut off yet.
    fn new(pieces: &'a [IoSlice<'a>]) -> Cut<'a> {
        Cut { pieces, at: 0 }
    }

    /// The next `length` bytes, or what is left.
    fn next(&mut self, mut length: usize, out: &mut Vec<IoSlice<'a>>) {
        while length > 0
            && let Some((first, rest)) = self.pieces.split_first()
        {
            let piece: &'a [u8] = &first[self.at..];
            let taken = piece.len().min(length);
            if taken > 0 {
                out.push(IoSlice::new(&piece[..taken]));
            }
            length -= taken;
            self.at += taken;
            if self.at == first.len() {
                (self.pieces, self.at) = (rest, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_anew_wherever_they_end() {
        let pieces = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defgh")];
        let mut cut = Cut::new(&pieces);
        let mut got = Vec::new();
        loop {
            let mut out = Vec::new();
            cut.next(2, &mut out);
            if out.is_empty() {
                break;
            }
            got.push(out.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>());
        }
        assert_eq!(got, [&b"ab"[..], b"cd", b"ef", b"gh"]);
    }
}
