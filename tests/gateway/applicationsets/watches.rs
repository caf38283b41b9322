//! Watches of ApplicationSets.

use reqwest::Method;
use serde_json::{Value, json};

use super::{API, POLICY, made, send, set, start};
use crate::clusters::ask;
use test_support::world::{CONTROL_PLANE, World, object};

const STREAM: &str = "/api/v1/stream/applicationsets";

/// The events of a stream, one a line.
struct Lines {
    answer: reqwest::Response,
    rest: String,
}

impl Lines {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.rest.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.rest = rest;
                if line.is_empty() {
                    continue;
                }
                let line = line.strip_prefix("data: ").unwrap_or(&line);
                return Some(serde_json::from_str(line).unwrap());
            }
            let chunk = tokio::time::timeout(std::time::Duration::from_secs(20), self.answer.chunk());
            let chunk = chunk.await.expect("an event within 20 s").ok()??;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn event(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        kind(&event)
    }
}

fn kind(event: &Value) -> (String, String) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    (text("/result/type"), text("/result/applicationSet/metadata/name"))
}

async fn open(world: &World, user: &str, query: &str) -> Lines {
    let answer = ask(world, Method::GET, user, &format!("{STREAM}{query}"));
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    Lines {
        answer,
        rest: String::new(),
    }
}

#[tokio::test]
async fn changes_are_sent_to_those_who_may_see_the_set() {
    let world = start().await;
    made(&world, &set("first", "dev", &["a"])).await;
    let mut all = open(&world, "carol", "?appSetNamespace=argocd").await;
    let mut one = open(&world, "carol", "?name=second").await;
    let mut none = open(&world, "bob", "").await;
    made(&world, &set("second", "dev", &["b"])).await;
    loop {
        // The first set may come into force after the stream began.
        let event = all.event().await;
        if event == ("ADDED".to_owned(), "second".to_owned()) {
            break;
        }
        assert_eq!(event, ("ADDED".to_owned(), "first".to_owned()));
    }
    assert_eq!(one.event().await, ("ADDED".to_owned(), "second".to_owned()));
    let mut named = open(&world, "carol", "?name=second").await;
    assert_eq!(named.event().await, ("ADDED".to_owned(), "second".to_owned()));
    let mut changed = set("second", "dev", &["b"]);
    changed["metadata"]["labels"] = json!({"x": "1"});
    let (status, body) = super::post(&world, "alice", "?upsert=true", &changed).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(all.event().await, ("MODIFIED".to_owned(), "second".to_owned()));
    let (status, _) = send(ask(&world, Method::DELETE, "alice", &format!("{API}/second"))).await;
    assert_eq!(status, 200);
    assert_eq!(all.event().await, ("DELETED".to_owned(), "second".to_owned()));
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(50), none.next()).await;
    assert!(nothing.is_err(), "bob gets no events");
}

/// Argo CD's pages watch a few fields of each set.
#[tokio::test]
async fn a_watch_sends_the_selected_fields_once() {
    let world = start().await;
    let fields = "fields=result.applicationSet.metadata.name,result.applicationSet.metadata.labels";
    let mut some = open(
        &world,
        "carol",
        &format!("?resourceVersion=undefined&{fields}&selector=&view=tiles"),
    )
    .await;
    let mut all = open(&world, "carol", "").await;
    made(&world, &set("first", "dev", &["a"])).await;
    let metadata = |metadata: Value| Some(json!({"result": {"applicationSet": {"metadata": metadata}}}));
    assert_eq!(some.next().await, metadata(json!({"name": "first"})));
    assert!(all.next().await.unwrap()["result"]["applicationSet"]["spec"].is_object());
    // The first change is in no selected field.
    for x in [None, Some("1"), Some("2")] {
        let mut changed = set("first", "dev", &["a", "b"]);
        if let Some(x) = x {
            changed["metadata"]["labels"] = json!({"x": x});
        }
        let (status, body) = super::post(&world, "alice", "?upsert=true", &changed).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(all.event().await, ("MODIFIED".to_owned(), "first".to_owned()));
    }
    for x in ["1", "2"] {
        assert_eq!(
            some.next().await,
            metadata(json!({"name": "first", "labels": {"x": x}}))
        );
    }
}

/// Nobody writes the status of a set in a folder.
#[tokio::test]
async fn a_watch_of_one_set_ends_if_no_controller_reports_it() {
    let mut setup = super::setup();
    setup.settings["applicationSets"]["controllerTimeout"] = json!("1s");
    let world = setup.start().await;
    let mut all = open(&world, "carol", "").await;
    made(&world, &set("first", "dev", &["a"])).await;
    assert_eq!(all.event().await, ("ADDED".to_owned(), "first".to_owned()));
    let mut named = open(&world, "carol", "?name=first").await;
    let page = ask(&world, Method::GET, "carol", &format!("{STREAM}?name=first"));
    let mut page = Lines {
        answer: page.header("accept", "text/event-stream").send().await.unwrap(),
        rest: String::new(),
    };
    let mut hidden = open(&world, "bob", "?name=first").await;
    assert_eq!(named.event().await, ("ADDED".to_owned(), "first".to_owned()));
    let error = named.next().await.unwrap();
    assert_eq!(
        error,
        json!({"error": {
            "grpc_code": 4, "http_code": 504, "http_status": "Gateway Timeout",
            "message": "no ApplicationSet controller wrote the status of `argocd/first` within 1s: check that \
                        argocd-applicationset-controller runs and watches namespace `argocd`",
        }})
    );
    assert_eq!(named.next().await, None);
    // A caller who watches again learns it at once.
    let again = send(ask(&world, Method::GET, "carol", &format!("{STREAM}?name=first"))).await;
    assert_eq!(
        (again.0, &again.1["reason"]),
        (504, &json!("no_controller")),
        "{}",
        again.1
    );
    assert_eq!(again.1["code"], 4);
    // Pages are only there to be looked at: their stream goes on.
    assert_eq!(page.event().await, ("ADDED".to_owned(), "first".to_owned()));
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(50), page.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    // bob may not see the set, so that nothing tells him that it is there.
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(50), hidden.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

/// Permissions change during the watch. The set's project is a template.
#[tokio::test]
async fn a_set_the_caller_may_no_longer_see_is_sent_as_deleted_and_hidden_afterwards() {
    let world = start().await;
    made(&world, &set("first", "{{name}}", &["dev"])).await;
    let grant = |policy: &str| {
        let data = json!({"data": {"policy.csv": policy}});
        let map = object("v1", "ConfigMap", "argocd-rbac-cm", CONTROL_PLANE, data);
        std::fs::write(world.path("state/001.yaml"), map.to_string()).unwrap();
    };
    let (mut carol, mut bob) = (
        open(&world, "carol", "?name=first").await,
        open(&world, "bob", "?name=first").await,
    );
    let added = carol.next().await.unwrap();
    assert_eq!(kind(&added), ("ADDED".to_owned(), "first".to_owned()));
    grant(&POLICY.replace("p, carol,", "p, bob,"));
    let gone = carol.next().await.unwrap();
    assert_eq!(kind(&gone), ("DELETED".to_owned(), "first".to_owned()));
    assert_eq!(gone["result"]["applicationSet"], added["result"]["applicationSet"]);
    assert_eq!(bob.event().await, ("ADDED".to_owned(), "first".to_owned()));
    let mut changed = set("first", "{{name}}", &["dev"]);
    changed["metadata"]["labels"] = json!({"x": "1"});
    let (status, body) = super::post(&world, "alice", "?upsert=true", &changed).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(bob.event().await, ("MODIFIED".to_owned(), "first".to_owned()));
    // carol got no event for the change, and sees it once she may see the set again.
    grant(POLICY);
    let again = carol.next().await.unwrap();
    assert_eq!(kind(&again), ("ADDED".to_owned(), "first".to_owned()));
    assert_eq!(again["result"]["applicationSet"]["metadata"]["labels"]["x"], "1");
    assert_eq!(bob.event().await, ("DELETED".to_owned(), "first".to_owned()));
}
