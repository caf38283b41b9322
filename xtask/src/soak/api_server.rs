//! Stands for the API server of the control plane's cluster: pages of lists that take their time, and
//! watches that go on from any version.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::http::{self, Request, Stand};

/// The server.
#[derive(Debug)]
pub(super) struct ApiServer {
    objects: Mutex<Objects>,
    version: watch::Sender<u64>,
    page_millis: AtomicU64,
}

#[derive(Debug, Default)]
struct Objects {
    /// The JSON of each object, by the plural of its kind and its name.
    all: HashMap<&'static str, BTreeMap<String, String>>,
    /// Every change: its version, the plural, the object's name, and the line of a watch.
    changes: Vec<(u64, &'static str, String, Arc<str>)>,
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
        http::serve(Arc::clone(self)).await
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
        let name = metadata["name"]
            .as_str()
            .context("an object without a name")?
            .to_owned();
        metadata["resourceVersion"] = json!(version.to_string());
        metadata["uid"] = json!(format!("{plural}-{name}"));
        let text = object.to_string();
        let all = objects.all.entry(plural).or_default();
        let event = match all.insert(name.clone(), text.clone()) {
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        let line = format!("{{\"type\":\"{event}\",\"object\":{text}}}\n");
        objects.changes.push((version, plural, name, line.into()));
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

    async fn list(&self, plural: &str, request: &Request, stream: &mut TcpStream) -> Result<()> {
        sleep(Duration::from_millis(self.page_millis.load(Ordering::Relaxed))).await;
        let limit = request.parameter("limit").and_then(|limit| limit.parse().ok());
        let after = request.parameter("continue").unwrap_or_default();
        let (items, more, version) = {
            let objects = self.objects();
            let none = BTreeMap::new();
            let all = objects.all.get(plural).unwrap_or(&none);
            let mut rest = all
                .iter()
                .filter(|(name, _)| name.as_str() > after && is_selected(request, name));
            let page: Vec<(&String, &String)> = rest.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
            let more = rest.next().and(page.last()).map(|(name, _)| (*name).clone());
            let items: Vec<&str> = page.iter().map(|(_, text)| text.as_str()).collect();
            (items.join(","), more.unwrap_or_default(), *self.version.borrow())
        };
        let metadata = json!({"resourceVersion": version.to_string(), "continue": more});
        let body = format!("{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{metadata},\"items\":[{items}]}}");
        http::respond(stream, 200, "application/json", body.as_bytes()).await
    }

    async fn watch(&self, plural: &str, request: &Request, stream: &mut TcpStream) -> Result<()> {
        let number = |name: &str| request.parameter(name).and_then(|text| text.parse::<u64>().ok());
        let mut seen = number("resourceVersion").context("a watch without a version")?;
        let end = Instant::now() + Duration::from_secs(number("timeoutSeconds").unwrap_or(300));
        let mut version = self.version.subscribe();
        http::begin(stream, "application/json").await?;
        loop {
            let now = *version.borrow_and_update();
            let lines: Vec<Arc<str>> = {
                let objects = self.objects();
                let at = objects.changes.partition_point(|(version, ..)| *version <= seen);
                let new = objects.changes.iter().skip(at);
                new.filter(|(version, kind, name, _)| *version <= now && *kind == plural && is_selected(request, name))
                    .map(|(.., line)| Arc::clone(line))
                    .collect()
            };
            for line in lines {
                http::chunk(stream, line.as_bytes()).await?;
            }
            seen = now;
            match timeout_at(end, version.changed()).await {
                Ok(changed) => changed?,
                Err(_) => return http::chunk(stream, b"").await,
            }
        }
    }
}

/// Whether a field selector of the request has this name, if it has one for names.
fn is_selected(request: &Request, name: &str) -> bool {
    let selector = request.parameter("fieldSelector").unwrap_or_default();
    let selected = selector.split_once("metadata.name%3D");
    selected.is_none_or(|(_, selected)| selected.trim_start_matches("%3D") == name)
}

impl Stand for ApiServer {
    async fn answer(&self, request: Request, stream: &mut TcpStream) -> Result<()> {
        let plural = request.path.rsplit('/').next().unwrap_or_default();
        match (request.method.as_str(), request.parameter("watch")) {
            ("GET", Some(_)) => self.watch(plural, &request, stream).await,
            ("GET", None) => self.list(plural, &request, stream).await,
            // Nothing here may be written, and no right of the gateway is known.
            _ => http::respond(stream, 403, "application/json", b"{\"kind\":\"Status\",\"code\":403}").await,
        }
    }
}
