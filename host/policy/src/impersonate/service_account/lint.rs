//! Entries that do not do what their author meant.
//!
//! In: the entries of one project. Out: warnings with places. Never: a warning
//! about an entry that some Application could reach.

use super::account::{self, Named};
use super::list::Entry;
use tollgate_core::diagnostic::Diagnostic;

/// Entries a list may have for every pair to be compared; beyond, only the
/// nearest earlier ones are.
const COMPARED: usize = 512;

pub(super) fn findings(entries: &[Entry]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let location = &entry.written.location;
        let warn = |message: String, hint: &str| Diagnostic::warning(location.clone(), message).with_hint(hint);
        let broken = [
            ("server", &entry.server, &entry.written.server),
            ("namespace", &entry.namespace, &entry.written.namespace),
        ];
        for (field, compiled, pattern) in broken {
            if let Err(error) = compiled {
                found.push(warn(
                    format!(
                        "`destinationServiceAccounts[{at}].{field}` is `{pattern}`, which is not a pattern: {error}"
                    ),
                    "every application whose list is walked as far as this entry is refused",
                ));
            }
        }
        let account = &entry.written.default_service_account;
        match &entry.named {
            Named::Nothing => found.push(warn(
                format!("`destinationServiceAccounts[{at}].defaultServiceAccount` is `{account}`, which names no service account"),
                "applications this entry matches are refused",
            )),
            Named::There(named) if account::is_reserved(&named.namespace) => found.push(warn(
                format!("`destinationServiceAccounts[{at}]` lets applications act as `{account}`, an account of Kubernetes' own"),
                "name an account made for these applications",
            )),
            Named::There(_) | Named::Here(_) => {}
        }
        for (field, pattern) in [
            ("server", &entry.written.server),
            ("namespace", &entry.written.namespace),
        ] {
            if pattern.starts_with('!') {
                found.push(warn(
                    format!("`destinationServiceAccounts[{at}].{field}` is `{pattern}`; `!` negates nothing here"),
                    "put an entry for what is meant before it",
                ));
            }
        }
        let first = at.saturating_sub(COMPARED);
        let earlier = entries.get(first..at).unwrap_or_default();
        if let Some(before) = earlier.iter().find(|before| covers(before, entry)) {
            found.push(warn(
                format!(
                    "`destinationServiceAccounts[{at}]` is never reached: the entry at {} matches whatever it matches",
                    before.written.location
                ),
                "the first entry that matches decides; put the narrower one first",
            ));
        }
    }
    found
}

/// Whether `earlier` ends every walk that could end at `later`.
fn covers(earlier: &Entry, later: &Entry) -> bool {
    let (Ok(servers), Ok(namespaces)) = (&earlier.server, &earlier.namespace) else {
        // Where it is broken nothing behind it is reached; the warning about it says so.
        return false;
    };
    let (Ok(server), Ok(namespace)) = (&later.server, &later.namespace) else {
        return false;
    };
    // In both readings a pattern that covers another does so for servers and names.
    servers.includes(server) && namespaces.includes(namespace)
}
