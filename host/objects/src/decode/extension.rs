//! Decodes the backend of `ArgoCDExtension` objects into an [`ExtensionObject`]. Objects without a
//! backend give none. The rest of the object belongs to other tools and is not checked.
//!
//! Source: the first proposal for proxy extensions, G-4: `spec.backend.serviceName`
//! and `spec.backend.endpoint`.

use std::num::NonZeroU16;

use url::Url;

use super::Object;
use crate::ExtensionObject;
use tollgate_core::dns::is_label;

pub(super) fn extension(object: &Object<'_>) -> Option<ExtensionObject> {
    let backend = object.fields.child("spec")?.child("backend")?;
    backend.reject_unknown_keys(&["serviceName", "endpoint"]);
    let service = backend.required("serviceName")?;
    let endpoint = backend.text_or_empty("endpoint");
    let Some(host) = host(&service, &object.name.namespace) else {
        let path = backend.path_of("serviceName");
        let message = format!("`{path}` is `{service}`, which is no Service of this namespace, `name` or `name:port`");
        let hint = "backends elsewhere, and with https, are `extension.config` entries of `argocd-cm`";
        backend.error_with_hint(message, hint);
        return None;
    };
    if !is_path(&endpoint) {
        let message = format!("`{}` is `{endpoint}`, which is no path", backend.path_of("endpoint"));
        backend.error_with_hint(message, "such as `/api`, without dot segments, query and fragment");
        return None;
    }
    // After the checks above nothing remains that a URL parser could refuse.
    let url = Url::parse(&format!("http://{host}{endpoint}")).ok()?;
    Some(ExtensionObject {
        name: object.name.name.clone(),
        url,
        location: object.fields.location(),
    })
}

/// The host name of a Service, with its port.
fn host(service: &str, namespace: &str) -> Option<String> {
    let (name, port) = match service.split_once(':') {
        None => (service, None),
        Some((name, port)) => {
            // `parse` alone would accept `+80`.
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            (name, Some(port.parse::<NonZeroU16>().ok().filter(|_| digits)?))
        }
    };
    // Names of Services begin with a letter (RFC 1035).
    let is_name = is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase());
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    is_name.then(|| format!("{name}.{namespace}.svc{port}"))
}

/// Whether the text is empty or a path that request paths can be appended to (RFC 3986).
fn is_path(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#%\\\"<>^`{|}".contains(&byte);
    let no_dots = !text.split('/').any(|segment| matches!(segment, "." | ".."));
    text.is_empty() || (text.starts_with('/') && !text.starts_with("//") && text.bytes().all(plain) && no_dots)
}

#[cfg(test)]
mod tests;
