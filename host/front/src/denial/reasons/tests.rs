//! Compares the list of reasons with the code of every crate.

use std::collections::BTreeSet;
use std::path::Path;

use super::REASONS;
use crate::sources;

/// The texts of the code below `host/`, without tests and this list.
fn product_code() -> Vec<String> {
    let mut texts = Vec::new();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for path in sources::rust_files(&host) {
        let is_test = path
            .strip_prefix(&host)
            .unwrap()
            .iter()
            .any(|part| part == "tests" || part == "tests.rs");
        if !is_test && !path.ends_with("denial/reasons.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            texts.push(code.to_owned());
        }
    }
    assert!(texts.len() > 300, "{}", texts.len());
    texts
}

/// The literal in snake case at the beginning of a text.
fn literal(text: &str) -> Option<&str> {
    let (literal, _) = text.trim_start().strip_prefix('"')?.split_once('"')?;
    let is_code = literal
        .chars()
        .all(|symbol| symbol.is_ascii_lowercase() || symbol == '_');
    (is_code && !literal.is_empty()).then_some(literal)
}

/// The reasons that a text of code names beside a status, each with the name of the status.
fn beside_statuses(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let statuses = text.split("StatusCode::").skip(1);
    statuses.filter_map(|after| {
        let (status, after) = after.split_once(',')?;
        Some((literal(after)?, status))
    })
}

/// The reasons that a text of code names: beside a status, and in functions that return one.
fn reasons(text: &str) -> BTreeSet<&str> {
    let beside = beside_statuses(text).map(|(reason, _)| reason);
    let heads = [
        "fn code(&self) -> &'static str {",
        "fn code(self) -> &'static str {",
        "let reason = match ",
    ];
    let bodies = heads.iter().flat_map(|head| text.split(head).skip(1));
    let bodies = bodies.filter_map(|after| after.split(";\n").next()?.split("\n    }\n").next());
    let arms = bodies.flat_map(|body| body.split("=>").skip(1)).filter_map(literal);
    beside.chain(arms).collect()
}

#[test]
fn codes_are_sorted_and_unique() {
    assert!(REASONS.is_sorted_by(|one, other| one.code < other.code));
}

#[test]
fn every_reason_of_the_code_is_listed() {
    let listed: BTreeSet<&str> = REASONS.iter().map(|reason| reason.code).collect();
    // The caller reads `invalid_token` in place of these, and a reason of plugins in place of the last five.
    let internal = [
        "unknown_issuer",
        "unknown_login",
        "algorithm_refused",
        "token_kind_refused",
        "unknown_key",
        "bad_signature",
        "wrong_audience",
        "missing_claim",
        "token_not_yet_valid",
        "claim_rule_refused",
        "email_not_verified",
        "reserved_name",
        "user_rule_refused",
        "invalid_output",
        "memory",
        "refused",
        "timeout",
        "trap",
    ];
    // Answers of the webhook, and of a replica to another.
    let elsewhere = ["no_review", "panicked", "absent"];
    let texts = product_code();
    let found: BTreeSet<&str> = texts.iter().flat_map(|text| reasons(text)).collect();
    assert!(found.len() > 100, "{found:?}");
    let missing: Vec<_> = found
        .iter()
        .filter(|code| !listed.contains(*code) && !internal.contains(code) && !elsewhere.contains(code))
        .collect();
    assert!(
        missing.is_empty(),
        "add to host/front/src/denial/reasons.rs: {missing:?}"
    );
}

#[test]
fn every_status_of_a_reason_is_listed() {
    let name = |status: &u16| {
        let status = http::StatusCode::from_u16(*status).unwrap();
        status.canonical_reason().unwrap().to_uppercase().replace(' ', "_")
    };
    let texts = product_code();
    let mut compared = 0;
    for (code, status) in texts.iter().flat_map(|text| beside_statuses(text)) {
        let Some(reason) = REASONS.iter().find(|reason| reason.code == code) else {
            continue;
        };
        // `broken` is also an answer of a replica to another.
        let is_listed = reason.statuses.iter().any(|listed| name(listed) == status);
        assert!(
            is_listed || (code, status) == ("broken", "BAD_GATEWAY"),
            "`{code}` with {status}"
        );
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn every_listed_reason_is_in_the_code() {
    let texts = product_code();
    let is_there = |code: &str| texts.iter().any(|text| text.contains(&format!("\"{code}\"")));
    let gone: Vec<_> = REASONS
        .iter()
        .map(|reason| reason.code)
        .filter(|code| !is_there(code))
        .collect();
    assert!(
        gone.is_empty(),
        "remove from host/front/src/denial/reasons.rs: {gone:?}"
    );
}
