//! Tokens and secrets must not remain in the memory of a gateway process, in its log or in its
//! files.
//!
//! Source: proc(5), `maps` and `mem`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde_json::{Value, json};

use super::{cluster, setup};
use crate::memory::Process;
use test_support::api_server::Api;
use test_support::client::PATIENCE;
use test_support::token;
use test_support::world::{SESSION_KEY, World};

/// The number of issuers, each with a cluster. There are several, because the gateway sends at most
/// ten requests a second to a host.
const ISSUERS: usize = 10;
/// Mints of each issuer.
const MINTS: usize = 100;
/// The start of each token. Nothing else in the gateway's memory begins so.
const MARK: &str = "m1nt3d.tok3n.";
/// The start of each secret that the plugin sends to an issuer.
const ROBOT: &str = "r0b0t.s3cret.";

/// A unique token.
fn token_of(issuer: usize, nth: usize) -> String {
    format!("{MARK}{issuer:03}.{nth:06}.{}", "x1y2z3".repeat(40))
}

fn robot(issuer: usize) -> String {
    format!("{ROBOT}{issuer:03}.{}", "a9b8c7".repeat(20))
}

/// The credentials that clusters received, and whether they close connections.
#[derive(Clone, Default)]
struct Clusters {
    tokens: Arc<Mutex<BTreeSet<String>>>,
    closing: Arc<AtomicBool>,
}

/// Starts an identity provider whose tokens expire at once, which is also the cluster that accepts
/// them.
async fn issuer(index: usize, clusters: Clusters) -> Api {
    let made = AtomicUsize::new(0);
    let address = format!("127.0.0.{}", index + 2).parse().unwrap();
    Api::at(address, move |seen| {
        let given = seen.value("authorization").unwrap();
        if seen.target != "/token" {
            clusters.tokens.lock().unwrap().insert(given.to_owned());
            let close = clusters.closing.load(Ordering::SeqCst);
            let fields = close.then(|| ("connection", "close".to_owned()));
            return (200, fields.into_iter().collect(), "welcome".into());
        }
        let good = given == format!("Bearer {}", robot(index));
        let nth = made.fetch_add(1, Ordering::SeqCst);
        let body = json!({"token": token_of(index, nth), "expires_in": 0});
        let status = if good { 200 } else { 401 };
        (
            status,
            vec![("content-type", "application/json".into())],
            body.to_string(),
        )
    })
    .await
}

fn object(index: usize, issuer: &Api) -> Value {
    let config = json!({
        "webAPIProviderConfig": {
            "method": "POST", "url": format!("{}/token", issuer.url()), "tokenPath": "$.token",
            "headers": {"Authorization": "Bearer {{.robot}}"},
            "expiry": {"path": "$.expires_in", "format": "seconds"},
        },
        "tlsClientConfig": {"caData": STANDARD.encode(&issuer.ca_pem)},
    });
    cluster(
        &format!("c{index}"),
        &issuer.url(),
        &config,
        &[("robot", &robot(index))],
    )
}

/// Finds the texts that begin with `mark` in the writable memory of a process, and the mappings in
/// which they are.
fn found(process: &Process, mark: &str, length: usize) -> BTreeMap<String, Vec<String>> {
    const PIECE: u64 = 1 << 20;
    let folder = format!("/proc/{}", process.id());
    let maps = std::fs::read_to_string(format!("{folder}/maps")).unwrap();
    let memory = File::open(format!("{folder}/mem"))
        .unwrap_or_else(|error| panic!("the memory of a child cannot be read here (ptrace_scope?): {error}"));
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut piece = vec![0; usize::try_from(PIECE).unwrap() + length];
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        let name = words.nth(3).unwrap_or("anonymous");
        if !rights.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let (from, to) = (
            u64::from_str_radix(from, 16).unwrap(),
            u64::from_str_radix(to, 16).unwrap(),
        );
        let mut at = from;
        while at < to {
            let most = usize::try_from(to - at).unwrap().min(piece.len());
            let Ok(read) = memory.read_at(&mut piece[..most], at) else {
                break;
            };
            for offset in memmem::find_iter(&piece[..read], mark) {
                // A text that begins after the piece is found with the next piece.
                if u64::try_from(offset).unwrap() < PIECE {
                    let text = &piece[offset..read.min(offset + length)];
                    let shown = String::from_utf8_lossy(text).into_owned();
                    found.entry(shown).or_default().push(format!("{name} {range}"));
                }
            }
            at += PIECE;
        }
    }
    found
}

/// Sends `mints` requests to each cluster. Each request needs a new token.
async fn drive(process: &Process, mints: usize) {
    let address = process.address;
    let mut clusters = Vec::new();
    for index in 0..ISSUERS {
        clusters.push(tokio::spawn(async move {
            let url = format!("http://{address}/clusters/c{index}/k8s/api");
            let client = reqwest::Client::new();
            for _ in 0..mints {
                let request = client.get(&url).bearer_auth(token::session(SESSION_KEY, "alice"));
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
            }
        }));
    }
    for cluster in clusters {
        cluster.await.unwrap();
    }
}

async fn world(clusters: &Clusters) -> (World, Vec<Api>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (mut issuers, mut hosts, mut objects) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..ISSUERS {
        let issuer = issuer(index, clusters.clone()).await;
        let ca = folder.path().join(format!("{index}.pem"));
        std::fs::write(&ca, &issuer.ca_pem).unwrap();
        hosts.push(json!({
            "host": issuer.address.ip().to_string(), "port": issuer.address.port(), "loopback": true, "ca": ca,
        }));
        objects.push(object(index, &issuer));
        issuers.push(issuer);
    }
    let mut setup = setup(objects);
    setup.plugins = vec!["webapi"];
    setup.settings["plugins"] = json!({"grants": {"webapi": {"imports": ["clock"], "hosts": hosts}}});
    (setup.start().await, issuers, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tokens_leave_nothing_behind() {
    let clusters = Clusters::default();
    let (world, _issuers, _folder) = world(&clusters).await;
    let process = Process::start(&world).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let core: Vec<&str> = core.split_whitespace().skip(4).collect();
    assert_eq!(core, ["0", "0", "bytes"], "a core dump would hold every secret");

    drive(&process, MINTS).await;
    let made = ISSUERS * MINTS;
    assert_eq!(
        clusters.tokens.lock().unwrap().len(),
        made,
        "each request had its own token"
    );
    // An open connection to a cluster keeps the last token that was written to it.
    let length = token_of(0, 0).len();
    let last: BTreeSet<String> = (0..ISSUERS).map(|issuer| token_of(issuer, MINTS - 1)).collect();
    let tokens = found(&process, MARK, length);
    let old = tokens
        .iter()
        .filter(|(token, places)| !last.contains(*token) || places.len() > 1);
    let old: BTreeMap<_, _> = old.collect();
    assert!(old.is_empty(), "{} of {made} tokens: {old:#?}", old.len());

    // When the connections close, these tokens go too.
    clusters.closing.store(true, Ordering::SeqCst);
    drive(&process, 1).await;
    let mut tokens = found(&process, MARK, length);
    let patience = tokio::time::Instant::now() + PATIENCE;
    while !tokens.is_empty() && tokio::time::Instant::now() < patience {
        tokio::task::yield_now().await;
        tokens = found(&process, MARK, length);
    }
    assert!(tokens.is_empty(), "{} of {made} tokens: {tokens:#?}", tokens.len());

    // A secret may occur three times: in the Secret as it was read, its cluster and its provider.
    let robots = found(&process, ROBOT, robot(0).len());
    let most = robots.values().map(Vec::len).max().unwrap_or_default();
    assert!(robots.len() == ISSUERS && most <= 3, "{robots:#?}");

    let mut written = process.log();
    for file in ["decisions.jsonl", "tollgate.yaml"] {
        written += &std::fs::read_to_string(world.path(file)).unwrap();
    }
    assert!(!written.contains(MARK) && !written.contains(ROBOT));
}
