//! Which segments make up the log, on the word of the newest header, and where the newest of them
//! ends (docs/disk-format.md, "The end of the log").
//!
//! As little as can be of what was acknowledged is left out without a word: a newest segment that
//! has lost its front is looked for where it must have begun, and a value that cannot be read ends
//! nothing. What remains is what looks as a first group that was torn does.

use crate::log::record::{self, Kind};
use crate::log::segment::{Front, Header, Listed, Met, Scan, Shape, life_of};
use crate::media::disk::Disk;
use crate::media::pm::Region;
use crate::ssd::large::is_there;
use crate::ssd::pointer::Pointer;
use crate::ssd::tables::{Dropped, id_of};
use crate::types::{BLOCK_BYTES, Error, LINE_BYTES, Position, Result, doing};
use laneway_sync::planted::{Bug, is_planted};
use std::collections::{BTreeMap, BTreeSet};

/// What is looked at.
pub struct Survey<'a> {
    /// The log's medium.
    pub region: &'a dyn Region,
    /// Where large values are.
    pub ssd: &'a dyn Disk,
    /// How the log is cut.
    pub shape: Shape,
    /// Whose it is.
    pub store_id: u64,
    /// Blocks of the SSD.
    pub blocks: u64,
    /// As the checkpoint has it.
    pub flush_sequence: u64,
    /// Where the newest checkpoint begins: everything before it was durable.
    pub checkpointed: Position,
    /// Up to where the index that lies beside the log holds it; nowhere if there is none.
    pub tree_holds: Position,
    /// There may have been a newer one: a superblock is damaged.
    pub may_have_been_newer: bool,
}

/// A segment that is in use.
pub struct Used {
    /// Its slot.
    pub slot: u32,
    /// Of this life.
    pub generation: u64,
    /// Where its records end.
    pub end: u32,
}

/// What was found.
#[derive(Default)]
pub struct Surveyed {
    /// The segments in use, oldest first.
    pub used: Vec<Used>,
    /// Slots with the header of another store.
    pub foreign: u32,
    /// Everything with a lower sequence was flushed.
    pub flush_sequence: u64,
    /// The number of the superblock that the newest header knows; 0 if it does not say.
    pub superblock: u64,
    /// The newest segment is the newest checkpoint's, and has nothing at this offset before the
    /// checkpoint's position: no damage, but a log that did not get that far.
    pub ends_before: Option<u32>,
    /// Headers that were not whole, by slot.
    pub rebuilt: Vec<(u32, Header)>,
    /// Values of the newest segment for which no record vouches. They are there now, and have to be
    /// at the next start as long as the log ends in this segment.
    pub unvouched: Vec<Pointer>,
    /// What is damaged.
    pub problems: Vec<String>,
}

/// Whole headers by generation, with their slots; what they list the newest alone has.
type Headers = BTreeMap<u64, (u32, Header)>;

/// A segment without a whole header.
struct Hidden {
    slot: u32,
    /// What its header said.
    header: Header,
    /// It was durable, so that it was damaged since.
    was_durable: bool,
    /// What is damaged in the segment before it.
    problems: Vec<String>,
}

/// What the header of the segment after the newest listed.
struct Next {
    header: Header,
    /// Slots that the newest freed.
    freed_slots: BTreeSet<u32>,
    /// What is damaged in the newest.
    problems: Vec<String>,
}

/// What a newest segment holds.
#[derive(Default)]
struct Examined {
    end: u32,
    /// Generations of segments that it says are free.
    freed: BTreeSet<u64>,
    unvouched: Vec<Pointer>,
    ends_before: Option<u32>,
    problems: Vec<String>,
}

impl Surveyed {
    /// Slots of the segments in use that had begun at this position. Of what was in another slot
    /// then, nothing is left.
    pub fn slots_from_before(&self, position: Position) -> BTreeSet<u32> {
        let there = self.used.iter().filter(|used| used.generation <= position.generation);
        there.map(|used| used.slot).collect()
    }

    /// Leaves of what the checkpoint at `position` knows as dropped what is still said where it
    /// was. The others migration has forgotten since, or appended again behind the checkpoint,
    /// where they are met. A segment that began since has nothing of them.
    pub fn forget_dropped(
        &self,
        dropped: &mut BTreeMap<u64, Dropped>,
        shape: &Shape,
        position: Position,
    ) {
        let slots = self.slots_from_before(position);
        dropped.retain(|_, dropped| slots.contains(&shape.slot_of(dropped.home.at())));
    }
}

impl Survey<'_> {
    /// Looks.
    pub fn run(&self) -> Result<Surveyed> {
        let mut found = Surveyed { flush_sequence: self.flush_sequence, ..Surveyed::default() };
        let mut headers = self.headers(&mut found.foreign)?;
        while let Some(hidden) = self.hidden_segment(&headers)? {
            let Hidden { slot, header, was_durable, problems } = hidden;
            found.problems.extend(problems);
            if was_durable {
                found.problems.push(format!(
                    "log segment {} (slot {slot}), the newest, has no whole header",
                    header.generation
                ));
            }
            found.rebuilt.push((slot, header.clone()));
            headers.insert(header.generation, (slot, header));
        }
        let Some((&generation, (slot, header))) = headers.last_key_value() else {
            return Ok(found);
        };
        found.flush_sequence = found.flush_sequence.max(header.flush_sequence);
        let Examined { end, freed, unvouched, ends_before, problems } =
            self.examine(*slot, generation, true)?;
        (found.superblock, found.ends_before) = (header.superblock, ends_before);
        (found.unvouched, found.used) = (unvouched, vec![Used { slot: *slot, generation, end }]);
        found.problems.extend(problems);
        for &Listed { slot, end, generation } in &header.listed {
            if freed.contains(&generation) {
                continue;
            }
            if headers.get(&generation).is_none_or(|(there, _)| *there != slot) {
                // Its records are read all the same: the newest header says where it is.
                let what = format!("log segment {generation} (slot {slot}) has no whole header");
                found.problems.push(what);
            }
            found.used.push(Used { slot, generation, end });
        }
        found.used.sort_by_key(|used| used.generation);
        Ok(found)
    }

    /// The lists of all headers grow with the square of the log: of 64 GiB they are 4 GiB. Only the
    /// newest is asked what it lists. So of each header the first block is read, and all of it only
    /// where that decides something: of the newest, and of two that claim to be of one generation,
    /// of which one is torn. A damaged list of an older one is not met, and nobody needs it.
    fn headers(&self, foreign: &mut u32) -> Result<Headers> {
        let Survey { region, ref shape, store_id, .. } = *self;
        let mut headers = Headers::new();
        let mut claims: BTreeMap<u64, Vec<(u32, Header)>> = BTreeMap::new();
        let mut block = vec![0; BLOCK_BYTES];
        for slot in 0..shape.segments {
            doing("read the log", region.read(shape.start(slot), &mut block))?;
            let front = match Header::goes_on(&block) {
                false => Header::decode(&block, shape, store_id)?,
                true => match Header::claimed(&block, shape, store_id) {
                    Some(header) => {
                        claims.entry(header.generation).or_default().push((slot, header));
                        continue;
                    }
                    None => read_header(region, shape, store_id, slot)?,
                },
            };
            match front {
                Front::None => {}
                Front::Foreign => *foreign += 1,
                Front::Own(header) => keep(&mut headers, slot, header),
            }
        }
        for (generation, claims) in claims.into_iter().rev() {
            let is_newest = headers.last_key_value().is_none_or(|(newest, _)| *newest < generation);
            let is_sure = !is_newest && claims.len() == 1 && !headers.contains_key(&generation);
            for (slot, claimed) in claims {
                match is_sure {
                    true => keep(&mut headers, slot, claimed),
                    false => {
                        if let Front::Own(header) = read_header(region, shape, store_id, slot)? {
                            keep(&mut headers, slot, header);
                        }
                    }
                }
            }
        }
        Ok(headers)
    }

    /// A segment newer than all whole headers, known by the records in it. Unless one of them says
    /// that the header was durable, its first group may have been torn: what is whole in front is
    /// kept all the same, since that group may have been acknowledged. If nothing is, the segment
    /// is an empty one, in which the log goes on: a start wipes what is whole behind, which would
    /// count as of it ([`crate::recovery::ending`]).
    fn hidden_segment(&self, headers: &Headers) -> Result<Option<Hidden>> {
        let generation = headers.last_key_value().map_or(1, |(generation, _)| generation + 1);
        let life = life_of(self.store_id, generation);
        let scan = Scan { life, from: self.shape.header_bytes, sealed_end: None, vouched: 0 };
        let Next { header, freed_slots, .. } = self.header_after(headers, false)?;
        let used: BTreeSet<u32> = header.listed.iter().map(|listed| listed.slot).collect();
        let known: BTreeSet<u32> = headers.values().map(|(slot, _)| *slot).collect();
        let mut first_free = None;
        for slot in (0..self.shape.segments).filter(|slot| !used.contains(slot)) {
            // It began in the lowest slot that was free: in the first of these, or in one that was
            // freed just before. What zeros in front, or a header of before, say of the others they
            // do not say of them.
            let is_likely = freed_slots.contains(&slot) || *first_free.get_or_insert(slot) == slot;
            if !is_likely && (known.contains(&slot) || self.is_untouched(slot)?) {
                continue;
            }
            let bytes = segment_bytes(self.region, &self.shape, slot)?;
            let (mut any, mut was_durable) = (false, false);
            scan.run(&bytes, |met| {
                if let Met::Record { durable_to, .. } = met {
                    any = true;
                    was_durable |= 0 < durable_to;
                }
            });
            if any || scan.next_whole(&bytes, scan.from as usize).is_some() {
                // With its first group durable, values of the segment before may be written over.
                let Next { header, problems, .. } = self.header_after(headers, !was_durable)?;
                return Ok(Some(Hidden { slot, header, was_durable, problems }));
            }
        }
        Ok(None)
    }

    /// What the header of the segment after the newest listed: what the newest does, and that one
    /// itself.
    fn header_after(&self, headers: &Headers, with_values: bool) -> Result<Next> {
        let Some((&generation, &(slot, ref header))) = headers.last_key_value() else {
            let Survey { store_id, flush_sequence, .. } = *self;
            let listed = Vec::new();
            let superblock = 0;
            let header = Header { store_id, generation: 1, flush_sequence, superblock, listed };
            return Ok(Next { header, freed_slots: BTreeSet::new(), problems: Vec::new() });
        };
        let Examined { end, freed, problems, .. } = self.examine(slot, generation, with_values)?;
        let mut header = header.clone();
        let gone = |listed: &mut Listed| freed.contains(&listed.generation);
        let freed_slots = header.listed.extract_if(.., gone).map(|listed| listed.slot).collect();
        header.listed.push(Listed { slot, end, generation });
        header.generation += 1;
        Ok(Next { header, freed_slots, problems })
    }

    /// Whether a slot holds zeros where its header and its first records would begin. A log is made
    /// large, and to read what was never written took most of a young store's start.
    fn is_untouched(&self, slot: u32) -> Result<bool> {
        let start = self.shape.start(slot);
        let mut block = vec![0; BLOCK_BYTES];
        for at in [start, start + u64::from(self.shape.header_bytes)] {
            doing("read the log", self.region.read(at, &mut block))?;
            if block.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the newest checkpoint's segment, whole up to `last`, got as far as the checkpoint
    /// says: what is behind is damaged, and was there. An older copy of the log has neither the
    /// remains of a record of this life there, nor an index beside it that holds as much as the
    /// checkpoint.
    fn was_further(&self, segment: &[u8], last: u32, life: u32) -> bool {
        let behind = &segment[last as usize..self.checkpointed.offset as usize];
        self.checkpointed <= self.tree_holds
            || record::life(behind) == Some(life)
            || record::ended_with(behind, life)
    }

    /// Where a newest segment ends, and what it says besides.
    ///
    /// It ends before the first large item whose value is not there, if `with_values`. The record
    /// of a group that was never acknowledged may be durable before the values it points at; a
    /// group that was acknowledged has both. What a later record vouches for was. A value that the
    /// medium does not give back may have been there: it is told, and what is behind its record
    /// counts. An older value of its key is not served in its place.
    fn examine(&self, slot: u32, generation: u64, with_values: bool) -> Result<Examined> {
        let bytes = segment_bytes(self.region, &self.shape, slot)?;
        let life = life_of(self.store_id, generation);
        let is_checkpointed = generation == self.checkpointed.generation;
        let mut vouched = if is_checkpointed { self.checkpointed.offset } else { 0 };
        let scan = Scan { life, from: self.shape.header_bytes, sealed_end: None, vouched };
        let mut large = Vec::new();
        let mut last = self.shape.header_bytes;
        let end = scan.run(&bytes, |met| {
            if let Met::Record { offset, record, durable_to } = met {
                last = offset + record.bytes().next_multiple_of(LINE_BYTES) as u32;
                vouched = vouched.max(durable_to);
                if with_values && record.kind == Kind::Large {
                    large.push((offset, record));
                }
            }
        });
        let mut examined = Examined { end, ..Examined::default() };
        let is_before = is_checkpointed && last < self.checkpointed.offset;
        if is_before && !self.was_further(&bytes, last, life) {
            examined.ends_before = Some(last);
        }
        for (offset, record) in large.into_iter().filter(|(offset, _)| vouched <= *offset) {
            let Some(pointer) = Pointer::of_value(record.body, self.blocks) else { continue };
            match is_there(self.ssd, &pointer) {
                Ok(true) => {}
                Ok(false) => {
                    examined.end = offset;
                    break;
                }
                Err(Error::Io { source, .. }) => {
                    let key = record.key.escape_ascii();
                    let what = format!("key {key}: the newest value cannot be read now ({source})");
                    examined.problems.push(what);
                }
                Err(error) => return Err(error),
            }
            examined.unvouched.push(pointer);
        }
        let behind = &bytes[examined.end as usize..];
        let is_cut = record::life(behind) == Some(life) && !is_planted(Bug::CutUntold);
        if self.may_have_been_newer && is_cut {
            examined.problems.push(format!(
                "log segment {generation} is cut at offset {}, where a record or its value is not \
                 whole: the damaged superblock may have known them as durable",
                examined.end
            ));
        }
        Scan { sealed_end: Some(examined.end), ..scan }.run(&bytes, |met| {
            if let Met::Record { record, .. } = met
                && record.kind == Kind::SegmentFree
            {
                examined.freed.extend(id_of(record.body));
            }
        });
        Ok(examined)
    }
}

/// Adds a header; what others list than the newest is not needed.
fn keep(headers: &mut Headers, slot: u32, mut header: Header) {
    match headers.last_entry() {
        Some(newest) if header.generation < *newest.key() => header.listed = Vec::new(),
        Some(mut newest) => newest.get_mut().1.listed = Vec::new(),
        None => {}
    }
    headers.insert(header.generation, (slot, header));
}

/// What lies as a header in a slot: at its front, and at its end where it lists so much.
pub fn read_header(region: &dyn Region, shape: &Shape, store_id: u64, slot: u32) -> Result<Front> {
    let mut bytes = vec![0; BLOCK_BYTES];
    doing("read the log", region.read(shape.start(slot), &mut bytes))?;
    if !Header::goes_on(&bytes) {
        return Header::decode(&bytes, shape, store_id);
    }
    bytes.resize(shape.header_bytes as usize, 0);
    doing("read the log", region.read(shape.start(slot), &mut bytes))?;
    let (front, rest) = (bytes.len(), Header::rest_bytes(&bytes, shape));
    if 0 < rest {
        bytes.resize(front + rest, 0);
        let at = shape.start(slot + 1) - rest as u64;
        doing("read the log", region.read(at, &mut bytes[front..]))?;
    }
    Header::decode(&bytes, shape, store_id)
}

/// All bytes of a slot.
pub fn segment_bytes(region: &dyn Region, shape: &Shape, slot: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; shape.segment_bytes as usize];
    doing("read the log", region.read(shape.start(slot), &mut bytes))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::put_header;
    use crate::log::record::{Record, Stamp};
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;
    use crate::types::ItemMeta;

    const STORE_ID: u64 = 7;
    const SEGMENTS: u32 = 300;
    /// Of a log whose headers have two blocks.
    const SEGMENT_BYTES: u32 = 16 << 10;
    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// A blank log of so many segments.
    fn blank(segments: u32, segment_bytes: u32) -> (SimRegion, Shape) {
        let bytes = segments as usize * segment_bytes as usize;
        let region = SimRegion::new(bytes, Power::new(u64::MAX), Faults::default());
        let shape = Shape::of(bytes as u64, segment_bytes).unwrap();
        (region, shape)
    }

    fn ssd() -> SimDisk {
        SimDisk::new(1 << 20, Power::new(u64::MAX), 1, Faults::default())
    }

    fn survey<'a>(region: &'a SimRegion, ssd: &'a SimDisk, shape: Shape) -> Survey<'a> {
        Survey {
            region,
            ssd,
            shape,
            store_id: STORE_ID,
            blocks: 256,
            flush_sequence: 0,
            checkpointed: Position::default(),
            tree_holds: Position::default(),
            may_have_been_newer: false,
        }
    }

    /// The headers of a log, and how many bytes were read for them.
    fn headers(region: &SimRegion, shape: Shape) -> (Headers, u64) {
        let (ssd, before) = (ssd(), region.read_bytes());
        let headers = survey(region, &ssd, shape).headers(&mut 0).unwrap();
        (headers, region.read_bytes() - before)
    }

    /// A header that lists so many.
    fn put(region: &SimRegion, shape: &Shape, (slot, generation): (u32, u64), count: u32) {
        let listed = |slot| Listed { slot, end: shape.segment_bytes, generation: 1 };
        let listed = (0..count).map(listed).collect();
        let (store_id, flush_sequence, superblock) = (STORE_ID, 0, 0);
        let header = Header { store_id, generation, flush_sequence, superblock, listed };
        put_header(region, shape, slot, &header).unwrap();
    }

    #[test]
    fn of_all_headers_the_newest_alone_keeps_what_it_lists() {
        let (region, shape) = blank(6, 8192);
        for at in [(0, 3), (1, 4), (2, 2)] {
            put(&region, &shape, at, 1);
        }
        let (headers, _) = headers(&region, shape);
        let kept: Vec<(u64, u32, usize)> = headers
            .into_iter()
            .map(|(generation, (slot, it))| (generation, slot, it.listed.len()))
            .collect();
        assert_eq!(kept, [(2, 2, 0), (3, 0, 0), (4, 1, 1)]);
    }

    #[test]
    fn of_headers_longer_than_a_block_a_start_reads_the_newest_alone_to_its_end() {
        const LISTED: u32 = 260;
        let (region, shape) = blank(SEGMENTS, SEGMENT_BYTES);
        // A header is looked at once more, from its front, where it is read whole.
        let whole = BLOCK + u64::from(shape.header_bytes);
        assert_eq!(whole, 3 * BLOCK);
        // The last slot is free.
        let newest = u64::from(SEGMENTS);
        (0..SEGMENTS - 1).for_each(|slot| {
            put(&region, &shape, (slot, u64::from(slot) + 2), LISTED);
        });
        let (there, read_bytes) = headers(&region, shape);
        assert_eq!(read_bytes, u64::from(SEGMENTS) * BLOCK + whole);
        assert_eq!(there.len() as u32, SEGMENTS - 1);
        assert!(there.iter().all(|(generation, (slot, header))| {
            let lists = if *generation == newest { LISTED as usize } else { 0 };
            u64::from(*slot) + 2 == *generation && header.listed.len() == lists
        }));
        // Its list is damaged behind the first block: it is none, and the one before it counts.
        let damage = |slot| region.write(shape.start(slot) + BLOCK + 8, &[0xff; 8]).unwrap();
        damage(SEGMENTS - 2);
        let (there, read_bytes) = headers(&region, shape);
        assert_eq!(read_bytes, u64::from(SEGMENTS) * BLOCK + 2 * whole);
        let (generation, (slot, header)) = there.last_key_value().unwrap();
        assert_eq!((*generation, *slot), (newest - 1, SEGMENTS - 3));
        assert_eq!(header.listed.len() as u32, LISTED);
        // A torn one that claims an older one's generation does not take its place.
        put(&region, &shape, (SEGMENTS - 1, 6), LISTED);
        damage(SEGMENTS - 1);
        let (there, read_bytes) = headers(&region, shape);
        assert_eq!(there[&6].0, 4);
        assert_eq!(read_bytes, u64::from(SEGMENTS) * BLOCK + 4 * whole);
    }

    #[test]
    fn of_slots_that_were_never_used_a_start_reads_where_header_and_records_begin() {
        let (region, shape) = blank(SEGMENTS, SEGMENT_BYTES);
        put(&region, &shape, (0, 1), 0);
        let found = survey(&region, &ssd(), shape).run().unwrap();
        assert_eq!((found.used.len(), found.problems.len()), (1, 0));
        // The segment is read twice; the slot behind it whole, where the next would have begun.
        let whole = 3 * u64::from(SEGMENT_BYTES);
        let untouched = u64::from(SEGMENTS) - 2;
        let read_bytes = u64::from(SEGMENTS) * BLOCK + whole + untouched * 2 * BLOCK;
        assert_eq!(region.read_bytes(), read_bytes);
    }

    /// The power fails in the first group of a segment in a slot that was used before: of its
    /// header the second block is durable, and the first is still that of the life before.
    #[test]
    fn a_torn_header_behind_the_claim_of_an_older_life_hides_no_record() {
        const LISTED: u32 = 260;
        const NEWEST: u64 = 400;
        let (region, shape) = blank(SEGMENTS, SEGMENT_BYTES);
        (LISTED + 1..SEGMENTS).for_each(|slot| {
            put(&region, &shape, (slot, u64::from(slot)), LISTED);
        });
        put(&region, &shape, (LISTED, NEWEST), LISTED);
        let (slot, mut bytes) = (LISTED + 1, Vec::new());
        let (sequence, meta) = (1, ItemMeta::default());
        let record = Record { kind: Kind::Small, sequence, meta, key: b"key", body: b"value" };
        let stamp = Stamp { life: life_of(STORE_ID, NEWEST + 1), durable_to: 0 };
        record::encode(&mut bytes, &record, stamp);
        region.write(shape.start(slot) + BLOCK, &[0xff; 64]).unwrap();
        region.write(shape.start(slot) + u64::from(shape.header_bytes), &bytes).unwrap();
        let (there, _) = headers(&region, shape);
        assert_eq!(there[&u64::from(slot)].0, slot, "it claims to be whole");
        let found = survey(&region, &ssd(), shape).run().unwrap();
        let newest = found.used.last().unwrap();
        assert_eq!((newest.slot, newest.generation), (slot, NEWEST + 1));
        assert!(shape.header_bytes < newest.end);
        let rebuilt: Vec<(u32, usize)> =
            found.rebuilt.iter().map(|(slot, header)| (*slot, header.listed.len())).collect();
        assert_eq!(rebuilt, [(slot, LISTED as usize + 1)]);
    }

    #[test]
    fn a_long_header_of_another_store_is_read_as_such() {
        let (region, shape) = blank(SEGMENTS, SEGMENT_BYTES);
        put(&region, &shape, (0, 9), 260);
        let mut block = vec![0; BLOCK_BYTES];
        region.read(0, &mut block).unwrap();
        assert!(Header::goes_on(&block));
        assert_eq!(Header::claimed(&block, &shape, STORE_ID + 1), None);
        let found = read_header(&region, &shape, STORE_ID + 1, 0).unwrap();
        assert!(matches!(found, Front::Foreign), "{found:?}");
        // Of a slot that has none the first block says so.
        let before = region.read_bytes();
        let found = read_header(&region, &shape, STORE_ID, 1).unwrap();
        assert!(matches!(found, Front::None), "{found:?}");
        assert_eq!(region.read_bytes() - before, BLOCK);
    }
}
