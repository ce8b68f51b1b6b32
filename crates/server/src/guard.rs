//! What a request passes before it reaches a route: the host that it names, the origin, the key.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse;
use hyper::body::Body as _;

use crate::host::Shared;
use crate::refusal::Refusal;

/// Marks a request that came through a socket that its user alone may open: it needs no key, and may move models.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(unix),
    allow(dead_code, reason = "systems without such sockets have none that came through one")
)]
pub(crate) struct Trusted;

/// True if a request came through such a socket.
pub(crate) fn is_trusted(request: &Request) -> bool {
    request.extensions().get::<Trusted>().is_some()
}

/// How long a client may take for a body.
const BODY: Duration = Duration::from_mins(1);

/// Checks a request, hands it on, and writes a line about it.
pub(crate) async fn check(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response<Body> {
    let since = Instant::now();
    let method = request.method().clone();
    // The route and not the path: clients write what they like into paths.
    let route =
        request.extensions().get::<MatchedPath>().map_or("(no route)", MatchedPath::as_str).to_owned();
    let origin = allowed_origin(&shared, request.headers());
    let mut response = match passed(&shared, &request, &route) {
        Err(refusal) => refusal.into_response(),
        Ok(()) if is_preflight(&request) => preflight(&shared, request.headers()),
        Ok(()) => next.run(request).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    let status = response.status().as_u16();
    shared.metrics.request(method.as_str(), &route, status);
    if let Some(log) = &shared.options.log {
        log(&format!("{method} {route} {status} {:.3} s", since.elapsed().as_secs_f64()));
    }
    response
}

/// Whether a request may go on.
fn passed(shared: &Shared, request: &Request, route: &str) -> Result<(), Refusal> {
    if shared.is_stopping.load(Ordering::Relaxed) {
        return Err(Refusal::stopping());
    }
    if is_trusted(request) {
        return Ok(());
    }
    let headers = request.headers();
    // A target with a host of its own wins over the header; both must be meant.
    let mut named: Vec<&str> =
        headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default()).collect();
    if named.len() > 1 {
        return Err(Refusal::http(StatusCode::BAD_REQUEST, "there is more than one header `Host`"));
    }
    named.extend(request.uri().authority().map(axum::http::uri::Authority::as_str));
    if named.is_empty() || !named.iter().all(|name| is_own_host(name, &shared.options.hosts)) {
        return Err(Refusal::http(
            StatusCode::MISDIRECTED_REQUEST,
            "the header `Host` names another server than this one",
        ));
    }
    // Browsers send no key before they ask.
    if is_open(route) || is_preflight(request) || has_key(shared, headers) {
        Ok(())
    } else {
        Err(Refusal::key())
    }
}

/// Whether a route needs no key, or checks it itself. Whether somebody is there is no secret, and the page that asks for the key must come
/// without one.
fn is_open(route: &str) -> bool {
    ["/health", "/", "/model"].contains(&route) || route.starts_with("/page/")
}

/// Whether a client that sends this `Host` has meant this server.
///
/// A page that has its own name point here (DNS rebinding) sends that name: an address, or `localhost`, it cannot.
fn is_own_host(named: &str, hosts: &[String]) -> bool {
    let (name, port) = match named.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or((rest, "?")),
        None => named.find(':').map_or((named, ""), |at| named.split_at(at)),
    };
    if !port.strip_prefix(':').unwrap_or(port).bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let name = name.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || hosts.iter().any(|host| host == "*" || host.eq_ignore_ascii_case(name))
}

/// Whether a request has one of the keys, if there are any. Takes as long for a wrong one as for a right one: hashes are
/// compared, in constant time.
pub(crate) fn has_key(shared: &Shared, headers: &HeaderMap) -> bool {
    if shared.keys.is_empty() {
        return true;
    }
    let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let key = match given.split_at_checked(7) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key,
        // As clients of Anthropic's API send it.
        _ => headers.get("x-api-key").map_or(&b""[..], HeaderValue::as_bytes),
    };
    let given = blake3::hash(key.trim_ascii());
    // All are compared, whichever is right.
    shared.keys.iter().filter(|key| **key == given).count() > 0
}

/// The origin that a page may ask from, as a header says it.
pub(crate) fn allowed_origin(shared: &Shared, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let allowed = shared.options.origins.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin);
    allowed.then(|| origin.clone())
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// What a browser is told before it asks: nothing, unless its page's origin is allowed.
fn preflight(shared: &Shared, headers: &HeaderMap) -> Response<Body> {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if allowed_origin(shared, headers).is_some() {
        let answer = response.headers_mut();
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let usual = HeaderValue::from_static("authorization, content-type");
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.unwrap_or(usual));
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

/// Reads the body of a request, which must say that it is JSON: so no page of another origin can send one without asking first.
pub(crate) async fn body(shared: &Shared, request: Request) -> Result<Bytes, Refusal> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "wanted the header `Content-Type: application/json`";
        return Err(Refusal::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let most = shared.options.body;
    let too_large = || {
        let message = format!("the body is larger than {most} bytes");
        Refusal::http(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > most as u64) {
        return Err(too_large());
    }
    let read = async {
        let (mut body, mut bytes) = (request.into_body(), vec![]);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let broken =
                |_| Refusal::http(StatusCode::BAD_REQUEST, "the body breaks off, or its chunks are broken");
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if data.len() > most - bytes.len() {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Bytes::from(bytes))
    };
    let late = |_| Refusal::http(StatusCode::REQUEST_TIMEOUT, "the body takes too long to come");
    tokio::time::timeout(BODY, read).await.map_err(late)?
}

pub(crate) async fn no_route() -> Refusal {
    Refusal::http(StatusCode::NOT_FOUND, "there is nothing here: `/openapi.json` lists what is served")
}

pub(crate) async fn no_method() -> Refusal {
    Refusal::http(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_points_here_is_not_this_server() {
        let own = ["box.local".to_owned()];
        for host in [
            "localhost:8080",
            "LOCALHOST",
            "127.0.0.1:1",
            "[::1]:8080",
            "192.168.0.7",
            "Box.local:80",
            "localhost.",
        ] {
            assert!(is_own_host(host, &own), "{host}");
        }
        for host in [
            "",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
            "box.locale",
        ] {
            assert!(!is_own_host(host, &own), "{host}");
        }
        assert!(is_own_host("evil.example", &["*".to_owned()]));
    }
}
