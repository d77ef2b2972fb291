//! Every item put once and got once, both ends taking turns in one thread: the same each time.

use super::report::{Counted, Tallies};
use super::rig::{Ends, Items};
use crate::rivals::client::Answer;
use crate::rivals::design::Design;

/// Turns in which nothing ends, at most: many times what a request takes.
const IDLE_TURNS_MAX: usize = 100_000;

/// The costs of a PUT and of a GET.
pub(super) fn count(
    design: Design,
    items: &Items<'_>,
    window: usize,
) -> Result<[Counted; 2], String> {
    let mut ends = Ends::new(design, items, window)?;
    let put = each(&mut ends, items, false).map_err(|error| format!("{design}, PUT: {error}"))?;
    let get = each(&mut ends, items, true).map_err(|error| format!("{design}, GET: {error}"))?;
    Ok([("GET", get), ("PUT", put)].map(|(operation, tallies)| {
        tallies.counted((design.name(), operation), items.value_bytes, window)
    }))
}

fn each(ends: &mut Ends, items: &Items<'_>, is_get: bool) -> Result<Tallies, String> {
    let (client, server) = (ends.client.tally(), ends.server.tally());
    let (mut begun, mut ended, mut trips, mut torn) = (0, 0, 0, 0);
    let mut value = Vec::new();
    let mut idle = 0;
    while ended < items.keys {
        while begun < items.keys && ends.client.has_room() {
            let name = items.name(begun);
            let begin = if is_get {
                ends.client.get(begun.into(), &name)
            } else {
                items.value(begun, 1, &mut value);
                ends.client.put(begun.into(), &name, &value)
            };
            begin.map_err(|refused| refused.to_string())?;
            begun += 1;
        }
        ends.client.turn().map_err(|error| error.to_string())?;
        ends.server.turn().map_err(|error| error.to_string())?;
        idle += 1;
        if idle > IDLE_TURNS_MAX {
            return Err(format!("no answer in {IDLE_TURNS_MAX} turns"));
        }
        while let Some(end) = ends.client.take() {
            let key = end.ticket as u32;
            match end.result {
                Ok(Answer::Done) if !is_get => {}
                Ok(Answer::Value(value)) if is_get && items.is_right(key, &value) => {}
                Ok(_) => return Err(format!("key {key} has a wrong value, or none")),
                Err(failure) => return Err(format!("key {key}: {failure}")),
            }
            (idle, ended) = (0, ended + 1);
            trips += u64::from(end.trips);
            torn += u64::from(end.torn);
        }
    }
    let (client, server) = (ends.client.tally() - client, ends.server.tally() - server);
    Ok(Tallies { client, server, requests: items.keys.into(), trips, torn })
}
