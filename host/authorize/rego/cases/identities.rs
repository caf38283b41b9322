//! Cases of the names people and jobs have in clusters.
//!
//! In: `identities` of `cases.yaml`, the mapping beside it. Out: a result a case.
//! Never: a name that was not compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value as Json;

use super::{CaseResult, laid_over, schema_errors, timed};
use crate::access::Identity;
use crate::authorize::rego::input::identity_json;
use crate::authorize::rego::source::Source;
use crate::authorize::rego::{Front, shorten};
use crate::diagnostic::{Diagnostic, Location};
use crate::impersonate::{self, Known, Mapping};

/// Groups an identity of a case may have: the most a setting allows.
const MAX_GROUPS: usize = 2_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCase {
    note: String,
    #[serde(default)]
    input: Json,
    want: Option<Wanted>,
    refused: Option<String>,
}

/// Order means nothing to Kubernetes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    username: String,
    #[serde(default)]
    groups: BTreeSet<String>,
    uid: Option<String>,
    #[serde(default)]
    extra: BTreeMap<String, BTreeSet<String>>,
}

/// One case, its input complete.
pub(in crate::authorize::rego) struct Case {
    note: String,
    location: Location,
    input: Json,
    want: Option<Wanted>,
    refused: Option<String>,
}

impl RawCase {
    pub(super) fn complete(self, location: Location, base: &Json) -> Case {
        Case {
            note: self.note,
            location,
            input: laid_over(base, self.input),
            want: self.want,
            refused: self.refused,
        }
    }
}

/// Compiles the mapping of a Kubernetes bundle and runs its cases.
pub(in crate::authorize::rego) fn run(source: &Source, cases: &[Case], found: &mut Vec<Diagnostic>) -> Vec<CaseResult> {
    let Some((path, text)) = source.impersonation() else {
        return Vec::new();
    };
    let loaded = Mapping::parse(path, text, MAX_GROUPS);
    found.extend(loaded.diagnostics);
    let Some(mapping) = loaded.value else { return Vec::new() };
    cases
        .iter()
        .map(|case| timed((&case.note, &case.location), || case.verdict(&mapping)))
        .collect()
}

/// Gives an input of the Kubernetes front the identity it would have, unless it
/// says one.
pub(in crate::authorize::rego) fn fill(source: &Source, input: &mut Json, found: &mut Vec<Diagnostic>) {
    let (Some((path, text)), None) = (source.impersonation(), input.get("identity")) else {
        return;
    };
    let loaded = Mapping::parse(path, text, MAX_GROUPS);
    found.extend(loaded.diagnostics);
    let Some(mapping) = loaded.value else { return };
    let identity = match mapping.apply_case(&Known::from_input(input)) {
        None => Json::Null,
        Some(Ok(identity)) => identity_json(&identity),
        Some(Err(error)) => {
            let message = format!("the request would be refused: {}", whole_text(&error));
            found.push(Diagnostic::error(Location::new(path, 0), message));
            return;
        }
    };
    if let Some(input) = input.as_object_mut() {
        input.insert("identity".to_owned(), identity);
    }
}

impl Case {
    fn verdict(&self, mapping: &Mapping) -> Result<(), String> {
        let wrong = schema_errors(Front::Kubernetes, &self.input);
        if !wrong.is_empty() {
            return Err(format!("the input does not fit the schema: {}", wrong.join("; ")));
        }
        let Some(named) = mapping.apply_case(&Known::from_input(&self.input)) else {
            return Err("the mapping names only `access.as` of `user` and `ci_job`".to_owned());
        };
        match (&self.want, &self.refused, named) {
            (Some(want), None, Ok(identity)) => want.compare(identity),
            (None, Some(refused), Err(error)) => {
                let text = whole_text(&error);
                if text == *refused {
                    return Ok(());
                }
                Err(format!("wanted the refusal `{}`, got `{text}`", shorten(refused)))
            }
            (Some(_), None, Err(error)) => Err(format!("wanted an identity, got the refusal `{}`", whole_text(&error))),
            (None, Some(_), Ok(identity)) => Err(format!("wanted a refusal, got `{}`", shorten(&identity.username))),
            (Some(_), Some(_), _) | (None, None, _) => Err("a case has either `want` or `refused`".to_owned()),
        }
    }
}

impl Wanted {
    fn compare(&self, identity: Identity) -> Result<(), String> {
        let Identity {
            username,
            groups,
            uid,
            extra,
        } = identity;
        let groups: BTreeSet<String> = groups.into_iter().collect();
        let extra: BTreeMap<String, BTreeSet<String>> = extra
            .into_iter()
            .map(|(key, values)| (key, values.into_iter().collect()))
            .collect();
        for (part, is_wanted, observed) in [
            ("username", username == self.username, format!("{username:?}")),
            ("groups", groups == self.groups, format!("{groups:?}")),
            ("uid", uid == self.uid, format!("{uid:?}")),
            ("extra", extra == self.extra, format!("{extra:?}")),
        ] {
            if !is_wanted {
                return Err(format!("`{part}` is not as wanted, got {}", shorten(&observed)));
            }
        }
        Ok(())
    }
}

/// The error and its cause in one line.
fn whole_text(error: &impersonate::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => shorten(&format!("{error}: {cause}")),
        None => shorten(&error.to_string()),
    }
}
