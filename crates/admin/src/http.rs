//! The HTTP of the endpoint: who may connect, for how long, and how many at a time. What is
//! answered is in [`crate::routes`].

use crate::Place;
use crate::connections::Connections;
use crate::routes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A request's lines and headers are there within this, or its connection is closed; so is one that
/// asks nothing further.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// A request's lines and headers may take so many bytes. Hyper takes no less than 8 KiB.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// How long accepting pauses where the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(200);

/// Answer until told to stop, or until who would tell is gone.
pub async fn serve(listeners: Vec<TcpListener>, watch: Place, stopped: oneshot::Receiver<()>) {
    let connections = Connections::default();
    for listener in listeners {
        // To whom only this host can connect, only this host's names are.
        let private = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return log::error!("--admin: the endpoint cannot be served: {error}"),
        };
        tokio::spawn(accept(listener, watch.clone(), connections.clone(), private));
    }
    // Either says so. All tasks end with the scheduler that called this.
    let _ = stopped.await;
}

async fn accept(
    listener: tokio::net::TcpListener,
    watch: Place,
    connections: Connections,
    private: bool,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let number = connections.enter();
                let serves = answer(stream, watch.clone(), connections.clone(), number, private);
                let task = tokio::spawn(serves);
                connections.serves(number, task.abort_handle());
            }
            Err(error) => {
                log::debug!("--admin: a connection was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(
    stream: TcpStream,
    watch: Place,
    connections: Connections,
    number: u64,
    private: bool,
) {
    let service = service_fn(|request| {
        connections.asks(number);
        let response = match !private || routes::is_for_this_host(request.headers()) {
            true => routes::answer(request.method(), request.uri().path(), watch.get()),
            false => routes::misdirected(),
        };
        std::future::ready(Ok::<_, Infallible>(response))
    });
    // An error is the client's: it sent no HTTP, was silent for too long, or is gone.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    connections.leave(number);
}
