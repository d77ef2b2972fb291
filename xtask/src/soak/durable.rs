//! The durable server: ended under load by SIGTERM and SIGKILL in turn, started again, and swept.
//!
//! A sweep reads every shared key and has the judge look at it; what was acknowledged or shown
//! before the end must be there. Only this server's clients may lose a connection, and only then.

use super::Options;
use super::stage::Stage;
use crate::judge::View;
use crate::look::look;
use crate::server::free_address;
use crate::{Client, Executable, Folder, Server, place, process};
use rustix::process::Signal;
use std::net::SocketAddr;
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
}

impl<'a> DurableServer<'a> {
    /// Starts it on an empty folder.
    pub fn start(
        executable: &'a Executable,
        options: &'a Options,
    ) -> Result<DurableServer<'a>, String> {
        let folder = Folder::make("soak")?;
        let server = serve(executable, options, &folder, free_address()?)?;
        Ok(DurableServer { executable, options, folder, server, ends: [0; 2], swept: 0 })
    }

    /// Where it answers, in every life.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Ends and starts it until the soak is over.
    pub fn keep(&mut self, stage: &Stage) -> Result<(), String> {
        let life = LIFE_MAX.min(self.options.length / LIVES_SHORT);
        let began = Instant::now();
        let mut due = life;
        while !stage.scene.is_over() {
            self.server.check_alive()?;
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
            let again = || serve(self.executable, self.options, &self.folder, stage.address);
            ended.and_then(|()| again()).map(|server| self.server = server)
        };
        // Whoever waits for the server looks at the soak's end, too.
        stage.turn_life();
        self.ends[usize::from(signal == Signal::KILL)] += 1;
        ended
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
        client.send(format!("incr {} 0\r\n", stage.counter()).as_bytes())?;
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
                line.push_str(&format!("mg {} v\r\n", stage.key(key)));
            }
            client.send(line.as_bytes())?;
            for key in keys {
                let told = |why: String| format!("a sweep after {:?} ends: {why}", self.ends);
                let is_there = look(&mut view, &mut client, key).map_err(told)?;
                self.swept += u64::from(is_there);
            }
            view.over();
        }
        stage.seen.tcp.fetch_add(stage.space.keys().into(), Relaxed);
        Ok(())
    }
}

/// Starts it at this address, with memory smaller than the data, so that the folder is read too.
fn serve(
    executable: &Executable,
    options: &Options,
    folder: &Folder,
    address: SocketAddr,
) -> Result<Server, String> {
    let mut flags = options.flags(&["-m", "96", "--durability", "ack"]);
    let folder = folder.file("");
    let sizes = ["--data-dir", &folder, "--pm-size", "64m", "--ssd-size", "1g"];
    flags.extend(sizes.map(String::from));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    executable.start_at(NAME, address, &[], &flags)
}
