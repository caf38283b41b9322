//! Runs the `identities` of `cases.yaml`: which names people and jobs have in clusters, and which
//! `extra` values about the caller are sent where a service account acts.
//!
//! Invariant: every name that a case gives is compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value as Json;

use super::{CaseResult, check_schema, timed};
use crate::front::Front;
use crate::input::identity_json;
use crate::source::BundleSource;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location, first_line, with_causes};
use tollgate_core::user::Identity;
use tollgate_objects::{Application, Destination, ObjectName};
use tollgate_policy::impersonate::service_account::{ImpersonationRules, PrincipalInfo};
use tollgate_policy::impersonate::{self, AccessInput, ImpersonationMapping};

/// Maximum number of groups of an identity in a case: the most that a setting allows.
const MAX_GROUPS: usize = 2_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(super) note: String,
    #[serde(skip)]
    pub(super) location: Location,
    #[serde(default)]
    pub(super) input: Json,
    want: Option<Wanted>,
    refused: Option<String>,
}

/// The wanted identity. The order of groups and values does not matter to Kubernetes.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// Only empty for a service account, whose name the file does not determine.
    username: String,
    groups: BTreeSet<String>,
    uid: Option<String>,
    extra: BTreeMap<String, BTreeSet<String>>,
}

pub(crate) fn run(source: &BundleSource, cases: &[Case], found: &mut Vec<Diagnostic>) -> Vec<CaseResult> {
    let Some((path, text)) = source.impersonation() else {
        return Vec::new();
    };
    let verdicts = |check: &dyn Fn(&Case) -> Result<(), String>| {
        let run = |case: &Case| {
            timed(&case.note, &case.location, || {
                check_schema(source.front, &case.input)?;
                check(case)
            })
        };
        cases.iter().map(run).collect()
    };
    let results = match source.front {
        Front::Extensions | Front::ApplicationSets | Front::Argocd | Front::ControlPlane => None,
        Front::Kubernetes => value(ImpersonationMapping::parse(path, text, MAX_GROUPS), found)
            .map(|mapping| verdicts(&|case| case.check_mapping(&mapping))),
        Front::Applications => {
            // Values of `extra`, which are all that is compared, do not depend on the semantics.
            let rules = ImpersonationRules::parse(path, text, ServiceAccountSemantics::default());
            value(rules, found).map(|rules| verdicts(&|case| case.check_extra(&rules)))
        }
    };
    results.unwrap_or_default()
}

fn value<T>(loaded: Loaded<T>, found: &mut Vec<Diagnostic>) -> Option<T> {
    found.extend(loaded.diagnostics);
    loaded.value
}

/// Adds the identity that the mapping gives to an input of the Kubernetes front that has none.
pub(crate) fn fill_identity(source: &BundleSource, input: &mut Json, found: &mut Vec<Diagnostic>) {
    let (Front::Kubernetes, Some((path, text)), None) = (source.front, source.impersonation(), input.get("identity"))
    else {
        return;
    };
    let Some(mapping) = value(ImpersonationMapping::parse(path, text, MAX_GROUPS), found) else {
        return;
    };
    let identity = match mapping.apply_case(&AccessInput::from_input(input)) {
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
    fn check_mapping(&self, mapping: &ImpersonationMapping) -> Result<(), String> {
        let Some(mapped) = mapping.apply_case(&AccessInput::from_input(&self.input)) else {
            return Err("the mapping names only `access.as` of `user` and `ci_job`".to_owned());
        };
        self.compare(mapped)
    }

    /// Compares the `extra` values about the caller. The account itself is determined by the
    /// project.
    fn check_extra(&self, rules: &ImpersonationRules) -> Result<(), String> {
        let text = |pointer: &str| self.input.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
        let groups = self.input.pointer("/principal/groups").and_then(Json::as_array);
        let groups = groups.into_iter().flatten().filter_map(Json::as_str);
        let groups: Vec<String> = groups.map(str::to_owned).collect();
        let principal = PrincipalInfo {
            username: text("/principal/username"),
            groups: &groups,
            issuer: text("/principal/issuer"),
            kind: text("/principal/kind"),
        };
        let application = Application {
            name: ObjectName {
                namespace: text("/application/namespace").to_owned(),
                name: text("/application/name").to_owned(),
            },
            project: text("/application/project").to_owned(),
            destination: Destination::default(),
            application_set: None,
            repositories: Vec::new(),
            labels: BTreeMap::new(),
            location: Location::default(),
        };
        let extra = rules.extra(&principal, &application);
        self.compare(extra.map(|extra| Identity {
            extra,
            ..Identity::default()
        }))
    }

    fn compare(&self, mapped: Result<Identity, impersonate::Error>) -> Result<(), String> {
        match (&self.want, &self.refused, mapped) {
            (Some(want), None, Ok(identity)) => want.compare(identity),
            (None, Some(refused), Err(error)) => {
                let text = whole_text(&error);
                if text == *refused {
                    return Ok(());
                }
                Err(format!("wanted the refusal `{}`, got `{text}`", first_line(refused)))
            }
            (Some(_), None, Err(error)) => Err(format!("wanted an identity, got the refusal `{}`", whole_text(&error))),
            (None, Some(_), Ok(identity)) => Err(format!("wanted a refusal, got `{}`", first_line(&identity.username))),
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
                return Err(format!("`{part}` is not as wanted, got {}", first_line(&observed)));
            }
        }
        Ok(())
    }
}

fn whole_text(error: &impersonate::Error) -> String {
    first_line(&with_causes(error))
}
