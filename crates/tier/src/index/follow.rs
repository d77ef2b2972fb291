//! An index in persistent memory follows what migration moves only when the copies are durable: a
//! start would find it leading to what is not there. So the moves wait, as entries do, for the
//! group of the record that they belong to, and are offered to the index in the log's order.

use crate::index::Home;
use crate::index::fair::FairIndex;
use crate::log::Appended;
use crate::log::append::Draft;
use crate::ssd::tables::{NAMED_RECORD_BYTES, Table};
use crate::store::{Moved, Offer, Shared, Writer};
use crate::types::{Error, Result};

impl Shared {
    /// Has the index follow the record that was just appended.
    pub fn follow_later(
        &self,
        fair: &FairIndex,
        writer: &mut Writer,
        moved: Moved,
        appended: &Appended,
    ) {
        fair.will_follow(moved.from, appended.end);
        if let Some(pending) = writer.pending.last_mut() {
            pending.offer = Some(Offer::Moved(None, vec![moved]));
        }
    }

    /// Appends the record that names a table, and has the index follow what is in it. The table is
    /// known when that record is durable.
    pub fn name_later(&self, draft: &Draft<'_>, mut table: Table, moved: Vec<Moved>) -> Result<()> {
        let mut writer = self.writer();
        loop {
            if let Some((ticket, appended)) = self.append_here(&mut writer, draft, 0)? {
                (table.sequence, table.home) = (ticket.sequence, Home::log(appended.at));
                // Its number is given, whatever becomes of what is written behind it.
                let mut accounts = self.accounts();
                accounts.tables.last_id = accounts.tables.last_id.max(table.id);
                drop(accounts);
                if let Some(pending) = writer.pending.last_mut() {
                    pending.offer = Some(Offer::Moved(Some(table), moved));
                }
                return Ok(());
            }
            let rolled;
            (writer, rolled) = self.roll(writer, 0)?;
            if !rolled {
                return Err(Error::PmFull);
            }
        }
    }

    /// Their group is durable.
    pub fn follow(&self, table: Option<Table>, moved: &[Moved]) {
        if let Some(table) = table {
            self.credit(table.home, NAMED_RECORD_BYTES);
            self.add_table(table);
            self.index.fair().into_iter().for_each(|fair| fair.table(table));
        }
        for Moved { key, sequence, from, to, bytes } in moved {
            self.credit(*to, *bytes);
            let follows = self.index.relocate(key, *sequence, *from, *to);
            self.debit(if follows { *from } else { *to }, *bytes);
        }
    }

    /// Keeps room in the index for what a draft will be; false if there is none.
    pub fn promise(&self, draft: &Draft<'_>) -> bool {
        match (self.index.fair(), &draft.what) {
            (Some(fair), Some(what)) => fair.promise(draft.key, what),
            _ => true,
        }
    }

    /// The draft came to nothing.
    pub fn withdraw(&self, draft: &Draft<'_>) {
        if let (Some(fair), Some(what)) = (self.index.fair(), &draft.what) {
            fair.fulfil(draft.key, what);
        }
    }
}
