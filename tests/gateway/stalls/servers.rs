//! Rows of servers and pipes.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use reqwest::Method;
use serde_json::{Value, json};

use super::WAITING;
use super::dependency::{Dependency, Meanwhile, Needs, Set, Sign, Works};
use crate::clusters::{cluster, minted};
use test_support::backend::{Backend, Reply};
use test_support::issuer::Issuer;
use test_support::relay::{Mode, Relay};
use test_support::world::Setup;

/// Most that a pipe holds.
const PIPE_BYTES: usize = 64 * 1024;

/// Reads a pipe to its end, once it does not stall.
fn read_later(pipe: impl Read + Send + 'static) -> (Set, Works) {
    let (pipe, bytes) = (Mutex::new(Some(pipe)), Arc::new(AtomicUsize::new(0)));
    let read = Arc::clone(&bytes);
    let set = move |stalls: bool| {
        let (Some(mut pipe), false) = (pipe.lock().unwrap().take_if(|_| !stalls), stalls) else {
            return;
        };
        let read = Arc::clone(&read);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                read.fetch_add(length, Ordering::Relaxed);
            }
        });
    };
    // More than it held: the writer goes on.
    let goes_on = move || bytes.load(Ordering::Relaxed) > PIPE_BYTES;
    (Box::new(set), Box::new(goes_on))
}

pub(super) fn log(_: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let (reader, writer) = std::io::pipe().unwrap();
        let (set, works) = read_later(reader);
        let sign = Sign::counter("tollgate_log_lines_lost_total", "TollgateLogLinesLost");
        Dependency {
            log: Some(Stdio::from(writer)),
            set,
            works,
            needs_many_requests: true,
            ..Dependency::new(json!({}), sign)
        }
    }
    .boxed_local()
}

pub(super) fn decision_file(_: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let pipe: File = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (set, works) = read_later(pipe);
        let sign = Sign::counter("tollgate_decision_lines_lost_total", "TollgateDecisionLinesLost");
        Dependency {
            set,
            works,
            needs_many_requests: true,
            kept: vec![Box::new(folder)],
            ..Dependency::new(json!({"decisions": {"file": path}}), sign)
        }
    }
    .boxed_local()
}

/// A server that requests are passed on to, and what its address is for.
async fn passed_on(
    (front, cancelled): (&'static str, &'static str),
    path: &'static str,
    settings: impl FnOnce(&str) -> Value,
) -> (Dependency, String) {
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let relay = Relay::to(&format!("http://{}", backend.address)).await;
    let url = relay.url().trim_end_matches('/').to_owned();
    let sign = Sign::counter(cancelled, "TollgateRequestsGivenUp");
    let needs = Needs {
        request: Box::new(move |gateway| gateway.request(Method::GET, "alice", path)),
        front,
        waiting: WAITING,
        works: 200,
        is_asked_before: true,
        meanwhile: Meanwhile::Waits,
    };
    let dependency = Dependency {
        needs: Some(needs),
        ..Dependency::new(settings(&url), sign).relayed(relay)
    };
    (dependency, url)
}

pub(super) fn argocd_server(_: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let cancelled = "tollgate_decisions_total{front=\"argocd\",outcome=\"cancelled\",reason=\"cancelled\"}";
        let settings = |url: &str| json!({"argocd": {"server": url}});
        let (dependency, _) = passed_on(("argocd", cancelled), "/api/v1/version", settings).await;
        dependency
    }
    .boxed_local()
}

pub(super) fn backend(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let cancelled = "tollgate_decisions_total{front=\"extensions\",outcome=\"cancelled\",reason=\"cancelled\"}";
        let path = "/api/v1/extensions/stalls/hello";
        let (dependency, url) = passed_on(("extensions", cancelled), path, |_| json!({})).await;
        let config = format!("{{services: [{{url: '{url}'}}]}}");
        setup.argocd_cm.insert("extension.config.stalls".to_owned(), config);
        dependency
    }
    .boxed_local()
}

pub(super) fn api_server(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let cancelled = "tollgate_decisions_total{front=\"clusters\",outcome=\"cancelled\",reason=\"cancelled\"}";
        let settings = |_: &str| json!({"clusters": {"forward": true}});
        let path = "/clusters/stalls/k8s/version";
        let (dependency, url) = passed_on(("clusters", cancelled), path, settings).await;
        setup.objects.push(cluster("stalls", &url, &json!({}), &[]));
        dependency
    }
    .boxed_local()
}

pub(super) fn host_of_plugin(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let (mut issuer, api) = (minted::issuer().await, minted::cluster_of(|_| true).await);
        let relay = Relay::to(&issuer.url()).await;
        // The certificate of the issuer names its address, and no port.
        issuer.address = ([127, 0, 0, 1], relay.port()).into();
        let (minting, folder) = minted::world(&issuer, &api);
        setup.objects.extend(minting.objects);
        setup.plugins = minting.plugins;
        setup.settings = minting.settings;
        let series = "tollgate_credential_mints_total{cluster=\"prod\",result=\"retryable\"}";
        let needs = Needs {
            request: Box::new(|gateway| gateway.request(Method::GET, "alice", "/clusters/prod/k8s/api")),
            front: "clusters",
            waiting: WAITING,
            works: 200,
            is_asked_before: false,
            meanwhile: Meanwhile::Refused(503),
        };
        Dependency {
            needs: Some(needs),
            kept: vec![Box::new(folder)],
            ..Dependency::new(json!({}), Sign::counter(series, "TollgateCredentialMintsFail")).relayed(relay)
        }
    }
    .boxed_local()
}

/// A set is generated from a repository. The server has none, and says so when it answers.
pub(super) fn git_server(_: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let absent = |_: &_| Reply::Bytes(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec());
        let server = Backend::start(absent).await;
        let relay = Relay::to(&format!("http://{}", server.address)).await;
        let url = relay.url();
        let settings = json!({"applicationSets": {"repositories": [format!("{url}*")], "git": {"time": "2s"}}});
        let series =
            "tollgate_decisions_total{front=\"applicationsets\",outcome=\"failed\",reason=\"input_unavailable\"}";
        let set = json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "ApplicationSet",
            "metadata": {"name": "slow"},
            "spec": {
                "generators": [
                    {"git": {"repoURL": format!("{url}a.git"), "revision": "HEAD", "directories": [{"path": "*"}]}},
                ],
                "template": {
                    "metadata": {"name": "{{path.basename}}"},
                    "spec": {
                        "project": "shop",
                        "source": {"repoURL": format!("{url}a.git"), "path": "a", "targetRevision": "HEAD"},
                        "destination": {"server": "https://kubernetes.default.svc", "namespace": "a"},
                    },
                },
            },
        });
        let request = move |gateway: &super::Process| {
            gateway
                .request(Method::POST, "alice", "/api/v1/applicationsets?dryRun=true")
                .json(&set)
        };
        let needs = Needs {
            request: Box::new(request),
            front: "applicationsets",
            // More would be too many for one person.
            waiting: 2,
            works: 502,
            is_asked_before: false,
            meanwhile: Meanwhile::Refused(502),
        };
        let works = move || !server.seen().is_empty();
        Dependency {
            needs: Some(needs),
            works: Box::new(works),
            ..Dependency::new(settings, Sign::counter(series, "TollgateRequestsFail")).relayed(relay)
        }
    }
    .boxed_local()
}

/// An issuer of ID tokens behind a relay, whose tokens are accepted.
async fn issuer(setup: &mut Setup, groups_from_userinfo: bool) -> (Issuer, Relay) {
    let (issuer, relay) = Issuer::behind_relay().await;
    let config = issuer.argocd_config(groups_from_userinfo);
    setup.argocd_cm.insert("oidc.config".to_owned(), config);
    (issuer, relay)
}

/// - `token`: of a person whom only the issuer knows.
fn needs_issuer(token: impl Fn() -> String + Send + 'static) -> Needs {
    let path = "/api/v1/extensions/echo/hello";
    Needs {
        request: Box::new(move |gateway| gateway.bearing(Method::GET, &token(), path)),
        front: "extensions",
        waiting: WAITING,
        works: 200,
        is_asked_before: false,
        meanwhile: Meanwhile::Refused(503),
    }
}

pub(super) fn issuer_keys(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let (issuer, relay) = issuer(setup, false).await;
        relay.set(Mode::Stall);
        let token = issuer.token(&json!({"sub": "carol"}));
        let series = "tollgate_decisions_total{front=\"extensions\",outcome=\"failed\",reason=\"issuer_unavailable\"}";
        Dependency {
            needs: Some(needs_issuer(move || token.clone())),
            ..Dependency::new(json!({}), Sign::counter(series, "TollgateRequestsFail")).relayed(relay)
        }
    }
    .boxed_local()
}

/// The issuer is asked about dave before, and about carol while it stalls. Its keys are known then.
pub(super) fn issuer_userinfo(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let (issuer, relay) = issuer(setup, true).await;
        let [dave, carol] = ["dave", "carol"].map(|name| issuer.token(&json!({"sub": name})));
        issuer.set_userinfo(json!({"sub": "dave", "groups": []}));
        let has_stalled = Arc::new(AtomicBool::new(false));
        let later = Arc::clone(&has_stalled);
        let token = move || match has_stalled.load(Ordering::Relaxed) {
            false => dave.clone(),
            true => carol.clone(),
        };
        let set = move |stalls: bool| {
            later.store(true, Ordering::Relaxed);
            issuer.set_userinfo(json!({"sub": "carol", "groups": []}));
            relay.set(match stalls {
                true => Mode::Stall,
                false => Mode::Pass,
            });
        };
        let series = "tollgate_decisions_total{front=\"extensions\",outcome=\"failed\",reason=\"session_unusable\"}";
        let needs = Needs {
            is_asked_before: true,
            ..needs_issuer(token)
        };
        Dependency {
            needs: Some(needs),
            set: Box::new(set),
            ..Dependency::new(json!({}), Sign::counter(series, "TollgateRequestsFail"))
        }
    }
    .boxed_local()
}

pub(super) fn collector(_: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let collector = Backend::start(|_| Reply::ok("")).await;
        let relay = Relay::to(&format!("http://{}", collector.address)).await;
        let settings = json!({"telemetry": {"endpoint": relay.url()}});
        let works = move || collector.seen().iter().any(|seen| seen.line().contains("/v1/traces"));
        Dependency {
            works: Box::new(works),
            needs_many_requests: true,
            ..Dependency::new(
                settings,
                Sign::counter("tollgate_spans_lost_total", "TollgateSpansLost"),
            )
            .relayed(relay)
        }
    }
    .boxed_local()
}
