//! Lists and ends sessions of every kind, and creates those of browsers. A new browser session
//! returns its cookie and its CSRF token once.
//!
//! Security: only those a session concerns can end it.

use std::cmp::Reverse;
use std::collections::HashMap;

use http::header::SET_COOKIE;
use http::{Response, StatusCode};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::access::api::{SessionView, cookie};
use crate::access::{AccessHandler, ListRequest, answer, items, page, too_many};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::User;
use tollgate_front::api::Error;
use tollgate_front::api::pages::{PageBuilder, ROWS, last_of_full};
use tollgate_front::api::query::Query;
use tollgate_front::permission::{DELETE_SESSIONS, GET_SESSIONS};
use tollgate_identity::access::secret;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;
use tollgate_store::{
    ActiveSessionCursor, BrowserSession, CreationCursor, CredentialFilter, Login, Page, SecretHash, SessionOwner,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    revoked: String,
    /// Requests, watches, logs and tunnels that this replica closed at once. Other replicas follow
    /// within a second.
    closed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

impl Revoked {
    fn of(session: &SessionId, closed: u32) -> Self {
        Self {
            revoked: session.to_string(),
            closed,
            note: session.is_single_token().then_some(SINGLE_TOKEN_NOTE),
        }
    }
}

/// The note for ID tokens that do not identify their sign-in.
const SINGLE_TOKEN_NOTE: &str = "only this ID token is ended: it has neither `sid` nor `auth_time`, so that the \
                                 issuer's next token of this person is let in; block the user in the directory to end \
                                 that too";

/// A new browser session. Its cookie is in a header of the response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreatedSession<'a> {
    id: String,
    csrf_token: &'a str,
    expires_at: jiff::Timestamp,
}

impl AccessHandler<'_> {
    pub(super) async fn list_sessions(
        &self,
        list: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        let filter = self.row_filter(GET_SESSIONS, list, checks)?;
        // Browser sessions that were not used, and logins, are valid for all agents.
        let has_unused = list.query.agent.is_none() && (list.is_mine || self.could_see(GET_SESSIONS, None, list));
        let mut collected = PageBuilder::new(list.query.decode_cursor(Position::is_sound)?, list.query.row_limit());
        while collected.needs_query() {
            let (rows, end) = match collected.after() {
                None => self.active_sessions(&filter, None).await?,
                Some(Position::AtWork(after)) => self.active_sessions(&filter, Some(after)).await?,
                Some(Position::Unused(after)) if has_unused => self.unused_sessions(&filter, after).await?,
                Some(Position::Logins(after)) if has_unused => self.idle_logins(&filter, after).await?,
                Some(Position::Unused(_) | Position::Logins(_)) => (Vec::new(), None),
            };
            let of = rows.iter().map(|(_, view)| of_session(view));
            let visible = self.visible(GET_SESSIONS, list, of);
            let rows = rows.into_iter().zip(visible).filter(|(_, is_visible)| *is_visible);
            collected.add_rows(rows.map(|(row, _)| row), end);
        }
        let (mut views, next) = collected.finish()?;
        if views.is_empty() {
            self.check_empty_list(GET_SESSIONS, list, checks)?;
        }
        // Within the page alone: the list as a whole has the order of the positions.
        views.sort_by_key(|view| Reverse((view.last_at, view.first_at)));
        Ok(page(&views, next.as_ref()))
    }

    /// Lists the logins of a caller whom only an issuer knows, and where they are at work.
    pub(super) async fn list_own_logins(&self, login: &Login, query: &Query) -> Result<Response<Body>, Error> {
        // There is one page: a person has few logins.
        query.decode_cursor(|_: &()| false)?;
        let store = &self.front_state.store;
        let logins = store.open_logins(&login.issuer, &login.subject, self.now).await?;
        let mut own: HashMap<String, Login> = logins
            .into_iter()
            .map(|login| (login.session().to_string(), login))
            .collect();
        // SECURITY: others without a number may have the same name. Their sessions are other ones.
        let filter = CredentialFilter {
            user_id: Some(login.user.id),
            username: Some(login.user.username.clone()),
            agents: query.agent.is_some().then(|| Vec::from_iter(self.agent_of(query))),
        };
        let mut views = Vec::new();
        let mut next = Some(None);
        while let Some(after) = next {
            let (rows, end) = self.active_sessions(&filter, after).await?;
            views.extend(
                rows.into_iter()
                    .map(|(_, view)| view)
                    .filter(|view| own.contains_key(&view.id)),
            );
            next = match end {
                Some(Position::AtWork(after)) => Some(Some(after)),
                Some(Position::Unused(_) | Position::Logins(_)) | None => None,
            };
        }
        for view in &views {
            own.remove(&view.id);
        }
        // Logins that entered no cluster are at no agent.
        let idle = if query.agent.is_none() { own } else { HashMap::new() };
        views.extend(idle.into_iter().map(|(id, login)| SessionView::login(id, login)));
        views.sort_by_key(|view| Reverse((view.last_at, view.first_at)));
        views.truncate(usize::try_from(query.row_limit()).unwrap_or(usize::MAX));
        Ok(items(&views))
    }

    pub(super) async fn create_session(&self) -> Result<Response<Body>, Error> {
        self.require_embedded_authorizer()?;
        let me = self.require_user()?;
        let (value, csrf) = (secret::generate_session_secret()?, secret::generate_session_secret()?);
        let field = cookie::set_cookie(&value, self.settings, self.transport)?;
        let lifetime = self.settings.cookie_lifetime;
        let expires_at = self.now.checked_add(lifetime).unwrap_or(self.now);
        let session = BrowserSession {
            id: Uuid::now_v7(),
            user: me.clone(),
            csrf: SecretHash::of(&csrf),
            created_at: self.now,
            expires_at,
            revoked_at: None,
        };
        self.front_state
            .store
            .create_session(&session, SecretHash::of(&value), &self.actor())
            .await
            .map_err(|error| too_many(error, me))?;
        let created = CreatedSession {
            id: browser(session.id).to_string(),
            csrf_token: csrf.expose_secret(),
            expires_at,
        };
        let mut response = answer(StatusCode::CREATED, &created);
        response.headers_mut().append(SET_COOKIE, field);
        Ok(response)
    }

    pub(super) async fn revoke_session(
        &self,
        session: &SessionId,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        let (session, uses) = self.uses(session).await?;
        let first = uses.first().ok_or(Error::UnknownSession)?;
        // All uses, because a session ends at every agent at once.
        if !self.is_own_login(&session).await? && !uses.iter().all(|one| self.may_end(one, checks)) {
            return Err(Error::UnknownSession);
        }
        let session_owner = SessionOwner {
            user: first.user.clone(),
            // The event about a session at several agents names none of them.
            agent_id: first.agent_id.filter(|_| uses.len() == 1),
        };
        self.end(&session, &session_owner).await
    }

    pub(super) async fn end(&self, session: &SessionId, owner: &SessionOwner) -> Result<Response<Body>, Error> {
        let closed = self.front_state.sessions.revoke(session, owner, &self.actor()).await?;
        Ok(answer(StatusCode::OK, &Revoked::of(session, closed)))
    }

    /// Whether a session is a login of a caller whom only an issuer knows.
    async fn is_own_login(&self, session: &SessionId) -> Result<bool, Error> {
        let Some(mine) = self
            .login_of_no_user()
            .filter(|_| session.access_type() == AccessType::Login)
        else {
            return Ok(false);
        };
        let Ok(id) = Uuid::try_parse(session.id()) else {
            return Ok(false);
        };
        let found = self.front_state.store.login(id).await?;
        Ok(found.is_some_and(|found| found.issuer == mine.issuer && found.subject == mine.subject))
    }

    /// Whether the caller may end a session with this use: at this agent, or anywhere for its
    /// person.
    fn may_end(&self, session_owner: &SessionOwner, checks: &mut Vec<CheckRecord>) -> bool {
        let mut may = |agent| {
            let object = self.object(agent, &session_owner.user.username);
            self.may(DELETE_SESSIONS, object, checks)
        };
        self.is_mine(&session_owner.user)
            || may(session_owner.agent_id)
            || (session_owner.agent_id.is_some() && may(None))
    }

    /// Returns the owners of a session, one for each agent, with the session's canonical spelling.
    /// Of credentials that were made elsewhere only their use is known.
    async fn uses(&self, session: &SessionId) -> Result<(SessionId, Vec<SessionOwner>), Error> {
        let front_state = self.front_state;
        let stored = match (session.access_type(), Uuid::try_parse(session.id())) {
            (AccessType::PersonalAccessToken, Ok(id)) => {
                let token = front_state.store.token(id).await?;
                token.map(|token| (token.id, token.user, Some(token.agent_id)))
            }
            (AccessType::SessionCookie, Ok(id)) => {
                let session = front_state.store.browser_session(id).await?;
                session.map(|session| (session.id, session.user, None))
            }
            (AccessType::Login, Ok(id)) => {
                let login = front_state.store.login(id).await?;
                login.map(|login| (login.id, login.user, None))
            }
            (AccessType::PersonalAccessToken | AccessType::SessionCookie | AccessType::Login, Err(_))
            | (AccessType::OidcIdToken | AccessType::CiJobToken, _) => None,
        };
        match stored {
            // SECURITY: later requests are identified by this spelling of the number. Revoking
            // another spelling would lock nobody out.
            Some((id, user, agent_id)) => Ok((
                SessionId::new(session.access_type(), id.to_string()),
                vec![SessionOwner { user, agent_id }],
            )),
            None => Ok((session.clone(), front_state.sessions.owners_of(session).await?)),
        }
    }

    /// Lists sessions seen in use, one row for each agent regardless of the replica. Unused
    /// browser sessions and idle logins follow the last of them.
    async fn active_sessions(
        &self,
        filter: &CredentialFilter,
        after: Option<ActiveSessionCursor>,
    ) -> Result<(Vec<(Position, SessionView)>, Option<Position>), Error> {
        let page_request = Page { after, limit: ROWS };
        let (rows, end) = self.front_state.sessions.page(filter, &page_request).await?;
        let views = rows.into_iter().map(|row| {
            let at = Position::AtWork((row.session.clone(), row.agent_id));
            let agent = self.agent(row.agent_id);
            (at, SessionView::seen(row, agent))
        });
        let end = end.map_or(Position::Unused(None), Position::AtWork);
        Ok((views.collect(), Some(end)))
    }

    async fn unused_sessions(
        &self,
        filter: &CredentialFilter,
        after: Option<CreationCursor>,
    ) -> Result<(Vec<(Position, SessionView)>, Option<Position>), Error> {
        let page_request = Page { after, limit: ROWS };
        let store = &self.front_state.store;
        let rows = store.browser_sessions(filter, Some(self.now), &page_request).await?;
        let position = |row: &BrowserSession| Position::Unused(Some((row.created_at, row.id)));
        let end = last_of_full(&rows).map_or(Position::Logins(None), position);
        let texts: Vec<_> = rows.iter().map(|row| browser(row.id).to_string()).collect();
        let used = self.front_state.sessions.active_among(&texts).await?;
        let rows = rows.into_iter().zip(texts).filter(|(_, text)| !used.contains(text));
        let views = rows.map(|(row, text)| (position(&row), SessionView::unused(text, row)));
        Ok((views.collect(), Some(end)))
    }

    /// Lists the logins in force that entered no cluster lately: those that did are active sessions.
    async fn idle_logins(
        &self,
        filter: &CredentialFilter,
        after: Option<CreationCursor>,
    ) -> Result<(Vec<(Position, SessionView)>, Option<Position>), Error> {
        let page_request = Page { after, limit: ROWS };
        let rows = self.front_state.store.logins(filter, self.now, &page_request).await?;
        let position = |row: &Login| Position::Logins(Some((row.created_at, row.id)));
        let end = last_of_full(&rows).map(position);
        let texts: Vec<_> = rows.iter().map(|row| row.session().to_string()).collect();
        let used = self.front_state.sessions.active_among(&texts).await?;
        let rows = rows.into_iter().zip(texts).filter(|(_, text)| !used.contains(text));
        let views = rows.map(|(row, text)| (position(&row), SessionView::login(text, row)));
        Ok((views.collect(), end))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Position {
    AtWork(ActiveSessionCursor),
    /// Unused browser sessions. `None` is the position before the first.
    Unused(Option<CreationCursor>),
    /// Logins that entered no cluster lately.
    Logins(Option<CreationCursor>),
}

impl Position {
    /// Whether it can be a position of the list: the databases do not accept every text.
    fn is_sound(&self) -> bool {
        match self {
            Self::AtWork((session, _)) => SessionId::parse(session).is_some(),
            Self::Unused(_) | Self::Logins(_) => true,
        }
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
    use tollgate_core::session::{AccessType, SessionId};

    #[test]
    fn revoking_a_single_id_token_adds_a_note() {
        let answer_for = |session: &SessionId| serde_json::to_value(Revoked::of(session, 2)).unwrap();
        let sign_in = answer_for(&SessionId::new(AccessType::OidcIdToken, "ab"));
        assert_eq!(sign_in, json!({"revoked": "oidc:ab", "closed": 2}));
        let one = answer_for(&SessionId::for_single_token("ab"));
        assert_eq!(one["revoked"], "oidc:token-ab");
        let note = one["note"].as_str().unwrap();
        assert!(
            note.contains("only this ID token") && note.contains("block the user in the directory"),
            "{note}"
        );
        let token = answer_for(&SessionId::new(AccessType::PersonalAccessToken, "token-ab"));
        assert_eq!(token, json!({"revoked": "pat:token-ab", "closed": 2}));
    }
}
