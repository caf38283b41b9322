//! Decodes the platform's answer about a person, from the body of a 200, into [`PlatformAnswer`].
//!
//! Memberships below developer are refused.
//!
//! Security: nothing is guessed. An `access_as` that is not exactly one known variant is no
//! answer.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{PlatformAnswer, WireId, WireIdObject, WireUser, single_entry, unavailable};
use crate::access::agents::issuer_only_user;
use crate::access::{AccessDenyReason, Agents, Error, IdToken};
use strum::VariantArray;
use tollgate_core::agent::AgentId;
use tollgate_core::user::{AccessAs, Membership, Role, User};
use tollgate_objects::people::GitLabNamespace;

#[derive(Deserialize)]
struct WireAnswer {
    agent: WireAgent,
    user: WireUser,
    access_as: Map<String, Value>,
}

#[derive(Deserialize)]
struct WireAgent {
    id: WireId,
    config_project: WireIdObject,
}

/// `access_as.user`.
#[derive(Deserialize)]
struct WireMemberships {
    projects: Option<Vec<WireMembership>>,
    groups: Option<Vec<WireMembership>>,
}

#[derive(Deserialize)]
struct WireMembership {
    id: WireId,
    roles: Vec<String>,
}

pub(super) fn read(
    body: &[u8],
    agents: &Agents,
    id: AgentId,
    id_token: Option<&IdToken>,
) -> Result<PlatformAnswer, Error> {
    let answer: WireAnswer = serde_json::from_slice(body).map_err(|_| not_understood("it is not the JSON expected"))?;
    if answer.agent.id.number() != Some(id.get()) {
        return Err(not_understood("it is about another agent"));
    }
    let config_project = answer.agent.config_project.id.number();
    let config_project = config_project.ok_or_else(|| not_understood("`agent.config_project.id` is no number"))?;
    let (access_as, user) = identity(answer.access_as, answer.user, agents, id_token)?;
    Ok(PlatformAnswer {
        config_project,
        user,
        access_as,
    })
}

fn identity(
    access_as: Map<String, Value>,
    user: WireUser,
    agents: &Agents,
    id_token: Option<&IdToken>,
) -> Result<(AccessAs, User), Error> {
    let (key, value) = single_entry(access_as).ok_or_else(|| not_understood(super::NOT_ONE_KEY))?;
    if !value.is_object() {
        return Err(not_understood("`access_as` holds no mapping"));
    }
    let access_as = match key.as_str() {
        "agent" => AccessAs::Agent,
        "user" => memberships(value, agents)?,
        // An extension of Tollgate: the platform gives access, and this gateway's `claimMappings`
        // decide the identity the cluster sees.
        "mapped" => {
            let mapped = id_token.and_then(|token| token.mapped.clone());
            let mapped = mapped.ok_or_else(|| not_understood("`access_as.mapped` without `claimMappings` here"))?;
            // Another Tollgate answers 0 for somebody whom only the issuer knows.
            if user.id.number().is_none() {
                let issuer_only_user = issuer_only_user(&mapped);
                return Ok((AccessAs::Mapped(mapped), issuer_only_user));
            }
            AccessAs::Mapped(mapped)
        }
        _ => return Err(not_understood("`access_as` is of an unknown kind")),
    };
    Ok((access_as, parse_user(user)?))
}

pub(super) fn parse_user(user: WireUser) -> Result<User, Error> {
    let WireUser { id, username } = user;
    let id = id.number().filter(|_| !username.is_empty());
    let id = id.ok_or_else(|| not_understood("`user` has no number or no name"))?;
    Ok(User { id, username })
}

fn memberships(value: Value, agents: &Agents) -> Result<AccessAs, Error> {
    let lists: WireMemberships =
        serde_json::from_value(value).map_err(|_| not_understood("`access_as.user` is not the JSON expected"))?;
    let people = &agents.people;
    let projects = list(
        lists.projects,
        |id| people.project_by_id(id),
        |path| people.project(path),
    )?;
    let groups = list(lists.groups, |id| people.group_by_id(id), |path| people.group(path))?;
    if projects.is_empty() && groups.is_empty() {
        return Err(AccessDenyReason::NotMember.into());
    }
    Ok(AccessAs::User { projects, groups })
}

/// The memberships of at least developer; numbers and paths are looked up in our own directory.
fn list<'d>(
    entries: Option<Vec<WireMembership>>,
    by_id: impl Fn(i64) -> Option<&'d GitLabNamespace>,
    by_path: impl Fn(&str) -> Option<&'d GitLabNamespace>,
) -> Result<Vec<Membership>, Error> {
    let mut memberships = Vec::new();
    for entry in entries.unwrap_or_default() {
        let known = match (&entry.id, entry.id.number()) {
            (_, Some(number)) => by_id(number),
            // The directory has paths in lower case.
            (WireId::Text(path), None) => by_path(&path.to_lowercase()),
            (WireId::Number(_), None) => None,
        };
        let id = entry.id.number().or(known.map(|space| space.id));
        let id =
            id.ok_or_else(|| not_understood("a project or group has an id that is no number and no known path"))?;
        let roles = roles(&entry.roles);
        // A role below developer gives no access, even if the platform lists it.
        if roles.last().is_some_and(|highest| *highest >= Role::Developer) {
            memberships.push(Membership {
                id,
                path: known.map_or_else(String::new, |space| space.path.as_ref().to_owned()),
                roles,
            });
        }
    }
    Ok(memberships)
}

/// The known roles from reporter up, lowest first. GitLab also reports guest, and adds new roles
/// between these; they grant nothing here.
fn roles(reported: &[String]) -> Vec<Role> {
    let is_reported = |role: &Role| *role >= Role::Reporter && reported.iter().any(|word| word == role.as_ref());
    Role::VARIANTS.iter().copied().filter(is_reported).collect()
}

fn not_understood(why: &str) -> Error {
    unavailable(format!("the platform's answer is not understood: {why}"))
}
