//! From a request to the model that answers it.
//!
//! A path says what a model is for, and the field `model` which one it is; without that field, it is the first. A body is read before a
//! model is loaded for it, so that no wrong one loads any.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::response::IntoResponse;
use serde::Deserialize;
use tower::ServiceExt;
use weighbridge::Task;

use crate::fleet::{Entry, Fleet};
use crate::guard;
use crate::host::within;
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
    // One alone refuses other names than its own. Of several, none is touched before it is clear which is meant.
    let only = if entries.next().is_none() { first.held() } else { None };
    if task == Task::Speech {
        // A sound may take a while to come: the model itself reads it.
        let (held, request) = match only {
            Some(held) => (held, request),
            None => of_form(fleet, first, request).await?,
        };
        return Ok(answer(&held, request).await);
    }
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let bytes = guard::body(&fleet.shared, whole).await?;
    within(fleet.shared.deadline(), async {
        let held = match only {
            Some(held) => held,
            None => {
                let name = serde_json::from_slice::<Named>(&bytes).ok().and_then(|named| named.model);
                let entry = name.map_or(Ok(first), |name| fleet.find(Some(task), &name))?;
                fleet.held(entry).await?
            }
        };
        Ok(answer(&held, Request::from_parts(parts, Body::from(bytes))).await)
    })
    .await
}

async fn answer(held: &Held, request: Request) -> Response<Body> {
    let router = held.0.router.clone();
    // A router never fails. Once it has answered, the places of the model say what it still does.
    router.oneshot(request).await.unwrap_or_else(|never| match never {})
}

/// The field of a body that is read here. A model refuses a body whose field is not a string, and says what else is wrong with it.
#[derive(Deserialize)]
struct Named {
    model: Option<String>,
}

#[cfg(feature = "speech")]
async fn of_form(
    fleet: &Arc<Fleet>,
    first: &Arc<Entry>,
    request: Request,
) -> Result<(Held, Request), Refusal> {
    let (name, request) = begin::named(fleet, request).await?;
    let entry = name.map_or(Ok(first), |name| fleet.find(Some(Task::Speech), &name))?;
    Ok((fleet.held(entry).await?, request))
}

#[cfg(not(feature = "speech"))]
async fn of_form(
    fleet: &Arc<Fleet>,
    first: &Arc<Entry>,
    request: Request,
) -> Result<(Held, Request), Refusal> {
    Ok((fleet.held(first).await?, request))
}

/// The beginning of a form, which says its model.
#[cfg(feature = "speech")]
mod begin {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::{Body, Bytes, HttpBody};
    use axum::extract::Request;
    use axum::http::{StatusCode, header};
    use hyper::body::Frame;
    use multer::Multipart;

    use crate::fleet::Fleet;
    use crate::form::{WHOLE, check, late};
    use crate::refusal::Refusal;

    /// Bytes in which the model is looked for: clients send fields before files.
    const LOOKED: usize = 1 << 16;

    /// The name of the model in a form, which is as it was.
    pub(super) async fn named(fleet: &Fleet, request: Request) -> Result<(Option<String>, Request), Refusal> {
        check(&fleet.shared, request.headers(), fleet.shared.options.sound)?;
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let Some(boundary) = kind.and_then(|kind| multer::parse_boundary(kind).ok()) else {
            let message = "wanted the header `Content-Type: multipart/form-data; boundary=…`";
            return Err(Refusal::http(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        };
        let (parts, mut body) = request.into_parts();
        let mut begin = vec![];
        let read = async {
            while begin.len() < LOOKED {
                match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                    Some(Ok(frame)) => begin.extend_from_slice(&frame.into_data().unwrap_or_default()),
                    Some(Err(_)) => {
                        return Err(Refusal::http(StatusCode::BAD_REQUEST, "the body breaks off"));
                    }
                    None => break,
                }
            }
            Ok(())
        };
        tokio::time::timeout(WHOLE, read).await.map_err(|_| late())??;
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
