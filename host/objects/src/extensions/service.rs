//! Reads and checks the services of one backend.
//!
//! Security: findings never contain the value of a secret.

use http::{HeaderName, HeaderValue};
use url::Url;

use super::ErrorClass::{self, InvalidSetting};
use super::reader::{Setting, SettingsReader, TextValue};
use super::secrets::{Origin, Substituted};
use super::spec::{ClusterRef, ExtensionSpec, ServiceSpec};
use crate::Cluster;
use tollgate_config::Compatibility;

/// Header names that only the gateway may set. A trailing `-` stands for every name that begins
/// this way.
const RESERVED: [&str; 17] = [
    "argocd-",
    "x-forwarded-",
    "x-remote-",
    "impersonate-",
    "audit-id",
    "forwarded",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
];

/// Reads the services of the extension `name`, in Argo CD's order of checks.
pub(super) fn services(backend: Setting<'_>, name: &str) -> Vec<ServiceSpec> {
    let items = backend.list("services");
    if items.is_empty() {
        let message = format!("extension `{name}` has no services");
        backend.refuse(ErrorClass::MissingServices, message);
    }
    let several = items.len() > 1;
    let services = items.into_iter().filter_map(|setting| service(setting, several));
    let services: Vec<ServiceSpec> = services.collect();
    // A single service serves every cluster, so what it claims does not matter.
    if several {
        duplicates(backend.reader, &services);
    }
    services
}

fn service(setting: Setting<'_>, several: bool) -> Option<ServiceSpec> {
    setting.reject_unknown_keys("a service", &["url", "cluster", "clusterName", "headers"]);
    let url = match setting.text("url") {
        TextValue::Absent => {
            setting.refuse(ErrorClass::MissingServiceUrl, "a service has no `url`");
            None
        }
        TextValue::Refused => None,
        TextValue::Value(value) => url(setting.get("url").unwrap_or(setting), &value.value),
    };
    let cluster = cluster(setting);
    if several && setting.get("cluster").is_none() && setting.get("clusterName").is_none() {
        let message = "a service has no `cluster`, which several services need to be told apart";
        setting.refuse(ErrorClass::MissingClusterForMultipleServices, message);
    }
    let headers = headers(setting);
    Some(ServiceSpec {
        url: url?,
        cluster,
        headers,
        location: setting.location(),
    })
}

/// Checks a URL. Argo CD accepts any text and fails at the request.
fn url(setting: Setting<'_>, text: &str) -> Option<Url> {
    let parsed = Url::parse(text).ok();
    let usable = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    let Some(mut url) = usable else {
        let message = "`url` must be an http or https URL with a host";
        setting.refuse_with(InvalidSetting, message, "such as `http://service.namespace.svc:8080`");
        return match setting.reader.compatibility {
            Compatibility::None => None,
            Compatibility::Argocd => Url::parse(super::UNREACHABLE).ok(),
        };
    };
    // With the compatibility of Argo CD the URL is used all the same, and must not send them.
    if !url.username().is_empty() || url.password().is_some() {
        let hint = "use `headers` with an Authorization value from a Secret";
        setting.refuse_with(InvalidSetting, "`url` contains a user or password", hint);
        // Cannot fail: the URL has a host.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
    }
    if url.query().is_some() || url.fragment().is_some() {
        let message = "`url` has a query or fragment, which is left out";
        setting.warn(message, "queries of requests are kept");
        url.set_query(None);
        url.set_fragment(None);
    }
    Some(url)
}

/// `cluster: {name, server}`, or `clusterName` of the proposal for extensions.
fn cluster(setting: Setting<'_>) -> Option<ClusterRef> {
    let proposed = setting.string("clusterName");
    let Some(block) = setting.mapping("cluster", ErrorClass::DecodeError) else {
        return proposed.map(|name| ClusterRef {
            name,
            server: String::new(),
        });
    };
    block.reject_unknown_keys("`cluster`", &["name", "server"]);
    let (name, server) = (block.text("name"), block.text("server"));
    if matches!((&name, &server), (TextValue::Absent, TextValue::Absent)) {
        let message = "`cluster` has neither `name` nor `server`";
        block.refuse(ErrorClass::EmptyCluster, message);
    }
    let text = |found: TextValue| found.value().map(|found| found.value).unwrap_or_default();
    let cluster = ClusterRef {
        name: text(name),
        server: text(server),
    };
    if proposed.is_some_and(|proposed| proposed != cluster.name) {
        let message = "`clusterName` and `cluster.name` differ";
        block.refuse_with(InvalidSetting, message, "keep `cluster.name`");
    }
    Some(cluster)
}

/// Refuses the same cluster in two services, because the choice would be ambiguous.
fn duplicates(reader: &SettingsReader<'_>, services: &[ServiceSpec]) {
    for (index, service) in services.iter().enumerate() {
        let Some(cluster) = &service.cluster else { continue };
        for earlier in services.iter().take(index) {
            let Some(other) = &earlier.cluster else { continue };
            for (key, a, b) in [
                ("name", &cluster.name, &other.name),
                ("server", &cluster.server, &other.server),
            ] {
                if !a.is_empty() && a == b {
                    let first = &earlier.location;
                    let message = format!("cluster {key} `{a}` is claimed by two services, first at {first}");
                    reader.refuse(ErrorClass::DuplicateClusterKey, service.location.clone(), message);
                }
            }
        }
    }
}

/// Warns about services whose cluster is not known, and about services that share one, if any
/// cluster is known.
pub(super) fn compare_with_clusters(reader: &SettingsReader<'_>, specs: &[ExtensionSpec], clusters: &[Cluster]) {
    let several = specs.iter().filter(|spec| spec.services.len() > 1);
    for spec in several.filter(|_| !clusters.is_empty()) {
        let serves =
            |service: &ServiceSpec, known: &Cluster| service.cluster.as_ref().is_some_and(|own| own.refers_to(known));
        for service in &spec.services {
            if !clusters.iter().any(|known| serves(service, known)) {
                let name = &spec.name;
                let message = format!("no known cluster is the one of this service of extension `{name}`");
                let hint = "it gets no requests until a cluster Secret names it";
                reader.warn(service.location.clone(), message, hint);
            }
        }
        for known in clusters {
            let mut claims = spec.services.iter().filter(|service| serves(service, known));
            if let (Some(first), Some(second)) = (claims.next(), claims.next()) {
                let (server, first) = (&known.server, &first.location);
                let message = format!("cluster `{server}` is also the one of the service at {first}");
                let hint = "the one that names the server gets its requests";
                reader.warn(second.location.clone(), message, hint);
            }
        }
    }
}

fn headers(setting: Setting<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for item in setting.list("headers") {
        item.reject_unknown_keys("a header", &["name", "value"]);
        let name = item.text("name");
        if matches!(name, TextValue::Absent) {
            item.refuse(ErrorClass::MissingHeaderName, "a header has no `name`");
        }
        let value = item.text("value");
        if matches!(value, TextValue::Absent) {
            item.refuse(ErrorClass::MissingHeaderValue, "a header has no `value`");
        }
        let (Some(name), Some(value)) = (name.value(), value.value()) else {
            continue;
        };
        let Some((name, value)) = header(item, &name, &value) else {
            continue;
        };
        if headers.iter().any(|(earlier, _)| *earlier == name) {
            item.warn(format!("header `{name}` is set twice"), "the last one counts");
            headers.retain(|(earlier, _)| *earlier != name);
        }
        headers.push((name, value));
    }
    headers
}

/// One header; `None` when it is refused or the gateway's own.
fn header(item: Setting<'_>, name: &Substituted, value: &Substituted) -> Option<(HeaderName, HeaderValue)> {
    let Ok(name) = HeaderName::try_from(name.value.as_str()) else {
        item.refuse(InvalidSetting, "a header `name` has characters that names cannot have");
        return None;
    };
    let Ok(mut header) = HeaderValue::from_str(&value.value) else {
        let message = format!("the value of header `{name}` has characters that values cannot have");
        item.refuse(InvalidSetting, message);
        return None;
    };
    if is_reserved(name.as_str()) {
        let message = format!("header `{name}` is set by the gateway alone, this value is not used");
        item.warn(message, "remove it");
        return None;
    }
    header.set_sensitive(value.origin == Origin::Secret);
    Some((name, header))
}

fn is_reserved(name: &str) -> bool {
    let is_prefix = |reserved: &&str| reserved.ends_with('-') && name.starts_with(*reserved);
    RESERVED.contains(&name) || RESERVED.iter().any(is_prefix)
}
