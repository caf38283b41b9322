//! What is told as it happens.

use reqwest::Method;
use serde_json::{Value, json};

use super::{API, made, send, set, start};
use crate::clusters::ask;

const STREAM: &str = "/api/v1/stream/applicationsets";

/// Lines of a stream as they come.
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
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        (text("/result/type"), text("/result/applicationSet/metadata/name"))
    }
}

#[tokio::test]
async fn what_changes_is_told_to_those_who_may_see_it() {
    let world = start().await;
    made(&world, &set("first", "dev", &["a"])).await;
    let open = async |user: &str, query: &str| {
        let answer = ask(&world, Method::GET, user, &format!("{STREAM}{query}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        Lines {
            answer,
            rest: String::new(),
        }
    };
    let mut all = open("carol", "?appSetNamespace=argocd").await;
    let mut one = open("carol", "?name=second").await;
    let mut none = open("bob", "").await;
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
    let mut named = open("carol", "?name=second").await;
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
    assert!(nothing.is_err(), "bob is told of nothing");
}
