//! Validates a list of service accounts before the API accepts it, and reports what is wrong with
//! each entry. In an accepted list every pattern compiles and every entry names an account.

use std::collections::HashSet;

use super::account::AccountName;
use super::list::without_slashes;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::glob::Pattern;
use tollgate_objects::DestinationServiceAccount;

/// What is wrong with a list; empty if it may be written. Findings are errors, in the order of the
/// entries, and for each entry in the order in which Argo CD checks.
///
/// - `ServiceAccountSemantics::Argocd`: what Argo CD's API refuses, in its words.
/// - `ServiceAccountSemantics::Strict`: also accounts whose names Kubernetes cannot have, and
///   servers that differ only in trailing slashes.
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
        // An account is chosen by what matches, so a negated pattern has no meaning.
        let negated = patterns.iter().filter(|(_, pattern)| pattern.contains('!'));
        found.extend(negated.map(|(field, pattern)| invalid(field, pattern)));
        let account = &entry.default_service_account;
        if AccountName::read(account, semantics) == AccountName::Invalid {
            found.push(invalid("defaultServiceAccount", account));
        }
        // A negated one is reported already.
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
