//! Requests that another worker executes than the one that received them: who executes which, and
//! that replies come back whole.

mod rig;

use laneway_policy::{Design, Form, ItemBytes};
use laneway_server::handoff::{DatagramOrigin, DatagramReplies, Job, Origin};
use laneway_server::output::{Output, Piece};
use rig::{Plan, Rig, hit, value};
use std::sync::{Arc, Mutex};

/// To whom, what, and whether by the large lane.
type Sent = (DatagramOrigin, Vec<u8>, bool);

/// Keeps what was to be sent.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Sent>>>);

impl DatagramReplies for Kept {
    fn send(&mut self, to: DatagramOrigin, reply: Output, large: bool) {
        let mut bytes = Vec::new();
        for piece in reply.into_pieces() {
            match piece {
                Piece::Bytes(more) => bytes.extend(more),
                Piece::Value(value) => value.copy_into(&mut bytes),
            }
        }
        self.0.lock().expect("nobody panicked").push((to, bytes, large));
    }
}

#[test]
fn the_reply_to_a_datagram_is_sent_by_whoever_executes_it() {
    let plan = Plan { design: Design::Hkh, ..Plan::of(2, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    let big = value(400_000, 1);
    rig.set(&client, "big", &big);
    let kept = Kept::default();
    rig.workers[1].datagram_replies = Some(Box::new(kept.clone()));
    let peer = "127.0.0.1:9".parse().expect("an address");
    let origin = |request_id| DatagramOrigin { queue: 0, peer, request_id };
    let requests: [&[u8]; 5] = [
        b"get big none\r\n",
        b"set small 0 0 3\r\nabc\r\n",
        b"set short 0 0 30\r\nabc\r\n", // shorter than it says
        b"mg small v\r\n",
        b"nonsense\r\n",
    ];
    for (id, request) in requests.iter().enumerate() {
        let origin = Origin::Datagram(origin(id as u16));
        let job = Job::request(request.to_vec(), ItemBytes(0), 0, origin);
        assert!(rig.shared.workers[1].jobs.push(job).is_ok());
    }
    rig.turn();
    let replies = kept.0.lock().expect("nobody panicked");
    let wanted: [(&[u8], bool); 5] = [
        (&[&hit("big", &big)[..], b"END\r\n"].concat(), true),
        (b"STORED\r\n", false),
        (b"CLIENT_ERROR bad data chunk\r\n", false),
        (b"VA 3\r\nabc\r\n", false),
        (b"ERROR\r\n", false),
    ];
    assert_eq!(replies.len(), wanted.len());
    for (id, (reply, (bytes, large))) in replies.iter().zip(wanted).enumerate() {
        assert_eq!(reply.0, origin(id as u16));
        assert!(reply.1 == bytes, "request {id}: {}", rig::tail(&reply.1));
        assert_eq!(reply.2, large, "request {id}");
    }
    assert_eq!(rig.shared.workers[1].lanes.jobs_of_others.get(), 5);
}
