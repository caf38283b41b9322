//! Warns about entries of a project that do not do what their author meant.
//!
//! Invariant: an entry that some Application could reach is never reported as unreachable.

use super::RESERVED_NAMESPACES;
use super::account::AccountName;
use super::list::Entry;
use tollgate_core::diagnostic::Diagnostic;

/// In lists up to this length every pair of entries is compared. In longer ones an entry is only
/// compared with this many before it.
const MAX_COMPARED_ENTRIES: usize = 512;

pub(super) fn findings(entries: &[Entry]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let location = &entry.written.location;
        let warn = |message: String, hint: &str| Diagnostic::warning(location.clone(), message).with_hint(hint);
        let fields = [
            ("server", &entry.server, &entry.written.server),
            ("namespace", &entry.namespace, &entry.written.namespace),
        ];
        for (field, compiled, pattern) in fields {
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
        match &entry.account {
            AccountName::Invalid => found.push(warn(
                format!("`destinationServiceAccounts[{at}].defaultServiceAccount` is `{account}`, which names no service account"),
                "applications this entry matches are refused",
            )),
            AccountName::Qualified(name) if RESERVED_NAMESPACES.contains(&&*name.namespace) => found.push(warn(
                format!("`destinationServiceAccounts[{at}]` lets applications act as `{account}`, an account of Kubernetes' own"),
                "name an account made for these applications",
            )),
            AccountName::Qualified(_) | AccountName::Unqualified(_) => {}
        }
        for (field, _, pattern) in fields {
            if pattern.starts_with('!') {
                found.push(warn(
                    format!("`destinationServiceAccounts[{at}].{field}` is `{pattern}`; `!` negates nothing here"),
                    "put an entry for what is meant before it",
                ));
            }
        }
        let first = at.saturating_sub(MAX_COMPARED_ENTRIES);
        let earlier = entries.get(first..at).unwrap_or_default();
        if let Some(before) = earlier.iter().find(|before| covers(before, entry)) {
            found.push(warn(
                format!(
                    "`destinationServiceAccounts[{at}]` is never reached: the entry at {} matches all that it matches",
                    before.written.location
                ),
                "the first entry that matches decides; put the narrower one first",
            ));
        }
    }
    found
}

/// Whether `earlier` matches everything that `later` matches, so that `later` is never reached.
fn covers(earlier: &Entry, later: &Entry) -> bool {
    let (Ok(servers), Ok(namespaces)) = (&earlier.server, &earlier.namespace) else {
        // A broken entry also hides all entries behind it, but has a separate warning.
        return false;
    };
    let (Ok(server), Ok(namespace)) = (&later.server, &later.namespace) else {
        return false;
    };
    // Under both semantics a pattern that covers another covers it for servers and for names.
    servers.includes(server) && namespaces.includes(namespace)
}
