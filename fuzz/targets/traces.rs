//! Fuzzes traces of requests: arbitrary bytes as rows. What is accepted is due in its order and
//! within the trace's time.

#![no_main]

use laneway_load::trace::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((speed, rows)) = input.split_first() else { return };
    let speed = f64::from(*speed % 16 + 1) / 4.0;
    let Ok(trace) = Trace::read(rows, speed) else { return };
    assert!(!trace.arrivals.is_empty());
    let due: Vec<u64> = trace.arrivals.iter().map(|arrival| arrival.due_ns).collect();
    assert!(due.is_sorted() && due.iter().all(|due| *due <= trace.duration_ns));
});
