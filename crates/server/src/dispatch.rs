//! From a request to the model that answers it.
//!
//! A path says what a model is for, and the field `model` which one it is; without that field, it is the first. A body is read here only
//! where that is not clear: with several models for the task, or with one that is not in memory, which no wrong name is to load.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{Response, header};
use axum::response::IntoResponse;
use hyper::body::{Frame, SizeHint};
use tower::ServiceExt;
use weighbridge::Task;

use crate::fields::Fields;
use crate::fleet::Fleet;
use crate::guard;
use crate::live::Held;
use crate::ollama;
use crate::refusal::Refusal;

/// Gives a request to the model that it names, among those for `task`.
pub(crate) async fn dispatch(fleet: Arc<Fleet>, task: Task, request: Request) -> Response<Body> {
    let is_of_ollama = request.uri().path().starts_with("/api/");
    match given(&fleet, task, request).await {
        Ok(response) => response,
        Err(refusal) if is_of_ollama => ollama::Refused(refusal).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn given(fleet: &Arc<Fleet>, task: Task, request: Request) -> Result<Response<Body>, Refusal> {
    let mut entries = fleet.of(task);
    let first = entries.next().ok_or_else(|| Refusal::failed("no model has this task"))?;
    // The model itself refuses other names than its own.
    let only = if entries.next().is_none() { first.held() } else { None };
    let (held, request) = match only {
        Some(held) => (held, request),
        None => {
            let (name, request) = named(fleet, request).await?;
            let entry = name.map_or(Ok(first), |name| fleet.find(fleet.of(task), &name))?;
            (fleet.held(entry).await?, request)
        }
    };
    let router = held.0.router.clone();
    // A router never fails.
    let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
    Ok(response.map(|body| Body::new(Holding { body, _held: held })))
}

/// The name of the model in a request, which is as it was.
async fn named(fleet: &Fleet, request: Request) -> Result<(Option<String>, Request), Refusal> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    #[cfg(feature = "speech")]
    if let Some(boundary) = kind.and_then(|kind| multer::parse_boundary(kind).ok()) {
        return form::named(request, boundary).await;
    }
    let _ = kind;
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let bytes = guard::body(&fleet.shared, whole).await?;
    // Another type than a string is for the model to refuse, with all that is wrong beside it.
    let name = Fields::of_body(&bytes)?.text("model");
    Ok((name, Request::from_parts(parts, Body::from(bytes))))
}

/// The body of an answer, which keeps its model in memory.
struct Holding {
    body: Body,
    _held: Held,
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Forms, whose fields come one after the other.
#[cfg(feature = "speech")]
mod form {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use axum::body::{Body, Bytes, HttpBody};
    use axum::extract::Request;
    use axum::http::StatusCode;
    use hyper::body::Frame;
    use multer::Multipart;

    use crate::refusal::Refusal;

    /// Bytes of a form in which its model is looked for: clients send fields before files.
    const LOOKED: usize = 1 << 16;
    /// How long a client may be silent.
    const SILENT: Duration = Duration::from_mins(1);

    pub(super) async fn named(
        request: Request,
        boundary: String,
    ) -> Result<(Option<String>, Request), Refusal> {
        let (parts, mut body) = request.into_parts();
        let mut begin = vec![];
        while begin.len() < LOOKED {
            let frame =
                tokio::time::timeout(SILENT, poll_fn(|context| Pin::new(&mut body).poll_frame(context)));
            let late = |_| Refusal::http(StatusCode::REQUEST_TIMEOUT, "the form takes too long to come");
            match frame.await.map_err(late)? {
                Some(Ok(frame)) => begin.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) => {
                    return Err(Refusal::http(StatusCode::BAD_REQUEST, "the body breaks off"));
                }
                None => break,
            }
        }
        let begin = Bytes::from(begin);
        let mut fields = Multipart::new(Body::from(begin.clone()).into_data_stream(), boundary);
        let mut name = None;
        // Ends where the beginning does, or with what is broken: the model says that.
        while let Ok(Some(field)) = fields.next_field().await {
            if field.name() == Some("model") {
                name = field.text().await.ok();
                break;
            }
        }
        Ok((name, Request::from_parts(parts, Body::new(Again { begin: Some(begin), rest: body }))))
    }

    /// A body of which the beginning was read.
    struct Again {
        begin: Option<Bytes>,
        rest: Body,
    }

    impl HttpBody for Again {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            match self.begin.take() {
                Some(begin) => Poll::Ready(Some(Ok(Frame::data(begin)))),
                None => Pin::new(&mut self.rest).poll_frame(context),
            }
        }
    }
}
