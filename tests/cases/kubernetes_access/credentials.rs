//! What callers hold, made real: rows of the store, ID tokens, CI jobs.

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::case::{Credential, Record, RequestLine};
use super::platform::describe;
use super::stage::Stage;
use super::table::{Head, World};

/// Life of a token whose record nobody wrote down, in days.
const LIFE_DAYS: i64 = 90;

/// Puts everything a credential stands for in its place; gives the ID token
/// there is.
///
/// # Errors
/// It names what the world does not have.
pub(super) async fn prepare(credential: &Credential, stage: &mut Stage, head: &Head) -> Result<Option<String>, String> {
    let world = &head.world;
    match credential {
        Credential::None {} | Credential::Malformed {} | Credential::Sequence {} => Ok(None),
        Credential::Pat {
            user, token, record, ..
        } => {
            if let Some(user) = user {
                let record = record.clone().map_or_else(|| usual(head), Ok)?;
                stage.import(world, (user, token), &record).await?;
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
                stage.sign_in(world, user, (&cookie, &csrf)).await?;
            }
            Ok(None)
        }
        Credential::Oidc { jose, claims, .. } => {
            let claims = shifted(claims, stage, world)?;
            stage.issuer.token(jose, &claims).map(Some)
        }
        Credential::Ci { token, job, .. } => {
            let (agent, project, ci_access) = stage.plan.jobs(world)?;
            let answer = describe(job, (agent, project, ci_access.as_ref()), world)?;
            stage.platform.runs(Some((token.clone(), answer)));
            Ok(None)
        }
        Credential::Mixed { parts } => {
            let mut found = None;
            for part in parts {
                found = Box::pin(prepare(part, stage, head)).await?.or(found);
            }
            Ok(found)
        }
    }
}

/// Everybody's browser session.
pub(super) async fn sign_everybody_in(stage: &mut Stage, world: &World) -> Result<(), String> {
    for user in world.users.keys() {
        stage.sign_in(world, user, (&cookie_of(user), &csrf_of(user))).await?;
    }
    Ok(())
}

/// Everybody's personal access token, for sequences, which write none down.
pub(super) async fn give_everybody_tokens(stage: &mut Stage, head: &Head) -> Result<(), String> {
    let record = usual(head)?;
    for user in head.world.users.keys() {
        stage.import(&head.world, (user, &token_of(user)), &record).await?;
    }
    Ok(())
}

/// Whether a gateway knows otherwise of a credential than the case says.
pub(super) fn contradicts(credential: &Credential, stage: &Stage, head: &Head) -> bool {
    match credential {
        Credential::Pat {
            user, token, record, ..
        } => {
            let usual = usual(head).ok();
            let record = user.as_ref().and(record.as_ref().or(usual.as_ref()));
            let user = user.as_deref().unwrap_or_default();
            // Ends so soon that the gateway's clock matters.
            let near = SignedDuration::from_hours(12);
            let soon = record.is_some_and(|record| record.expires_at.duration_since(head.world.now).abs() < near);
            soon || stage.contradicts(token, user, record)
        }
        Credential::Mixed { parts } => parts.iter().any(|part| contradicts(part, stage, head)),
        Credential::None {}
        | Credential::Malformed {}
        | Credential::Sequence {}
        | Credential::SessionCookie { .. }
        | Credential::Oidc { .. }
        | Credential::Ci { .. } => false,
    }
}

/// The keys ID tokens are signed with.
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

/// What no answer may repeat.
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

/// A request with its ID token in place.
///
/// # Errors
/// A placeholder nobody knows, or no token for it.
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

/// Fields that carry a credential to an agent.
///
/// - `token`: what [`prepare`] gave for it.
///
/// # Errors
/// It has no form of its own.
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
        ) => return Err("the credential has no form of its own, write a `request`".to_owned()),
    })
}

/// The token sequences come with.
pub(super) fn token_of(user: &str) -> String {
    format!("glpat-{user}")
}

fn cookie_of(user: &str) -> String {
    format!("sess-{user}")
}

fn csrf_of(user: &str) -> String {
    format!("csrf-{user}")
}

fn usual(head: &Head) -> Result<Record, String> {
    let agent_id = head
        .agent
        .parse()
        .map_err(|_| format!("agent `{}` is no number", head.agent))?;
    Ok(Record {
        scopes: vec!["k8s_proxy".to_owned()],
        agent_id,
        expires_at: head.world.now + SignedDuration::from_hours(24 * LIFE_DAYS),
        revoked: false,
    })
}

/// Claims with their times moved from the world's clock to the gateway's.
fn shifted(claims: &Map<String, Value>, stage: &Stage, world: &World) -> Result<Map<String, Value>, String> {
    let ahead = stage.clock.now().duration_since(world.now).as_secs();
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
