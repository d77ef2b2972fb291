//! Trial runs of the lane's program on frames, at both hooks.

use super::frame::{self, Frame};
use super::writer::Writer;
use laneway_kernel::{Outcome, Program};

pub const OWN: [&str; 2] = ["10.9.0.1", "fd09::1"];
const PROGRAMS: [Program; 2] = [Program::TrafficControl, Program::Xdp];

pub fn each(test: impl Fn(Writer)) {
    if !super::available() {
        return;
    }
    for program in PROGRAMS {
        test(Writer::new(program, &OWN).expect("the probe said that it can be loaded"));
    }
}

/// The reply to a frame, or nothing if it would go up as it came.
#[track_caller]
pub fn answer(writer: &Writer, frame: &[u8]) -> Option<Vec<u8>> {
    let answered = writer.lane.try_frame(frame, 1).expect("a trial run");
    if !answered.hit {
        assert_eq!(answered.frame, frame, "what is passed up is unchanged");
        return None;
    }
    Some(answered.frame)
}

#[track_caller]
pub fn text(writer: &Writer, request: &[u8]) -> Option<String> {
    let reply = answer(writer, &Frame::v4(request).bytes())?;
    Some(String::from_utf8(frame::open(&reply).text).expect("text"))
}

/// Expects one more packet with this outcome.
#[track_caller]
pub fn counted<R>(writer: &Writer, outcome: Outcome, run: impl FnOnce() -> R) -> R {
    let count = || writer.lane.counts().expect("counters").of(outcome);
    let before = count();
    let result = run();
    assert_eq!(count(), before + 1, "{outcome:?}");
    result
}
