//! Reads and checks the services of one backend.
//!
//! Security: findings never contain the value of a secret.

use http::{HeaderName, HeaderValue};
use url::Url;

use super::ErrorClass::{self, InvalidSetting};
use super::StricterRules;
use super::reader::{SettingNode, SettingsReader, TextValue};
use super::secrets::{Origin, Substituted};
use super::spec::{ClusterRef, ExtensionSpec, ServiceSpec};
use crate::Cluster;

/// Header names that only the gateway may set. A trailing `-` stands for every name that begins
/// this way.
const RESERVED: [&str; 16] = [
    "argocd-",
    "x-forwarded-",
    "x-remote-",
    "impersonate-",
    "audit-id",
    "forwarded",
    "connection",
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
pub(super) fn services(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>, name: &str) -> Vec<ServiceSpec> {
    let items = reader.list(backend, "services");
    if items.is_empty() {
        let message = format!("extension `{name}` has no services");
        reader.refuse(ErrorClass::MissingServices, backend.location(), message);
    }
    let several = items.len() > 1;
    let mut services = Vec::new();
    for setting in items {
        if let Some(service) = service(reader, setting, several) {
            services.push(service);
        }
    }
    if several {
        duplicates(reader, &services);
    }
    services
}

fn service(reader: &mut SettingsReader<'_>, setting: SettingNode<'_>, several: bool) -> Option<ServiceSpec> {
    reader.reject_unknown_keys(setting, "a service", &["url", "cluster", "clusterName", "headers"]);
    let url = match reader.text(setting, "url") {
        TextValue::Absent => {
            reader.refuse(
                ErrorClass::MissingServiceUrl,
                setting.location(),
                "a service has no `url`",
            );
            None
        }
        TextValue::Refused => None,
        TextValue::Value(value) => url(reader, setting, &value),
    };
    let cluster = cluster(reader, setting);
    if several && setting.get("cluster").is_none() && setting.get("clusterName").is_none() {
        let message = "a service has no `cluster`, which several services need to be told apart";
        reader.refuse(
            ErrorClass::MissingClusterForMultipleServices,
            setting.location(),
            message,
        );
    }
    let headers = headers(reader, setting);
    Some(ServiceSpec {
        url: url?,
        cluster,
        headers,
        location: setting.location(),
    })
}

/// Checks a URL. Argo CD accepts any text and fails at the request.
fn url(reader: &mut SettingsReader<'_>, setting: SettingNode<'_>, text: &Substituted) -> Option<Url> {
    let location = setting
        .get("url")
        .map_or_else(|| setting.location(), SettingNode::location);
    let parsed = Url::parse(&text.value).ok();
    let usable = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    let Some(mut url) = usable else {
        let message = "`url` must be an http or https URL with a host".to_owned();
        let hint = "such as `http://service.namespace.svc:8080`";
        reader.refuse_with(InvalidSetting, location, message, hint);
        return match reader.options().stricter_rules {
            StricterRules::Refuse => None,
            StricterRules::Warn => Url::parse(super::UNREACHABLE).ok(),
        };
    };
    if !url.username().is_empty() || url.password().is_some() {
        let message = "`url` contains a user or password".to_owned();
        let hint = "use `headers` with an Authorization value from a Secret";
        reader.refuse_with(InvalidSetting, location.clone(), message, hint);
        // Cannot fail: the URL has a host.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
    }
    if url.query().is_some() || url.fragment().is_some() {
        reader.warn(
            location,
            "`url` has a query or fragment, which is left out",
            "queries of requests are kept",
        );
        url.set_query(None);
        url.set_fragment(None);
    }
    Some(url)
}

/// `cluster: {name, server}`, or `clusterName` of the proposal for extensions.
fn cluster(reader: &mut SettingsReader<'_>, setting: SettingNode<'_>) -> Option<ClusterRef> {
    let proposed = reader.text(setting, "clusterName").value().map(|found| found.value);
    let Some(block) = reader.mapping(setting, "cluster", ErrorClass::DecodeError) else {
        return proposed.map(|name| ClusterRef {
            name,
            server: String::new(),
        });
    };
    reader.reject_unknown_keys(block, "`cluster`", &["name", "server"]);
    let (name, server) = (reader.text(block, "name"), reader.text(block, "server"));
    if matches!((&name, &server), (TextValue::Absent, TextValue::Absent)) {
        let message = "`cluster` has neither `name` nor `server`";
        reader.refuse(ErrorClass::EmptyCluster, block.location(), message);
    }
    let text = |found: TextValue| found.value().map(|found| found.value).unwrap_or_default();
    let cluster = ClusterRef {
        name: text(name),
        server: text(server),
    };
    if proposed.is_some_and(|proposed| proposed != cluster.name) {
        let message = "`clusterName` and `cluster.name` differ";
        reader.refuse_with(
            InvalidSetting,
            block.location(),
            message.to_owned(),
            "keep `cluster.name`",
        );
    }
    Some(cluster)
}

/// Refuses the same cluster in two services, because the choice would be ambiguous.
fn duplicates(reader: &mut SettingsReader<'_>, services: &[ServiceSpec]) {
    for (index, service) in services.iter().enumerate() {
        let Some(cluster) = &service.cluster else { continue };
        for earlier in services.iter().take(index) {
            let Some(other) = &earlier.cluster else { continue };
            for (key, a, b) in [
                ("name", &cluster.name, &other.name),
                ("server", &cluster.server, &other.server),
            ] {
                if !a.is_empty() && a == b {
                    let message = format!(
                        "cluster {key} `{a}` is claimed by two services, first at {}",
                        earlier.location
                    );
                    reader.refuse(ErrorClass::DuplicateClusterKey, service.location.clone(), message);
                }
            }
        }
    }
}

/// Warns about services whose cluster is not known, and about services that share one.
///
/// Without known clusters there are no warnings.
pub(super) fn compare_with_clusters(reader: &mut SettingsReader<'_>, specs: &[ExtensionSpec], clusters: &[Cluster]) {
    let several = specs
        .iter()
        .filter(|spec| spec.services.len() > 1 && !clusters.is_empty());
    for spec in several {
        let serves =
            |service: &ServiceSpec, known: &Cluster| service.cluster.as_ref().is_some_and(|own| own.refers_to(known));
        for service in spec
            .services
            .iter()
            .filter(|service| !clusters.iter().any(|known| serves(service, known)))
        {
            let message = format!(
                "no known cluster is the one of this service of extension `{}`",
                spec.name
            );
            reader.warn(
                service.location.clone(),
                message,
                "it gets no requests until a cluster Secret names it",
            );
        }
        for known in clusters {
            let mut claims = spec.services.iter().filter(|service| serves(service, known));
            if let (Some(first), Some(second)) = (claims.next(), claims.next()) {
                let message = format!(
                    "cluster `{}` is also the one of the service at {}",
                    known.server, first.location
                );
                reader.warn(
                    second.location.clone(),
                    message,
                    "the one that names the server gets its requests",
                );
            }
        }
    }
}

fn headers(reader: &mut SettingsReader<'_>, setting: SettingNode<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for item in reader.list(setting, "headers") {
        reader.reject_unknown_keys(item, "a header", &["name", "value"]);
        let name = reader.text(item, "name");
        if matches!(name, TextValue::Absent) {
            reader.refuse(ErrorClass::MissingHeaderName, item.location(), "a header has no `name`");
        }
        let value = reader.text(item, "value");
        if matches!(value, TextValue::Absent) {
            reader.refuse(
                ErrorClass::MissingHeaderValue,
                item.location(),
                "a header has no `value`",
            );
        }
        let (Some(name), Some(value)) = (name.value(), value.value()) else {
            continue;
        };
        let Some((name, value)) = header(reader, item, &name, &value) else {
            continue;
        };
        if headers.iter().any(|(earlier, _)| *earlier == name) {
            reader.warn(
                item.location(),
                format!("header `{name}` is set twice"),
                "the last one counts",
            );
            headers.retain(|(earlier, _)| *earlier != name);
        }
        headers.push((name, value));
    }
    headers
}

/// One header; `None` when it is refused or the gateway's own.
fn header(
    reader: &mut SettingsReader<'_>,
    item: SettingNode<'_>,
    name: &Substituted,
    value: &Substituted,
) -> Option<(HeaderName, HeaderValue)> {
    let Ok(name) = HeaderName::try_from(name.value.as_str()) else {
        reader.refuse(
            InvalidSetting,
            item.location(),
            "a header `name` has characters that names cannot have",
        );
        return None;
    };
    let Ok(mut header) = HeaderValue::from_str(&value.value) else {
        let message = format!("the value of header `{name}` has characters that values cannot have");
        reader.refuse(InvalidSetting, item.location(), message);
        return None;
    };
    if is_reserved(name.as_str()) {
        let message = format!("header `{name}` is set by the gateway alone, this value is not used");
        reader.warn(item.location(), message, "remove it");
        return None;
    }
    header.set_sensitive(value.origin == Origin::Secret);
    Some((name, header))
}

fn is_reserved(name: &str) -> bool {
    name == "content-length"
        || RESERVED.iter().any(|reserved| {
            if reserved.ends_with('-') {
                name.starts_with(reserved)
            } else {
                name == *reserved
            }
        })
}
