//! People approve logins of the command line in their browser: one that waits on the same machine for
//! the browser's return, one whose code is pasted, or one elsewhere whose code they type (RFC 8628).
//!
//! Security: the page says who asks, from where, and which identity they would act as. A code goes to
//! the loopback address of the very machine, or to nobody.

use std::sync::Arc;

use http::{Response, StatusCode, request};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::Url;
use uuid::Uuid;

use crate::sign_in::browser::{FORM_BYTES, form, parameter, to_sign_in};
use crate::sign_in::{Error, SignIn};
use tollgate_config::DeviceLogin;
use tollgate_front::api::content::buffer;
use tollgate_front::pages::{ApprovePage, DevicePage, MessagePage, Unrenderable};
use tollgate_front::{Denial, pages};
use tollgate_identity::access::secret;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_proxy::forward::Body;
use tollgate_store::{LoginRequest, LoginRequestState, SecretHash};

/// How long a code that was approved waits to be exchanged.
const CODE_LIFETIME: std::time::Duration = std::time::Duration::from_mins(2);
/// Longest name that the command line gives itself, in characters.
pub(super) const CLIENT_CHARACTERS: usize = 100;
/// Characters of a PKCE challenge (S256): 32 bytes in base64url.
const CHALLENGE_CHARACTERS: usize = 43;

/// What the command line asks for by the address that it opens.
#[derive(Clone, Debug, Deserialize)]
struct LoginQuery {
    client: String,
    code_challenge: String,
    state: String,
    /// Where it waits on 127.0.0.1; 0 if the code is pasted.
    #[serde(deserialize_with = "number")]
    port: u16,
}

#[derive(Deserialize)]
struct LoginForm {
    #[serde(flatten)]
    query: LoginQuery,
    answer: String,
}

#[derive(Deserialize)]
struct DeviceForm {
    user_code: String,
    answer: String,
}

fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    // A form has texts alone.
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

impl LoginQuery {
    fn check(self) -> Result<Self, Error> {
        let is_plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let is_challenge = self.code_challenge.len() == CHALLENGE_CHARACTERS && is_plain(&self.code_challenge);
        let is_state = (16..=128).contains(&self.state.len()) && is_plain(&self.state);
        // Without privileges, no program can listen on a port below 1024.
        if !is_challenge || !is_state || (self.port != 0 && self.port < 1024) {
            return Err(Error::Request("is not one of `tollgate login`"));
        }
        Ok(Self {
            client: client_name(&self.client)?,
            ..self
        })
    }
}

/// The name that the command line gives itself, such as `alice@laptop`.
pub(super) fn client_name(text: &str) -> Result<String, Error> {
    let text = text.trim();
    let count = text.chars().count();
    if count == 0 || count > CLIENT_CHARACTERS || text.chars().any(is_invisible) {
        return Err(Error::Request(
            "has a `client` that is empty, too long, or has invisible characters",
        ));
    }
    Ok(text.to_owned())
}

/// Whether a character can make a name look like another: control characters and those that change the
/// direction of writing.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl SignIn<'_> {
    pub(super) async fn ask_for_login(&mut self, head: &request::Parts) -> Result<Response<Body>, Denial> {
        let query: LoginQuery = form(head.uri.query().unwrap_or_default().as_bytes())?;
        let query = query.check()?;
        let Some(principal) = self.session(head, Safety::ByMethod).await? else {
            return Ok(to_sign_in(
                head.uri.path_and_query().map_or("", |target| target.as_str()),
            )?);
        };
        let address = self.client.address().to_string();
        let page = ApprovePage {
            client: &query.client,
            user: principal.username(),
            address: &address,
            code: None,
            until: self.login_end(&principal),
            advice: match query.port {
                0 => "Approve it only if you have just run this command yourself. You then get a code to paste there.",
                _ => "Approve it only if you have just run this command on this machine yourself.",
            },
            action: "/console/login",
            fields: vec![
                ("client", query.client.clone()),
                ("code_challenge", query.code_challenge.clone()),
                ("state", query.state.clone()),
                ("port", query.port.to_string()),
            ],
        };
        Ok(pages::page(StatusCode::OK, self.theme, &page)?)
    }

    pub(super) async fn answer_login(&mut self, head: request::Parts, body: Body) -> Result<Response<Body>, Denial> {
        // First, so that nobody else keeps the request open with its content.
        let Some(principal) = self.session(&head, Safety::Unsafe).await? else {
            // Not back to the form, whose content is lost.
            return Ok(to_sign_in("/console/")?);
        };
        let content = buffer(body, FORM_BYTES).await?;
        let LoginForm { query, answer } = form(&content)?;
        let query = query.check()?;
        let approved = answer == "approve";
        let mut code = None;
        if approved {
            let secret = secret::generate_session_secret().map_err(Error::from)?;
            self.add_code(&principal, &query, &secret).await?;
            code = Some(secret);
        }
        let page = match (query.port, &code) {
            (0, Some(code)) => MessagePage {
                title: "Approved",
                text: "Paste this code where tollgate login waits for it. It is good for two minutes, once.".to_owned(),
                code: Some(code.expose_secret().to_owned()),
                ..MessagePage::default()
            },
            (0, None) => MessagePage {
                title: "Denied",
                text: "The command line gets nothing. You can close this page.".to_owned(),
                ..MessagePage::default()
            },
            (port, code) => MessagePage {
                title: if approved { "Approved" } else { "Denied" },
                text: "You are taken back to the command line. You can close this page then.".to_owned(),
                next: Some(loopback(port, &query.state, code.as_ref())?),
                ..MessagePage::default()
            },
        };
        Ok(pages::page(StatusCode::OK, self.theme, &page)?)
    }

    async fn add_code(&self, principal: &Principal, query: &LoginQuery, code: &SecretString) -> Result<(), Denial> {
        let logins = &self.state.logins;
        let now = logins.clock.now();
        let login = principal.login().ok_or(Error::NotALogin)?;
        let request = LoginRequest {
            id: Uuid::now_v7(),
            challenge: Some(query.code_challenge.clone()),
            client: query.client.clone(),
            address: self.client.address().to_string(),
            login: Some(login.login.id),
            // The person approved it with this request. What is left is the exchange of the code.
            state: LoginRequestState::Approved,
            created_at: now,
            expires_at: now.checked_add(CODE_LIFETIME).unwrap_or(now),
        };
        let added = logins.store.create_login_request(&request, SecretHash::of(code), None);
        Ok(added.await.map_err(Error::from)?)
    }

    pub(super) async fn ask_for_device(&mut self, head: &request::Parts) -> Result<Response<Body>, Denial> {
        self.check_device_login()?;
        let Some(principal) = self.session(head, Safety::ByMethod).await? else {
            return Ok(to_sign_in(
                head.uri.path_and_query().map_or("", |target| target.as_str()),
            )?);
        };
        let Some(typed) = parameter(head, "user_code") else {
            let page = DevicePage {
                code: "",
                problem: None,
            };
            return Ok(pages::page(StatusCode::OK, self.theme, &page)?);
        };
        let Some((request, code)) = self.device_request(&principal, &typed).await? else {
            let page = DevicePage {
                code: &typed,
                problem: Some("No login waits for this code. It may have expired, or be mistyped."),
            };
            return Ok(pages::page(super::PROBLEM, self.theme, &page)?);
        };
        let page = ApprovePage {
            client: &request.client,
            user: principal.username(),
            address: &request.address,
            until: self.login_end(&principal),
            advice: "Approve it only if the command line shows the same code, and you have started it yourself. Anyone \
                     who has it will act as you.",
            action: "/console/device",
            fields: vec![("user_code", code.clone())],
            code: Some(code),
        };
        Ok(pages::page(StatusCode::OK, self.theme, &page)?)
    }

    pub(super) async fn answer_device(&mut self, head: request::Parts, body: Body) -> Result<Response<Body>, Denial> {
        self.check_device_login()?;
        // First, so that nobody else keeps the request open with its content.
        let Some(principal) = self.session(&head, Safety::Unsafe).await? else {
            return Ok(to_sign_in("/console/device")?);
        };
        let content = buffer(body, FORM_BYTES).await?;
        let DeviceForm { user_code, answer } = form(&content)?;
        let login = principal.login().ok_or(Error::NotALogin)?;
        let found = self.device_request(&principal, &user_code).await?;
        let (request, _) = found.ok_or(Error::Code)?;
        let logins = &self.state.logins;
        let approver = (answer == "approve").then_some(login.login.id);
        let answered = logins
            .store
            .answer_login_request(request.id, approver, logins.clock.now());
        if !answered.await.map_err(Error::from)? {
            return Err(Error::Code.into());
        }
        let page = MessagePage {
            title: if approver.is_some() { "Approved" } else { "Denied" },
            text: match approver {
                Some(_) => "The command line is signed in within seconds. You can close this page.",
                None => "The command line gets nothing. You can close this page.",
            }
            .to_owned(),
            ..MessagePage::default()
        };
        Ok(pages::page(StatusCode::OK, self.theme, &page)?)
    }

    /// The request that waits for a code that somebody typed, and the code as it is shown. A code that is
    /// wrong counts.
    async fn device_request(
        &self,
        principal: &Principal,
        typed: &str,
    ) -> Result<Option<(LoginRequest, String)>, Denial> {
        let id = principal.login().ok_or(Error::NotALogin)?.login.id;
        self.state.tries.take(id)?;
        let logins = &self.state.logins;
        let code = normalized(typed);
        let found = match &code {
            Some(code) => {
                let hash = SecretHash::of(&SecretString::from(code.as_str()));
                logins.store.login_request_of_user(hash).await.map_err(Error::from)?
            }
            None => None,
        };
        let now = logins.clock.now();
        let is_waiting = |one: &LoginRequest| one.state == LoginRequestState::Pending && one.expires_at > now;
        let found = found.filter(is_waiting).zip(code);
        if found.is_some() {
            self.state.tries.give_back(id);
        }
        Ok(found)
    }

    fn check_device_login(&self) -> Result<(), Error> {
        match self.state.logins.console.device_login {
            DeviceLogin::Allowed => Ok(()),
            DeviceLogin::Refused => Err(Error::DeviceOff),
        }
    }

    /// When a login of the command line would end.
    fn login_end(&self, principal: &Arc<Principal>) -> jiff::Timestamp {
        let logins = &self.state.logins;
        let end = logins.clock.now().checked_add(logins.console.login_lifetime);
        let end = end.unwrap_or(jiff::Timestamp::MAX);
        let end = principal
            .login()
            .and_then(|login| super::api::latest_end(&login.login))
            .map_or(end, |latest| latest.min(end));
        jiff::Timestamp::from_second(end.as_second()).unwrap_or(end)
    }
}

/// Letters of a code that a person types: no vowels, so that no words appear, and none that look alike.
pub(super) const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// A code as it is shown, `BCDF-GHJK`; `None` if the text is none.
fn normalized(typed: &str) -> Option<String> {
    let letters: Vec<char> = typed.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let letters: String = letters.iter().map(char::to_ascii_uppercase).collect();
    let is_code = letters.len() == 8 && letters.bytes().all(|byte| LETTERS.contains(&byte));
    let (first, second) = is_code.then(|| letters.split_at_checked(4))??;
    Some(format!("{first}-{second}"))
}

/// The address at which the command line waits on this machine.
fn loopback(port: u16, state: &str, code: Option<&SecretString>) -> Result<String, Error> {
    // An address and not `localhost`, which may resolve to another host (RFC 8252, section 8.3).
    let mut url = Url::parse(&format!("http://127.0.0.1:{port}/callback")).map_err(|_| Unrenderable)?;
    url.query_pairs_mut().append_pair("state", state);
    match code {
        Some(code) => url.query_pairs_mut().append_pair("code", code.expose_secret()),
        None => url.query_pairs_mut().append_pair("error", "access_denied"),
    };
    Ok(url.to_string())
}

#[cfg(test)]
mod tests {
    use super::{client_name, loopback, normalized};

    #[test]
    fn codes_are_read_as_people_type_them() {
        for typed in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk "] {
            assert_eq!(normalized(typed).as_deref(), Some("BCDF-GHJK"), "{typed}");
        }
        for typed in ["", "BCDF-GHJ", "BCDF-GHJA", "BCDF-GHJKL", "ÄBCD-FGHJ"] {
            assert_eq!(normalized(typed), None, "{typed}");
        }
    }

    #[test]
    fn the_answer_goes_to_the_loopback_address() {
        assert_eq!(
            loopback(4000, "s", Some(&"c".into())).unwrap(),
            "http://127.0.0.1:4000/callback?state=s&code=c"
        );
        assert_eq!(
            loopback(4000, "s", None).unwrap(),
            "http://127.0.0.1:4000/callback?state=s&error=access_denied"
        );
    }

    #[test]
    fn a_name_that_could_look_like_another_is_refused() {
        assert_eq!(client_name(" ann@laptop ").unwrap(), "ann@laptop");
        for name in ["", "a\nb", "a\u{202e}b", "a\u{200b}"] {
            client_name(name).unwrap_err();
        }
        client_name(&"x".repeat(101)).unwrap_err();
    }
}
