//! RESP, through the whole server over memory: what each command answers, large values by lanes,
//! and what hostile clients may not do. Every fact holds in every design, at 1, 2 and 6 workers.

mod hostile;
mod info;
mod kept;
mod lanes;
mod millis;
mod model;
mod pipelines;
mod roles;
mod scan;
mod scripts;
mod sharing;
mod watch;
