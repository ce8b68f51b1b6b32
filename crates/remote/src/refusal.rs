//! What a server refused, as errors of reading.

use std::io;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};

use crate::client::MOST_RETRIES;

/// The error of a file of which the server has another version than was opened.
pub(crate) fn changed() -> io::Error {
    io::Error::other("the server has another version of it than was opened")
}

/// The error of a request as one of reading.
pub(crate) fn into_io(error: &object_store::Error) -> io::Error {
    use object_store::Error as E;
    let kind = match error {
        E::NotFound { .. } => io::ErrorKind::NotFound,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        E::Precondition { .. } | E::NotModified { .. } => return changed(),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, said(error))
}

/// What went wrong, as the innermost error says it: the others name the URL, which may have a signature.
pub(crate) fn said(error: &object_store::Error) -> String {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => return "nothing is there".to_owned(),
        E::PermissionDenied { .. } => return "the server refuses access".to_owned(),
        E::Unauthenticated { .. } => return "the server wants credentials".to_owned(),
        _ => {}
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let text = inner.to_string();
    let line = text.lines().next().unwrap_or_default().trim();
    // Behind the status is the body, in which a server may repeat what it was sent.
    if let Some(status) = line.strip_prefix("Server returned non-2xx status code: ") {
        return format!("the server answers {}", status.split(':').next().unwrap_or_default());
    }
    if line.starts_with("Server returned error response") {
        return "the server answers with an error".to_owned();
    }
    if line.starts_with("Range request not supported") {
        return "the server gives whole files alone, not ranges of them".to_owned();
    }
    line.chars().take(300).collect()
}

/// Asks again if the answer breaks off on the way: requests are made again by themselves, answers with a body are not.
pub(crate) async fn again<T>(
    ask: impl AsyncFn() -> Result<T, object_store::Error>,
) -> Result<T, object_store::Error> {
    for tries in 0..MOST_BREAKS {
        match ask().await {
            Err(error @ object_store::Error::Generic { .. }) if broke_off(&error) => {
                tokio::time::sleep(Duration::from_millis(50 << tries)).await;
            }
            other => return other,
        }
    }
    ask().await
}

/// How many answers after each other may break off.
const MOST_BREAKS: u32 = 6;

/// Returns true if an answer broke off and nobody has asked again. `object_store` repeats requests that fail, but not those whose answer breaks
/// off while it reads the body. Both errors begin with "Error performing": the first kind says how often it was repeated.
fn broke_off(error: &object_store::Error) -> bool {
    let (mut inner, mut request, mut interrupted): (Option<&dyn std::error::Error>, _, _) =
        (Some(error), None, false);
    while let Some(error) = inner {
        let http = error.downcast_ref::<HttpError>();
        interrupted |= http.is_some_and(|http| http.kind() == HttpErrorKind::Interrupted);
        request =
            request.or_else(|| Some(error.to_string()).filter(|text| text.starts_with("Error performing")));
        inner = error.source();
    }
    request.is_none_or(|request| interrupted && !request.contains(&format!("after {MOST_RETRIES} retries")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a request, as `object_store` has it around that of HTTP.
    #[derive(Debug)]
    struct Performing {
        retries: usize,
        source: HttpError,
    }

    impl std::fmt::Display for Performing {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Error performing POST http://x in 1s, after {} retries", self.retries)
        }
    }

    impl std::error::Error for Performing {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.source)
        }
    }

    #[test]
    fn a_request_that_failed_is_not_made_again_here() {
        let of = |text: &str| object_store::Error::Generic {
            store: "S3",
            source: io::Error::other(text.to_owned()).into(),
        };
        assert!(!broke_off(&of("Error performing GET http://x in 1s, after 8 retries - Connection refused")));
        assert!(broke_off(&of("error decoding response body")));
        let while_read = |kind, retries| {
            let source = HttpError::new(kind, io::Error::other("end of file before message length reached"));
            let source = Performing { retries, source }.into();
            broke_off(&object_store::Error::Generic { store: "S3", source })
        };
        assert!(while_read(HttpErrorKind::Interrupted, 0) && while_read(HttpErrorKind::Interrupted, 7));
        assert!(!while_read(HttpErrorKind::Interrupted, 8) && !while_read(HttpErrorKind::Connect, 0));
    }
}
