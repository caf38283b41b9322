//! The webhooks of the shipped manifests as an API server calls them: rules, `matchConditions`, the
//! review by HTTP, the patch.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::{Context, Env, Program};
use serde_json::{Value, json};

use super::objects::{Kind, NAMESPACE};
use test_support::checkout;

/// The registered webhooks, and how to reach the gateway that they call.
pub(super) struct Webhooks {
    validating: Vec<Webhook>,
    mutating: Vec<Webhook>,
    env: Arc<Env>,
    client: reqwest::Client,
}

struct Webhook {
    path: String,
    operations: Vec<String>,
    resources: Vec<String>,
    conditions: Vec<Program>,
}

/// Who writes, as the API server authenticated them.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) username: String,
    pub(super) groups: Vec<String>,
}

/// A write of one object.
#[derive(Clone, Debug)]
pub(super) struct Request<'a> {
    pub(super) writer: &'a Writer,
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    pub(super) before: Option<&'a Value>,
    pub(super) after: Option<Value>,
}

impl Webhooks {
    pub(super) fn new(client: reqwest::Client) -> Self {
        let env = Arc::new(Env::stdlib());
        Self {
            validating: read("admission", &env),
            mutating: read("admission-author", &env),
            env,
            client,
        }
    }

    /// Has every webhook judge a write. `Ok` is the object as it is to be stored, and whether any
    /// webhook was asked; `Err` says why it is refused.
    pub(super) async fn admit(
        &self,
        url: &str,
        mut request: Request<'_>,
        with_mutating: bool,
    ) -> Result<(Option<Value>, bool), String> {
        let mut is_asked = false;
        for webhook in self.mutating.iter().filter(|_| with_mutating) {
            if self.matches(webhook, &request)? {
                request.after = self.review(url, &webhook.path, &request).await?;
            }
        }
        for webhook in &self.validating {
            if self.matches(webhook, &request)? {
                is_asked = true;
                self.review(url, &webhook.path, &request).await?;
            }
        }
        Ok((request.after, is_asked))
    }

    /// What the mutating webhooks make of an object, whether or not their conditions hold.
    pub(super) async fn mutate(&self, url: &str, mut request: Request<'_>) -> Result<Option<Value>, String> {
        for webhook in &self.mutating {
            if webhook.is_about(&request) {
                request.after = self.review(url, &webhook.path, &request).await?;
            }
        }
        Ok(request.after)
    }

    /// Whether a webhook is called. A condition that fails is a refusal, by `failurePolicy: Fail`.
    fn matches(&self, webhook: &Webhook, request: &Request<'_>) -> Result<bool, String> {
        if !webhook.is_about(request) {
            return Ok(false);
        }
        let mut context = Context::with_env(Arc::clone(&self.env));
        for (name, value) in [
            ("request", request.attributes()),
            ("object", request.after.clone().unwrap_or_default()),
            ("oldObject", request.before.cloned().unwrap_or_default()),
        ] {
            context.add_variable(name, value).map_err(|error| error.to_string())?;
        }
        for condition in &webhook.conditions {
            match condition.execute(&context) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(cel::Value::Bool(false)) => return Ok(false),
                other => return Err(format!("a match condition gives {other:?}")),
            }
        }
        Ok(true)
    }

    /// The object as the webhook wants it.
    async fn review(&self, url: &str, path: &str, request: &Request<'_>) -> Result<Option<Value>, String> {
        let mut attributes = request.attributes();
        attributes["object"] = request.after.clone().unwrap_or_default();
        attributes["oldObject"] = request.before.cloned().unwrap_or_default();
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": attributes,
        });
        let sent = self.client.post(format!("{url}{path}")).json(&review).send().await;
        let answer = sent.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{status}: {text}");
        let review: Value = serde_json::from_str(&text).unwrap();
        let response = &review["response"];
        assert_eq!(response["uid"], "review", "{review}");
        if response["allowed"] != true {
            return Err(response["status"]["message"].as_str().unwrap_or_default().to_owned());
        }
        // An API server reads bytes as Base64, or as an array of numbers.
        let patch: Vec<u8> = match &response["patch"] {
            Value::Null => return Ok(request.after.clone()),
            Value::String(text) => STANDARD.decode(text).unwrap(),
            bytes => serde_json::from_value(bytes.clone()).unwrap(),
        };
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut after = request.after.clone().unwrap();
        json_patch::patch(&mut after, &patch).unwrap();
        Ok(Some(after))
    }
}

impl Webhook {
    fn is_about(&self, request: &Request<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == wanted);
        has(&self.operations, request.operation()) && has(&self.resources, request.kind.plural())
    }
}

impl Request<'_> {
    fn operation(&self) -> &'static str {
        match (self.before, &self.after) {
            (None, _) => "CREATE",
            (Some(_), Some(_)) => "UPDATE",
            (Some(_), None) => "DELETE",
        }
    }

    /// The request of a review, without its objects.
    fn attributes(&self) -> Value {
        let (group, version) = ("argoproj.io", "v1alpha1");
        let kind = json!({"group": group, "version": version, "kind": self.kind.name()});
        let resource = json!({"group": group, "version": version, "resource": self.kind.plural()});
        json!({
            "uid": "review", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": self.name, "namespace": NAMESPACE, "operation": self.operation(),
            "userInfo": {"username": self.writer.username, "groups": self.writer.groups}, "dryRun": false,
        })
    }
}

/// The webhooks of a component. Each has one rule.
fn read(component: &str, env: &Env) -> Vec<Webhook> {
    let path = checkout().join(format!("deploy/kubernetes/components/{component}/webhooks.yaml"));
    let text = std::fs::read_to_string(path).unwrap();
    let configuration: Value = serde_saphyr::from_str(&text).unwrap();
    let texts = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
    let webhooks = configuration["webhooks"].as_array().unwrap().iter();
    let webhooks = webhooks.map(|webhook| {
        assert_eq!(webhook["failurePolicy"], "Fail", "{component}");
        let [rule] = &webhook["rules"].as_array().unwrap()[..] else {
            panic!("{component}: one rule is expected");
        };
        let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
        let conditions = conditions.map(|condition| env.compile(condition["expression"].as_str().unwrap()).unwrap());
        Webhook {
            path: webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned(),
            operations: texts(&rule["operations"]),
            resources: texts(&rule["resources"]),
            conditions: conditions.collect(),
        }
    });
    webhooks.collect()
}
