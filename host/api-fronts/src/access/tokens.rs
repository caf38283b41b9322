//! Creates, lists and revokes personal access tokens. A token's secret is shown once, when it is
//! created.
//!
//! Security: a token is only created for an agent that is shared with its owner.

use std::sync::Arc;

use http::{Response, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::access::api::TokenView;
use crate::access::api::content::NewToken;
use crate::access::{AccessHandler, ListRequest, answer, by_number, page, too_many};
use crate::directory::unblocked;
use tollgate_core::agent::Agent;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::User;
use tollgate_front::api::Error;
use tollgate_front::api::pages::{PageBuilder, ROWS, last_of_full};
use tollgate_front::permission::{CREATE_TOKENS, DELETE_TOKENS, GET_TOKENS, object};
use tollgate_identity::access::secret;
use tollgate_objects::agent::AccessMode;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;
use tollgate_store::{CreationCursor, Page, SecretHash, SessionOwner, Token};

const SCOPE: &str = "k8s_proxy";

/// A new token with its secret, which is shown this once.
#[derive(Serialize)]
struct CreatedToken<'a> {
    token: TokenView,
    secret: &'a str,
    bearer: &'a str,
}

impl AccessHandler<'_> {
    pub(super) async fn list_tokens(
        &self,
        list: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        let filter = self.row_filter(GET_TOKENS, list, checks)?;
        let mut collected = PageBuilder::new(list.query.decode_cursor(|_| true)?, list.query.row_limit());
        while collected.needs_query() {
            let page_request = Page {
                after: collected.after(),
                limit: ROWS,
            };
            let rows = self.front_state.store.tokens(&filter, &page_request).await?;
            // Before rows are left out: the next query goes on after the last that was read.
            let end = last_of_full(&rows).map(position);
            let of = rows.iter().map(|token| (Some(token.agent_id), &token.user));
            let visible = self.visible(GET_TOKENS, list, of);
            let rows = rows.into_iter().zip(visible).filter(|(_, is_visible)| *is_visible);
            collected.add_rows(rows.map(|(token, _)| (position(&token), token)), end);
        }
        let (tokens, next) = collected.finish()?;
        if tokens.is_empty() {
            self.check_empty_list(GET_TOKENS, list, checks)?;
        }
        let views: Vec<TokenView> = tokens.into_iter().map(|token| self.view(token)).collect();
        Ok(page(&views, next.as_ref()))
    }

    pub(super) async fn create_token(
        &self,
        new_token: &NewToken,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        self.require_embedded_authorizer()?;
        let name = new_token.name()?.to_owned();
        let expires_at = new_token.expiry(self.now, self.settings.longest_token)?;
        let agent_name = new_token.agent.to_string();
        let user = self.owner(new_token, &agent_name, checks)?;
        let agent = self.shared(&agent_name, &user)?;
        let token = Token {
            id: Uuid::now_v7(),
            name,
            user,
            agent_id: agent.id,
            agent: Some(agent.identity()),
            scopes: vec![SCOPE.to_owned()],
            created_at: self.now,
            expires_at,
            revoked_at: None,
            last_used_at: None,
        };
        let secret = secret::generate_token()?;
        self.front_state
            .store
            .create_token(&token, SecretHash::of(&secret), &self.actor())
            .await
            .map_err(|error| too_many(error, &token.user))?;
        // As GitLab writes it: the token alone does not say which agent it is for.
        let bearer = Zeroizing::new(format!("pat:{}:{}", agent.id, secret.expose_secret()));
        let created = CreatedToken {
            token: self.view(token),
            secret: secret.expose_secret(),
            bearer: &bearer,
        };
        Ok(answer(StatusCode::CREATED, &created))
    }

    pub(super) async fn revoke_token(&self, id: Uuid, checks: &mut Vec<CheckRecord>) -> Result<Response<Body>, Error> {
        let token = self.front_state.store.token(id).await?.ok_or(Error::UnknownToken)?;
        let object = self.object(Some(token.agent_id), &token.user.username);
        if !self.is_mine(&token.user) && !self.may(DELETE_TOKENS, object, checks) {
            return Err(Error::UnknownToken);
        }
        let session = SessionId::new(AccessType::PersonalAccessToken, id.to_string());
        let session_owner = SessionOwner {
            user: token.user,
            agent_id: Some(token.agent_id),
        };
        self.end(&session, &session_owner).await
    }

    /// The owner of a new token: the caller, or somebody they may create it for.
    fn owner(&self, new_token: &NewToken, agent: &str, checks: &mut Vec<CheckRecord>) -> Result<User, Error> {
        let name = match (&new_token.user, &self.user) {
            (None, _) => return self.require_user().cloned(),
            (Some(name), Some(me)) if me.username == *name => return Ok(me.clone()),
            (Some(name), Some(_) | None) => name,
        };
        // Rows of RBAC have the name, and the caller may have sent the number.
        let agent = self.agents.find(agent).map_or(agent, |agent| agent.name.as_str());
        self.require(CREATE_TOKENS, object(Some(agent), Some(name)), checks)?;
        // After RBAC, so that a caller without the right does not learn who is in the directory.
        let unknown = || Error::UnknownUser { user: name.clone() };
        let user = self.agents.people.person_by_username(name).ok_or_else(unknown)?;
        unblocked(user)
    }

    /// Returns the agent if a token of this person would be accepted there.
    fn shared(&self, agent: &str, user: &User) -> Result<Arc<Agent>, Error> {
        let found = self.agents.find(agent);
        let share = found.and_then(|found| self.agents.share(found.id, by_number(user)));
        match (found, share.map(|share| share.access_mode)) {
            (Some(found), Some(AccessMode::Agent | AccessMode::User)) => Ok(Arc::clone(found)),
            (Some(found), Some(AccessMode::Mapped(_))) => Err(Error::IdTokensOnly(found.name.clone())),
            (_, None) | (None, Some(_)) => Err(Error::UnknownAgent {
                agent: agent.to_owned(),
                user: user.username.clone(),
            }),
        }
    }

    fn view(&self, token: Token) -> TokenView {
        let agent = self.agent(token.agent_id);
        TokenView::of(token, agent, self.now)
    }
}

fn position(token: &Token) -> CreationCursor {
    (token.created_at, token.id)
}
