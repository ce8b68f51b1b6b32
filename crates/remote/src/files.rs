//! Servers of files.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use object_store::ObjectStore;
use object_store::http::HttpBuilder;
use url::Url;

use crate::client::Calls;
use crate::refusal::said;

/// What an answer of no access may be helped by.
pub(crate) const ACCESS: &str = "the URL may need a signature, or a name and a password";

/// The store of the directory at `base`. Each request has the header `Authorization`, if one is given; other hosts that an
/// answer leads to do not get it.
pub(crate) fn store(base: Url, authorization: Option<&str>) -> Result<Arc<dyn ObjectStore>, String> {
    let mut headers = HeaderMap::new();
    if let Some(text) = authorization {
        let mut value = HeaderValue::from_str(text).map_err(|_| "a credential is no header".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let calls = Calls::Read;
    let options = calls.client().with_allow_http(base.scheme() == "http").with_default_headers(headers);
    let store =
        HttpBuilder::new().with_url(base).with_client_options(options).with_retry(calls.retries()).build();
    Ok(Arc::new(store.map_err(|e| said(&e))?))
}

/// The header of a URL's name and password (RFC 7617); `None` if it has neither.
pub(crate) fn basic(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let plain = |text| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [plain(url.username()), plain(url.password().unwrap_or_default())].join(&b':');
    Some(format!("Basic {}", BASE64_STANDARD.encode(pair)))
}
