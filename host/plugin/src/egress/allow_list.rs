//! The allow-list of one plugin: it turns a URL into a [`Target`], or names the rule that refuses
//! it.
//!
//! Invariant: nothing is allowed without an entry.

use super::address::address_of;
use super::entry::{AllowedHost, EntryError};
use super::error::{Denied, DenyCode};
use super::target::{self, Target};
use tollgate_config::EgressEntry;

/// The hosts that one plugin may contact. An empty list allows none.
#[derive(Clone, Debug, Default)]
pub(crate) struct EgressAllowList {
    entries: Vec<AllowedHost>,
}

impl EgressAllowList {
    /// Reads the files that `ca` names. One entry that cannot be used refuses the whole list,
    /// because a list that allows less than it says would be confusing.
    pub(crate) fn new<'a>(specs: impl IntoIterator<Item = &'a EgressEntry>) -> Result<Self, Vec<EntryError>> {
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

    /// Tests a URL: `https://`, host, port, path, and nothing else. The first entry that matches
    /// host and port decides on address ranges and authorities. [`super::EgressClient::send`] tests
    /// the addresses of the host.
    ///
    /// The error is the first rule that the URL breaks. Its text names the host, never more.
    pub(crate) fn allow(&self, url: &str) -> Result<Target, Denied> {
        let target::ParsedUrl { host, port, path } = target::parse_url(url)?;
        let meant = |entry: &&AllowedHost| entry.pattern.matches(&host, port);
        if let Some(entry) = self.entries.iter().find(meant).cloned() {
            return Ok(Target {
                host,
                port,
                path,
                entry,
            });
        }
        let same_host = self.entries.iter().find(|entry| entry.pattern.matches_host(&host));
        let (code, message) = match (same_host, address_of(&host)) {
            (Some(entry), _) => {
                let granted = entry.pattern.port();
                (
                    DenyCode::Port,
                    format!("`{host}` is granted with port {granted}, not {port}"),
                )
            }
            (None, None) => (DenyCode::Host, format!("`{host}` is not among the granted hosts")),
            (None, Some(_)) => (
                DenyCode::IpLiteral,
                format!("`{host}` is an address, and not among the granted hosts"),
            ),
        };
        Err(Denied { code, message })
    }
}
