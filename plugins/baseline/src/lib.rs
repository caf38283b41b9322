//! The filter `baseline`: removes header fields that no backend or browser should see, and sets
//! security fields. It returns only plans, which the gateway applies without calling the guest.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_plugin::{HeaderFilter, Plan, Plans, field, header_filter};

/// Credentials of other systems, and fields about the caller that only a proxy in front of the
/// gateway may set. If a backend trusts such a field, a client could impersonate somebody with it.
const REQUEST_NAMES: &[&str] = &[
    "x-api-key",
    "api-key",
    "apikey",
    "x-auth-token",
    "x-access-token",
    "x-id-token",
    "x-amz-security-token",
    "x-goog-iap-jwt-assertion",
    "x-vault-token",
    "private-token",
    "job-token",
    "x-gitlab-token",
    "x-client-cert",
    "ssl-client-cert",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "x-method-override",
    "true-client-ip",
    "x-client-ip",
    "client-ip",
    "x-cluster-client-ip",
    "cf-connecting-ip",
    "x-envoy-external-address",
];

/// Prefixes of such fields, as common authenticating proxies write them.
const REQUEST_PREFIXES: &[&str] = &[
    "x-auth-request-",
    "x-amzn-oidc-",
    "x-goog-authenticated-user-",
    "x-ms-client-principal",
    "x-webauth-",
    "cf-access-",
];

/// Fields that reveal the backend's software and version.
const RESPONSE_NAMES: &[&str] = &[
    "server",
    "x-powered-by",
    "x-aspnet-version",
    "x-aspnetmvc-version",
    "x-generator",
    "x-runtime",
    "x-backend-server",
];

/// Prefixes of fields that reveal the network behind the gateway.
const RESPONSE_PREFIXES: &[&str] = &["x-envoy-", "x-kubernetes-pf-"];

/// Security fields to set in every response (OWASP Secure Headers Project).
const RESPONSE_FIELDS: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "SAMEORIGIN"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The operator's changes to the standard lists.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Additional names to remove from requests.
    remove_request: Vec<String>,
    /// Standard names to keep in requests.
    keep_request: Vec<String>,
    /// Additional names to remove from responses.
    remove_response: Vec<String>,
    /// Standard names to keep in responses.
    keep_response: Vec<String>,
    /// Whether backends may set cookies. The browser takes them as cookies of the control plane's
    /// own site.
    keep_cookies: bool,
    /// Response fields to set, in addition to or instead of the standard ones. `null` omits a
    /// standard field.
    set_response: BTreeMap<String, Option<String>>,
}

#[derive(Debug)]
struct Baseline;

impl HeaderFilter for Baseline {
    type Config = Config;

    fn plan(config: &Config) -> Result<Plans, String> {
        let mut response = names(RESPONSE_NAMES, &config.remove_response, &config.keep_response);
        if !config.keep_cookies {
            response.push("set-cookie".to_owned());
        }
        Ok(Plans {
            request: Plan {
                remove: names(REQUEST_NAMES, &config.remove_request, &config.keep_request),
                remove_prefixes: owned(REQUEST_PREFIXES),
                set: Vec::new(),
            },
            response: Plan {
                remove: response,
                remove_prefixes: owned(RESPONSE_PREFIXES),
                set: security(config),
            },
        })
    }
}

/// The standard names without `keep`, then `more`.
fn names(standard: &[&str], more: &[String], keep: &[String]) -> Vec<String> {
    let kept = |name: &&&str| !keep.iter().any(|other| other.eq_ignore_ascii_case(name));
    standard
        .iter()
        .filter(kept)
        .map(|name| (*name).to_owned())
        .chain(more.iter().cloned())
        .collect()
}

/// The standard security fields with the operator's changes.
fn security(config: &Config) -> Vec<(String, Vec<u8>)> {
    let mut fields: BTreeMap<String, Option<String>> = RESPONSE_FIELDS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())))
        .collect();
    for (name, value) in &config.set_response {
        fields.insert(name.to_ascii_lowercase(), value.clone());
    }
    fields
        .iter()
        .filter_map(|(name, value)| Some(field(name, value.as_deref()?)))
        .collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

header_filter!(Baseline);
