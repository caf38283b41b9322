//! Decodes the platform's answer about a CI job, from the body of a 200.
//!
//! An agent that is not in the job's list is refused.
//!
//! Security: `access_as` must be exactly one known variant.
//!
//! Source: GitLab, `GET /api/v4/job/allowed_agents`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::person::parse_user;
use super::{PlatformAnswer, WireId, WireIdObject, WireUser, single_entry, unavailable};
use crate::access::Error;
use tollgate_core::agent::AgentId;
use tollgate_core::user::{AccessAs, CiJob, Identity};

#[derive(Deserialize)]
struct WireJob {
    allowed_agents: Vec<WireAllowed>,
    job: WireIdObject,
    pipeline: WireIdObject,
    project: WireProject,
    user: WireUser,
    environment: Option<WireEnvironment>,
}

#[derive(Deserialize)]
struct WireAllowed {
    id: WireId,
    config_project: WireIdObject,
    configuration: Option<WireConfiguration>,
}

#[derive(Deserialize)]
struct WireConfiguration {
    access_as: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct WireProject {
    id: WireId,
    #[serde(default)]
    groups: Vec<WireIdObject>,
}

#[derive(Deserialize)]
struct WireEnvironment {
    slug: String,
    tier: String,
}

#[derive(Deserialize)]
struct WireIdentity {
    username: String,
    uid: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: Vec<WireExtra>,
}

#[derive(Deserialize)]
struct WireExtra {
    key: String,
    #[serde(default)]
    val: Vec<String>,
}

pub(super) fn read(body: &[u8], id: AgentId) -> Result<PlatformAnswer, Error> {
    let answer: WireJob = serde_json::from_slice(body).map_err(|_| not_understood("it is not the JSON expected"))?;
    let groups = answer.project.groups.iter();
    let job = CiJob {
        id: number(&answer.job.id)?,
        pipeline: number(&answer.pipeline.id)?,
        project: number(&answer.project.id)?,
        groups: groups.map(|group| number(&group.id)).collect::<Result<_, _>>()?,
        environment: answer.environment.map(|found| (found.slug, found.tier)),
    };
    let mut allowed = answer.allowed_agents.into_iter();
    let allowed = allowed.find(|agent| agent.id.number() == Some(id.get()));
    let allowed = allowed.ok_or(Error::JobNotAllowed)?;
    let access_as = allowed.configuration.and_then(|configuration| configuration.access_as);
    Ok(PlatformAnswer {
        config_project: number(&allowed.config_project.id)?,
        user: parse_user(answer.user)?,
        access_as: match access_as {
            // GitLab's default.
            None => AccessAs::Agent,
            Some(access_as) => identity(access_as, job)?,
        },
    })
}

fn identity(access_as: Map<String, Value>, job: CiJob) -> Result<AccessAs, Error> {
    let (key, value) = single_entry(access_as).ok_or_else(|| not_understood(super::NOT_ONE_KEY))?;
    match (key.as_str(), value.is_object()) {
        ("agent", true) => Ok(AccessAs::Agent),
        ("ci_job", true) => Ok(AccessAs::CiJob(Box::new(job))),
        ("impersonate", true) => fixed(value),
        _ => Err(not_understood("`access_as` is of an unknown kind")),
    }
}

fn fixed(value: Value) -> Result<AccessAs, Error> {
    let wire: WireIdentity =
        serde_json::from_value(value).map_err(|_| not_understood("`impersonate` is not the JSON expected"))?;
    if wire.username.is_empty() {
        return Err(not_understood("`impersonate.username` is empty"));
    }
    let mut identity = Identity {
        username: wire.username,
        uid: wire.uid.filter(|uid| !uid.is_empty()),
        ..Identity::default()
    };
    for group in wire.groups {
        if !identity.groups.contains(&group) {
            identity.groups.push(group);
        }
    }
    for WireExtra { key, val } in wire.extra {
        // As kube-apiserver does: keys are case-insensitive, and the values of one key are
        // merged.
        let key = key.to_lowercase();
        match identity.extra.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.extend(val),
            None => identity.extra.push((key, val)),
        }
    }
    Ok(AccessAs::Impersonate(identity))
}

fn number(id: &WireId) -> Result<i64, Error> {
    id.number().ok_or_else(|| not_understood("an id is no number"))
}

fn not_understood(why: &str) -> Error {
    unavailable(format!("the platform's answer about the job is not understood: {why}"))
}
