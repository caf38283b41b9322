//! Checks the response that the caller received.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::case::{BodyRule, Expect, ResponseSide};
use super::table::GatewayError;
use super::wire::Answer;

/// Which of the outcomes that a table allows is the gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The first.
    Expected,
    /// Another refusal that the table allows.
    OtherRefusal,
    /// The request was not refused, which the table allows too.
    Passed,
}

/// Compares the status. If the table allows several, only one is the gateway's: the first, unless
/// `outcomes.yaml` names another.
///
/// # Errors
/// Expected and observed.
pub(super) fn status(expected: &Expect, ours: Option<u16>, answer: &Answer) -> Result<Outcome, String> {
    let Some(first) = expected.status else {
        return Err("the case expects no `status`".to_owned());
    };
    let wanted = ours.unwrap_or(first);
    if wanted != first && !expected.status_alt.contains(&wanted) {
        return Err(format!("outcomes.yaml: the table does not allow {wanted}"));
    }
    let observed = answer.status;
    if observed != wanted {
        let body = String::from_utf8_lossy(&answer.body);
        return Err(format!("status: expected {wanted}, observed {observed}: {body}"));
    }
    Ok(match wanted {
        wanted if wanted == first => Outcome::Expected,
        wanted if first >= 400 && wanted < 400 => Outcome::Passed,
        _ => Outcome::OtherRefusal,
    })
}

/// Compares the `Status` object of a refusal.
///
/// - `may_be_empty`: a response without content is accepted.
///
/// # Errors
/// Expected and observed.
pub(super) fn status_object(
    expected: &BTreeMap<String, Value>,
    answer: &Answer,
    (outcome, may_be_empty): (Outcome, bool),
) -> Result<(), String> {
    let redirected = (300..400).contains(&answer.status);
    if outcome == Outcome::Passed || redirected || (may_be_empty && answer.body.is_empty()) {
        return Ok(());
    }
    let mut expected = expected.clone();
    if outcome == Outcome::OtherRefusal {
        expected.insert("code".to_owned(), answer.status.into());
        expected.insert("reason".to_owned(), reason(answer.status).into());
    }
    let text = String::from_utf8_lossy(&answer.body);
    let object: Value =
        serde_json::from_str(&text).map_err(|error| format!("expected a Status, observed `{text}` ({error})"))?;
    for (key, wanted) in &expected {
        // Kubernetes omits empty strings.
        let found = object.get(key).cloned().unwrap_or(json!(""));
        if found != *wanted {
            return Err(format!("Status.{key}: expected {wanted}, observed {found} in {text}"));
        }
    }
    Ok(())
}

/// Kubernetes' reason for a status code.
fn reason(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

/// Checks an error response of the gateway itself.
///
/// - `secrets`: texts that it must not contain.
///
/// # Errors
/// Expected and observed.
pub(super) fn own_error(expected: &GatewayError, answer: &Answer, secrets: &[String]) -> Result<(), String> {
    if answer.body.is_empty() {
        return Ok(());
    }
    let found = answer.values("content-type");
    if found != [expected.content_type.as_str()] {
        return Err(format!(
            "`content-type` of an error: expected `{}`, observed {found:?}",
            expected.content_type
        ));
    }
    if answer.status == 401 {
        headers(&expected.on_401_header, answer)?;
    }
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let object: Value = serde_json::from_str(&text).map_err(|error| format!("`{text}`: {error}"))?;
    let message = object["message"].as_str().unwrap_or_default();
    let id = answer.decision()?;
    if !message.contains("Tollgate") || !message.contains(&id) {
        return Err(format!(
            "message: expected the gateway's name and trace id `{id}`, observed `{message}`"
        ));
    }
    match secrets.iter().find(|secret| text.contains(secret.as_str())) {
        Some(secret) => Err(format!("expected a text without `{secret}`, observed {text}")),
        None => Ok(()),
    }
}

/// Compares header fields and content.
///
/// - `upstream`: content that the API server sent.
///
/// # Errors
/// Expected and observed.
pub(super) fn response(expected: &ResponseSide, answer: &Answer, upstream: &[u8]) -> Result<(), String> {
    headers(&expected.headers, answer)?;
    for name in &expected.headers_absent {
        let found = answer.values(name);
        if !found.is_empty() {
            return Err(format!("`{name}`: expected none, observed {found:?}"));
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match expected.body {
        None => Ok(()),
        Some(BodyRule::Identical) if answer.body == upstream => Ok(()),
        Some(BodyRule::Identical) => Err(format!(
            "content: expected `{}`, observed `{}`",
            text(upstream),
            text(&answer.body)
        )),
        Some(BodyRule::Empty) if answer.body.is_empty() => Ok(()),
        Some(BodyRule::Empty) => Err(format!("content: expected none, observed `{}`", text(&answer.body))),
        Some(BodyRule::EmptyOrStatus) => {
            let object: Option<Value> = serde_json::from_slice(&answer.body).ok();
            let fits = answer.body.is_empty() || object.is_some_and(|object| object["kind"] == "Status");
            fits.then_some(())
                .ok_or_else(|| format!("content: expected none or a Status, observed `{}`", text(&answer.body)))
        }
    }
}

fn headers(expected: &BTreeMap<String, String>, answer: &Answer) -> Result<(), String> {
    for (name, wanted) in expected {
        let found = answer.values(name);
        let same = if name.eq_ignore_ascii_case("vary") {
            // Additional names only make caches more careful.
            items(&[wanted]).is_subset(&items(&found))
        } else {
            found == [wanted.as_str()]
        };
        if !same {
            return Err(format!("`{name}`: expected `{wanted}`, observed {found:?}"));
        }
    }
    Ok(())
}

fn items(lines: &[&str]) -> BTreeSet<String> {
    let items = lines.iter().flat_map(|line| line.split(','));
    items.map(|item| item.trim().to_ascii_lowercase()).collect()
}

/// Everything by which a caller can distinguish responses, without what differs in each of them:
/// trace id, date, and the fields of CORS.
pub(super) fn fingerprint(answer: &Answer) -> String {
    let id = answer.decision().unwrap_or_default();
    let plain = |text: &str| {
        if id.is_empty() {
            text.to_owned()
        } else {
            text.replace(&id, "ID")
        }
    };
    let mut fields: Vec<String> = answer
        .fields
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !matches!(name.as_str(), "date" | "vary") && !name.starts_with("access-control-"))
        .map(|(name, value)| format!("{name}: {}", plain(value)))
        .collect();
    fields.sort();
    let body = plain(&String::from_utf8_lossy(&answer.body));
    format!("{} {fields:?} {body}", answer.status)
}
