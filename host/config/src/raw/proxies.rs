//! The settings `trustedProxies` and `proxyProtocol`: their written shape, and the checks that turn
//! them into [`TrustedProxies`] and [`ProxyProtocol`].

use serde::Deserialize;

use super::SettingsValidator;
use crate::proxies::parse;
use crate::{ProxyProtocol, TrustedProxies};

/// Most networks; each request is compared with all of them.
const MAX_NETWORKS: usize = 64;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub(super) struct RawTrustedProxies(Vec<String>);

impl RawTrustedProxies {
    /// - `is_anonymous`: whether callers without a credential are let in.
    pub(super) fn check(self, is_anonymous: bool, validator: &mut SettingsValidator<'_>) -> TrustedProxies {
        let key = "trustedProxies";
        let count = self.0.len();
        if count > MAX_NETWORKS {
            validator.error(
                key,
                &format!("has {count} networks, at most {MAX_NETWORKS} are allowed"),
            );
        }
        // Anonymous callers are those of this machine, and a proxy on it would let everybody in.
        if count > 0 && is_anonymous {
            let message = "cannot be combined with `authentication.anonymous`, which is for callers on this machine";
            validator.error(key, message);
        }
        let mut networks = Vec::new();
        for (at, text) in self.0.iter().enumerate() {
            match parse(text) {
                Ok(network) => networks.push(network),
                Err(error) => validator.error_in(&format!("{key}[{at}]"), error),
            }
        }
        networks.into_iter().collect()
    }
}

/// - `is_on`: the setting `proxyProtocol`.
pub(super) fn protocol(is_on: bool, trusted: &TrustedProxies, validator: &mut SettingsValidator<'_>) -> ProxyProtocol {
    if !is_on {
        return ProxyProtocol::Absent;
    }
    if trusted.is_empty() {
        let message = "needs `trustedProxies`, because only a trusted proxy may say whose connection it passes on";
        validator.error("proxyProtocol", message);
    }
    ProxyProtocol::Required
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;

    fn findings(text: &str) -> Vec<String> {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\n{text}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        loaded.diagnostics.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nobody_is_trusted_by_default() {
        let text = "state: {directory: s}\npolicies: {directory: p}\n";
        let config = parse(text, "t.yaml", Path::new("/etc")).value.unwrap();
        assert!(config.trusted_proxies.is_empty());
        let text = format!("{text}trustedProxies: [10.0.0.0/8, '2001:db8::1']\n");
        let config = parse(&text, "t.yaml", Path::new("/etc")).value.unwrap();
        assert!(config.trusted_proxies.contains("10.3.2.1".parse().unwrap()));
    }

    #[test]
    fn every_mistake_has_its_place() {
        let found = findings("trustedProxies: [10.0.0.0/8, 10.0.0.1/8, 0.0.0.0/0, lb]");
        let places: Vec<&str> = found.iter().filter_map(|line| line.split(": error").next()).collect();
        assert_eq!(places, ["t.yaml:3:30", "t.yaml:3:42", "t.yaml:3:53"], "{found:#?}");
        let many = vec!["10.0.0.0/8"; 65].join(", ");
        let found = findings(&format!("trustedProxies: [{many}]"));
        assert!(
            found[0].contains("has 65 networks, at most 64 are allowed"),
            "{found:?}"
        );
    }

    #[test]
    fn the_proxy_protocol_is_for_trusted_proxies() {
        let found = findings("proxyProtocol: true");
        assert!(
            matches!(found.as_slice(), [one] if one.contains("needs `trustedProxies`")),
            "{found:?}"
        );
        assert_eq!(findings("proxyProtocol: true\ntrustedProxies: [127.0.0.1]"), [""; 0]);
        assert_eq!(findings("proxyProtocol: false"), [""; 0]);
    }

    #[test]
    fn anonymous_callers_and_proxies_exclude_each_other() {
        let found = findings("authentication: {anonymous: true}\ntrustedProxies: [127.0.0.1]");
        assert!(
            matches!(found.as_slice(), [one] if one.contains("authentication.anonymous")),
            "{found:?}"
        );
        assert_eq!(
            findings("authentication: {anonymous: true}\ntrustedProxies: []"),
            [""; 0]
        );
    }
}
