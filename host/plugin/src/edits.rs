//! Checks the plans, edits and refusals that guests return, and converts them to the types of
//! `http`.
//!
//! Invariant: an answer is accepted as a whole or not at all.
//!
//! Security: a guest cannot write a field that the host owns.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::bindings::tollgate::plugin::header_types as wit;
use super::error::InvalidOutput;
use super::plan::{HeaderPlan, MAX_PREFIXES, MAX_REMOVE, MAX_SET, MIN_PREFIX_BYTES};
use tollgate_core::diagnostic::one_line;
use tollgate_core::header_names::is_host_owned;

pub(super) const MAX_EDITS: usize = 128;
/// Bytes of names and values in one answer or plan.
pub(super) const MAX_EDIT_BYTES: usize = 32 * 1024;
/// Bytes of a refusal's reason that are kept.
const MAX_REASON_BYTES: usize = 512;

#[derive(Debug)]
pub(super) enum Edit {
    Remove(HeaderName),
    Set(HeaderName, HeaderValue),
    Append(HeaderName, HeaderValue),
}

/// Checks all edits before any is applied, so that a bad one leaves the message unchanged.
pub(super) fn check(edits: Vec<wit::Edit>) -> Result<Vec<Edit>, InvalidOutput> {
    bound_count(edits.len(), MAX_EDITS)?;
    let size = |edit: &wit::Edit| match edit {
        wit::Edit::Remove(name) => name.len(),
        wit::Edit::Set((name, value)) | wit::Edit::Append((name, value)) => name.len() + value.len(),
    };
    bound_bytes(edits.iter().map(size).sum())?;
    edits
        .into_iter()
        .map(|edit| match edit {
            wit::Edit::Remove(name) => Ok(Edit::Remove(editable_name(&name)?)),
            wit::Edit::Set((name, value)) => Ok(Edit::Set(editable_name(&name)?, editable_value(&value)?)),
            wit::Edit::Append((name, value)) => Ok(Edit::Append(editable_name(&name)?, editable_value(&value)?)),
        })
        .collect()
}

pub(super) fn apply(edits: Vec<Edit>, headers: &mut HeaderMap) {
    for edit in edits {
        match edit {
            Edit::Remove(name) => {
                headers.remove(name);
            }
            Edit::Set(name, value) => {
                headers.insert(name, value);
            }
            Edit::Append(name, value) => {
                headers.append(name, value);
            }
        }
    }
}

pub(super) fn check_plan(plan: wit::Plan) -> Result<HeaderPlan, InvalidOutput> {
    let wit::Plan {
        remove,
        remove_prefixes,
        set,
    } = plan;
    bound_count(remove.len(), MAX_REMOVE)?;
    bound_count(remove_prefixes.len(), MAX_PREFIXES)?;
    bound_count(set.len(), MAX_SET)?;
    let names: usize = remove.iter().chain(&remove_prefixes).map(String::len).sum();
    bound_bytes(names + set.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>())?;
    let remove = remove
        .iter()
        .map(|name| editable_name(name))
        .collect::<Result<_, _>>()?;
    let remove_prefixes = remove_prefixes
        .iter()
        .map(|prefix| editable_prefix(prefix))
        .collect::<Result<_, _>>()?;
    let set = set
        .iter()
        .map(|(name, value)| Ok((editable_name(name)?, editable_value(value)?)))
        .collect::<Result<_, _>>()?;
    Ok(HeaderPlan::new(remove, remove_prefixes, set))
}

/// Status and reason of a refusal, sanitized for the client.
pub(super) fn check_refusal(refusal: &wit::Refusal) -> Result<(StatusCode, String), InvalidOutput> {
    match StatusCode::from_u16(refusal.status) {
        // With any other status, a client would take the refusal for the answer of the backend.
        Ok(status) if (400..600).contains(&refusal.status) => Ok((status, one_line(&refusal.reason, MAX_REASON_BYTES))),
        Ok(_) | Err(_) => Err(InvalidOutput::Status(refusal.status)),
    }
}

fn editable_name(name: &str) -> Result<HeaderName, InvalidOutput> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidOutput::HeaderName)?;
    if is_host_owned(&name) {
        Err(InvalidOutput::ForbiddenHeader(name))
    } else {
        Ok(name)
    }
}

fn editable_value(value: &[u8]) -> Result<HeaderValue, InvalidOutput> {
    HeaderValue::from_bytes(value).map_err(|_| InvalidOutput::HeaderValue)
}

fn editable_prefix(prefix: &str) -> Result<String, InvalidOutput> {
    if prefix.len() < MIN_PREFIX_BYTES {
        return Err(InvalidOutput::ShortPrefix(MIN_PREFIX_BYTES));
    }
    // It may cover names of the host's: `HeaderPlan::removes` leaves those alone.
    let name = HeaderName::from_bytes(prefix.as_bytes()).map_err(|_| InvalidOutput::HeaderName)?;
    Ok(name.as_str().to_owned())
}

fn bound_count(observed: usize, allowed: usize) -> Result<(), InvalidOutput> {
    if observed > allowed {
        Err(InvalidOutput::TooManyEdits { observed, allowed })
    } else {
        Ok(())
    }
}

fn bound_bytes(observed: usize) -> Result<(), InvalidOutput> {
    if observed > MAX_EDIT_BYTES {
        Err(InvalidOutput::TooManyBytes {
            observed,
            allowed: MAX_EDIT_BYTES,
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &[u8]) -> wit::Edit {
        wit::Edit::Set((name.to_owned(), value.to_vec()))
    }

    #[test]
    fn valid_edits_are_applied_in_order() {
        let edits = vec![
            set("X-A", b"1"),
            wit::Edit::Append(("x-a".to_owned(), b"2\xff".to_vec())),
            wit::Edit::Remove("X-B".to_owned()),
        ];
        let mut headers = HeaderMap::new();
        headers.insert("x-b", HeaderValue::from_static("gone"));
        apply(check(edits).unwrap(), &mut headers);
        let values: Vec<_> = headers.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(values, [&b"1"[..], b"2\xff"]);
        assert!(!headers.contains_key("x-b"));
    }

    #[test]
    fn each_invalid_edit_has_its_own_error() {
        let forbidden = |name: &'static str| InvalidOutput::ForbiddenHeader(HeaderName::from_static(name));
        let cases = [
            (vec![set("Argocd-Username", b"admin")], forbidden("argocd-username")),
            (
                vec![wit::Edit::Remove("AUTHORIZATION".to_owned())],
                forbidden("authorization"),
            ),
            (
                vec![wit::Edit::Append(("Content-Length".to_owned(), b"0".to_vec()))],
                forbidden("content-length"),
            ),
            (vec![set("x y", b"")], InvalidOutput::HeaderName),
            (vec![set("", b"")], InvalidOutput::HeaderName),
            (vec![set("x", b"a\r\nb: c")], InvalidOutput::HeaderValue),
            (vec![set("x", &[0])], InvalidOutput::HeaderValue),
            (
                (0..=MAX_EDITS).map(|_| set("x", b"")).collect(),
                InvalidOutput::TooManyEdits {
                    observed: MAX_EDITS + 1,
                    allowed: MAX_EDITS,
                },
            ),
            (
                vec![set("x", &[b'a'; MAX_EDIT_BYTES])],
                InvalidOutput::TooManyBytes {
                    observed: MAX_EDIT_BYTES + 1,
                    allowed: MAX_EDIT_BYTES,
                },
            ),
        ];
        for (edits, expected) in cases {
            assert_eq!(check(edits).unwrap_err(), expected);
        }
    }

    #[test]
    fn plans_are_checked_by_the_same_rules() {
        let plan = |remove: &[&str], prefixes: &[&str], set: &[(&str, &str)]| {
            check_plan(wit::Plan {
                remove: remove.iter().map(|name| (*name).to_owned()).collect(),
                remove_prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
                set: set
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                    .collect(),
            })
        };
        let good = plan(&["X-Api-Key"], &["X-Auth-"], &[("X-Frame-Options", "DENY")]).unwrap();
        assert_eq!(good.remove, ["x-api-key"]);
        assert_eq!(good.remove_prefixes, ["x-auth-"]);
        assert_eq!(
            plan(&["host"], &[], &[]),
            Err(InvalidOutput::ForbiddenHeader(HeaderName::from_static("host")))
        );
        assert_eq!(
            plan(&[], &["x-"], &[]),
            Err(InvalidOutput::ShortPrefix(MIN_PREFIX_BYTES))
        );
        assert_eq!(plan(&[], &["x y z"], &[]), Err(InvalidOutput::HeaderName));
        assert_eq!(plan(&[], &[], &[("x", "\n")]), Err(InvalidOutput::HeaderValue));
        let names: Vec<&str> = vec!["x-a"; MAX_REMOVE + 1];
        let many = InvalidOutput::TooManyEdits {
            observed: MAX_REMOVE + 1,
            allowed: MAX_REMOVE,
        };
        assert_eq!(plan(&names, &[], &[]), Err(many));
    }

    #[test]
    fn a_refusal_has_an_error_status_and_a_one_line_reason() {
        let refusal = |status, reason: &str| {
            check_refusal(&wit::Refusal {
                status,
                reason: reason.to_owned(),
            })
        };
        assert_eq!(
            refusal(451, "a\r\nb\u{7}"),
            Ok((StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS, "a  b ".to_owned()))
        );
        assert_eq!(refusal(403, &"é".repeat(400)).unwrap().1.len(), MAX_REASON_BYTES);
        for status in [0, 200, 399, 600] {
            assert_eq!(refusal(status, ""), Err(InvalidOutput::Status(status)));
        }
    }
}
