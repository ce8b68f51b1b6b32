//! The routes of a server: one table for each task, from which requests are routed, described and refused.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{any, post};
use weighbridge::Task;

use crate::embeddings::{self, Embeddings, Vectors};
use crate::fields::Fields;
use crate::fleet::Fleet;
use crate::host::Host;
use crate::refusal::Refusal;
use crate::rerank::{self, Ranked, Scores};
use crate::routes::{EVENTS, Route, Serves, with_short};
use crate::service::Service;
use crate::shapes::{
    ChatCompletion, ChatDelta, Chunk, Completion, CompletionChoice, Content, Model, Models, Tokens,
};
#[cfg(feature = "speech")]
use crate::speech::Sounds;
#[cfg(feature = "speech")]
use crate::transcriptions::{self, Transcribed};
use crate::{
    chat, completions, dispatch, guard, messages, metrics, models, ollama, openapi, responses, tokens,
};

impl Serves for Service {
    const TASK: Task = Task::Text;

    fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn close(&self) {
        self.inbox.close();
    }

    fn routes() -> Vec<Route<Service>> {
        let chat = |fields: &mut Fields, service: &Service| drop(chat::asked(fields, service));
        let text = |fields: &mut Fields, service: &Service| drop(completions::asked(fields, service));
        let messages = |fields: &mut Fields, service: &Service| drop(messages::asked(fields, service, true));
        let counted = |fields: &mut Fields, service: &Service| drop(messages::asked(fields, service, false));
        let tokenize = |fields: &mut Fields, service: &Service| drop(tokens::text(fields, service));
        let detokenize = |fields: &mut Fields, service: &Service| drop(tokens::list(fields, service));
        let responses = |fields: &mut Fields, service: &Service| drop(responses::asked(fields, service));
        let mut routes = vec![
            Route::post("/v1/chat/completions", "The answer to a conversation", chat::answer, chat)
                .gives::<ChatCompletion<'_>>()
                .gives_as::<Chunk<'_, ChatDelta>>(EVENTS),
            Route::post("/v1/completions", "The continuation of a text", completions::answer, text)
                .gives::<Completion<'_>>()
                .gives_as::<Chunk<'_, CompletionChoice>>(EVENTS),
            Route::post(
                "/v1/responses",
                "The answer to a conversation, as items",
                responses::answer,
                responses,
            )
            .gives::<serde_json::Value>()
            .gives_as::<serde_json::Value>(EVENTS),
            Route::post(
                "/v1/messages",
                "The same, for clients of Anthropic's API",
                messages::answer,
                messages,
            )
            .gives::<serde_json::Value>()
            .gives_as::<serde_json::Value>(EVENTS),
            Route::post(
                "/v1/messages/count_tokens",
                "The tokens of a conversation",
                messages::count,
                counted,
            )
            .gives::<messages::Counted>(),
            Route::post("/tokenize", "The tokens of a text", tokens::tokenize, tokenize).gives::<Tokens>(),
            Route::post("/detokenize", "The text of tokens", tokens::detokenize, detokenize)
                .gives::<Content>(),
        ];
        routes.extend(ollama::of_text());
        routes
    }
}

impl Serves for Vectors {
    const TASK: Task = Task::Vectors;

    fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn close(&self) {
        self.inbox.close();
    }

    fn routes() -> Vec<Route<Vectors>> {
        let what = "Vectors of texts";
        let reads = |fields: &mut Fields, vectors: &Vectors| drop(embeddings::Asked::read(fields, vectors));
        let mut routes =
            vec![Route::post("/v1/embeddings", what, embeddings::answer, reads).gives::<Embeddings<'_>>()];
        routes.extend(ollama::of_vectors());
        routes
    }
}

impl Serves for Scores {
    const TASK: Task = Task::Scores;

    fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn close(&self) {
        self.inbox.close();
    }

    fn routes() -> Vec<Route<Scores>> {
        let route = |path| {
            let reads = |fields: &mut Fields, _: &Scores| drop(rerank::Asked::read(fields));
            Route::post(path, "Scores of texts for a query", rerank::answer, reads).gives::<Ranked<'_>>()
        };
        vec![route("/v1/rerank")]
    }
}

#[cfg(feature = "speech")]
impl Serves for Sounds {
    const TASK: Task = Task::Speech;

    fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn close(&self) {
        self.inbox.close();
    }

    fn routes() -> Vec<Route<Sounds>> {
        let reads =
            |fields: &mut Fields, sounds: &Sounds| drop(transcriptions::Asked::read(fields, sounds, false));
        let translated =
            |fields: &mut Fields, sounds: &Sounds| drop(transcriptions::Asked::read(fields, sounds, true));
        let of = |route: Route<Sounds>| {
            let route = route.takes_form().gives::<Transcribed>().gives_as::<String>(EVENTS);
            transcriptions::KINDS.into_iter().fold(route, Route::gives_as::<String>)
        };
        let (there, here) = ("/v1/audio/transcriptions", "/v1/audio/translations");
        vec![
            of(Route::post(there, "The text of speech", transcriptions::transcribe, reads)),
            of(Route::post(here, "The text of speech, in English", transcriptions::translate, translated)),
        ]
    }
}

/// The routes that every server has.
pub(crate) fn of_all() -> Vec<Route<Fleet>> {
    let moved = |fields: &mut Fields, _: &Fleet| drop(models::asked(fields));
    let renewed = |fields: &mut Fields, _: &Fleet| {
        let _ = (models::asked(fields), models::mode(fields));
    };
    let mut routes = vec![
        Route::get("/health", "Whether the server is there; needs no key", models::health)
            .gives::<models::Health>(),
        Route::get("/v1/models", "The models", models::list).gives::<Models<'_>>(),
        Route::get("/v1/models/{name}", "The model of this name", models::one).gives::<Model<'_>>(),
        Route::post("/models/load", "Has a model in memory", models::load, moved).gives::<models::Done>(),
        Route::post("/models/unload", "Takes a model out of memory", models::unload, moved)
            .gives::<models::Done>(),
        Route::post("/models/reload", "Reads the files of a model anew", models::reload, renewed)
            .gives::<models::Reloaded>(),
        Route::get("/metrics", "Figures for Prometheus", models::figures).gives_as::<String>(metrics::TYPE),
        Route::get("/openapi.json", "This description", models::api).gives::<serde_json::Value>(),
    ];
    routes.extend(ollama::of_all());
    with_short(routes)
}

/// The routes of a server: its own, those of its models, and refusals of those that models for other tasks have.
pub(crate) fn of_fleet(fleet: &Arc<Fleet>) -> Router {
    let mut router = Router::new();
    let own = of_all();
    let _ = fleet.api.set(openapi::described(&own, &**fleet));
    for route in own {
        router = router.route(route.path, route.handler);
    }
    let mut router = router.with_state(Arc::clone(fleet));
    let is_here = |task| fleet.of(task).next().is_some();
    let mut paths = paths();
    // Of the tasks that have a path, one that is here comes first.
    paths.sort_by_key(|(path, task)| (*path, !is_here(*task)));
    paths.dedup_by_key(|(path, _)| *path);
    for (path, task) in paths {
        if is_here(task) {
            let fleet = Arc::clone(fleet);
            let handler = move |request| dispatch::dispatch(Arc::clone(&fleet), task, request);
            router = router.route(path, post(handler));
            continue;
        }
        let are = if fleet.entries.len() == 1 { "the model is" } else { "the models are" };
        let message = format!("`{path}` is not here: {are} for {}", fleet.tasks());
        let wanted = task.name();
        let hint = format!("a server with a model for {wanted} has it; `/openapi.json` lists what is here");
        router =
            router.route(path, any(async move || Refusal::http(StatusCode::NOT_FOUND, message).hint(hint)));
    }
    router.fallback(guard::no_route).method_not_allowed_fallback(guard::no_method)
}

/// The paths of all tasks that this build knows.
fn paths() -> Vec<(&'static str, Task)> {
    fn of<S: Serves>() -> impl Iterator<Item = (&'static str, Task)> {
        with_short(S::routes()).into_iter().map(|route| (route.path, S::TASK))
    }
    let all = of::<Service>().chain(of::<Vectors>()).chain(of::<Scores>());
    #[cfg(feature = "speech")]
    let all = all.chain(of::<Sounds>());
    all.collect()
}
