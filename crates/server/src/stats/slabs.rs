//! `stats items`, `stats slabs`, `stats sizes`: what lies in which slab class. The store counts
//! slots and evictions per class, and nothing per command: those lines are always 0.

use super::lines::Lines;
use laneway_store::{ClassStats, Stats};

/// What `chunks_per_page` and the page pool are counted in, bytes: memcached's page.
pub(super) const PAGE_BYTES: u64 = 1 << 20;

/// What `stats items` tells of each class in memcached, and never happens here.
const ITEMS_ABSENT: &str = "\
    evicted_nonzero evicted_time outofmemory tailrepairs reclaimed expired_unfetched \
    evicted_unfetched evicted_active crawler_reclaimed crawler_items_checked lrutail_reflocked \
    moves_to_cold moves_to_warm moves_within_lru direct_reclaims hits_to_hot hits_to_warm \
    hits_to_cold hits_to_temp";

/// The same of `stats slabs`.
const SLABS_ABSENT: &str = "\
    get_hits cmd_set delete_hits incr_hits decr_hits cas_hits cas_badval touch_hits";

/// Classes that share a number in one row, with the larger slots.
fn by_number(classes: &[ClassStats]) -> Vec<ClassStats> {
    let mut rows: Vec<ClassStats> = Vec::new();
    for class in classes {
        match rows.last_mut().filter(|row| row.class == class.class) {
            Some(row) => {
                row.add(class);
                row.slot_bytes = row.slot_bytes.max(class.slot_bytes);
            }
            None => rows.push(class.clone()),
        }
    }
    rows
}

/// Answer `stats items`. Classes without items are left out.
pub fn write_items(classes: &[ClassStats], out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    for class in by_number(classes).iter().filter(|class| class.items > 0) {
        let mut line = |name: &str, value: u64| {
            lines.number(&format!("items:{}:{name}", class.class), value);
        };
        line("number", class.items);
        line("number_hot", 0);
        line("number_warm", 0);
        line("number_cold", class.items);
        line("age_hot", 0);
        line("age_warm", 0);
        line("age", 0);
        line("mem_requested", class.bytes);
        line("evicted", class.evicted);
        for name in ITEMS_ABSENT.split(' ') {
            line(name, 0);
        }
    }
    lines.end();
}

/// Answer `stats slabs`.
pub fn write_slabs(classes: &[ClassStats], store: &Stats, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    let mut active = 0;
    for class in by_number(classes).iter().filter(|class| class.slots > 0) {
        active += 1;
        let mut line = |name: &str, value: u64| {
            lines.number(&format!("{}:{name}", class.class), value);
        };
        line("chunk_size", class.slot_bytes);
        line("chunks_per_page", class.slots / class.chunks.max(1));
        line("total_pages", class.chunks);
        line("total_chunks", class.slots);
        line("used_chunks", class.used);
        line("free_chunks", class.slots.saturating_sub(class.used));
        line("free_chunks_end", 0);
        for name in SLABS_ABSENT.split(' ') {
            line(name, 0);
        }
    }
    lines.number("active_slabs", active);
    lines.number("total_malloced", store.pool_bytes);
    lines.end();
}

/// Answer `stats sizes`: items by the size of the slot they lie in.
pub fn write_sizes(classes: &[ClassStats], out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    for class in classes.iter().filter(|class| class.used > 0) {
        lines.number(&class.slot_bytes.to_string(), class.used);
    }
    lines.end();
}
