use std::sync::Mutex;

use futures_util::FutureExt as _;
use serde_json::json;
use test_support::api_server::Api;

use super::*;
use crate::settings::ApiServerSettings;

const NAME: &str = "agents/key";

/// An API server with one Secret: it answers reads with the text, and makes every change in its `data`.
async fn serve(read: String) -> (Api, ApiServer, tempfile::TempDir) {
    let state = Mutex::new(read);
    let api = Api::start(move |seen| {
        let mut state = state.lock().unwrap();
        if seen.method == "PATCH" {
            let patch: Value = serde_json::from_slice(&seen.body).unwrap();
            let mut secret: Value = serde_json::from_str(&state).unwrap();
            let data = secret["data"].as_object_mut().unwrap();
            data.extend(patch["data"].as_object().unwrap().clone());
            secret["metadata"]["resourceVersion"] = json!("8");
            *state = secret.to_string();
        }
        (200, Vec::new(), state.clone())
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let settings = ApiServerSettings {
        url: api.url().parse().unwrap(),
        certificate_authority: file("ca", &api.ca_pem),
        token: file("token", "of-the-account"),
    };
    let server = ApiServer::new(&settings).unwrap();
    (api, server, folder)
}

fn holder(rotate_every: Duration) -> KeyHolder {
    KeyHolder::in_secret(SecretName::parse(NAME).unwrap(), rotate_every, "prod".to_owned())
}

fn secret(data: &Value) -> String {
    json!({"metadata": {"resourceVersion": "7"}, "data": data}).to_string()
}

fn changes(api: &Api) -> usize {
    api.seen().iter().filter(|seen| seen.method == "PATCH").count()
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_not_written() {
    let pem = SigningKey::generate_pem().unwrap();
    let whole = secret(&json!({KEY: encoded(pem.expose_secret())}));
    let cut = whole.get(..whole.len() / 2).unwrap().to_owned();
    let long = format!("{whole}{}", " ".repeat(3 << 20));
    for (body, expected) in [
        (String::new(), "not a Secret"),
        (cut, "not a Secret"),
        (long, "not a Secret"),
        ("{}".to_owned(), "not a Secret"),
        (json!({"data": {}}).to_string(), "not a Secret"),
        (secret(&json!({KEY: "####"})), "`key.pem`"),
        (secret(&json!({KEY: STANDARD.encode([0xff])})), "`key.pem`"),
        (secret(&json!({KEY: encoded("no key")})), "`key.pem`"),
    ] {
        let (api, server, _folder) = serve(body.clone()).await;
        let error = holder(Duration::from_secs(60)).load(&server).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(changes(&api), 0, "{body}");
    }
    // The twin: a Secret without a key gets one, for the version that was read.
    let (api, server, _folder) = serve(secret(&json!({}))).await;
    holder(Duration::from_secs(60)).load(&server).await.unwrap();
    let patch = api.seen().pop().unwrap();
    let patch: Value = serde_json::from_slice(&patch.body).unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}

/// The gateway ends its question when it likes.
#[tokio::test]
async fn the_key_is_still_known_after_a_question_that_was_dropped() {
    let pem = SigningKey::generate_pem().unwrap();
    let key = SigningKey::from_pem(&pem).unwrap().public().to_string();
    let (api, server, _folder) = serve(secret(&json!({KEY: encoded(pem.expose_secret())}))).await;
    let holder = holder(Duration::ZERO);
    holder.load(&server).await.unwrap();
    let status = json!({"nonce": "of-the-gateway", "key": key, "replicas": 1});
    let status: Status = serde_json::from_value(status).unwrap();
    assert!(holder.answer_status(&server, &status).now_or_never().is_none());
    assert!(holder.introduction().await.is_some());
    // And the key is rotated at the next question.
    assert!(holder.answer_status(&server, &status).await.new_key.is_some());
    assert!(changes(&api) >= 1);
}
