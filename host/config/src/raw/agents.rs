//! The section `agents` of the settings file: its written shape, and the checks that turn it into
//! [`AgentSettings`].

use serde::Deserialize;
use url::Url;

use super::SettingsValidator;
use crate::{AgentSettings, PeerSettings};

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawAgents {
    /// Forwards requests to the replica to which an agent is connected. Without it, each replica serves only
    /// its own agents.
    peers: Option<RawPeers>,
    /// Host names or IP addresses, without scheme and port, at which agents reach the component that ends TLS
    /// in front of the gateway. With them, a machine in the middle is detected by the host alone. Defaults to
    /// the host of `console.url` if the gateway has no `tls`. See docs/connectors.md#what-a-connector-proves.
    #[serde(default)]
    hosts: Vec<String>,
    /// Whether to serve agents of earlier versions, whose proof a machine in the middle could pass on.
    #[serde(default)]
    accept_unbound: bool,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPeers {
    /// Address and port where other replicas send requests for the agents connected to this one. Only
    /// replicas should be able to reach it.
    listen: String,
    /// `https` URL, with host and port, by which other replicas reach `listen`. `--peer-url` and
    /// `TOLLGATE_PEER_URL` take precedence. Defaults to the address in `listen`; required if that is
    /// `0.0.0.0` or `::`.
    url: Option<String>,
}

impl RawAgents {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> AgentSettings {
        let peers = self.peers.map(|raw| PeerSettings {
            listen: validator.address("agents.peers.listen", &raw.listen),
            url: raw.url.and_then(|text| {
                let url = Url::parse(&text).ok();
                let url = url.filter(|url| url.scheme() == "https" && url.has_host() && url.path() == "/");
                if url.is_none() {
                    let message = format!("`{text}` is not a URL such as `https://10.0.0.7:8445`");
                    validator.error("agents.peers.url", &message);
                }
                url
            }),
        });
        let host = |text: &String| {
            // As it stands in the URL that an agent dials, without a port.
            let host = url::Host::parse(text)
                .ok()
                .map(|host| host.to_string().to_ascii_lowercase());
            if host.is_none() {
                let message = format!("`{text}` is not a host such as `tollgate.example.com`, without scheme and port");
                validator.error("agents.hosts", &message);
            }
            host
        };
        AgentSettings {
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

    fn read(section: &str) -> (Option<crate::AgentSettings>, Vec<String>) {
        let text = format!("state: {{directory: s}}\npolicies: {{directory: p}}\nagents: {section}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value.and_then(|config| config.agents), findings)
    }

    #[test]
    fn peers_are_read_and_mistakes_named() {
        let (agents, findings) = read("{}");
        assert_eq!((agents.unwrap().peers, findings), (None, vec![]));
        let (agents, findings) = read("{hosts: [Gate.Example, '10.0.0.7', '[::1]'], acceptUnbound: true}");
        let agents = agents.unwrap();
        assert_eq!(agents.hosts, ["gate.example", "10.0.0.7", "[::1]"], "{findings:?}");
        assert!(agents.accepts_unbound);
        let (agents, _) = read("{peers: {listen: '0.0.0.0:8445', url: 'https://10.0.0.7:8445'}}");
        let peers = agents.unwrap().peers.unwrap();
        assert_eq!((peers.listen.port(), peers.url.unwrap().port()), (8445, Some(8445)));
        for (section, expected) in [
            ("{peers: {listen: x}}", "agents.peers.listen"),
            ("{hosts: ['gate.example:443']}", "agents.hosts"),
            ("{hosts: ['https://gate.example']}", "agents.hosts"),
            ("{peers: {listen: '0.0.0.0:1', url: 'http://a'}}", "agents.peers.url"),
            ("{peers: {listen: '0.0.0.0:1', url: 'https://a/b'}}", "agents.peers.url"),
            ("{peer: {}}", "unknown field"),
        ] {
            let (_, findings) = read(section);
            assert!(findings.iter().any(|text| text.contains(expected)), "{findings:?}");
        }
    }
}
