//! Checks the requests that the API server received.

use std::collections::{BTreeMap, BTreeSet};

use super::case::{IdentityKind, RequestLine, Upstream};
use super::cluster::{SA_TOKEN, Seen};
use super::rules::NeverForwarded;
use super::table::Defaults;

/// Values of a table's placeholders.
pub(super) struct Values {
    /// `${client_ip}`.
    pub(super) client_ip: String,
    /// `${api_server_host}`.
    pub(super) api_server_host: String,
    /// `${gateway_generated_uuid}`: the id of the decision that the response names.
    pub(super) decision: String,
}

impl Values {
    /// Replaces the placeholders of a text.
    ///
    /// # Errors
    /// A placeholder is unknown.
    fn fill(&self, text: &str) -> Result<String, String> {
        let known = [
            ("${client_ip}", self.client_ip.as_str()),
            ("${api_server_host}", &self.api_server_host),
            ("${gateway_generated_uuid}", &self.decision),
            ("${gateway_sa_token}", SA_TOKEN),
            ("${gateway_name}", "tollgate"),
        ];
        let mut filled = text.to_owned();
        for (name, value) in known {
            filled = filled.replace(name, value);
        }
        if filled.contains("${") {
            return Err(format!("`{text}` has an unknown placeholder"));
        }
        Ok(filled)
    }
}

/// Compares one request with the expectations of a case and the table's defaults.
///
/// - `sent`: the caller's request with placeholders replaced.
///
/// # Errors
/// Expected and observed.
pub(super) fn check(
    seen: &Seen,
    sent: &RequestLine,
    expected: Option<&Upstream>,
    (defaults, values): (&Defaults, &Values),
) -> Result<(), String> {
    for (name, value) in &defaults.always_set {
        let value = values.fill(value)?;
        if seen.values(name) != [value.as_str()] {
            return Err(differ(
                &format!("`{name}` at the API server"),
                &[value],
                &seen.values(name),
            ));
        }
    }
    for rule in &defaults.never_forwarded {
        check_never_forwarded(rule, seen, sent)?;
    }
    if uuid::Uuid::try_parse(&values.decision).is_err() {
        return Err(format!("the gateway's id `{}` is not a UUID", values.decision));
    }
    let Some(expected) = expected else { return Ok(()) };
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    for (what, wanted, found) in [
        ("method", &expected.method, seen.method.as_str()),
        ("path", &expected.path, path),
        ("query", &expected.query, query),
    ] {
        if let Some(wanted) = wanted
            && wanted != found
        {
            return Err(differ(&format!("{what} at the API server"), wanted, &found));
        }
    }
    check_impersonation(seen, expected)?;
    for name in &expected.absent {
        let found = seen.values(name);
        let is_own_framing = name.eq_ignore_ascii_case("transfer-encoding") && !seen.body.is_empty();
        if !found.is_empty() && !is_own_framing {
            return Err(format!("`{name}` at the API server: expected none, observed {found:?}"));
        }
    }
    check_present(seen, &expected.present, values)
}

/// The values of all `impersonate-*` fields, by lower-case name.
fn impersonation(seen: &Seen) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &seen.fields {
        let name = name.to_ascii_lowercase();
        if name.starts_with("impersonate-") {
            found.entry(name).or_default().push(value.clone());
        }
    }
    found
}

fn check_impersonation(seen: &Seen, expected: &Upstream) -> Result<(), String> {
    let mut found = impersonation(seen);
    match expected.identity {
        Some(IdentityKind::ServiceAccount) if !found.is_empty() => {
            return Err(format!("expected no impersonation, observed {found:?}"));
        }
        Some(IdentityKind::Impersonated) => match found.get("impersonate-user").map(Vec::as_slice) {
            Some([user]) if !user.is_empty() => {}
            user => return Err(format!("expected one `impersonate-user`, observed {user:?}")),
        },
        Some(IdentityKind::ServiceAccount) | None => {}
    }
    let Some(wanted) = &expected.impersonate else {
        return Ok(());
    };
    let mut wanted: BTreeMap<String, Vec<String>> = wanted
        .iter()
        .map(|(name, values)| (name.to_ascii_lowercase(), values.clone()))
        .collect();
    // Compared as sets, because the order does not matter; duplicates do.
    for values in wanted.values_mut().chain(found.values_mut()) {
        values.sort();
    }
    if wanted == found {
        Ok(())
    } else {
        Err(differ("impersonation at the API server", &wanted, &found))
    }
}

/// Compares the lines of fields. `via` may be split over several lines, which is equivalent.
fn check_present(seen: &Seen, expected: &[(String, String)], values: &Values) -> Result<(), String> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in expected {
        let lines = by_name.entry(name.to_ascii_lowercase()).or_default();
        lines.push(values.fill(value)?);
    }
    for (name, wanted) in by_name {
        let found = seen.values(&name);
        let same = match (name.as_str(), wanted.as_slice()) {
            ("connection", [wanted]) => matches!(*found, [found] if found.eq_ignore_ascii_case(wanted)),
            ("via", [wanted]) => found.join(", ") == *wanted,
            (_, wanted) => found == wanted,
        };
        if !same {
            return Err(differ(&format!("`{name}` at the API server"), &wanted, &found));
        }
    }
    Ok(())
}

fn check_never_forwarded(rule: &NeverForwarded, seen: &Seen, sent: &RequestLine) -> Result<(), String> {
    let upgrades = !seen.values("upgrade").is_empty();
    let found = |is_one: &dyn Fn(&str, &str) -> bool| {
        let fields = seen.fields.iter().chain(&seen.trailers);
        fields
            .filter(|(name, value)| is_one(&name.to_ascii_lowercase(), value))
            .cloned()
            .collect::<Vec<_>>()
    };
    let sent_by_client = |prefix: &str, name: &str, value: &str| {
        name.starts_with(prefix)
            && sent
                .headers
                .iter()
                .any(|(given, of_client)| given.eq_ignore_ascii_case(name) && of_client == value)
    };
    let found = match rule {
        NeverForwarded::Name(name) => found(&|field, _| field == name),
        NeverForwarded::Prefix(prefix) => found(&|field, _| field.starts_with(prefix.as_str())),
        NeverForwarded::Sent(prefix) => {
            let in_trailers = seen.trailers.iter().filter(|(name, _)| {
                let name = name.to_ascii_lowercase();
                name.starts_with(prefix.as_str())
            });
            let mut found = found(&|field, value| sent_by_client(prefix, field, value));
            found.extend(in_trailers.cloned());
            found
        }
        // The gateway frames content itself, in chunks if it does not know the length.
        NeverForwarded::Received(name) => found(&|field, value| field == name && value != "chunked"),
        NeverForwarded::Connection => {
            let lines = sent
                .headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
            let named: BTreeSet<String> = lines
                .flat_map(|(_, line)| line.split(','))
                .map(|name| name.trim().to_ascii_lowercase())
                .collect();
            found(&|field, value| match field {
                "connection" => !(upgrades && value.eq_ignore_ascii_case("upgrade")),
                "upgrade" => !upgrades,
                // Fields that the caller names are removed; those that the gateway sets stay.
                field => named.contains(field) && sent_by_client("", field, value),
            })
        }
    };
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("never forwarded ({rule:?}): expected none, observed {found:?}"))
    }
}

fn differ<T: std::fmt::Debug + ?Sized, U: std::fmt::Debug + ?Sized>(what: &str, expected: &T, observed: &U) -> String {
    format!("{what}: expected {expected:?}, observed {observed:?}")
}
