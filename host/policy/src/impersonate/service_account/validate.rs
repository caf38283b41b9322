//! Lists of accounts as the API takes them.
//!
//! In: entries somebody wants to write. Out: what is wrong with each. Never: a
//! list taken that the derivation would stumble over.

use std::collections::HashSet;

use super::account::Named;
use super::list::without_slashes;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::glob::Pattern;
use tollgate_state::DestinationServiceAccount;

/// What is wrong with a list; empty when it can be written. Findings are errors,
/// in the order of the entries, and of each in the order Argo CD stops at.
///
/// - `ServiceAccountSemantics::Argocd`: what Argo CD's API refuses, in its words.
/// - `ServiceAccountSemantics::Strict`: besides, accounts that are no names Kubernetes can have,
///   and servers that are the same but for trailing slashes.
///
/// Source: Argo CD, `AppProject.ValidateProject`.
pub fn validate(entries: &[DestinationServiceAccount], semantics: ServiceAccountSemantics) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    for entry in entries {
        let location = &entry.location;
        let refused = |message: String| Diagnostic::error(location.clone(), message);
        let patterns = [("server", &entry.server), ("namespace", &entry.namespace)];
        let invalid = |field: &str, value: &str| refused(format!("{field} has an invalid format, '{value}'"));
        // An account is chosen by what matches, never by what does not.
        let negated = patterns.iter().filter(|(_, pattern)| pattern.contains('!'));
        found.extend(negated.map(|(field, pattern)| invalid(field, pattern)));
        let account = &entry.default_service_account;
        if Named::read(account, semantics) == Named::Nothing {
            found.push(invalid("defaultServiceAccount", account));
        }
        let broken = patterns
            .iter()
            .filter(|(_, pattern)| !pattern.contains('!') && Pattern::compile(pattern, &[]).is_err());
        found.extend(broken.map(|(field, pattern)| invalid(field, pattern)));
        let server = match semantics {
            ServiceAccountSemantics::Argocd => entry.server.as_str(),
            ServiceAccountSemantics::Strict => without_slashes(&entry.server),
        };
        let key = format!("{server}/{}", entry.namespace);
        if seen.contains(&key) {
            found.push(refused(format!("destinationServiceAccount '{key}' already added")));
        } else {
            seen.insert(key);
        }
    }
    found
}
