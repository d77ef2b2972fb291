//! Tells the log when requests over RDMA that come as datagrams do not reach a worker any more, and
//! when they do again: its queue pair has broken, and the device does not let it begin anew, which
//! the worker tries once a second. It writes a line for each change, however long it lasts.

/// What the log was told of one worker.
#[derive(Debug, Default)]
pub struct Deaf {
    is_told: bool,
}

impl Deaf {
    /// Once a second, with whether it is deaf, if that can be said.
    pub fn look(&mut self, worker: usize, is_deaf: Option<bool>) {
        match self.change(is_deaf) {
            Some(true) => log::error!(
                "worker {worker} hears no datagrams over RDMA: its queue pair broke, and the \
                 device refuses to open it again; this is tried once a second"
            ),
            Some(false) => log::warn!("worker {worker} hears datagrams over RDMA again"),
            None => {}
        }
    }

    /// Whether it is deaf now, if that is news.
    fn change(&mut self, is_deaf: Option<bool>) -> Option<bool> {
        let news = is_deaf.filter(|is_deaf| *is_deaf != self.is_told)?;
        self.is_told = news;
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_once_that_a_worker_is_deaf_and_once_that_it_hears() {
        let mut deaf = Deaf::default();
        let (is_deaf, hears) = (Some(true), Some(false));
        let looks = [None, hears, is_deaf, is_deaf, None, is_deaf, hears, None, hears, is_deaf];
        let told = looks.map(|look| deaf.change(look));
        // Where nobody can say it nothing has changed.
        let news = [None, None, is_deaf, None, None, None, hears, None, None, is_deaf];
        assert_eq!(told, news);
    }
}
