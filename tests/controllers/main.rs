//! Measures Argo CD's own controllers with and without the gateway: how long the ApplicationSet
//! controller takes to generate Applications ([`generation`]), and the application controller to
//! compare them with their clusters ([`refresh`]). `cargo xtask compare` builds and starts it.
//!
//! Invariant: rounds with and without the gateway alternate, with the same objects and processes. Only
//! the way differs.
//!
//! The output has a JSON object on a line for each measurement, `{"name", "without", "with"}`, with the
//! seconds of each round.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "as in tests, a failure ends the program; the output is for `cargo xtask compare`"
)]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use test_support::kubernetes::argocd::NAMESPACE;
use test_support::kubernetes::cluster::Cluster;

mod generation;
mod refresh;

/// Signs the sessions of argocd-server, which the gateway reads from its Secret.
const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// Asks Argo CD to compare an Application, or to forget what it knows of a cluster.
const REFRESH: &str = "argocd.argoproj.io/refresh";

/// How long a controller may take for all objects of a round.
const ROUND: Duration = Duration::from_secs(600);
/// The pause between two polls, small beside a round.
const PAUSE: Duration = Duration::from_millis(100);

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds of each way.
    rounds: usize,
    /// Applications in a round.
    applications: usize,
    /// Clusters of these Applications.
    clusters: usize,
}

/// The seconds of the rounds of one measurement.
#[derive(Debug, Default)]
struct Rounds {
    without: Vec<f64>,
    with: Vec<f64>,
}

impl Rounds {
    /// Alternates the ways, and begins with another one in each pair of rounds.
    ///
    /// - `round`: measures one; its argument is whether the gateway is on the way.
    async fn measure(effort: Effort, mut round: impl AsyncFnMut(bool) -> Duration) -> Self {
        let mut measured = Self::default();
        for pair in 0..effort.rounds {
            let first = pair % 2 == 1;
            for is_with in [first, !first] {
                let took = round(is_with).await;
                let way = if is_with { "with" } else { "without" };
                eprintln!("  {way} the gateway: {:.1} s", took.as_secs_f64());
                measured.add(is_with, took);
            }
        }
        measured
    }

    fn add(&mut self, is_with: bool, took: Duration) {
        let rounds = if is_with { &mut self.with } else { &mut self.without };
        rounds.push(took.as_secs_f64());
    }

    fn print(&self, name: &str) {
        println!("{}", json!({"name": name, "without": self.without, "with": self.with}));
    }
}

/// Applications of the control plane's cluster, read and changed straight at its API server.
struct Applications {
    client: reqwest::Client,
    url: String,
}

impl Applications {
    fn of(cluster: &Cluster) -> Self {
        let administrator = cluster.certificate("administrator", Some("system:masters"));
        Self {
            client: cluster.client_with(&administrator),
            url: format!(
                "{}/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications",
                cluster.url()
            ),
        }
    }

    /// How many there are. One is read, so that counting costs the API server almost nothing.
    async fn count(&self) -> usize {
        let response = self.client.get(format!("{}?limit=1", self.url)).send().await.unwrap();
        let list: Value = response.error_for_status().unwrap().json().await.unwrap();
        let remaining = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
        list["items"].as_array().unwrap().len() + usize::try_from(remaining).unwrap()
    }

    async fn until_count(&self, wanted: usize) {
        until(&format!("{wanted} Applications"), async || self.count().await == wanted).await;
    }

    /// Those with a label.
    async fn list(&self, label: &str) -> Vec<Value> {
        self.list_as(label, "application/json").await
    }

    /// The same without `spec` and `status`.
    async fn metadata(&self, label: &str) -> Vec<Value> {
        self.list_as(
            label,
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        )
        .await
    }

    async fn list_as(&self, label: &str, accept: &str) -> Vec<Value> {
        let request = self.client.get(format!("{}?labelSelector={label}", self.url));
        let response = request.header("Accept", accept).send().await.unwrap();
        let list: Value = response.error_for_status().unwrap().json().await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// The names of those with a label.
    async fn names(&self, label: &str) -> Vec<String> {
        let metadata = self.metadata(label).await.into_iter();
        metadata
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Whether the controller has removed the annotation that asks for a refresh from all with a label.
    async fn are_refreshed(&self, label: &str) -> bool {
        let mut metadata = self.metadata(label).await.into_iter();
        metadata.all(|object| object["metadata"]["annotations"][REFRESH].is_null())
    }

    /// Waits until Argo CD has compared all with a label with their clusters.
    async fn until_compared(&self, label: &str, count: usize) {
        until("the first comparison", async || {
            let compared = |application: &&Value| application["status"]["sync"]["status"] == "OutOfSync";
            self.list(label).await.iter().filter(compared).count() == count
        })
        .await;
    }

    async fn patch(&self, name: &str, patch: &Value) {
        let request = self.client.patch(format!("{}/{name}", self.url));
        let request = request.header("Content-Type", "application/merge-patch+json");
        let response = request.body(patch.to_string()).send().await.unwrap();
        // Content that is not read resets its stream, and the API server closes the connection after many.
        response.error_for_status().unwrap().bytes().await.unwrap();
    }

    async fn delete_all(&self) {
        let response = self.client.delete(&self.url).send().await.unwrap();
        response.error_for_status().unwrap().bytes().await.unwrap();
    }
}

/// Polls until something holds, for at most [`ROUND`].
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            sleep(PAUSE).await;
        }
    };
    timeout(ROUND, waiting)
        .await
        .unwrap_or_else(|_| panic!("not within {ROUND:?}: {what}"));
}

#[tokio::main]
async fn main() {
    let is_quick = std::env::args().nth(1).is_some_and(|argument| argument == "--quick");
    let effort = if is_quick {
        Effort {
            rounds: 1,
            applications: 20,
            clusters: 2,
        }
    } else {
        Effort {
            rounds: 3,
            applications: 1_000,
            clusters: 20,
        }
    };
    generation::measure(effort).await;
    refresh::measure(effort).await;
}
