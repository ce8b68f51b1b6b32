//! Why a request has no answer, in OpenAI's shape.
//!
//! Source: <https://platform.openai.com/docs/guides/error-codes>; openai-python `APIStatusError`, 3.57.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use weighbridge::Error;
use weighbridge::tensor::{Diagnostic, counted};

/// Problems that are listed at most.
const LISTED: usize = 20;

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// The field, as a path: `messages[0].role`.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
}

/// What is wrong with a request: as much of it as is listed, and how much more there is. A body may have millions of problems.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    listed: Vec<Problem>,
    more: usize,
}

impl Problems {
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether another one would be listed.
    pub(crate) fn has_room(&self) -> bool {
        self.listed.len() < LISTED
    }

    /// Counts `more` that are not listed.
    pub(crate) fn count(&mut self, more: usize) {
        self.more += more;
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        if self.has_room() {
            self.listed.push(problem);
        } else {
            self.count(1);
        }
    }

    /// Adds those of `others`.
    pub(crate) fn add(&mut self, others: Problems) {
        others.listed.into_iter().for_each(|problem| self.push(problem));
        self.count(others.more);
    }
}

/// Why a job failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) message: String,
    /// Whether the request asked for it.
    pub(crate) is_misuse: bool,
}

pub(crate) fn failed(error: &Error) -> Failed {
    Failed { message: error.to_string(), is_misuse: error.is_misuse() }
}

/// An answer that says why there is none.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody<'a> {
    /// `error`: clients of Anthropic's API want it, and have the error in the same place.
    #[serde(rename = "type")]
    kind: &'static str,
    error: ErrorObject<'a>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ErrorObject<'a> {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
    problems: &'a [Problem],
}

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    problems: Problems,
    /// Seconds after which it may be tried again.
    retry_after: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, code: Option<&'static str>, message: String) -> Refusal {
        let problems = Problems { listed: vec![Problem { param: None, message }], more: 0 };
        Refusal { status, kind, code, problems, retry_after: None }
    }

    /// The request asks for what cannot be.
    pub(crate) fn wrong(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, INVALID, None, message.into())
    }

    /// The same, for every one of `problems`.
    pub(crate) fn of_problems(problems: Problems) -> Refusal {
        let status = StatusCode::BAD_REQUEST;
        Refusal { status, kind: INVALID, code: None, problems, retry_after: None }
    }

    /// The field `name` is wrong.
    #[cfg(feature = "speech")]
    pub(crate) fn of_field(name: &str, message: impl std::fmt::Display) -> Refusal {
        Refusal::of_problem(Problem { param: Some(name.to_owned()), message: format!("`{name}`: {message}") })
    }

    fn of_problem(problem: Problem) -> Refusal {
        Refusal::of_problems(Problems { listed: vec![problem], more: 0 })
    }

    /// Says what to do about its last problem.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Refusal {
        if let Some(last) = self.problems.listed.last_mut() {
            let what = std::mem::take(&mut last.message);
            last.message = Diagnostic::new(what).with_hint(hint.into()).to_string();
        }
        self
    }

    /// The prompt does not fit.
    pub(crate) fn too_long(param: &str, message: String) -> Refusal {
        let problem = Problem { param: Some(param.to_owned()), message };
        Refusal { code: Some("context_length_exceeded"), ..Refusal::of_problem(problem) }
    }

    /// Another model than the one that is served.
    pub(crate) fn no_model(message: String) -> Refusal {
        let problem = Problem { param: Some("model".to_owned()), message };
        let code = Some("model_not_found");
        Refusal { status: StatusCode::NOT_FOUND, code, ..Refusal::of_problem(problem) }
    }

    /// The model is not in memory, and cannot be loaded.
    pub(crate) fn not_loaded(name: &str) -> Refusal {
        let message = format!("the model `{name}` could not be loaded");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, SERVER, Some("model_not_loaded"), message)
    }

    /// Files that were to have other weights of a model differ in more.
    pub(crate) fn other_model(unlike: &[String]) -> Refusal {
        let message = format!("the files differ in more than weights:\n{}", unlike.join("\n"));
        let refusal = Refusal::new(StatusCode::CONFLICT, INVALID, Some("other_model"), message);
        refusal.hint("`mode`: `wait` takes them")
    }

    /// The server does not let anyone do this.
    pub(crate) fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::http(StatusCode::FORBIDDEN, message)
    }

    /// The request is wrong as HTTP.
    pub(crate) fn http(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal::new(status, INVALID, None, message.into())
    }

    /// No key, or a wrong one.
    pub(crate) fn key() -> Refusal {
        let message = "wrong or missing API key: send it as `Authorization: Bearer KEY`";
        Refusal::new(StatusCode::UNAUTHORIZED, INVALID, Some("invalid_api_key"), message.to_owned())
    }

    /// The queue is full.
    pub(crate) fn busy(retry_after: u64) -> Refusal {
        let message = format!("too many requests are waiting: try again in {retry_after} s");
        let code = Some("rate_limit_exceeded");
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", code, message);
        Refusal { retry_after: Some(retry_after), ..refusal }
    }

    /// The server is about to end.
    pub(crate) fn stopping() -> Refusal {
        let message = "the server is shutting down".to_owned();
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, SERVER, Some("shutting_down"), message)
    }

    /// The time that a request may take is over.
    pub(crate) fn late() -> Refusal {
        let message = "the answer took longer than a request may take here".to_owned();
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, SERVER, Some("deadline_exceeded"), message)
    }

    /// The engine cannot do it.
    pub(crate) fn of_failed(failed: Failed) -> Refusal {
        if failed.is_misuse { Refusal::wrong(failed.message) } else { Refusal::failed(failed.message) }
    }

    /// The model or the machine failed.
    pub(crate) fn failed(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER, None, message.into())
    }

    /// All that is wrong, a line each.
    pub(crate) fn message(&self) -> String {
        let Problems { listed, more } = &self.problems;
        let mut lines: Vec<String> = listed.iter().map(|problem| problem.message.clone()).collect();
        if *more > 0 {
            lines.push(format!("and {}", counted(*more, "more problem")));
        }
        lines.join("\n")
    }

    /// The code of the error, or else its type.
    pub(crate) fn code(&self) -> &'static str {
        self.code.unwrap_or(self.kind)
    }

    /// The error object.
    pub(crate) fn body(&self) -> ErrorBody<'_> {
        let listed = &self.problems.listed;
        let error = ErrorObject {
            message: self.message(),
            kind: self.kind,
            param: listed.first().and_then(|problem| problem.param.as_deref()),
            code: self.code,
            problems: listed,
        };
        ErrorBody { kind: "error", error }
    }
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = serde_json::to_string(&self.body()).unwrap_or_default();
        let mut response = (self.status, [json], body).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
