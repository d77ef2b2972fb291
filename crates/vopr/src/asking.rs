//! Who asks by the client library's own core, over datagrams or memory: it draws its requests, and
//! has its answers judged. It reads, stores, deletes and touches, since those a server carries out
//! once however often they arrive. Where nothing arrives twice it also adds and increases, which is
//! sent but once. How bytes travel it does not know.

use crate::ask::{Request, key_name, refusal};
use crate::books::Entry;
use crate::model::{Asked, New, Seen, Told, Ttl};
use crate::scene::Scene;
use laneway_client::{Answer, Core, Error, Expiry, Refusal, Ticket};
use std::collections::BTreeMap;

/// Requests under way.
const TOGETHER: usize = 4;

/// One client.
pub struct Asking {
    /// Its name in the books.
    pub name: String,
    /// What sends and receives for it.
    pub core: Core,
    /// Nothing arrives twice.
    is_exact: bool,
    under_way: BTreeMap<Ticket, (Asked, Vec<Entry>)>,
}

impl Asking {
    /// Of this name, by this core. `is_exact`: nothing arrives twice.
    pub fn new(name: String, core: Core, is_exact: bool) -> Asking {
        Asking { name, core, is_exact, under_way: BTreeMap::new() }
    }

    /// Whether it waits for nothing.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// For a failure: what it waits for.
    pub fn waits_for(&self) -> String {
        format!("{} waits for {:?}", self.name, self.under_way.values().next())
    }

    /// Nobody answers any more.
    pub fn disconnect(&mut self, scene: &mut Scene<'_>) {
        for (_, entries) in std::mem::take(&mut self.under_way).into_values() {
            scene.books.forget(&entries);
        }
    }

    /// Asks one thing more, if it may.
    pub fn ask(&mut self, scene: &mut Scene<'_>, now_nanos: u64) {
        if self.under_way.len() >= TOGETHER {
            return;
        }
        let Some(key) = scene.key() else { return };
        let kind = scene.random.below(8);
        let asked = match kind {
            0..4 => Asked::Get,
            4 | 5 => {
                let new = New { value: scene.new_value(), flags: 7, ttl: Ttl::Never };
                if self.is_exact && kind == 5 { Asked::Add(new) } else { Asked::Set(new) }
            }
            6 => Asked::Delete,
            _ if self.is_exact && key.is_multiple_of(2) => Asked::Increase(3),
            _ => Asked::Touch(Ttl::Never),
        };
        let name = key_name(key);
        let request = match asked {
            Asked::Set(new) => {
                laneway_client::Request::set(name, scene.books.values.bytes(new.value)).flags(7)
            }
            Asked::Add(new) => {
                laneway_client::Request::add(name, scene.books.values.bytes(new.value)).flags(7)
            }
            Asked::Increase(by) => laneway_client::Request::increment(name, by),
            Asked::Delete => laneway_client::Request::delete(name),
            Asked::Touch(_) => laneway_client::Request::touch(name, Expiry::Never),
            _ if kind < 2 => laneway_client::Request::get(name),
            _ => laneway_client::Request::gets(name),
        };
        // Full: ids rest after they were used.
        let Ok(ticket) = self.core.push(request, now_nanos) else { return };
        let shown = format!("{asked:?}");
        let request = Request::elsewhere((key, asked), &shown);
        let entries = scene.books.call(&self.name, &request, scene.now_ms);
        self.under_way.insert(ticket, (asked, entries));
    }

    /// Judges what came.
    pub fn hear(&mut self, scene: &mut Scene<'_>) -> Result<(), String> {
        while let Some((ticket, answer)) = self.core.answer() {
            let (asked, entries) = self.under_way.remove(&ticket).expect("it was asked");
            match self.told(asked, answer, scene)? {
                Some(told) => {
                    let (now, may_miss) = (scene.now_ms, scene.may_miss);
                    scene.books.tell(&self.name, &entries, &[told], now, may_miss);
                }
                None => scene.books.forget(&entries),
            }
        }
        let counts = self.core.counts();
        match counts.garbled + counts.unintelligible {
            0 => Ok(()),
            _ => Err(format!("{}: a reply is garbled", self.name)),
        }
    }

    /// `None` where the outcome is not known yet.
    fn told(
        &self,
        asked: Asked,
        answer: Result<Answer, Error>,
        scene: &mut Scene<'_>,
    ) -> Result<Option<Told>, String> {
        Ok(Some(match answer {
            Ok(Answer::Value(value)) => {
                let id = scene.books.values.id(&value.data);
                Told::Value(Some(Seen {
                    value: id,
                    flags: Some(value.flags),
                    cas: value.cas,
                    marks: None,
                }))
            }
            Ok(Answer::Missing) if asked == Asked::Get => Told::Value(None),
            Ok(Answer::Missing) => Told::NotFound,
            Ok(Answer::Done) => Told::Done,
            Ok(Answer::NotStored) => Told::NotStored,
            Ok(Answer::Number(number)) => Told::Number(number),
            Err(Error::Refused(Refusal::Client(why))) if why.contains("non-numeric") => {
                Told::NotNumber
            }
            Err(Error::Refused(Refusal::Server(why))) => refusal(&why),
            Err(Error::TimedOut { .. } | Error::OutcomeUnknown { .. }) => return Ok(None),
            other => return Err(format!("{} asked {asked:?} and was told {other:?}", self.name)),
        }))
    }
}
