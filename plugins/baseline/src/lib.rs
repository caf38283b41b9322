//! Strips what no backend and no browser should see, by static plan only.
//!
//! In: the configuration. Out: plans the gateway applies natively. Never: a
//! call per request.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_plugin::{HeaderFilter, Plan, Plans, field, header_filter};

/// Credentials of other systems, and claims about the caller that only a proxy
/// in front of the gateway could make. A backend that trusts one of them could
/// be talked to in somebody else's name.
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

/// Prefixes of the same kind, as the usual authenticating proxies write them.
const REQUEST_PREFIXES: &[&str] = &[
    "x-auth-request-",
    "x-amzn-oidc-",
    "x-goog-authenticated-user-",
    "x-ms-client-principal",
    "x-webauth-",
    "cf-access-",
];

/// What tells a stranger which software and version answers.
const RESPONSE_NAMES: &[&str] = &[
    "server",
    "x-powered-by",
    "x-aspnet-version",
    "x-aspnetmvc-version",
    "x-generator",
    "x-runtime",
    "x-backend-server",
];

/// What tells a stranger about the network behind the gateway.
const RESPONSE_PREFIXES: &[&str] = &["x-envoy-", "x-kubernetes-pf-"];

/// Security fields of every response (OWASP Secure Headers Project).
const RESPONSE_FIELDS: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "SAMEORIGIN"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// What the operator may change.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// More names to remove from requests.
    remove_request: Vec<String>,
    /// Names to leave in requests although they are on the list.
    keep_request: Vec<String>,
    /// More names to remove from responses.
    remove_response: Vec<String>,
    /// Names to leave in responses although they are on the list.
    keep_response: Vec<String>,
    /// Whether backends may set cookies in the browser, where they would be
    /// cookies of the control plane's own site.
    keep_cookies: bool,
    /// Response fields to set, over the standard ones; `null` leaves one out.
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

/// The security fields with the operator's changes.
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
