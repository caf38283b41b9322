//! A fake platform that authorizes instead of the gateway: it answers as a case says, and
//! describes CI jobs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::case::{Backend, Job};
use super::table::World;

/// The secret shared with the gateway, 32 bytes in base64 as GitLab writes it.
pub(super) const SECRET: &str = "dGhlIHNlY3JldCBvZiBhIHRlc3QgcGxhdGZvcm0gISE=";

/// A platform, which runs as long as its runtime.
#[derive(Clone)]
pub(super) struct Platform {
    /// Its address.
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    answer: Mutex<Option<Backend>>,
    job: Mutex<Option<(String, Value)>>,
    calls: AtomicUsize,
}

impl Platform {
    /// Starts a platform that knows no users and no jobs.
    pub(super) async fn start() -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|error| error.to_string())?;
        let platform = Self {
            address: listener.local_addr().map_err(|error| error.to_string())?,
            shared: Arc::default(),
        };
        let router = Router::new()
            .route("/api/v4/internal/kubernetes/authorize_proxy_user", post(authorize))
            .route("/api/v4/job/allowed_agents", get(allowed_agents))
            .with_state(Arc::clone(&platform.shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(platform)
    }

    /// Sets its response about users from now on; without one, it answers 404.
    pub(super) fn set_answer(&self, answer: Option<Backend>) {
        *self.shared.answer.lock().expect("no panic before") = answer;
    }

    /// Sets the job token that it knows from now on, and the job.
    pub(super) fn set_job(&self, job: Option<(String, Value)>) {
        *self.shared.job.lock().expect("no panic before") = job;
    }

    /// Number of requests received.
    pub(super) fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }
}

/// Whether the request proves knowledge of the shared secret.
fn is_gateway(headers: &HeaderMap) -> bool {
    let Some(token) = headers
        .get("gitlab-kas-api-request")
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let Ok(key) = DecodingKey::from_base64_secret(SECRET) else {
        return false;
    };
    let mut validation = Validation::new(Algorithm::HS256);
    validation.set_issuer(&["gitlab-kas"]);
    validation.set_audience(&["gitlab"]);
    // The expiry is not checked, because some cases advance the gateway's clock.
    validation.validate_exp = false;
    jsonwebtoken::decode::<Value>(token, &key, &validation).is_ok()
}

async fn authorize(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    shared.calls.fetch_add(1, Ordering::SeqCst);
    if !is_gateway(&headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let answer = shared.answer.lock().expect("no panic before").clone();
    let Some(Backend { status, body, json }) = answer else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let status = StatusCode::from_u16(status).expect("a status");
    match (json, body) {
        (Some(json), _) => (status, [(header::CONTENT_TYPE, "application/json")], json.to_string()).into_response(),
        (None, Some(text)) => (status, text).into_response(),
        (None, None) => status.into_response(),
    }
}

async fn allowed_agents(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    shared.calls.fetch_add(1, Ordering::SeqCst);
    let job = shared.job.lock().expect("no panic before").clone();
    match job {
        Some((token, job)) if headers.get("job-token").is_some_and(|given| *given == *token) => {
            ([(header::CONTENT_TYPE, "application/json")], job.to_string()).into_response()
        }
        Some(_) | None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// GitLab's response about a job, with the agents that its project may use.
///
/// - `agent`, `config_project`: the number of the case's agent and of its project.
///
/// # Errors
/// `ci_access` names a project or group without a number.
pub(super) fn describe(
    job: &Job,
    (agent, config_project, ci_access): (i64, i64, Option<&Value>),
    world: &World,
) -> Result<Value, String> {
    let project = job.project["id"].as_i64();
    let groups = job.project["groups"].as_array().cloned().unwrap_or_default();
    let mut found = None;
    for (list, key) in [("projects", 0), ("groups", 1)] {
        let entries = ci_access.and_then(|access| access[list].as_array());
        for entry in entries.into_iter().flatten() {
            let path = entry["id"].as_str().ok_or("an entry of `ci_access` has no `id`")?;
            let number = world.number_of(path).ok_or(format!("`{path}` has no number"))?;
            let fits = match key {
                0 => project == Some(number),
                _ => groups.iter().any(|group| group["id"].as_i64() == Some(number)),
            };
            if fits && found.is_none() {
                let access_as = entry.get("access_as").cloned().unwrap_or(json!({"agent": {}}));
                found = Some(json!({
                    "id": agent,
                    "config_project": {"id": config_project},
                    "configuration": {"access_as": access_as},
                }));
            }
        }
    }
    let mut answer = json!({
        "allowed_agents": found.into_iter().collect::<Vec<_>>(),
        "job": {"id": job.id},
        "pipeline": {"id": job.pipeline_id},
        "project": job.project,
        "user": job.user,
    });
    if let Some(environment) = &job.environment {
        answer["environment"] = environment.clone();
    }
    Ok(answer)
}
