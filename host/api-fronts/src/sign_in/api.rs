//! The API of logins, for `tollgate login`, kubectl's helper, and callers who may lock people.
//!
//! Security: a code or a device code makes one login, and only together with its PKCE verifier. A token
//! for kubectl is for one agent, or for clusters that are entered by name, and lasts 15 minutes.

use std::sync::Arc;

use http::{Response, StatusCode, request};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::sign_in::command_line::{LETTERS, client_name};
use crate::sign_in::route::LoginRoute;
use crate::sign_in::{Error, SignIn};
use tollgate_config::DeviceLogin;
use tollgate_core::agent::Agent;
use tollgate_core::principal::Kind;
use tollgate_front::Denial;
use tollgate_front::api::answer;
use tollgate_front::api::content::{AgentName, CONTENT_BYTES, buffer, read};
use tollgate_front::caller::Caller;
use tollgate_front::pages::Unrenderable;
use tollgate_front::permission::{self, LOCK_PEOPLE};
use tollgate_identity::access::{Member, secret};
use tollgate_identity::authenticate::{ARGOCD_ISSUER, Principal};
use tollgate_identity::logins::{ActiveLogin, LoginScope, NewLogin};
use tollgate_objects::agent::AccessMode;
use tollgate_proxy::forward::Body;
use tollgate_store::{Actor, Login, LoginKind, LoginRequest, LoginRequestState, SecretHash};

/// How long a code of a device waits.
const DEVICE_LIFETIME: std::time::Duration = std::time::Duration::from_mins(10);
/// Seconds between two questions of a device.
const INTERVAL_SECONDS: u32 = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewDevice {
    client: String,
}

#[derive(Deserialize)]
#[serde(tag = "grantType", rename_all = "camelCase")]
enum Grant {
    #[serde(rename = "authorization_code", rename_all = "camelCase")]
    Code {
        code: SecretString,
        code_verifier: SecretString,
    },
    #[serde(rename = "urn:ietf:params:oauth:grant-type:device_code", rename_all = "camelCase")]
    Device { device_code: SecretString },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKubectlToken {
    /// The agent, by name or number; absent for clusters by name and of Applications.
    agent: Option<AgentName>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLock {
    #[serde(default)]
    reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewCredential<'a> {
    credential: &'a str,
    expires_at: Timestamp,
    user: &'a str,
    issuer: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KubectlToken<'a> {
    bearer: &'a str,
    expires_at: Timestamp,
}

/// Whether a request of the API of logins is for anybody.
pub(crate) fn is_public(route: &LoginRoute) -> bool {
    matches!(route, LoginRoute::Discover | LoginRoute::Device | LoginRoute::Token)
}

impl SignIn<'_> {
    /// Answers a request that needs no caller.
    pub(crate) async fn public(
        &mut self,
        route: &LoginRoute,
        head: request::Parts,
        body: Body,
    ) -> Result<Response<Body>, Denial> {
        let _held = match route {
            LoginRoute::Device | LoginRoute::Token => Some(self.state.strangers.enter(self.client)?),
            // Discovery asks neither an issuer nor the store.
            _ => None,
        };
        match route {
            LoginRoute::Discover => Ok(self.discover()),
            LoginRoute::Device => {
                let content = self.receive(body, CONTENT_BYTES).await?;
                let new: NewDevice = read(&head.headers, &content)?;
                Ok(self.begin_device(&new).await?)
            }
            LoginRoute::Token => {
                let content = Zeroizing::new(self.receive(body, CONTENT_BYTES).await?.to_vec());
                let grant: Grant = read(&head.headers, &content)?;
                self.exchange(&grant).await
            }
            LoginRoute::KubectlToken
            | LoginRoute::End
            | LoginRoute::Me
            | LoginRoute::Locks
            | LoginRoute::Lock(_)
            | LoginRoute::Unlock(_) => Err(Denial::not_found()),
        }
    }

    /// Answers a request of a caller.
    pub(crate) async fn private(
        &mut self,
        route: &LoginRoute,
        principal: &Arc<Principal>,
        head: request::Parts,
        body: Body,
    ) -> Result<Response<Body>, Denial> {
        let _held = self.services.persons.acquire(principal.limit_key())?;
        match route {
            LoginRoute::Me => Ok(self.me(principal)),
            LoginRoute::End => Ok(self.end(principal).await?),
            LoginRoute::KubectlToken => {
                let content = buffer(body, CONTENT_BYTES).await?;
                let new: NewKubectlToken = read(&head.headers, &content)?;
                Ok(self.kubectl_token(principal, &new).await?)
            }
            LoginRoute::Locks => {
                self.require_lock(principal, "*")?;
                let locks = self.state.logins.store.person_locks().await.map_err(Error::from)?;
                Ok(answer(StatusCode::OK, &json!({ "items": locks })))
            }
            LoginRoute::Lock(name) => {
                let content = buffer(body, CONTENT_BYTES).await?;
                let new: NewLock = match content.is_empty() {
                    true => NewLock::default(),
                    false => read(&head.headers, &content)?,
                };
                let by = self.require_lock(principal, name)?;
                let sessions = &self.state.logins.sessions;
                let is_new = sessions
                    .lock_person(name, &new.reason, &by)
                    .await
                    .map_err(Error::from)?;
                // From here on nothing of theirs is accepted, and none of their logins will be again.
                let authenticator = &self.snapshot.authenticator;
                let is_theirs = |login: &Login| authenticator.is_login_of(login, name);
                let ended = self.state.logins.end_of(is_theirs, &by).await;
                let ended = ended.map_err(Error::from)?;
                Ok(answer(
                    StatusCode::OK,
                    &json!({ "locked": name, "new": is_new, "endedLogins": ended }),
                ))
            }
            LoginRoute::Unlock(name) => {
                let by = self.require_lock(principal, name)?;
                let sessions = &self.state.logins.sessions;
                let was_locked = sessions.unlock_person(name, &by).await.map_err(Error::from)?;
                Ok(answer(StatusCode::OK, &json!({ "unlocked": name, "was": was_locked })))
            }
            LoginRoute::Discover | LoginRoute::Device | LoginRoute::Token => Err(Denial::not_found()),
        }
    }

    fn discover(&self) -> Response<Body> {
        let console = &self.state.logins.console;
        answer(
            StatusCode::OK,
            &json!({
                "console": console.url.as_str().trim_end_matches('/'),
                "device": console.device_login == DeviceLogin::Allowed,
            }),
        )
    }

    fn me(&self, principal: &Principal) -> Response<Body> {
        let login = principal.login().map(|login| {
            json!({
                "id": login.login.id,
                "kind": login.login.kind.as_ref(),
                "expiresAt": login.expires_at,
            })
        });
        answer(
            StatusCode::OK,
            &json!({
                "user": principal.username(),
                "userId": principal.user_id(),
                "issuer": principal.issuer(),
                "kind": principal.kind().as_ref(),
                "groups": principal.groups(),
                "contact": self.state.logins.console.contact,
                "login": login,
            }),
        )
    }

    /// Begins a login by a code that is typed elsewhere (RFC 8628, section 3.2).
    async fn begin_device(&self, new: &NewDevice) -> Result<Response<Body>, Error> {
        let logins = &self.state.logins;
        let console = &logins.console;
        if console.device_login == DeviceLogin::Refused {
            return Err(Error::DeviceOff);
        }
        let client = client_name(&new.client)?;
        let device_code = secret::generate_session_secret()?;
        let user_code = user_code()?;
        let now = logins.clock.now();
        let request = LoginRequest {
            id: Uuid::now_v7(),
            // RFC 8628 has no verifier: the device code itself never leaves the program.
            challenge: None,
            client,
            address: self.client.address().to_string(),
            login: None,
            state: LoginRequestState::Pending,
            created_at: now,
            expires_at: now.checked_add(DEVICE_LIFETIME).unwrap_or(now),
        };
        // As a hash, because anybody who knew the code could answer for the person.
        let typed = SecretHash::of(&SecretString::from(user_code.as_str()));
        let store = &logins.store;
        store
            .create_login_request(&request, SecretHash::of(&device_code), Some(typed))
            .await?;
        let page = console.url.join("/console/device").map_err(|_| Unrenderable)?;
        Ok(answer(
            StatusCode::OK,
            &json!({
                "deviceCode": device_code.expose_secret(),
                "userCode": user_code,
                "verificationUri": page.as_str(),
                "expiresIn": DEVICE_LIFETIME.as_secs(),
                "interval": INTERVAL_SECONDS,
            }),
        ))
    }

    /// Exchanges what a person approved for a login.
    async fn exchange(&mut self, grant: &Grant) -> Result<Response<Body>, Denial> {
        let logins = Arc::clone(&self.state.logins);
        let code = match grant {
            Grant::Code { code, .. } => code,
            Grant::Device { device_code } => device_code,
        };
        let request = logins
            .store
            .login_request(SecretHash::of(code))
            .await
            .map_err(Error::from)?;
        let now = logins.clock.now();
        let request = request.filter(|request| request.expires_at > now).ok_or(Error::Code)?;
        let fits = match (grant, &request.challenge) {
            (Grant::Code { code_verifier, .. }, Some(challenge)) => {
                secret::pkce_challenge(code_verifier.expose_secret()) == *challenge
            }
            (Grant::Device { .. }, None) => true,
            (Grant::Code { .. }, None) | (Grant::Device { .. }, Some(_)) => false,
        };
        // Before the state, so that nobody without the verifier learns whether the login was approved.
        if !fits {
            return Err(Error::Code.into());
        }
        match request.state {
            LoginRequestState::Pending => return Err(Error::Pending.into()),
            LoginRequestState::Denied => return Err(Error::Denied.into()),
            LoginRequestState::Approved => {}
        }
        let approver = request.login.ok_or(Error::Code)?;
        // INVARIANT: the caller that takes the request makes the login; any other gets nothing.
        if !logins.store.take_login_request(request.id).await.map_err(Error::from)? {
            return Err(Error::Code.into());
        }
        let approver = logins.store.login(approver).await.map_err(Error::from)?;
        // Between approval and exchange, the person may have signed out.
        let approver = approver.filter(|login| login.revoked_at.is_none() && login.expires_at > now);
        let approver = approver.filter(|login| !logins.is_ended(login)).ok_or(Error::Code)?;
        let principal = self.snapshot.authenticator.principal_of(&approver)?;
        self.record
            .note(|record| record.principal = Some(Arc::clone(&principal)));
        let new = NewLogin {
            kind: LoginKind::CommandLine,
            latest_end: latest_end(&approver),
            issuer: approver.issuer,
            subject: approver.subject,
            sid: approver.sid,
            user: approver.user,
            claims: approver.claims,
            client: request.client,
            address: self.client.address().to_string(),
        };
        let refused = Error::creating(&new.user.username);
        let (secret, login) = logins.create(new).await.map_err(refused)?;
        Ok(answer(
            StatusCode::OK,
            &NewCredential {
                credential: secret.expose_secret(),
                expires_at: login.expires_at,
                user: principal.username(),
                issuer: &login.issuer,
            },
        ))
    }

    async fn end(&self, principal: &Principal) -> Result<Response<Body>, Error> {
        let login = principal.login().ok_or(Error::NotALogin)?;
        self.state
            .logins
            .end(&login.login, &Actor::from(&login.login.user))
            .await?;
        Ok(answer(StatusCode::OK, &json!({ "ended": login.login.id })))
    }

    async fn kubectl_token(&self, principal: &Principal, new: &NewKubectlToken) -> Result<Response<Body>, Error> {
        let login = command_line_login(principal).ok_or(Error::NotALogin)?;
        let is_mapped = self.is_mapped(principal);
        let agent = match &new.agent {
            None => None,
            Some(name) => {
                let agent = self.shared_agent(principal, login, &name.to_string(), is_mapped)?;
                Some((agent.id, agent.identity()))
            }
        };
        let id = agent.as_ref().map(|(id, _)| *id);
        let logins = &self.state.logins;
        let identity = principal.names().clone();
        let made = logins
            .create_kubectl_token(&login.login, agent, identity, is_mapped)
            .await;
        let (secret, expires_at) = made.map_err(Error::creating(principal.username()))?;
        let bearer = Zeroizing::new(match id {
            Some(id) => format!("pat:{id}:{}", secret.expose_secret()),
            None => secret.expose_secret().to_owned(),
        });
        let bearer = bearer.as_str();
        Ok(answer(StatusCode::CREATED, &KubectlToken { bearer, expires_at }))
    }

    /// Whether the caller's names are those of an issuer's `claimMappings`.
    fn is_mapped(&self, principal: &Principal) -> bool {
        let issuers = &self.snapshot.policies.config.authentication.issuers;
        principal.kind() == Kind::Oidc && issuers.iter().any(|issuer| issuer.url == principal.issuer())
    }

    /// An agent that is shared with the caller.
    fn shared_agent(
        &self,
        principal: &Principal,
        login: &ActiveLogin,
        name: &str,
        is_mapped: bool,
    ) -> Result<Arc<Agent>, Error> {
        // One answer for an agent that does not exist and for one that is not shared.
        let unknown = || Error::UnknownAgent {
            agent: name.to_owned(),
            user: principal.username().to_owned(),
        };
        let policies = &self.snapshot.policies;
        let front = policies.kubernetes.as_ref().ok_or_else(unknown)?;
        let settings = policies.config.kubernetes.as_ref().ok_or_else(unknown)?;
        let agents = &front.agents;
        let agent = agents.find(name).ok_or_else(unknown)?;
        let person = agents.user_of(&settings.users, &login.login.issuer, &login.login.claims);
        let member = Member {
            user_id: person.map(|person| person.user.id),
            groups: Some((principal.issuer(), principal.groups())),
        };
        match agents.access_mode(agent.id) {
            Some(AccessMode::Mapped(_)) if !is_mapped => Err(Error::NotMapped(agent.name.clone())),
            // Who is let in by a claim alone has no role to look up.
            Some(AccessMode::Mapped(_)) => Ok(Arc::clone(agent)),
            Some(AccessMode::Agent | AccessMode::User) if agents.share(agent.id, member).is_some() => {
                Ok(Arc::clone(agent))
            }
            Some(AccessMode::Agent | AccessMode::User) | None => Err(unknown()),
        }
    }

    /// The caller as the actor who locks a person.
    fn require_lock(&mut self, principal: &Arc<Principal>, name: &str) -> Result<Actor, Error> {
        let policies = &self.snapshot.policies;
        let caller: Arc<Caller> = policies.caller(principal);
        let check = permission::check(&policies.rbac, &caller, LOCK_PEOPLE, name.to_owned());
        let allowed = check.allowed;
        self.record.note(|record| record.checks = vec![check].into());
        match allowed {
            true => Ok(Actor {
                user_id: None,
                name: principal.username().to_owned(),
            }),
            false => Err(Error::NotPermitted(name.to_owned())),
        }
    }
}

fn command_line_login(principal: &Principal) -> Option<&ActiveLogin> {
    let login = principal.login()?;
    // Neither the console's cookie nor a token of kubectl can make further tokens.
    let fits = login.login.kind == LoginKind::CommandLine && login.scope == LoginScope::Everything;
    fits.then_some(login)
}

/// When what vouches for a person ends: an issuer's word holds for the whole login, a session of Argo CD
/// until its `exp`.
pub(super) fn latest_end(login: &Login) -> Option<Timestamp> {
    let end = login.claims.get("exp").filter(|_| login.issuer == ARGOCD_ISSUER)?;
    Timestamp::from_second(end.as_i64()?).ok()
}

/// A code that people type: 8 of 20 letters, about 34 bits.
fn user_code() -> Result<String, Error> {
    let mut letters = String::with_capacity(9);
    while letters.len() < 9 {
        let random = secret::random_bytes()?;
        for byte in random.iter() {
            // Bytes above the last multiple of 20 would favor the first letters.
            let limit = 240;
            let letter = LETTERS.get(usize::from(*byte) % LETTERS.len());
            if *byte < limit && letters.len() < 9 {
                letters.extend(letter.map(|letter| char::from(*letter)));
                if letters.len() == 4 {
                    letters.push('-');
                }
            }
        }
    }
    Ok(letters)
}

#[cfg(test)]
mod tests {
    use super::user_code;

    #[test]
    fn user_codes_are_random_letters() {
        let codes: Vec<String> = (0..50).map(|_| user_code().unwrap()).collect();
        for code in &codes {
            assert_eq!(code.len(), 9, "{code}");
            assert_eq!(code.find('-'), Some(4), "{code}");
        }
        let mut unique = codes.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), codes.len());
    }
}
