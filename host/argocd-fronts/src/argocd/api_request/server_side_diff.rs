//! Checks a request of `ServerSideDiff`, which compares live objects of an Application with manifests
//! of the caller.
//!
//! Security: argocd-server checks that the live objects are those of the Application, and then
//! dry-runs the manifests, regardless of the objects that they name, and returns what the cluster
//! makes of them. So a manifest must name the live object that it is compared with.

use serde::Deserialize;
use url::form_urlencoded;

use crate::argocd::message;
use crate::argocd::methods::ApiMethod;
use tollgate_front::grpc::wire::{self, Payload};

/// Numbers of `liveResources` and `targetManifests`, in `ApplicationServerSideDiffQuery`.
const LIVE: u32 = 4;
const TARGET: u32 = 5;

/// Most characters of a name that a refusal repeats.
const SHOWN: usize = 100;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "`targetManifests[{index}]` is {target}, and `liveResources[{index}]` is {live}; each manifest must name the \
         live object that it is compared with"
    )]
    Target { index: usize, target: String, live: String },
    #[error("`targetManifests[{0}]` is no object in JSON, or has two readings")]
    Unreadable(usize),
    #[error("{live} `liveResources` and {target} `targetManifests`; each manifest is compared with one live object")]
    Count { live: usize, target: usize },
    #[error("`targetManifests` can be sent by gRPC and gRPC-Web only")]
    Query,
    #[error(transparent)]
    Message(#[from] message::Error),
}

/// What names an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ObjectId {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}/{} {}/{}", self.group, self.kind, self.namespace, self.name);
        let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        write!(f, "`{shown}`")
    }
}

pub(super) fn is_method(method: &ApiMethod) -> bool {
    (method.service, method.name) == ("application.ApplicationService", "ServerSideDiff")
}

/// The REST form has no way to send live objects, so nothing is compared there.
pub(super) fn check_query(query: &str) -> Result<(), Error> {
    let mut names = form_urlencoded::parse(query.as_bytes());
    // By its start alone, because a query can spell a field in several ways, such as `target_manifests`.
    let has_targets = names.any(|(name, _)| name.to_ascii_lowercase().starts_with("target"));
    (!has_targets).then_some(()).ok_or(Error::Query)
}

pub(super) fn check(message: &[u8]) -> Result<(), Error> {
    let (mut live, mut targets) = (Vec::new(), Vec::new());
    for field in wire::fields(message) {
        match field.ok_or(message::Error::Protobuf)? {
            (LIVE, Payload::Bytes(bytes)) => live.push(live_object(bytes)?),
            (TARGET, Payload::Bytes(bytes)) => targets.push(bytes),
            (LIVE | TARGET, _) => return Err(message::Error::Type("targetManifests").into()),
            _ => {}
        }
    }
    if live.len() != targets.len() {
        return Err(Error::Count {
            live: live.len(),
            target: targets.len(),
        });
    }
    for (index, (live, target)) in live.into_iter().zip(targets).enumerate() {
        // argocd-server takes these for no manifest.
        if matches!(target, b"" | b"null") {
            continue;
        }
        let target = target_object(target).ok_or(Error::Unreadable(index))?;
        if target != live {
            return Err(Error::Target {
                index,
                target: target.to_string(),
                live: live.to_string(),
            });
        }
    }
    Ok(())
}

/// Reads a `ResourceDiff`. argocd-server checks that what is in `liveState` has the same names.
fn live_object(message: &[u8]) -> Result<ObjectId, message::Error> {
    let mut id = ObjectId::default();
    let mut seen = [false; 4];
    for field in wire::fields(message) {
        let (number, payload) = field.ok_or(message::Error::Protobuf)?;
        let (name, text, seen) = match (number, &mut seen) {
            (1, [seen, ..]) => ("liveResources.group", &mut id.group, seen),
            (2, [_, seen, ..]) => ("liveResources.kind", &mut id.kind, seen),
            (3, [_, _, seen, _]) => ("liveResources.namespace", &mut id.namespace, seen),
            (4, [_, _, _, seen]) => ("liveResources.name", &mut id.name, seen),
            _ => continue,
        };
        let Payload::Bytes(bytes) = payload else {
            return Err(message::Error::Type(name));
        };
        // argocd-server takes the last of several.
        if std::mem::replace(seen, true) {
            return Err(message::Error::Duplicate(name));
        }
        std::str::from_utf8(bytes)
            .map_err(|_| message::Error::Type(name))?
            .clone_into(text);
    }
    Ok(id)
}

/// Reads what names the object of a manifest. `None` for one that another reader could read
/// differently: a key that occurs twice is an error of the derived reader.
fn target_object(manifest: &[u8]) -> Option<ObjectId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest {
        api_version: String,
        kind: String,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        #[serde(default)]
        namespace: Option<String>,
    }
    let text = std::str::from_utf8(manifest).ok()?;
    let read: Manifest = serde_json::from_str(text).ok()?;
    let group = match read.api_version.split_once('/') {
        None => "",
        Some((group, version)) if !version.contains('/') => group,
        // Kubernetes refuses a second slash.
        Some(_) => return None,
    };
    Some(ObjectId {
        group: group.to_owned(),
        kind: read.kind,
        namespace: read.metadata.namespace.unwrap_or_default(),
        name: read.metadata.name,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Error, check, check_query};
    use tollgate_front::grpc::wire::put_bytes;

    fn manifest(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}})
    }

    fn live([group, kind, namespace, name]: [&str; 4]) -> Vec<u8> {
        let mut message = Vec::new();
        for (number, text) in (1..).zip([group, kind, namespace, name, "", "{}"]) {
            put_bytes(&mut message, number, text.as_bytes());
        }
        message
    }

    fn query(live: &[Vec<u8>], targets: &[&str]) -> Vec<u8> {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, b"cart");
        for one in live {
            put_bytes(&mut message, 4, one);
        }
        for target in targets {
            put_bytes(&mut message, 5, target.as_bytes());
        }
        message
    }

    #[test]
    fn a_manifest_is_compared_with_the_live_object_that_it_names() {
        let (mine, own) = (
            live(["", "ConfigMap", "shop", "mine"]),
            manifest("v1", "ConfigMap", "shop", "mine"),
        );
        let deployment = manifest("apps/v1", "Deployment", "shop", "web");
        let web = live(["apps", "Deployment", "shop", "web"]);
        let cluster_wide = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let namespace = live(["", "Namespace", "", "shop"]);
        let all = [mine.clone(), web, namespace, mine.clone(), mine.clone()];
        let texts = [own.to_string(), deployment.to_string(), cluster_wide.to_string()];
        let targets = [&*texts[0], &*texts[1], &*texts[2], "", "null"];
        assert!(check(&query(&all, &targets)).is_ok());
        assert!(check(&query(&[], &[])).is_ok());

        for other in [
            manifest("v1", "ConfigMap", "shop", "theirs"),
            manifest("v1", "ConfigMap", "cart", "mine"),
            manifest("v1", "ConfigMap", "", "mine"),
            manifest("v1", "Secret", "shop", "mine"),
            manifest("example.dev/v1", "ConfigMap", "shop", "mine"),
        ] {
            let refused = check(&query(std::slice::from_ref(&mine), &[&other.to_string()]));
            assert!(
                matches!(refused, Err(Error::Target { index: 0, .. })),
                "{other}: {refused:?}"
            );
            // It is also refused behind a good one, and in the place of another.
            let both = [mine.clone(), mine.clone()];
            let refused = check(&query(&both, &[&own.to_string(), &other.to_string()]));
            assert!(
                matches!(refused, Err(Error::Target { index: 1, .. })),
                "{other}: {refused:?}"
            );
        }
        let refused = check(&query(
            std::slice::from_ref(&mine),
            &[&own.to_string(), &own.to_string()],
        ));
        assert!(
            matches!(refused, Err(Error::Count { live: 1, target: 2 })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_manifest_with_two_readings_is_refused() {
        let mine = [live(["", "ConfigMap", "shop", "mine"])];
        for text in [
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"mine","name":"theirs"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"},"metadata":{"namespace":"shop","name":"mine"}}"#,
            r#"{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"namespace":"shop","name":"mine"}}"#,
            r#"{"kind":"ConfigMap","metadata":{"namespace":"shop","name":"mine"}}"#,
            "[]",
            " null",
            "{",
        ] {
            let refused = check(&query(&mine, &[text]));
            assert!(matches!(refused, Err(Error::Unreadable(0))), "{text}: {refused:?}");
        }
        let mut twice = mine[0].clone();
        put_bytes(&mut twice, 4, b"theirs");
        assert!(matches!(check(&query(&[twice], &["null"])), Err(Error::Message(_))));
        assert!(matches!(check(b"\x23\x01"), Err(Error::Message(_))));
    }

    #[test]
    fn the_rest_form_has_no_manifests() {
        assert!(check_query("appNamespace=argocd&project=shop").is_ok());
        for query in [
            "targetManifests={}",
            "target%4danifests=x",
            "targetManifests[a]=b",
            "target_manifests=x",
        ] {
            assert!(matches!(check_query(query), Err(Error::Query)), "{query}");
        }
    }
}
