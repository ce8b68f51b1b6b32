//! The pages for people with a browser: the chat at `/`, and the model at `/model`.
//!
//! What the chat is made of is in `page/`, by hand, and within the program as it is there. It holds no secret, so it needs no key;
//! what it asks the API for does.

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde::Deserialize;

use crate::fleet::Fleet;
use crate::guard;
use crate::host::Host;
use crate::offer::ModelPage;

/// What a browser may do on a page of this server: load its files, and ask it. Nothing else is loaded, run inline, or asked, so that
/// no text of a model or name in a checkpoint can have the browser do anything.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A file of the pages.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

/// A file of `page/` under its name.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        File {
            path: concat!("/page/", $name),
            kind: $kind,
            content: include_str!(concat!("../page/", $name)),
        }
    };
}

static FILES: [File; 14] = [
    File { path: "/", kind: HTML, content: include_str!("../page/index.html") },
    file!("chat.css", CSS),
    file!("chat.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("conversation.js", SCRIPT),
    file!("dialog.js", SCRIPT),
    file!("locked.js", SCRIPT),
    file!("markdown.js", SCRIPT),
    file!("message.js", SCRIPT),
    file!("speech.js", SCRIPT),
    file!("store.js", SCRIPT),
    file!("stream.js", SCRIPT),
    file!("vendor/marked.esm.js", SCRIPT),
    // Its licence wants to be in every copy.
    file!("vendor/marked.LICENSE", TEXT),
];

/// What stands at `/model` for who has no key: it asks for one, and then shows the page that needs it.
const LOCKED: &str = include_str!("../page/locked.html");

/// The routes of the pages.
pub(crate) fn router() -> Router<Arc<Fleet>> {
    let routes = FILES.iter().fold(Router::new(), |router, file| {
        router.route(
            file.path,
            get(move |headers: HeaderMap| async move { sent(&headers, file.kind, file.content) }),
        )
    });
    let part = |kind: &'static str, of: fn(&ModelPage) -> &str| {
        get(move |State(fleet): State<Arc<Fleet>>, headers: HeaderMap| async move {
            let host = of_model(&fleet, None);
            sent(&headers, kind, host.as_ref().and_then(|host| host.page.as_ref()).map_or("", of))
        })
    };
    routes
        .route("/model", get(model))
        .route("/page/model.css", part(CSS, |page| &page.style))
        .route("/page/model.js", part(SCRIPT, |page| &page.script))
}

/// The model of this name that has a page, or else the first.
fn of_model(fleet: &Fleet, name: Option<&str>) -> Option<Arc<Host>> {
    let named = fleet.entries.iter().filter(|entry| name.is_none_or(|name| entry.has_name(name)));
    named.filter_map(|entry| Some(entry.known()?.host)).find(|host| host.page.is_some())
}

/// Which model a page is about.
#[derive(Deserialize)]
struct About {
    name: Option<String>,
}

/// The page about a model, which says as much of it as `/v1/models` does and more, and so needs the key too.
async fn model(
    State(fleet): State<Arc<Fleet>>,
    about: Result<Query<About>, QueryRejection>,
    trusted: Option<Extension<guard::Trusted>>,
    headers: HeaderMap,
) -> Response<Body> {
    let name = about.ok().and_then(|Query(about)| about.name);
    let mut response = if trusted.is_some() || guard::has_key(&fleet.shared, &headers) {
        let host = of_model(&fleet, name.as_deref());
        match host.as_ref().and_then(|host| host.page.as_ref()) {
            Some(page) => sent(&headers, HTML, &page.html),
            None => return guard::no_route().await.into_response(),
        }
    } else {
        let mut locked = (StatusCode::UNAUTHORIZED, LOCKED).into_response();
        guarded(locked.headers_mut(), HTML);
        // Without a challenge that a browser knows: it would ask for a name and a password.
        locked.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        locked
    };
    if !fleet.shared.keys.is_empty() {
        // Nothing of it stays with a browser that has the key no more.
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// A file, or that the browser has it already. It asks each time, so that it sees the files of a new version at once.
fn sent(headers: &HeaderMap, kind: &'static str, content: &str) -> Response<Body> {
    let tag = format!("\"{}\"", &blake3::hash(content.as_bytes()).to_hex()[..32]);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { content.to_owned().into_response() };
    let answer = response.headers_mut();
    guarded(answer, kind);
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        answer.insert(header::ETAG, tag);
    }
    response
}

/// The headers that every page has.
fn guarded(headers: &mut HeaderMap, kind: &'static str) {
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn folder() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page")
    }

    #[test]
    fn every_file_is_served_and_every_import_is_a_file() {
        let listed: BTreeSet<&str> = FILES.iter().map(|file| file.path).collect();
        assert_eq!(listed.len(), FILES.len());
        for found in std::fs::read_dir(folder()).unwrap() {
            let name = found.unwrap().file_name().into_string().unwrap();
            let is_whole_page = name.ends_with(".html");
            assert!(
                name == "vendor" || is_whole_page || listed.contains(&*format!("/page/{name}")),
                "{name}"
            );
        }
        for file in FILES.iter().filter(|file| file.kind == SCRIPT && !file.path.contains("/vendor/")) {
            for import in file.content.lines().filter_map(|line| line.split_once(" from \"./")) {
                let name = import.1.trim_end_matches("\";");
                assert!(listed.contains(&*format!("/page/{name}")), "{}: {name}", file.path);
            }
        }
    }

    /// Nothing is loaded from elsewhere, and nothing is written as HTML: the browser would refuse both, and the page break.
    #[test]
    fn no_file_names_another_server_or_writes_html() {
        let own = FILES.iter().filter(|file| !file.path.contains("/vendor/"));
        for (path, content) in own.map(|file| (file.path, file.content)).chain([("/model", LOCKED)]) {
            for forbidden in [
                "http://",
                "https://",
                "\"//",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                " style=",
                "<style",
                " onclick=",
            ] {
                assert!(!content.contains(forbidden), "{path}: {forbidden}");
            }
            // Each script is a file.
            for (at, _) in content.match_indices("<script") {
                assert!(content[at..].starts_with("<script type=\"module\" src=\"page/"), "{path}");
            }
        }
    }

    #[test]
    fn code_of_others_is_the_one_that_is_noted() {
        let note = std::fs::read_to_string(folder().join("vendor/README.md")).unwrap();
        for file in FILES.iter().filter(|file| file.kind == SCRIPT && file.path.contains("/vendor/")) {
            let name = file.path.rsplit('/').next().unwrap();
            let row = note.lines().find(|line| line.starts_with(&format!("| `{name}`"))).unwrap();
            let digest = blake3::hash(file.content.as_bytes()).to_hex();
            assert!(row.contains(&*digest), "{name} is {digest}: {row}");
            let licence = name.split('.').next().unwrap();
            let licence = format!("/page/vendor/{licence}.LICENSE");
            assert!(FILES.iter().any(|file| file.path == licence), "{licence}");
        }
    }
}
