//! Stands for the API server of the control plane's cluster: pages of lists that take their time, and
//! watches that go on from any version.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::upstream;

/// Changes that are kept for watches. They are at most a moment behind.
const KEPT_CHANGES: usize = 2_000;

/// The server.
#[derive(Debug)]
pub(super) struct ApiServer {
    objects: Mutex<Objects>,
    version: watch::Sender<u64>,
    page_millis: AtomicU64,
}

#[derive(Debug, Default)]
struct Objects {
    /// The JSON of each object, by the plural of its kind, and by namespace and name.
    all: HashMap<&'static str, BTreeMap<String, String>>,
    /// The latest changes.
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Change {
    version: u64,
    plural: &'static str,
    key: String,
    /// The line of a watch.
    line: String,
}

/// The objects that a request is about.
#[derive(Clone, Debug)]
struct Selection {
    plural: String,
    /// What the key of each begins with: its namespace.
    prefix: String,
    /// The key of the only one, if the request names it.
    key: Option<String>,
}

impl Selection {
    fn new(path: &str, parameters: &HashMap<String, String>) -> Self {
        let mut segments = path.rsplit('/');
        let plural = segments.next().unwrap_or_default().to_owned();
        let prefix = format!("{}/", segments.next().unwrap_or_default());
        let selector = parameters.get("fieldSelector");
        let name = selector.and_then(|selector| selector.strip_prefix("metadata.name="));
        Self {
            plural,
            key: name.map(|name| format!("{prefix}{}", name.trim_start_matches('='))),
            prefix,
        }
    }

    fn has(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && self.key.as_ref().is_none_or(|own| own == key)
    }
}

impl ApiServer {
    pub(super) fn new() -> Self {
        Self {
            objects: Mutex::default(),
            version: watch::Sender::new(1),
            page_millis: AtomicU64::new(0),
        }
    }

    pub(super) async fn start(self: &Arc<Self>) -> Result<SocketAddr> {
        upstream::serve(Router::new().fallback(answer).with_state(Arc::clone(self))).await
    }

    /// How long each page of a list takes from now on.
    pub(super) fn set_page_time(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.page_millis.store(millis, Ordering::Relaxed);
    }

    /// Creates an object before anybody watches, or changes it and says so to all watches.
    pub(super) fn put(&self, plural: &'static str, mut object: Value) -> Result<()> {
        let mut objects = self.objects();
        let version = *self.version.borrow() + 1;
        let metadata = object.get_mut("metadata").context("an object without `metadata`")?;
        let text = |value: &Value| value.as_str().context("an object without a name").map(str::to_owned);
        let key = format!("{}/{}", text(&metadata["namespace"])?, text(&metadata["name"])?);
        metadata["resourceVersion"] = json!(version.to_string());
        metadata["uid"] = json!(format!("{plural}-{key}"));
        let text = object.to_string();
        let all = objects.all.entry(plural).or_default();
        let event = match all.insert(key.clone(), text.clone()) {
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        let line = format!("{{\"type\":\"{event}\",\"object\":{text}}}\n");
        objects.changes.push(Change {
            version,
            plural,
            key,
            line,
        });
        if objects.changes.len() > 2 * KEPT_CHANGES {
            objects.changes.drain(..KEPT_CHANGES);
        }
        // With the lock held, so that a watch that sees the version also sees the change.
        self.version.send_replace(version);
        drop(objects);
        Ok(())
    }

    /// Forgets the changes that built the world up: nobody watches from before them.
    pub(super) fn forget_changes(&self) {
        self.objects().changes.clear();
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list(&self, selection: &Selection, parameters: &HashMap<String, String>) -> Response {
        sleep(Duration::from_millis(self.page_millis.load(Ordering::Relaxed))).await;
        let limit = parameters.get("limit").and_then(|limit| limit.parse().ok());
        let after = parameters.get("continue").map_or("", String::as_str);
        let (items, more, version) = {
            let objects = self.objects();
            let none = BTreeMap::new();
            let all = objects.all.get(&*selection.plural).unwrap_or(&none);
            let mut rest = all.iter().filter(|(key, _)| key.as_str() > after && selection.has(key));
            let page: Vec<(&String, &String)> = rest.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
            let more = rest.next().and(page.last()).map(|(key, _)| (*key).clone());
            let items: Vec<&str> = page.iter().map(|(_, text)| text.as_str()).collect();
            (items.join(","), more.unwrap_or_default(), *self.version.borrow())
        };
        let metadata = json!({"resourceVersion": version.to_string(), "continue": more});
        let body = format!("{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{metadata},\"items\":[{items}]}}");
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }

    /// The lines about these objects after one version, until another one.
    fn lines(&self, selection: &Selection, after: u64, until: u64) -> String {
        let objects = self.objects();
        let at = objects.changes.partition_point(|change| change.version <= after);
        let new = objects.changes.iter().skip(at);
        new.filter(|change| change.version <= until && change.plural == selection.plural && selection.has(&change.key))
            .map(|change| change.line.as_str())
            .collect()
    }

    fn watch(self: Arc<Self>, selection: Selection, parameters: &HashMap<String, String>) -> Response {
        let number = |name: &str| parameters.get(name).and_then(|text| text.parse::<u64>().ok());
        let Some(seen) = number("resourceVersion") else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let end = Instant::now() + Duration::from_secs(number("timeoutSeconds").unwrap_or(300));
        let version = self.version.subscribe();
        let lines = stream::unfold((version, seen), move |(mut version, mut seen)| {
            let (api, selection) = (Arc::clone(&self), selection.clone());
            async move {
                loop {
                    let now = *version.borrow_and_update();
                    let lines = api.lines(&selection, seen, now);
                    seen = now;
                    if !lines.is_empty() {
                        return Some((Ok::<_, Infallible>(Bytes::from(lines)), (version, seen)));
                    }
                    // The time of the watch is over, or the run is.
                    timeout_at(end, version.changed()).await.ok()?.ok()?;
                }
            }
        });
        ([(CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
    }
}

async fn answer(
    State(api): State<Arc<ApiServer>>,
    method: Method,
    uri: Uri,
    Query(parameters): Query<HashMap<String, String>>,
) -> Response {
    if method != Method::GET {
        // Nothing here may be written, and no right of the gateway is known.
        return (StatusCode::FORBIDDEN, Json(json!({"kind": "Status", "code": 403}))).into_response();
    }
    let selection = Selection::new(uri.path(), &parameters);
    match parameters.contains_key("watch") {
        true => api.watch(selection, &parameters),
        false => api.list(&selection, &parameters).await,
    }
}
