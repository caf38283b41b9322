//! Formats the message of a refusal as kube-apiserver does, so that clients of Kubernetes
//! recognize it. Its length is bounded.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go`
//! and `k8s.io/apimachinery/pkg/api/errors`.

use tollgate_core::attributes::Attributes;

/// Most characters of one name in the text.
const NAME_CHARS: usize = 253;

/// `pods is forbidden: User "ada" cannot list resource "pods" in API group ""
/// in the namespace "n": reason`.
pub fn forbidden(user: &str, attributes: &Attributes, reason: &str) -> String {
    let user = quoted(user);
    let verb = shortened(&attributes.verb);
    let because = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    let Some(resource) = attributes.resource.as_deref().filter(|_| attributes.resource_request) else {
        return format!(
            "forbidden: User {user} cannot {verb} path {}{because}",
            quoted(&attributes.path)
        );
    };
    let resource = shortened(resource);
    let group = attributes.api_group.as_str();
    let mut text = resource.clone();
    if !group.is_empty() {
        text = format!("{text}.{}", shortened(group));
    }
    if let Some(name) = &attributes.name {
        text = format!("{text} {}", quoted(name));
    }
    let whole = match &attributes.subresource {
        Some(subresource) => format!("{resource}/{}", shortened(subresource)),
        None => resource,
    };
    let scope = match &attributes.namespace {
        Some(namespace) => format!("in the namespace {}", quoted(namespace)),
        None => "at the cluster scope".to_owned(),
    };
    format!(
        "{text} is forbidden: User {user} cannot {verb} resource {} in API group {} {scope}{because}",
        quoted(&whole),
        quoted(group)
    )
}

fn quoted(text: &str) -> String {
    // As `%q` of Go, with which Kubernetes writes names.
    format!("{:?}", shortened(text))
}

fn shortened(text: &str) -> String {
    // Callers choose path and names, and the text goes into responses, records and logs.
    text.chars().take(NAME_CHARS).collect()
}
