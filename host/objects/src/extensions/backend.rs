//! Reads and checks the settings of one backend, except its services.
//!
//! Security: findings never contain the value of a secret.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use secrecy::SecretString;

use super::ErrorClass::{DecodeError, InvalidSetting};
use super::reader::{Setting, TextValue};
use super::secrets::{Origin, Substituted};
use super::spec::{
    AssertionSpec, ConnectionSpec, IdentitySpec, LimitSpec, PersonLimitSpec, Scope, TimeoutSpec, TlsSpec,
};
use crate::cluster::are_certificates;
use tollgate_core::header_names::is_host_owned;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CONNECT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(5 * 60);
const REQUEST: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;
const CONNECTION: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
const UPGRADE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 60 * 60);
const ASSERTION: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(5 * 60);

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
pub(super) fn connection(backend: Setting<'_>) -> ConnectionSpec {
    let inner = backend.mapping("proxyconfig", DecodeError);
    if let Some(inner) = inner {
        inner.reject_unknown_keys("`proxyconfig`", &CONNECTION_KEYS);
    }
    let parent_of = |key: &str| inner.filter(|_| backend.get(key).is_none()).unwrap_or(backend);
    let duration = |key: &str, bounds| parent_of(key).duration(key, bounds);
    let default = ConnectionSpec::default();
    let connect = duration("connectionTimeout", &CONNECT);
    let keep_alive = duration("keepAlive", &CONNECTION);
    let idle = duration("idleConnectionTimeout", &CONNECTION);
    let most = parent_of("maxIdleConnections").count("maxIdleConnections", 0, 10_000);
    let most = most.and_then(|most| usize::try_from(most).ok().filter(|most| *most > 0));
    ConnectionSpec {
        connect_timeout: connect.unwrap_or(default.connect_timeout),
        keep_alive: keep_alive.unwrap_or(default.keep_alive),
        idle_connection_timeout: idle.unwrap_or(default.idle_connection_timeout),
        max_idle_connections: most.unwrap_or(default.max_idle_connections),
    }
}

/// `timeouts`, and `idleConnTimeout` of the proposal for extensions.
pub(super) fn timeouts(backend: Setting<'_>) -> TimeoutSpec {
    let proposed = backend.nonzero_duration("idleConnTimeout", &REQUEST);
    let Some(block) = backend.mapping("timeouts", InvalidSetting) else {
        return TimeoutSpec {
            idle: proposed,
            ..TimeoutSpec::default()
        };
    };
    block.reject_unknown_keys("`timeouts`", &["idle", "total", "upgradeLifetime"]);
    if let (Some(idle), Some(_)) = (block.get("idle"), backend.get("idleConnTimeout")) {
        let message = "`timeouts.idle` and `idleConnTimeout` are both set, one is allowed";
        idle.refuse(InvalidSetting, message);
    }
    TimeoutSpec {
        idle: block.nonzero_duration("idle", &REQUEST).or(proposed),
        total: block.nonzero_duration("total", &REQUEST),
        upgrade_lifetime: block.nonzero_duration("upgradeLifetime", &UPGRADE),
    }
}

pub(super) fn limits(backend: Setting<'_>) -> LimitSpec {
    let Some(block) = backend.mapping("limits", InvalidSetting) else {
        return LimitSpec::default();
    };
    let [concurrency, rate, burst] = ["concurrency", "requestsPerSecond", "burst"];
    block.reject_unknown_keys("`limits`", &[concurrency, rate, burst, "perPerson"]);
    let all = rate_limits(block);
    let per_person = block.mapping("perPerson", InvalidSetting).map(|person| {
        person.reject_unknown_keys("`limits.perPerson`", &[concurrency, rate, burst]);
        rate_limits(person)
    });
    LimitSpec {
        concurrency: all.concurrency,
        requests_per_second: all.requests_per_second,
        burst: all.burst,
        per_person: per_person.unwrap_or_default(),
    }
}

fn rate_limits(block: Setting<'_>) -> PersonLimitSpec {
    let limits = PersonLimitSpec {
        concurrency: block.limit("concurrency"),
        requests_per_second: block.limit("requestsPerSecond"),
        burst: block.limit("burst"),
    };
    if let (Some(burst), None) = (block.get("burst"), block.get("requestsPerSecond")) {
        burst.refuse(InvalidSetting, "`burst` needs `requestsPerSecond`");
    }
    limits
}

pub(super) fn scope(backend: Setting<'_>) -> Scope {
    match backend.string("scope").as_deref() {
        Some("application") | None => Scope::Application,
        Some("project") => Scope::Project,
        Some("global") => Scope::Global,
        Some(_) => {
            let at = backend.get("scope").unwrap_or(backend);
            at.refuse(InvalidSetting, "`scope` must be application, project or global");
            Scope::Application
        }
    }
}

pub(super) fn tls(backend: Setting<'_>) -> TlsSpec {
    let Some(block) = backend.mapping("tls", InvalidSetting) else {
        return TlsSpec::default();
    };
    block.reject_unknown_keys("`tls`", &["ca", "clientCertificate", "clientKey", "serverName"]);
    let certificate = pem(block, "clientCertificate", are_certificates);
    let key = pem(block, "clientKey", |text| {
        PrivateKeyDer::from_pem_slice(text.as_bytes()).is_ok()
    });
    if block.get("clientCertificate").is_some() != block.get("clientKey").is_some() {
        let message = "`clientCertificate` and `clientKey` belong together, one is missing";
        block.refuse(InvalidSetting, message);
    }
    if let (Some(key), Some(at)) = (&key, block.get("clientKey"))
        && key.origin == Origin::Literal
    {
        let hint = "put it into a Secret and write `$<secret>:<key>`";
        at.warn("`clientKey` stands in a ConfigMap", hint);
    }
    TlsSpec {
        ca_pem: pem(block, "ca", are_certificates).map(|found| found.value),
        client_certificate_pem: certificate.map(|found| found.value),
        client_key_pem: key.map(|found| SecretString::from(found.value)),
        server_name: server_name(block),
    }
}

fn pem(block: Setting<'_>, key: &str, is_good: impl Fn(&str) -> bool) -> Option<Substituted> {
    let found = block.text(key).value()?;
    if is_good(&found.value) {
        return Some(found);
    }
    let message = format!("`{key}` is not PEM text of the kind that belongs here");
    block.get(key)?.refuse(InvalidSetting, message);
    None
}

fn server_name(block: Setting<'_>) -> Option<String> {
    let name = block.string("serverName")?;
    if ServerName::try_from(name.as_str()).is_ok() {
        return Some(name);
    }
    let message = "`serverName` is neither a host name nor an IP address";
    block.get("serverName")?.refuse(InvalidSetting, message);
    None
}

/// `identity`. Whether there is a client certificate depends on `tls`.
pub(super) fn identity(backend: Setting<'_>) -> IdentitySpec {
    let Some(block) = backend.mapping("identity", InvalidSetting) else {
        return IdentitySpec::default();
    };
    block.reject_unknown_keys("`identity`", &["requestHeader", "assertion", "allowHeaders"]);
    let request_header = block.boolean("requestHeader", false);
    let certificate = backend.get("tls").and_then(|tls| tls.get("clientCertificate"));
    if request_header && certificate.is_none() {
        let message =
            "`requestHeader` needs `tls.clientCertificate`, the service could not tell the gateway from anyone else";
        block.refuse(InvalidSetting, message);
    }
    IdentitySpec {
        request_header,
        assertion: block.mapping("assertion", InvalidSetting).and_then(assertion),
        allow_headers: allow_headers(block),
    }
}

/// `identity.allowHeaders`. Anything but a list of names allows none.
fn allow_headers(block: Setting<'_>) -> Option<Vec<HeaderName>> {
    let found = block.get("allowHeaders")?;
    let Some(items) = found.node.items() else {
        let kind = found.node.kind();
        let message = format!("`allowHeaders` must be a list of header names, found {kind}");
        found.refuse(DecodeError, message);
        return Some(Vec::new());
    };
    let mut names = Vec::new();
    for item in items {
        let text = item.scalar().map_or("", |scalar| scalar.text.as_ref());
        match HeaderName::try_from(text) {
            Ok(name) if !is_host_owned(&name) => names.push(name),
            Ok(name) => {
                let message = format!("header `{name}` in `allowHeaders` is the gateway's own, no client can send it");
                found.refuse(InvalidSetting, message);
            }
            Err(_) => {
                let message = "`allowHeaders` has something that is not a header name";
                found.refuse(InvalidSetting, message);
            }
        }
    }
    Some(names)
}

fn assertion(block: Setting<'_>) -> Option<AssertionSpec> {
    block.reject_unknown_keys("`identity.assertion`", &["audience", "lifetime"]);
    let lifetime = block.nonzero_duration("lifetime", &ASSERTION).unwrap_or(MINUTE);
    let audience = match block.text("audience") {
        TextValue::Value(found) => found.value,
        TextValue::Absent => String::new(),
        TextValue::Refused => return None,
    };
    if (1..=256).contains(&audience.len()) && audience.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Some(AssertionSpec { audience, lifetime });
    }
    let message = "`audience` must be 1 to 256 visible ASCII characters";
    block.refuse(InvalidSetting, message);
    None
}
