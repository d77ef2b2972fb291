//! What is answered to which path.

use crate::{Watch, metrics, state};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::header::{HOST, HeaderMap, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Response, StatusCode};
use std::net::IpAddr;

/// The dashboard: one page that loads nothing but `/api/state`.
const PAGE: &str = concat!(
    include_str!("page/top.html"),
    include_str!("page/style.css"),
    include_str!("page/body.html"),
    include_str!("page/page.js"),
    include_str!("page/end.html"),
);
/// What a browser may do for the page: run what is in it and ask this server.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
/// The form that `/metrics` has.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const STARTING: &str = "not ready: the server is starting; its log says how far it is\n";
const CLOSED: &str = "not ready: the server is starting or stopping and takes no connections\n";
const PATHS: &str = "there is /, /metrics, /healthz, /readyz and /api/state\n";

/// Whether a request names this host as one that only it can connect to is named: by an address, or
/// as localhost. A web page whose name somebody has made lead here (DNS rebinding) would be of the
/// same origin for a browser, and read everything; it has a name of its own.
pub fn is_for_this_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true }; // no browser leaves it out
    let Ok(host) = host.to_str() else { return false };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// The answer to who meant another host.
pub fn misdirected() -> Response<Full<Bytes>> {
    let why = "this address is private to its host: ask by 127.0.0.1 or localhost\n";
    respond(StatusCode::MISDIRECTED_REQUEST, TEXT, why)
}

/// The answer to a request for this path; without a watch the server is not there yet.
pub fn answer(method: &Method, path: &str, watch: Option<&Watch>) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let why = format!("{method}: this endpoint only tells; ask with GET\n");
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, why);
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match (path, watch) {
        ("/healthz", _) => respond(StatusCode::OK, TEXT, "ok\n"),
        ("/" | "/metrics" | "/api/state" | "/readyz", None) => not_ready(STARTING),
        ("/", Some(_)) => page(),
        ("/metrics", Some(watch)) => match metrics::text(watch()) {
            Ok(text) => respond(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => failed(&error),
        },
        ("/api/state", Some(watch)) => match state::json(&watch()) {
            Ok(text) => respond(StatusCode::OK, JSON, text),
            Err(error) => failed(&error),
        },
        ("/readyz", Some(watch)) if watch().ready => respond(StatusCode::OK, TEXT, "ready\n"),
        ("/readyz", Some(_)) => not_ready(CLOSED),
        _ => respond(StatusCode::NOT_FOUND, TEXT, format!("nothing is here; {PATHS}")),
    }
}

fn not_ready(why: &'static str) -> Response<Full<Bytes>> {
    respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, why)
}

fn page() -> Response<Full<Bytes>> {
    let mut page = respond(StatusCode::OK, HTML, PAGE);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    page.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    page
}

fn failed(error: &dyn std::fmt::Display) -> Response<Full<Bytes>> {
    let why = format!("the answer cannot be written: {error}\n");
    respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, why)
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_address_answers_to_its_own_names_only() {
        for (host, ours) in [
            (Some("127.0.0.1:11280"), true),
            (Some("127.0.0.1"), true),
            (Some("[::1]:11280"), true),
            (Some("[::1]"), true),
            (Some("localhost:11280"), true),
            (Some("LocalHost"), true),
            (None, true),
            (Some("rebound.example:11280"), false),
            (Some("127.0.0.1.rebound.example"), false),
            (Some("localhost.rebound.example"), false),
            (Some(""), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(HOST, HeaderValue::from_static(host));
            }
            assert_eq!(is_for_this_host(&headers), ours, "{host:?}");
        }
    }
}
