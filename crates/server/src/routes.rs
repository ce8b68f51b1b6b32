//! A route: who answers, and what there is to say about it. The [tables](crate::table) list them.

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use weighbridge::Task;

use crate::fields::Fields;
use crate::guard;
use crate::host::Host;

/// The state that requests share, for models of one task.
pub(crate) trait Serves: Deref<Target = Host> + Send + Sync + 'static {
    /// The task.
    const TASK: Task;

    /// The parts that every task has.
    fn host(&self) -> &Arc<Host>;

    /// Has the thread of the model end, once it has done what was asked.
    fn close(&self);

    /// Its own routes.
    fn routes() -> Vec<Route<Self>>;
}

/// Routes, and those without `/v1` that are not among them.
pub(crate) fn with_short<S: Send + Sync + 'static>(mut routes: Vec<Route<S>>) -> Vec<Route<S>> {
    let mut short: Vec<Route<S>> = routes.iter().filter_map(Route::short).collect();
    short.retain(|short| routes.iter().all(|route| route.path != short.path));
    routes.extend(short);
    routes
}

/// The routes of a model.
pub(crate) fn router<S: Serves>(service: &Arc<S>) -> Router {
    let mut router = Router::new();
    for route in with_short(S::routes()) {
        router = router.route(route.path, route.handler);
    }
    router.method_not_allowed_fallback(guard::no_method).with_state(Arc::clone(service))
}

/// Makes the schema of a type.
pub(crate) type Described = fn(&mut SchemaGenerator) -> Schema;

/// A route: who answers, and what there is to say about it.
pub(crate) struct Route<S: ?Sized> {
    pub(crate) path: &'static str,
    pub(crate) is_post: bool,
    /// Its task.
    pub(crate) what: &'static str,
    pub(crate) handler: MethodRouter<Arc<S>>,
    /// Reads the fields of a request.
    pub(crate) reads: Option<fn(&mut Fields, &S)>,
    /// The content type of a request.
    pub(crate) takes: &'static str,
    /// The answers with status 200, by content type.
    pub(crate) gives: Vec<(&'static str, Described)>,
    /// Its refusals, if they are not those of OpenAI's API.
    pub(crate) fails: Option<Described>,
}

pub(crate) const JSON: &str = "application/json";
#[cfg(feature = "speech")]
pub(crate) const FORM: &str = "multipart/form-data";
pub(crate) const EVENTS: &str = "text/event-stream";
pub(crate) const LINES: &str = "application/x-ndjson";

impl<S: Send + Sync + 'static> Route<S> {
    /// A route without a body.
    pub(crate) fn get<H, T>(path: &'static str, what: &'static str, handler: H) -> Route<S>
    where
        H: Handler<T, Arc<S>>,
        T: 'static,
    {
        let handler = get(handler);
        Route { path, is_post: false, what, handler, reads: None, takes: JSON, gives: vec![], fails: None }
    }

    /// A route whose requests `reads` understands.
    pub(crate) fn post<H, T>(
        path: &'static str,
        what: &'static str,
        handler: H,
        reads: fn(&mut Fields, &S),
    ) -> Route<S>
    where
        H: Handler<T, Arc<S>>,
        T: 'static,
    {
        let handler = post(handler);
        Route {
            path,
            is_post: true,
            what,
            handler,
            reads: Some(reads),
            takes: JSON,
            gives: vec![],
            fails: None,
        }
    }

    /// The same route at its path without `/v1`, for clients that were given an address without it, as llama.cpp's server
    /// takes it.
    pub(crate) fn short(&self) -> Option<Route<S>> {
        let path = self.path.strip_prefix("/v1")?;
        let (handler, gives) = (self.handler.clone(), self.gives.clone());
        Some(Route { path, handler, gives, ..*self })
    }

    /// Its requests are forms.
    #[cfg(feature = "speech")]
    pub(crate) fn takes_form(self) -> Route<S> {
        Route { takes: FORM, ..self }
    }

    /// It refuses with a `T`.
    pub(crate) fn fails<T: JsonSchema>(self) -> Route<S> {
        Route { fails: Some(SchemaGenerator::subschema_for::<T>), ..self }
    }

    /// It answers with a `T`.
    pub(crate) fn gives<T: JsonSchema>(self) -> Route<S> {
        self.gives_as::<T>(JSON)
    }

    /// It may answer with a `T` of this content type.
    pub(crate) fn gives_as<T: JsonSchema>(mut self, kind: &'static str) -> Route<S> {
        self.gives.push((kind, SchemaGenerator::subschema_for::<T>));
        self
    }
}
