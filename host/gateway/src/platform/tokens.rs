//! Makes, lists and revokes personal access tokens. A token's secret is shown once, when it is
//! made.
//!
//! Security: a token is only made for an agent that is shared with its owner.

use std::sync::Arc;

use http::{Response, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::platform::api::content::NewToken;
use crate::platform::api::query::encode_cursor;
use crate::platform::api::{Error, TokenView};
use crate::platform::pages::{PageBuilder, ROWS, last_of_full};
use crate::platform::permit::{PlatformPermission, object};
use crate::platform::sessions::Revoked;
use crate::platform::{Desk, ListPage, ListRequest, Person, answer, too_many, unblocked};
use tollgate_core::agent::Agent;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::User;
use tollgate_identity::access::secret;
use tollgate_identity::store::{CreationCursor, Page, SecretHash, SessionOwner, Token};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;
use tollgate_state::agent::AccessMode;

/// The one scope of tokens made here.
const SCOPE: &str = "k8s_proxy";

/// A new token with its secret, which is shown this once.
#[derive(Serialize)]
struct CreatedToken<'a> {
    token: TokenView,
    secret: &'a str,
    bearer: &'a str,
}

impl Desk<'_> {
    pub(super) async fn list_tokens(
        &self,
        wish: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        let owned = self.row_filter(PlatformPermission::GetTokens, wish, checks)?;
        let mut page = PageBuilder::new(wish.query.position(|_| true)?, wish.query.row_limit());
        while page.needs_query() {
            let wanted = Page {
                after: page.after(),
                limit: ROWS,
            };
            let rows = self.services.store.tokens(&owned, &wanted).await?;
            let end = last_of_full(&rows).map(position);
            let of = rows.iter().map(|token| (Some(token.agent_id), &token.user));
            let visible = self.visible(PlatformPermission::GetTokens, wish, of);
            let rows = rows.into_iter().zip(visible).filter(|(_, is_visible)| *is_visible);
            page.add_rows(rows.map(|(token, _)| (position(&token), token)), end);
        }
        let (tokens, next) = page.finish()?;
        if tokens.is_empty() {
            self.check_empty_list(PlatformPermission::GetTokens, wish, checks)?;
        }
        let views: Vec<TokenView> = tokens.into_iter().map(|token| self.view(token)).collect();
        let listed = ListPage {
            items: &views,
            next: next.as_ref().map(encode_cursor),
        };
        Ok(answer(StatusCode::OK, &listed))
    }

    pub(super) async fn create_token(
        &self,
        asked: &NewToken,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        self.require_embedded_authorizer()?;
        let name = asked.name()?.to_owned();
        let expires_at = asked.expiry(self.now, self.settings.longest_token)?;
        let wanted = asked.agent.to_string();
        let user = self.owner(asked, &wanted, checks)?;
        let agent = self.shared(&wanted, &user)?;
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
        let secret = secret::token()?;
        self.services
            .store
            .create_token(&token, SecretHash::of(&secret), &self.actor())
            .await
            .map_err(|error| too_many(error, &token.user))?;
        let bearer = Zeroizing::new(format!("pat:{}:{}", agent.id, secret.expose_secret()));
        let made = CreatedToken {
            token: self.view(token),
            secret: secret.expose_secret(),
            bearer: &bearer,
        };
        Ok(answer(StatusCode::CREATED, &made))
    }

    pub(super) async fn revoke_token(&self, id: Uuid, checks: &mut Vec<CheckRecord>) -> Result<Response<Body>, Error> {
        let token = self.services.store.token(id).await?.ok_or(Error::UnknownToken)?;
        let object = self.object(Some(token.agent_id), &token.user.username);
        if !self.is_mine(&token.user) && !self.may(PlatformPermission::DeleteTokens, object, checks) {
            return Err(Error::UnknownToken);
        }
        let session = SessionId::new(AccessType::PersonalAccessToken, id.to_string());
        let about = SessionOwner {
            user: token.user,
            agent_id: Some(token.agent_id),
        };
        let closed = self.services.sessions.revoke(&session, &about, &self.actor()).await?;
        Ok(answer(StatusCode::OK, &Revoked::of(&session, closed)))
    }

    /// The person a token is made for: the caller, or somebody they may make it for.
    fn owner(&self, asked: &NewToken, agent: &str, checks: &mut Vec<CheckRecord>) -> Result<User, Error> {
        let name = match (&asked.user, &self.person) {
            (None, _) => return self.require_user().cloned(),
            (Some(name), Person::Linked(me)) if me.username == *name => return Ok(me.clone()),
            (Some(name), Person::Linked(_) | Person::Unlinked) => name,
        };
        let agent = self.find_agent(agent).map_or(agent, |agent| agent.name.as_str());
        self.require(
            PlatformPermission::CreateTokens,
            object(Some(agent), Some(name)),
            checks,
        )?;
        let unknown = || Error::UnknownUser { user: name.clone() };
        let user = self.agents.user_named(name).ok_or_else(unknown)?;
        unblocked(user)
    }

    /// Returns the agent if a token of this person would be accepted there.
    fn shared(&self, agent: &str, user: &User) -> Result<Arc<Agent>, Error> {
        let found = self.find_agent(agent);
        let share = found.and_then(|found| self.agents.share(found.id, user.id));
        match (found, share.map(|share| share.access_mode)) {
            (Some(found), Some(AccessMode::Agent | AccessMode::User)) => Ok(Arc::clone(found)),
            (Some(found), Some(AccessMode::Mapped(_))) => Err(Error::IdTokensOnly {
                agent: found.name.clone(),
            }),
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
