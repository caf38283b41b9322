//! The section `connectors` of the settings file: its written shape, and the checks that turn it into
//! [`ConnectorSettings`]. Its former name, `agents`, still works, with a warning.

use serde::Deserialize;
use url::Url;

use super::SettingsValidator;
use crate::{ConnectorSettings, PeerSettings};
use tollgate_core::diagnostic::Diagnostic;

const NAME: &str = "connectors";
/// The former name of the section.
pub(super) const FORMER_NAME: &str = "agents";

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConnectors {
    /// Forwards requests to the replica to which a connector is connected. Without it, each replica serves only
    /// its own connectors.
    peers: Option<RawPeers>,
    /// Host names or IP addresses, without scheme and port, at which connectors reach the component that ends
    /// TLS in front of the gateway. With them, a machine in the middle is detected by the host alone. Defaults to
    /// the host of `console.url` if the gateway has no `tls`. See docs/connectors.md#what-a-connector-proves.
    #[serde(default)]
    hosts: Vec<String>,
    /// Whether to serve connectors of earlier versions, whose proof a machine in the middle could pass on.
    #[serde(default)]
    accept_unbound: bool,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPeers {
    /// Address and port where other replicas send requests for the connectors that are connected to this one.
    /// Only replicas should be able to reach it.
    listen: String,
    /// `https` URL, with host and port, by which other replicas reach `listen`. `--peer-url` and
    /// `TOLLGATE_PEER_URL` take precedence. Defaults to the address in `listen`; required if that is
    /// `0.0.0.0` or `::`.
    url: Option<String>,
}

/// Checks the section, or the one with the former name, whose findings have that name.
pub(super) fn check(
    section: Option<RawConnectors>,
    former: Option<RawConnectors>,
    validator: &mut SettingsValidator<'_>,
) -> Option<ConnectorSettings> {
    let location = validator.locations.locate_key("", FORMER_NAME);
    match (section, former) {
        (Some(section), None) => Some(section.check(NAME, validator)),
        (Some(section), Some(_)) => {
            let message = format!("`{FORMER_NAME}` is now called `{NAME}`, and both are there");
            let hint = format!("keep `{NAME}`, with the keys of both");
            validator
                .findings
                .push(Diagnostic::error(location, message).with_hint(hint));
            Some(section.check(NAME, validator))
        }
        (None, Some(former)) => {
            let message = format!("`{FORMER_NAME}` is now called `{NAME}`; rename it");
            validator.findings.push(Diagnostic::warning(location, message));
            Some(former.check(FORMER_NAME, validator))
        }
        (None, None) => None,
    }
}

impl RawConnectors {
    /// - `name`: the section, as it is written.
    fn check(self, name: &str, validator: &mut SettingsValidator<'_>) -> ConnectorSettings {
        let peers = self.peers.map(|raw| PeerSettings {
            listen: validator.address(&format!("{name}.peers.listen"), &raw.listen),
            url: raw.url.and_then(|text| {
                let url = Url::parse(&text).ok();
                let url = url.filter(|url| url.scheme() == "https" && url.has_host() && url.path() == "/");
                if url.is_none() {
                    let message = format!("`{text}` is not a URL such as `https://10.0.0.7:8445`");
                    validator.error(&format!("{name}.peers.url"), &message);
                }
                url
            }),
        });
        let host = |text: &String| {
            // As it stands in the URL that a connector dials, without a port.
            let host = url::Host::parse(text)
                .ok()
                .map(|host| host.to_string().to_ascii_lowercase());
            if host.is_none() {
                let message = format!("`{text}` is not a host such as `tollgate.example.com`, without scheme and port");
                validator.error(&format!("{name}.hosts"), &message);
            }
            host
        };
        ConnectorSettings {
            peers,
            hosts: self.hosts.iter().filter_map(host).collect(),
            accepts_unbound: self.accept_unbound,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;

    fn read(sections: &str) -> (Option<crate::ConnectorSettings>, Vec<String>) {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\n{sections}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value.and_then(|config| config.connectors), findings)
    }

    #[test]
    fn peers_are_read_and_mistakes_named() {
        let read = |section: &str| read(&format!("connectors: {section}"));
        let (connectors, findings) = read("{}");
        assert_eq!((connectors.unwrap().peers, findings), (None, vec![]));
        let (connectors, findings) = read("{hosts: [Gate.Example, '10.0.0.7', '[::1]'], acceptUnbound: true}");
        let connectors = connectors.unwrap();
        assert_eq!(connectors.hosts, ["gate.example", "10.0.0.7", "[::1]"], "{findings:?}");
        assert!(connectors.accepts_unbound);
        let (connectors, _) = read("{peers: {listen: '0.0.0.0:8445', url: 'https://10.0.0.7:8445'}}");
        let peers = connectors.unwrap().peers.unwrap();
        assert_eq!((peers.listen.port(), peers.url.unwrap().port()), (8445, Some(8445)));
        for (section, expected) in [
            ("{peers: {listen: x}}", "connectors.peers.listen"),
            ("{hosts: ['gate.example:443']}", "connectors.hosts"),
            ("{hosts: ['https://gate.example']}", "connectors.hosts"),
            (
                "{peers: {listen: '0.0.0.0:1', url: 'http://a'}}",
                "connectors.peers.url",
            ),
            (
                "{peers: {listen: '0.0.0.0:1', url: 'https://a/b'}}",
                "connectors.peers.url",
            ),
            ("{peer: {}}", "unknown field"),
        ] {
            let (_, findings) = read(section);
            assert!(findings.iter().any(|text| text.contains(expected)), "{findings:?}");
        }
    }

    #[test]
    fn the_former_name_of_the_section_works_with_a_warning() {
        let renamed = "t.yaml:3:1: warning: `agents` is now called `connectors`; rename it";
        let (connectors, findings) = read("agents:\n  hosts: [gate.example]");
        assert_eq!(connectors.unwrap().hosts, ["gate.example"]);
        assert_eq!(findings, [renamed]);
        let (connectors, findings) = read("agents:\n  peers: {listen: x}");
        assert_eq!(connectors, None);
        assert_eq!(
            findings,
            [
                renamed,
                "t.yaml:4:19: error: `agents.peers.listen` `x` is not an address such as `127.0.0.1:8080`",
            ]
        );
        // It is neither listed nor suggested.
        let (_, findings) = read("agent: {}");
        assert!(
            matches!(findings.as_slice(), [one] if one.contains("unknown field `agent`")
                && one.contains(", connectors, ") && !one.contains("agents")),
            "{findings:?}"
        );
    }

    #[test]
    fn both_names_of_the_section_are_refused() {
        let (connectors, findings) = read("connectors: {}\nagents: {}");
        assert_eq!(connectors, None);
        assert_eq!(
            findings,
            [
                "t.yaml:4:1: error: `agents` is now called `connectors`, and both are there (keep `connectors`, with the \
                 keys of both)"
            ]
        );
    }
}
