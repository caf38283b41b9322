//! Reads and checks the settings of one backend, except its services.
//!
//! Security: findings never contain the value of a secret.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::SecretString;

use super::ErrorClass::{DecodeError, InvalidSetting};
use super::reader::{SettingNode, SettingsReader, TextValue};
use super::secrets::{Origin, Substituted};
use super::spec::{
    AssertionSpec, ConnectionSpec, IdentitySpec, LimitSpec, PersonLimitSpec, Scope, TimeoutSpec, TlsSpec,
};
use tollgate_core::header_names::is_host_owned;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CONNECT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(5 * 60);
const REQUEST: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;
const CONNECTION: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
const UPGRADE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 60 * 60);
const ASSERTION: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(5 * 60);

/// Keys of a backend object.
pub(super) const KEYS: [&str; 12] = [
    "services",
    "connectionTimeout",
    "keepAlive",
    "idleConnectionTimeout",
    "maxIdleConnections",
    "idleConnTimeout",
    "proxyconfig",
    "scope",
    "timeouts",
    "limits",
    "tls",
    "identity",
];

const CONNECTION_KEYS: [&str; 4] = [
    "connectionTimeout",
    "keepAlive",
    "idleConnectionTimeout",
    "maxIdleConnections",
];

/// The four connection settings. 0 means the default, as in Argo CD.
///
/// Argo CD 3 reads them only under the key `proxyconfig`, by mistake, so that key is also read.
pub(super) fn connection(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>) -> ConnectionSpec {
    let inner = reader.mapping(backend, "proxyconfig", DecodeError);
    if let Some(inner) = inner {
        reader.reject_unknown_keys(inner, "`proxyconfig`", &CONNECTION_KEYS);
    }
    let parent_of = |key: &str| match inner {
        Some(inner) if backend.get(key).is_none() => inner,
        Some(_) | None => backend,
    };
    let default = ConnectionSpec::default();
    let connect = reader.duration(parent_of("connectionTimeout"), "connectionTimeout", &CONNECT);
    let keep_alive = reader.duration(parent_of("keepAlive"), "keepAlive", &CONNECTION);
    let idle = reader.duration(parent_of("idleConnectionTimeout"), "idleConnectionTimeout", &CONNECTION);
    let most = reader
        .count(parent_of("maxIdleConnections"), "maxIdleConnections", (0, 10_000))
        .filter(|most| *most > 0);
    ConnectionSpec {
        connect_timeout: connect.unwrap_or(default.connect_timeout),
        keep_alive: keep_alive.unwrap_or(default.keep_alive),
        idle_connection_timeout: idle.unwrap_or(default.idle_connection_timeout),
        max_idle_connections: most
            .and_then(|most| usize::try_from(most).ok())
            .unwrap_or(default.max_idle_connections),
    }
}

/// `timeouts`, and `idleConnTimeout` of the proposal for extensions.
pub(super) fn timeouts(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>) -> TimeoutSpec {
    let proposed = reader.nonzero_duration(backend, "idleConnTimeout", &REQUEST);
    let Some(block) = reader.mapping(backend, "timeouts", InvalidSetting) else {
        return TimeoutSpec {
            idle: proposed,
            ..TimeoutSpec::default()
        };
    };
    reader.reject_unknown_keys(block, "`timeouts`", &["idle", "total", "upgradeLifetime"]);
    if let (Some(idle), Some(_)) = (block.get("idle"), backend.get("idleConnTimeout")) {
        let message = "`timeouts.idle` and `idleConnTimeout` are both set, one is allowed";
        reader.refuse(InvalidSetting, idle.location(), message);
    }
    TimeoutSpec {
        idle: reader.nonzero_duration(block, "idle", &REQUEST).or(proposed),
        total: reader.nonzero_duration(block, "total", &REQUEST),
        upgrade_lifetime: reader.nonzero_duration(block, "upgradeLifetime", &UPGRADE),
    }
}

/// `limits`.
pub(super) fn limits(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>) -> LimitSpec {
    let Some(block) = reader.mapping(backend, "limits", InvalidSetting) else {
        return LimitSpec::default();
    };
    let keys = ["concurrency", "requestsPerSecond", "burst", "perPerson"];
    reader.reject_unknown_keys(block, "`limits`", &keys);
    let all = rate_limits(reader, block);
    let per_person = match reader.mapping(block, "perPerson", InvalidSetting) {
        Some(person) => {
            reader.reject_unknown_keys(
                person,
                "`limits.perPerson`",
                &["concurrency", "requestsPerSecond", "burst"],
            );
            rate_limits(reader, person)
        }
        None => PersonLimitSpec::default(),
    };
    let PersonLimitSpec {
        concurrency,
        requests_per_second,
        burst,
    } = all;
    LimitSpec {
        concurrency,
        requests_per_second,
        burst,
        per_person,
    }
}

fn rate_limits(reader: &mut SettingsReader<'_>, block: SettingNode<'_>) -> PersonLimitSpec {
    let limits = PersonLimitSpec {
        concurrency: reader.limit(block, "concurrency"),
        requests_per_second: reader.limit(block, "requestsPerSecond"),
        burst: reader.limit(block, "burst"),
    };
    if let (Some(burst), None) = (block.get("burst"), block.get("requestsPerSecond")) {
        reader.refuse(InvalidSetting, burst.location(), "`burst` needs `requestsPerSecond`");
    }
    limits
}

/// `scope`.
pub(super) fn scope(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>) -> Scope {
    let location = backend.get("scope").map(SettingNode::location);
    let value = reader.text(backend, "scope").value();
    match (value.as_ref().map(|value| value.value.as_str()), location) {
        (Some("application"), _) | (None, _) => Scope::Application,
        (Some("project"), _) => Scope::Project,
        (Some("global"), _) => Scope::Global,
        (Some(_), location) => {
            let message = "`scope` must be application, project or global";
            reader.refuse(InvalidSetting, location.unwrap_or_else(|| backend.location()), message);
            Scope::Application
        }
    }
}

/// `tls`.
pub(super) fn tls(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>) -> TlsSpec {
    let Some(block) = reader.mapping(backend, "tls", InvalidSetting) else {
        return TlsSpec::default();
    };
    reader.reject_unknown_keys(block, "`tls`", &["ca", "clientCertificate", "clientKey", "serverName"]);
    let certificate = pem(reader, block, "clientCertificate", are_certificates);
    let key = pem(reader, block, "clientKey", |text| {
        PrivateKeyDer::from_pem_slice(text.as_bytes()).is_ok()
    });
    if block.get("clientCertificate").is_some() != block.get("clientKey").is_some() {
        let message = "`clientCertificate` and `clientKey` belong together, one is missing";
        reader.refuse(InvalidSetting, block.location(), message);
    }
    if let (Some(key), Some(at)) = (&key, block.get("clientKey"))
        && key.origin == Origin::Literal
    {
        let message = "`clientKey` stands in a ConfigMap";
        reader.warn(
            at.location(),
            message,
            "put it into a Secret and write `$<secret>:<key>`",
        );
    }
    TlsSpec {
        ca_pem: pem(reader, block, "ca", are_certificates).map(|found| found.value),
        client_certificate_pem: certificate.map(|found| found.value),
        client_key_pem: key.map(|found| SecretString::from(found.value)),
        server_name: server_name(reader, block),
    }
}

fn are_certificates(text: &str) -> bool {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    found.is_ok_and(|found| !found.is_empty())
}

fn pem(
    reader: &mut SettingsReader<'_>,
    block: SettingNode<'_>,
    key: &str,
    is_good: impl Fn(&str) -> bool,
) -> Option<Substituted> {
    let location = block.get(key)?.location();
    let found = reader.text(block, key).value()?;
    if is_good(&found.value) {
        return Some(found);
    }
    reader.refuse(
        InvalidSetting,
        location,
        format!("`{key}` is not PEM text of the kind that belongs here"),
    );
    None
}

fn server_name(reader: &mut SettingsReader<'_>, block: SettingNode<'_>) -> Option<String> {
    let location = block.get("serverName")?.location();
    let name = reader.text(block, "serverName").value()?.value;
    if ServerName::try_from(name.as_str()).is_ok() {
        return Some(name);
    }
    reader.refuse(
        InvalidSetting,
        location,
        "`serverName` is neither a host name nor an IP address",
    );
    None
}

/// `identity`. Whether there is a client certificate depends on `tls`.
pub(super) fn identity(reader: &mut SettingsReader<'_>, backend: SettingNode<'_>) -> IdentitySpec {
    let Some(block) = reader.mapping(backend, "identity", InvalidSetting) else {
        return IdentitySpec::default();
    };
    reader.reject_unknown_keys(block, "`identity`", &["requestHeader", "assertion", "allowHeaders"]);
    let request_header = reader.boolean(block, "requestHeader", false);
    let with_certificate = backend
        .get("tls")
        .and_then(|tls| tls.get("clientCertificate"))
        .is_some();
    if request_header && !with_certificate {
        let message =
            "`requestHeader` needs `tls.clientCertificate`, the service could not tell the gateway from anyone else";
        reader.refuse(InvalidSetting, block.location(), message);
    }
    let assertion = reader
        .mapping(block, "assertion", InvalidSetting)
        .and_then(|block| assertion(reader, block));
    IdentitySpec {
        request_header,
        assertion,
        allow_headers: allow_headers(reader, block),
    }
}

/// `identity.allowHeaders`. Anything but a list of names allows none.
fn allow_headers(reader: &mut SettingsReader<'_>, block: SettingNode<'_>) -> Option<Vec<HeaderName>> {
    let found = block.get("allowHeaders")?;
    let Some(items) = found.node.items() else {
        let message = format!(
            "`allowHeaders` must be a list of header names, found {}",
            found.node.kind()
        );
        reader.refuse(DecodeError, found.location(), message);
        return Some(Vec::new());
    };
    let mut names = Vec::new();
    for item in items {
        let text = item.scalar().map_or("", |scalar| scalar.text.as_ref());
        match HeaderName::try_from(text) {
            Ok(name) if !is_host_owned(&name) => names.push(name),
            Ok(name) => {
                let message = format!("header `{name}` in `allowHeaders` is the gateway's own, no client can send it");
                reader.refuse(InvalidSetting, found.location(), message);
            }
            Err(_) => {
                let message = "`allowHeaders` has something that is not a header name";
                reader.refuse(InvalidSetting, found.location(), message);
            }
        }
    }
    Some(names)
}

fn assertion(reader: &mut SettingsReader<'_>, block: SettingNode<'_>) -> Option<AssertionSpec> {
    reader.reject_unknown_keys(block, "`identity.assertion`", &["audience", "lifetime"]);
    let lifetime = reader.nonzero_duration(block, "lifetime", &ASSERTION).unwrap_or(MINUTE);
    let audience = match reader.text(block, "audience") {
        TextValue::Value(found) => found.value,
        TextValue::Absent => String::new(),
        TextValue::Refused => return None,
    };
    if (1..=256).contains(&audience.len()) && audience.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(AssertionSpec { audience, lifetime });
    }
    reader.refuse(
        InvalidSetting,
        block.location(),
        "`audience` must be 1 to 256 visible ASCII characters",
    );
    None
}
