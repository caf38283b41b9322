//! Finds out whether an API server asks the webhook, and heeds it: the gateway lets it check a new
//! Application that is never stored (a dry run), and that the webhook refuses.
//!
//! Security: the settings say that the webhook enforces, but only the refusal shows that it is
//! registered, for this namespace, and reaches a gateway.

use serde_json::{Value, json};

use tollgate_objects::ObjectName;
use tollgate_state::write::{self, ObjectKey, WritableKind, Writer};

/// Annotation of the Application that is refused. Its value is a word that the refusal repeats.
const ANNOTATION: &str = "tollgate.dev/admission-probe";
const NAME: &str = "tollgate-admission-probe";

/// Whether the API server refuses what the webhook refuses in a namespace.
///
/// - `nonce`: a word that no other refusal has.
///
/// # Errors
/// What the API server did instead, for the operator.
pub(crate) async fn is_enforced(writer: &Writer, namespace: &str, nonce: &str) -> Result<(), String> {
    let key = ObjectKey {
        kind: WritableKind::Application,
        name: ObjectName {
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
        },
    };
    match writer.create_dry_run(&key, &application(&key, nonce)).await {
        Ok(()) => Err("it was not refused".to_owned()),
        // A refusal by anything else, such as a quota or another webhook, proves nothing.
        Err(write::Error::Cluster { message, .. }) if message.contains(&refusal(nonce)) => Ok(()),
        Err(other) => Err(other.to_string()),
    }
}

/// The word of a probe. `None` for everything else.
pub(crate) fn nonce(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(ANNOTATION)?.as_str()
}

/// The text by which the webhook refuses a probe.
pub(crate) fn refusal(nonce: &str) -> String {
    format!("this is the gateway's own probe {nonce}")
}

fn application(key: &ObjectKey, nonce: &str) -> Value {
    json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.as_str(),
        "metadata": {"name": key.name.name, "namespace": key.name.namespace, "annotations": {ANNOTATION: nonce}},
        "spec": {"project": "default", "destination": {}, "source": {"repoURL": "https://tollgate.invalid", "path": "."}},
    })
}
