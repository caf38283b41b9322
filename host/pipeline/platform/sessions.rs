//! Sessions of every kind: listed and ended; those of browsers also made.
//!
//! In: what is asked for. Out: sessions, and a cookie with its CSRF token once.
//! Never: a session ended by somebody it does not concern.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use http::header::SET_COOKIE;
use http::{Response, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use uuid::Uuid;

use super::{Desk, Wish, answer, items, too_many};
use crate::access::{AccessType, AgentId, SessionId, User};
use crate::authorize::platform::Right;
use crate::forward::Body;
use crate::front::platform::{Error, SessionView, cookie, secret};
use crate::record::Check;
use crate::store::{About, BrowserSession, Owned, SecretHash};

/// What came of a revocation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Revoked {
    revoked: String,
    /// Requests, watches, logs and tunnels that this replica closed at once; the
    /// others follow within a second.
    closed: u32,
    /// What is not ended by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// Of ID tokens that do not say which sign-in they are of.
const ONE_TOKEN: &str = "only this ID token is ended: it has neither `sid` nor `auth_time`, so that the issuer's next \
                         token of this person is let in; block the user in the directory to end that too";

impl Revoked {
    pub(super) fn of(session: &SessionId, closed: u32) -> Self {
        Self {
            revoked: session.to_string(),
            closed,
            note: session.is_of_one_token().then_some(ONE_TOKEN),
        }
    }
}

/// A new browser session; its cookie is in the head of the answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made<'a> {
    id: String,
    csrf_token: &'a str,
    expires_at: jiff::Timestamp,
}

impl Desk<'_> {
    pub(super) async fn list_sessions(&self, wish: &Wish, checks: &mut Vec<Check>) -> Result<Response<Body>, Error> {
        let views = if wish.is_for_no_agent() {
            Vec::new()
        } else {
            self.active(wish).await?
        };
        let views = self.visible((views, Right::GetSessions), wish, of_session, checks)?;
        Ok(items(&views))
    }

    pub(super) async fn create_session(&self) -> Result<Response<Body>, Error> {
        self.here()?;
        let me = self.me()?;
        let (value, csrf) = (secret::session()?, secret::session()?);
        let field = cookie::set_cookie(&value, self.settings, self.transport)?;
        let life = self.settings.cookie_lifetime;
        let expires_at = self.now.checked_add(life).unwrap_or(self.now);
        let session = BrowserSession {
            id: Uuid::now_v7(),
            user: me.clone(),
            csrf: SecretHash::of(&csrf),
            created_at: self.now,
            expires_at,
            revoked_at: None,
        };
        self.services
            .store
            .create_session(&session, SecretHash::of(&value), &self.actor())
            .await
            .map_err(|error| too_many(error, me))?;
        let made = Made {
            id: browser(session.id).to_string(),
            csrf_token: csrf.expose_secret(),
            expires_at,
        };
        let mut response = answer(StatusCode::CREATED, &made);
        response.headers_mut().append(SET_COOKIE, field);
        Ok(response)
    }

    pub(super) async fn revoke_session(
        &self,
        session: &SessionId,
        checks: &mut Vec<Check>,
    ) -> Result<Response<Body>, Error> {
        let (session, uses) = self.uses(session).await?;
        let first = uses.first().ok_or(Error::UnknownSession)?;
        if !uses.iter().all(|one| self.may_end(one, checks)) {
            return Err(Error::UnknownSession);
        }
        let about = About {
            user: first.user.clone(),
            agent_id: first.agent_id.filter(|_| uses.len() == 1),
        };
        let closed = self.services.sessions.revoke(&session, &about, &self.actor()).await?;
        Ok(answer(StatusCode::OK, &Revoked::of(&session, closed)))
    }

    /// Whether the caller may end a session of this use: at this agent, or of its
    /// person anywhere.
    fn may_end(&self, about: &About, checks: &mut Vec<Check>) -> bool {
        let mut may = |agent| {
            let object = self.object(agent, &about.user.username);
            self.may(Right::DeleteSessions, object, checks)
        };
        self.is_mine(&about.user) || may(about.agent_id) || (about.agent_id.is_some() && may(None))
    }

    /// Whose a session is, for each agent, with its one spelling. Of credentials
    /// that were made elsewhere nothing but their use is known.
    async fn uses(&self, session: &SessionId) -> Result<(SessionId, Vec<About>), Error> {
        let services = self.services;
        let kept = match (session.access_type(), Uuid::try_parse(session.id())) {
            (AccessType::PersonalAccessToken, Ok(id)) => services.store.token(id).await?.map(|token| {
                let about = About {
                    user: token.user,
                    agent_id: Some(token.agent_id),
                };
                (token.id, about)
            }),
            (AccessType::SessionCookie, Ok(id)) => services.store.browser_session(id).await?.map(|session| {
                let about = About {
                    user: session.user,
                    agent_id: None,
                };
                (session.id, about)
            }),
            (AccessType::PersonalAccessToken | AccessType::SessionCookie, Err(_))
            | (AccessType::OidcIdToken | AccessType::CiJobToken, _) => None,
        };
        match kept {
            // SECURITY: what comes in is known by this spelling of the number; a
            // revocation of another one would shut nobody out.
            Some((id, about)) => Ok((SessionId::new(session.access_type(), id.to_string()), vec![about])),
            None => Ok((session.clone(), services.sessions.used(session).await?)),
        }
    }

    /// Sessions seen at work, each agent's use as one line whichever replicas saw
    /// it, and browser sessions that were not used lately.
    async fn active(&self, wish: &Wish) -> Result<Vec<SessionView>, Error> {
        let owned = Owned {
            user_id: wish.user,
            agent_id: wish.agent,
        };
        let mut merged: BTreeMap<(String, AgentId), SessionView> = BTreeMap::new();
        for row in self.services.sessions.list(&owned).await? {
            let key = (row.session.clone(), row.agent_id);
            let view = SessionView::seen(row, self.agent(key.1));
            match merged.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(view);
                }
                Entry::Occupied(mut known) => known.get_mut().add(view),
            }
        }
        let mut views: Vec<SessionView> = merged.into_values().collect();
        if wish.agent.is_none() {
            let idle = self.services.store.browser_sessions(&owned).await?;
            let idle = idle
                .into_iter()
                .filter(|session| session.revoked_at.is_none() && session.expires_at > self.now)
                .map(|session| (browser(session.id).to_string(), session))
                .filter(|(id, _)| !views.iter().any(|view| view.id == *id));
            let idle: Vec<SessionView> = idle.map(|(id, session)| SessionView::unused(id, session)).collect();
            views.extend(idle);
        }
        views.sort_by_key(|view| Reverse((view.last_at, view.first_at)));
        Ok(views)
    }
}

fn of_session(view: &SessionView) -> (Option<AgentId>, &User) {
    (view.agent.as_ref().map(|agent| agent.id), &view.user)
}

fn browser(id: Uuid) -> SessionId {
    SessionId::new(AccessType::SessionCookie, id.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Revoked;
    use crate::access::{AccessType, SessionId};

    #[test]
    fn who_ends_one_token_alone_is_told_so() {
        let told = |session: &SessionId| serde_json::to_value(Revoked::of(session, 2)).unwrap();
        let sign_in = told(&SessionId::new(AccessType::OidcIdToken, "ab"));
        assert_eq!(sign_in, json!({"revoked": "oidc:ab", "closed": 2}));
        let one = told(&SessionId::of_one_token("ab"));
        assert_eq!(one["revoked"], "oidc:token-ab");
        let note = one["note"].as_str().unwrap();
        assert!(
            note.contains("only this ID token") && note.contains("block the user in the directory"),
            "{note}"
        );
        let token = told(&SessionId::new(AccessType::PersonalAccessToken, "token-ab"));
        assert_eq!(token, json!({"revoked": "pat:token-ab", "closed": 2}));
    }
}
