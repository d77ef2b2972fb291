//! The durable server: ended under load by SIGTERM and SIGKILL in turn, started again, and swept.
//!
//! A sweep reads every shared key and has the judge look at it; what was acknowledged or shown
//! before the end must be there. Only this server's clients may lose a connection, and only then.

use super::Options;
use super::judge::View;
use super::sharer::{COUNTER, TTL_SECONDS, take};
use super::stage::{Stage, name};
use super::watch::Memory;
use crate::{Client, Executable, Folder, Server, place, process};
use rustix::process::Signal;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Between two ends of the server, at most; a short run has three or four in all.
const LIFE_MAX: Duration = Duration::from_secs(180);
const LIVES_SHORT: u32 = 5;
/// Keys asked for in one line of a sweep: small ones, and large ones.
const SWEPT_SMALL: u32 = 64;
const SWEPT_LARGE: u32 = 4;
const NAME: &str = "soak-durable";

/// The server with its data folder.
pub struct DurableServer<'a> {
    executable: &'a Executable,
    options: &'a Options,
    folder: Folder,
    server: Server,
    /// Ends by SIGTERM, and by SIGKILL.
    pub ends: [u32; 2],
    /// Keys looked at in sweeps that had something to lose.
    pub swept: u64,
    /// One for each life.
    pub memory: Vec<Memory>,
}

impl<'a> DurableServer<'a> {
    /// Starts it on an empty folder.
    pub fn start(
        executable: &'a Executable,
        options: &'a Options,
    ) -> Result<DurableServer<'a>, String> {
        let folder = Folder::make("soak")?;
        let path = folder.file("");
        let words = flags(options, &path);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let server = executable.start(NAME, &words)?;
        let mut client = Client::connect(server.address())?;
        client.send(format!("set {COUNTER} 0 {TTL_SECONDS} 1\r\n0\r\n").as_bytes())?;
        client.expect("STORED")?;
        let memory = vec![Memory::of(server.id())];
        Ok(DurableServer { executable, options, folder, server, ends: [0; 2], swept: 0, memory })
    }

    /// Where it answers, in every life.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Ends and starts it until the soak is over.
    pub fn keep(&mut self, stage: &Stage) -> Result<(), String> {
        let life = LIFE_MAX.min(self.options.length / LIVES_SHORT);
        let began = Instant::now();
        let mut due = life;
        while !stage.scene.is_over() {
            self.server.check_alive()?;
            if let Some(memory) = self.memory.last_mut() {
                memory.sample_each_second(began.elapsed())?;
            }
            if due <= began.elapsed() {
                let signal = if self.ends[0] == self.ends[1] { Signal::TERM } else { Signal::KILL };
                self.restart(stage, signal)?;
                self.sweep(stage)?;
                // A life lasts as long as meant also where ending and starting take their time.
                due = began.elapsed() + life;
            }
            std::thread::sleep(process::POLL_INTERVAL);
        }
        Ok(())
    }

    fn restart(&mut self, stage: &Stage, signal: Signal) -> Result<(), String> {
        let ended = {
            let _nothing_by_udp = stage.datagrams.write();
            stage.turn_life();
            let ended = self.server.end_by(signal, 2 * place::PATIENCE);
            ended.and_then(|()| self.start_again(stage))
        };
        // Whoever waits for the server looks at the soak's end, too.
        stage.turn_life();
        self.ends[usize::from(signal == Signal::KILL)] += 1;
        ended
    }

    fn start_again(&mut self, stage: &Stage) -> Result<(), String> {
        let words = flags(self.options, &self.folder.file(""));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.server = self.executable.start_at(NAME, stage.address, &[], &words)?;
        self.memory.push(Memory::of(self.server.id()));
        stage.look_for_datagrams()
    }

    /// When all clients have ended: a last end and start, every key, the counter, and the end.
    /// On a machine too busy for a SIGKILL until then, that too.
    pub fn finish(mut self, stage: &Stage) -> Result<DurableServer<'a>, String> {
        let unseen = (self.ends[1] == 0).then_some(Signal::KILL);
        for signal in unseen.into_iter().chain([Signal::TERM]) {
            self.restart(stage, signal)?;
            self.sweep(stage)?;
        }
        let mut client = Client::connect(stage.address)?;
        client.send(format!("incr {COUNTER} 0\r\n").as_bytes())?;
        let line = client.line()?;
        let [acknowledged, sent] = [0, 1].map(|i| stage.increments[i].load(SeqCst));
        let count = line.parse::<u64>().map_err(|_| format!("the counter is `{line}`"))?;
        if !(acknowledged..=sent).contains(&count) {
            return Err(format!(
                "the counter is {count}: {acknowledged} increments of it were acknowledged, {sent} \
                 sent"
            ));
        }
        self.server.end_by(Signal::TERM, 2 * place::PATIENCE)?;
        Ok(self)
    }

    fn sweep(&mut self, stage: &Stage) -> Result<(), String> {
        let mut client = Client::connect(stage.address)?;
        let mut view = View::new(&stage.judge);
        let mut key = 0;
        while key < stage.space.keys() {
            let (most, end) = match key < stage.space.small {
                true => (SWEPT_SMALL, stage.space.small),
                false => (SWEPT_LARGE, stage.space.keys()),
            };
            let keys = key..end.min(key + most);
            key = keys.end;
            let mut line = String::new();
            for key in keys.clone() {
                view.ask(key);
                line.push_str(&format!("mg {} v\r\n", name(key)));
            }
            client.send(line.as_bytes())?;
            for key in keys {
                let swept = self.look(&mut client, &mut view, key);
                swept.map_err(|why| format!("a sweep after {:?} ends: {why}", self.ends))?;
            }
            view.over();
        }
        stage.seen.tcp.fetch_add(stage.space.keys().into(), Relaxed);
        Ok(())
    }

    fn look(&mut self, client: &mut Client, view: &mut View, key: u32) -> Result<(), String> {
        let line = client.line()?;
        if line == "EN" {
            return view.missing(key);
        }
        let length = line.strip_prefix("VA ").and_then(|length| length.parse().ok());
        let length = length.ok_or_else(|| format!("mg {} is answered by `{line}`", name(key)))?;
        self.swept += 1;
        take(view, client, key, length)
    }
}

/// Memory smaller than the data, so that the folder is read too.
fn flags(options: &Options, folder: &str) -> Vec<String> {
    let mut flags = options.flags(&["-m", "96", "--durability", "ack"]);
    let sizes = ["--data-dir", folder, "--pm-size", "64m", "--ssd-size", "1g"];
    flags.extend(sizes.map(String::from));
    flags
}
