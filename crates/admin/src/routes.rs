//! What is answered to which path.

use crate::{Watch, metrics, state};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Response, StatusCode};

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

const PATHS: &str = "there is /, /metrics, /healthz, /readyz and /api/state\n";

/// The answer to a request for this path.
pub fn answer(method: &Method, path: &str, watch: &Watch) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let why = format!("{method}: this endpoint only tells; ask with GET\n");
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, why);
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/" => page(),
        "/metrics" => match metrics::text(watch()) {
            Ok(text) => respond(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => failed(&error),
        },
        "/api/state" => match state::json(&watch()) {
            Ok(text) => respond(StatusCode::OK, JSON, text),
            Err(error) => failed(&error),
        },
        "/healthz" => respond(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" if watch().ready => respond(StatusCode::OK, TEXT, "ready\n"),
        "/readyz" => {
            let why = "not ready: the server is stopping and takes no connections\n";
            respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, why)
        }
        _ => respond(StatusCode::NOT_FOUND, TEXT, format!("nothing is here; {PATHS}")),
    }
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
