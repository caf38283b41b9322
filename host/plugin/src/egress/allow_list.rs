//! The allow-list of one plugin: it turns a URL into a [`Target`], or names the rule that refuses
//! it.
//!
//! Invariant: nothing is allowed without an entry.

use url::Host;

use super::error::{Denied, DenyCode};
use super::target::{self, Target};
use super::{entry::AllowedHost, entry::EntryError};
use tollgate_config::EgressEntry;

/// The hosts that one plugin may contact. An empty list allows none.
#[derive(Clone, Debug, Default)]
pub struct EgressAllowList {
    entries: Vec<AllowedHost>,
}

impl EgressAllowList {
    /// Checks each entry; reads the files their `ca` names.
    ///
    /// # Errors
    /// Every entry that cannot be used, in the order given. One bad entry refuses the whole list,
    /// because a list that allows less than it says would be confusing.
    pub fn new<'a>(specs: impl IntoIterator<Item = &'a EgressEntry>) -> Result<Self, Vec<EntryError>> {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for spec in specs {
            match AllowedHost::new(spec) {
                Ok(entry) => entries.push(entry),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok(Self { entries })
        } else {
            Err(errors)
        }
    }

    /// The entries, in the order given.
    pub fn entries(&self) -> &[AllowedHost] {
        &self.entries
    }

    /// Tests a URL: `https://`, host, port, path, and nothing else. The
    /// addresses of the host are tested by [`super::EgressClient::send`].
    ///
    /// # Errors
    /// The first rule it breaks. The text names the host, never more.
    ///
    /// The first entry in list order that matches host and port decides on address ranges and
    /// authorities.
    pub fn allow(&self, url: &str) -> Result<Target, Denied> {
        let target::ParsedUrl { host, port, path } = target::parse_url(url)?;
        let meant = |entry: &&AllowedHost| entry.pattern().matches(&host, port);
        if let Some(entry) = self.entries.iter().find(meant).cloned() {
            return Ok(Target {
                host,
                port,
                path,
                entry,
            });
        }
        let ports = self.entries.iter().map(AllowedHost::pattern);
        let ports: Vec<u16> = ports.filter(|p| p.matches_host(&host)).map(|p| p.port()).collect();
        Err(match (&host, ports.first()) {
            (_, Some(granted)) => Denied::new(
                DenyCode::Port,
                format!("`{host}` is granted with port {granted}, not {port}"),
            ),
            (Host::Domain(_), None) => Denied::new(DenyCode::Host, format!("`{host}` is not among the granted hosts")),
            (Host::Ipv4(_) | Host::Ipv6(_), None) => Denied::new(
                DenyCode::IpLiteral,
                format!("`{host}` is an address, and not among the granted hosts"),
            ),
        })
    }
}
