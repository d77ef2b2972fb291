//! Whether a CAS id was given to two items of a key.
//!
//! Of what survives [`crate::check`] tells that: the id of a new item is above all that the key's
//! clients were told. What a loss takes back has taken its id with it there, but a client that was
//! told it may ask for a `cas` with it as long as it likes.

use crate::model::{History, Loss, Seen, Told, ValueId};
use std::collections::HashMap;

/// An id of which two values were told, and the requests to which they were.
pub(crate) fn given_twice(history: &History) -> Option<(u64, [u64; 2])> {
    // A server that keeps nothing begins anew.
    let is_all = |(at, loss): &(u64, Loss)| matches!(loss, Loss::All).then_some(*at);
    let anew: Vec<u64> = history.losses.iter().filter_map(is_all).collect();
    let mut given: HashMap<(usize, u64), (ValueId, u64)> = HashMap::new();
    for operation in &history.operations {
        let Told::Value(Some(Seen { value, cas: Some(id), .. })) = operation.told else { continue };
        let life = anew.partition_point(|at| *at < operation.returned);
        let request = operation.request;
        let (first, other) = *given.entry((life, id)).or_insert((value, request));
        if first != value {
            return Some((id, [other, request]));
        }
    }
    None
}
