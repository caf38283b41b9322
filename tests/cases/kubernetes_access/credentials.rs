//! Creates the credentials of cases: rows of the store, ID tokens and CI jobs.

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::case::{Credential, Record, RequestLine};
use super::environment::TestEnvironment;
use super::platform::describe;
use super::table::{Head, World};

/// Lifetime in days of tokens for which a case has no record.
const LIFE_DAYS: i64 = 90;

/// Creates everything that a credential needs. Returns the ID token, if it has one.
///
/// # Errors
/// The credential names something that the world does not have.
pub(super) async fn prepare(
    credential: &Credential,
    environment: &mut TestEnvironment,
    head: &Head,
) -> Result<Option<String>, String> {
    let world = &head.world;
    match credential {
        Credential::None {} | Credential::Malformed {} | Credential::Sequence {} => Ok(None),
        Credential::Pat {
            user, token, record, ..
        } => {
            if let Some(user) = user {
                let record = record.clone().map_or_else(|| default_record(head), Ok)?;
                environment.import(world, (user, token), &record).await?;
            }
            Ok(None)
        }
        Credential::SessionCookie {
            user,
            session,
            csrf_token,
            ..
        } => {
            if let Some(user) = user {
                let cookie = session.clone().unwrap_or_else(|| cookie_of(user));
                let csrf = csrf_token.clone().unwrap_or_else(|| csrf_of(user));
                environment.sign_in(world, user, (&cookie, &csrf)).await?;
            }
            Ok(None)
        }
        Credential::Oidc { jose, claims, .. } => {
            let claims = shifted(claims, environment, world)?;
            environment.issuer.token(jose, &claims).map(Some)
        }
        Credential::Ci { token, job, .. } => {
            let (agent, project, ci_access) = environment.plan.jobs(world)?;
            let answer = describe(job, (agent, project, ci_access.as_ref()), world)?;
            environment.platform.set_job(Some((token.clone(), answer)));
            Ok(None)
        }
        Credential::Mixed { parts } => {
            let mut found = None;
            for part in parts {
                found = Box::pin(prepare(part, environment, head)).await?.or(found);
            }
            Ok(found)
        }
    }
}

/// Creates a browser session for every user.
pub(super) async fn sign_everybody_in(environment: &mut TestEnvironment, world: &World) -> Result<(), String> {
    for user in world.users.keys() {
        environment
            .sign_in(world, user, (&cookie_of(user), &csrf_of(user)))
            .await?;
    }
    Ok(())
}

/// Creates a personal access token for every user. Sequences use these, because they have no
/// records of tokens.
pub(super) async fn give_everybody_tokens(environment: &mut TestEnvironment, head: &Head) -> Result<(), String> {
    let record = default_record(head)?;
    for user in head.world.users.keys() {
        environment
            .import(&head.world, (user, &token_of(user)), &record)
            .await?;
    }
    Ok(())
}

/// Whether a gateway's store has this credential with other properties than the case needs.
pub(super) fn contradicts(credential: &Credential, environment: &TestEnvironment, head: &Head) -> bool {
    match credential {
        Credential::Pat {
            user, token, record, ..
        } => {
            let default_record = default_record(head).ok();
            let record = user.as_ref().and(record.as_ref().or(default_record.as_ref()));
            let user = user.as_deref().unwrap_or_default();
            // The expiry is so near that the gateway's advanced clock matters.
            let near = SignedDuration::from_hours(12);
            let soon = record.is_some_and(|record| record.expires_at.duration_since(head.world.now).abs() < near);
            soon || environment.contradicts(token, user, record)
        }
        Credential::Mixed { parts } => parts.iter().any(|part| contradicts(part, environment, head)),
        Credential::None {}
        | Credential::Malformed {}
        | Credential::Sequence {}
        | Credential::SessionCookie { .. }
        | Credential::Oidc { .. }
        | Credential::Ci { .. } => false,
    }
}

/// Ids of the keys that sign the credential's ID tokens.
pub(super) fn key_ids(credential: &Credential) -> Vec<&str> {
    match credential {
        Credential::Oidc { jose, .. } => jose.kid.as_deref().into_iter().collect(),
        Credential::Mixed { parts } => parts.iter().flat_map(key_ids).collect(),
        Credential::None {}
        | Credential::Malformed {}
        | Credential::Sequence {}
        | Credential::Pat { .. }
        | Credential::SessionCookie { .. }
        | Credential::Ci { .. } => Vec::new(),
    }
}

/// Secrets of the credential, which no response may contain.
pub(super) fn secrets(credential: &Credential) -> Vec<String> {
    match credential {
        Credential::Pat { token, .. } | Credential::Ci { token, .. } => vec![token.clone()],
        Credential::SessionCookie {
            session, csrf_token, ..
        } => session.iter().chain(csrf_token).cloned().collect(),
        Credential::Mixed { parts } => parts.iter().flat_map(secrets).collect(),
        Credential::None {} | Credential::Malformed {} | Credential::Sequence {} | Credential::Oidc { .. } => {
            Vec::new()
        }
    }
}

/// Replaces the placeholder `${jwt}` of a request with the ID token.
///
/// # Errors
/// A placeholder is unknown, or there is no token for it.
pub(super) fn fill(request: &RequestLine, token: Option<&str>) -> Result<RequestLine, String> {
    let fill = |text: &str| {
        let filled = match token {
            Some(token) => text.replace("${jwt}", token),
            None => text.to_owned(),
        };
        if filled.contains("${") {
            return Err(format!("`{text}` has an unknown placeholder"));
        }
        Ok(filled)
    };
    let headers = request.headers.iter();
    let headers = headers.map(|(name, value)| Ok((fill(name)?, fill(value)?)));
    Ok(RequestLine {
        path: fill(&request.path)?,
        query: request.query.as_deref().map(fill).transpose()?,
        headers: headers.collect::<Result<_, String>>()?,
        ..request.clone()
    })
}

/// Header fields that carry a credential for an agent.
///
/// - `token`: the result of [`prepare`] for it.
///
/// # Errors
/// The credential has no standard header fields.
pub(super) fn fields(
    credential: &Credential,
    (agent, token): (&str, Option<&str>),
) -> Result<Vec<(String, String)>, String> {
    let field = |name: &str, value: String| (name.to_owned(), value);
    Ok(match (credential, token) {
        (_, Some(token)) => vec![field("Authorization", format!("Bearer {token}"))],
        (Credential::Pat { token, .. }, None) => vec![field("Authorization", format!("Bearer pat:{agent}:{token}"))],
        (Credential::Ci { token, .. }, None) => vec![field("Authorization", format!("Bearer ci:{agent}:{token}"))],
        (
            Credential::SessionCookie {
                user,
                session,
                csrf_token,
                ..
            },
            None,
        ) => {
            let user = user.as_deref().unwrap_or_default();
            let cookie = session.clone().unwrap_or_else(|| cookie_of(user));
            vec![
                field("Cookie", format!("_gitlab_kas={cookie}")),
                field("Gitlab-Agent-Id", agent.to_owned()),
                field("X-Csrf-Token", csrf_token.clone().unwrap_or_else(|| csrf_of(user))),
            ]
        }
        (Credential::None {}, None) => Vec::new(),
        (
            Credential::Malformed {} | Credential::Sequence {} | Credential::Oidc { .. } | Credential::Mixed { .. },
            None,
        ) => return Err("the credential has no standard header fields: write a `request`".to_owned()),
    })
}

/// The user's token in sequences.
pub(super) fn token_of(user: &str) -> String {
    format!("glpat-{user}")
}

fn cookie_of(user: &str) -> String {
    format!("sess-{user}")
}

fn csrf_of(user: &str) -> String {
    format!("csrf-{user}")
}

fn default_record(head: &Head) -> Result<Record, String> {
    let agent_id = head
        .agent
        .parse()
        .map_err(|_| format!("agent `{}` is not a number", head.agent))?;
    Ok(Record {
        scopes: vec!["k8s_proxy".to_owned()],
        agent_id,
        expires_at: head.world.now + SignedDuration::from_hours(24 * LIFE_DAYS),
        revoked: false,
    })
}

/// Converts the times in claims from the world's clock to the gateway's.
fn shifted(
    claims: &Map<String, Value>,
    environment: &TestEnvironment,
    world: &World,
) -> Result<Map<String, Value>, String> {
    let ahead = environment.clock.now().duration_since(world.now).as_secs();
    let mut claims = claims.clone();
    for name in ["iat", "exp", "nbf", "auth_time"] {
        if let Some(value) = claims.get_mut(name)
            && let Some(at) = value.as_i64()
        {
            *value = at
                .checked_add(ahead)
                .ok_or(format!("`{name}` is out of bounds"))?
                .into();
        }
    }
    Ok(claims)
}
