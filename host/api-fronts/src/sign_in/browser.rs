//! What people do in a browser: sign in, see who they are, and sign out.

use std::sync::Arc;

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{Method, Request, Response, StatusCode, request};
use secrecy::SecretString;
use serde::Deserialize;
use url::Url;
use zeroize::Zeroizing;

use crate::sign_in::{Error, SignIn, cookies};
use tollgate_front::api::content::buffer;
use tollgate_front::console::{self, Api, HOME, local_path};
use tollgate_front::pages::{IssuerLink, MessagePage, SignInPage, Unrenderable};
use tollgate_front::{Denial, RecordedAs, pages};
use tollgate_identity::authenticate::Safety;
use tollgate_identity::authenticate::sign_in::{ARGOCD, SignInAnswer, SignInError};
use tollgate_identity::logins::Logins;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::Outcome;
use tollgate_store::Actor;

/// Longest content of a form, in bytes.
pub(super) const FORM_BYTES: u64 = 16 * 1024;

#[derive(Deserialize)]
struct PasswordForm {
    username: String,
    password: SecretString,
    #[serde(rename = "return", default)]
    return_to: String,
}

impl SignIn<'_> {
    /// Answers a page for a person who is signed in; others are sent to sign in, and back.
    pub(super) async fn console_page(&mut self, head: request::Parts, body: Body) -> Result<Response<Body>, Denial> {
        let pages = self.state.pages.clone().ok_or_else(Denial::not_found)?;
        // Before the session, because scripts and pictures are for everybody.
        if let Some(asset) = pages.asset(head.uri.path()) {
            return Ok(pages::asset(asset));
        }
        let changes = head.method == Method::POST;
        if changes {
            self.snapshot.authenticator.check_same_origin(&head)?;
        }
        let safety = if changes { Safety::Unsafe } else { Safety::ByMethod };
        let Some(principal) = self.session(&head, safety).await? else {
            // The content of a form is lost by the detour, so its path alone makes no sense.
            let back = head.uri.path_and_query().filter(|_| !changes);
            return Ok(to_sign_in(back.map_or(HOME, |back| back.as_str()))?);
        };
        let _held = self.services.pages.acquire(principal.limit_key())?;
        let content = match changes {
            true => buffer(body, console::FORM_BYTES).await?,
            false => Bytes::new(),
        };
        let request = Request::from_parts(head.clone(), content);
        let api = Api {
            handler: self.api,
            client: self.client,
            head: &head,
        };
        Ok(pages::protected(pages.answer(request, api).await))
    }

    /// Shows the ways to sign in.
    pub(super) fn choose(
        &mut self,
        head: &request::Parts,
        problem: Option<(String, &'static str)>,
    ) -> Result<Response<Body>, Denial> {
        let (return_to, problem) = match problem {
            Some((return_to, problem)) => (return_to, Some(problem)),
            None => (parameter(head, "return").unwrap_or_default(), None),
        };
        let return_to = local_path(&return_to).to_owned();
        let methods = self.snapshot.authenticator.sign_in_methods();
        let query = return_query(&return_to);
        // Accounts of Argo CD have a form in place of a link.
        let issuers = methods.iter().filter(|method| method.issuer.is_some());
        let page = SignInPage {
            issuers: issuers
                .map(|method| IssuerLink {
                    name: method.name.clone(),
                    path: format!("/console/sign-in/{}?{query}", method.name),
                })
                .collect(),
            accounts: methods.iter().any(|method| method.name == ARGOCD),
            return_to,
            problem,
        };
        let status = match page.problem {
            Some(_) => super::PROBLEM,
            None => StatusCode::OK,
        };
        Ok(pages::page(status, self.theme, &page)?)
    }

    /// Sends the browser to an issuer.
    pub(super) async fn begin(&mut self, method: &str, head: &request::Parts) -> Result<Response<Body>, Denial> {
        let return_to = parameter(head, "return").unwrap_or_default();
        let return_to = local_path(&return_to).to_owned();
        let logins = &self.state.logins;
        let callback = callback(logins, method)?;
        let authenticator = &self.snapshot.authenticator;
        let begun = authenticator.begin_sign_in(method, &callback, return_to).await;
        let (url, attempt) = begun.map_err(Error::from)?;
        let mut response = pages::redirect(url.as_str())?;
        for field in cookies::attempt(&logins.console, &head.headers, &attempt)? {
            response.headers_mut().append(SET_COOKIE, field);
        }
        Ok(response)
    }

    /// Takes an issuer's answer.
    pub(super) async fn callback(&mut self, method: &str, head: &request::Parts) -> Result<Response<Body>, Denial> {
        let query = head.uri.query().unwrap_or_default();
        let answer = SignInAnswer {
            code: parameter(head, "code"),
            state: parameter(head, "state"),
            iss: parameter(head, "iss"),
            error: parameter(head, "error"),
            // The issuer's text goes into a record.
            error_description: parameter(head, "error_description").map(|text| text.chars().take(300).collect()),
        };
        // RFC 6749, section 3.1: no parameter may occur twice.
        if has_duplicates(query) {
            return Err(Error::Request("names a parameter twice").into());
        }
        let logins = Arc::clone(&self.state.logins);
        let state = answer.state.clone().unwrap_or_default();
        let attempt = cookies::take_attempt(&logins.console, &head.headers, &state);
        let (attempt, forget) = attempt.ok_or(SignInError::NoAttempt).map_err(Error::from)?;
        let callback = callback(&logins, method)?;
        let authenticator = Arc::clone(&self.snapshot.authenticator);
        let signed_in = authenticator
            .complete_sign_in(method, &attempt, answer, &callback)
            .await;
        let cookie = match signed_in {
            Ok(signed_in) => self.log_in(signed_in, head).await?,
            Err(error) => return Err(Error::from(error).into()),
        };
        // Checked again, because the attempt was in the browser's hands.
        let mut response = pages::redirect(local_path(&attempt.return_to))?;
        let fields = response.headers_mut();
        fields.append(SET_COOKIE, forget);
        fields.append(SET_COOKIE, cookie);
        Ok(response)
    }

    /// Signs somebody in by an account of Argo CD.
    pub(super) async fn password(&mut self, head: request::Parts, body: Body) -> Result<Response<Body>, Denial> {
        // Otherwise another site could sign the browser in as the attacker.
        self.snapshot.authenticator.check_same_origin(&head)?;
        let content = Zeroizing::new(self.receive(body, FORM_BYTES).await?.to_vec());
        let form: PasswordForm = form(&content)?;
        let authenticator = Arc::clone(&self.snapshot.authenticator);
        let signed_in = authenticator
            .sign_in_to_argocd(form.username.trim(), &form.password)
            .await;
        match signed_in {
            Ok(signed_in) => {
                let cookie = self.log_in(signed_in, &head).await?;
                let mut response = pages::redirect(local_path(&form.return_to))?;
                response.headers_mut().append(SET_COOKIE, cookie);
                Ok(response)
            }
            Err(SignInError::Password) => {
                let problem = "Argo CD does not accept this user name and password.";
                let mut response = self.choose(&head, Some((form.return_to, problem)))?;
                response
                    .extensions_mut()
                    .insert(RecordedAs(Outcome::Denied, "wrong_password"));
                Ok(response)
            }
            Err(error) => Err(Error::from(error).into()),
        }
    }

    /// Ends the browser's login, and goes on to sign out at the issuer.
    pub(super) async fn sign_out(&mut self, head: &request::Parts) -> Result<Response<Body>, Denial> {
        let principal = self.session(head, Safety::Unsafe).await?;
        let logins = &self.state.logins;
        let mut issuer = String::new();
        if let Some(login) = principal.as_ref().and_then(|principal| principal.login()) {
            let ended = logins.end(&login.login, &Actor::from(&login.login.user)).await;
            ended.map_err(Error::from)?;
            issuer.clone_from(&login.login.issuer);
        }
        // The browser follows this by itself: a form may not lead to another host.
        let methods = self.snapshot.authenticator.sign_in_methods();
        let method = methods.iter().find(|method| method.issuer.as_ref() == Some(&issuer));
        let target = match method {
            Some(method) => format!("/console/signed-out?from={}", method.name),
            None => "/console/signed-out".to_owned(),
        };
        let mut response = pages::redirect(&target)?;
        response
            .headers_mut()
            .append(SET_COOKIE, cookies::no_session(&logins.console)?);
        Ok(response)
    }

    pub(super) async fn signed_out(&mut self, head: &request::Parts) -> Result<Response<Body>, Denial> {
        let authenticator = &self.snapshot.authenticator;
        // A name to look up, and no address: the page sends the browser on by itself.
        let from = parameter(head, "from");
        let methods = authenticator.sign_in_methods();
        let method = methods.iter().find(|method| from.as_ref() == Some(&method.name));
        let issuer = method.and_then(|method| method.issuer.clone());
        let mut next = None;
        if let Some(issuer) = issuer
            && let Ok(back) = self.state.logins.console.url.join("/console/signed-out")
        {
            next = authenticator.end_session_url(&issuer, &back).await;
        }
        let page = MessagePage {
            title: "Signed out",
            text: match &next {
                Some(_) => {
                    "You are signed out here. You are now taken to your identity provider to sign out there, too."
                }
                None => "You are signed out, and what was open has ended.",
            }
            .to_owned(),
            next: next.map(|url| url.to_string()),
            link: Some(("/console/sign-in".to_owned(), "Sign in again")),
            ..MessagePage::default()
        };
        Ok(pages::page(StatusCode::OK, self.theme, &page)?)
    }

    /// Takes an issuer's word that somebody signed out there (Back-Channel Logout, section 2.5).
    pub(super) async fn back_channel_logout(
        &mut self,
        method: &str,
        head: request::Parts,
        body: Body,
    ) -> Result<Response<Body>, Denial> {
        #[derive(Deserialize)]
        struct LogoutForm {
            logout_token: String,
        }
        let content = self.receive(body, FORM_BYTES).await?;
        let media_type = tollgate_front::api::content::media_type(&head.headers);
        if media_type != Some("application/x-www-form-urlencoded") {
            return Err(Error::Request("is no form").into());
        }
        let form: LogoutForm = form(&content)?;
        let authenticator = &self.snapshot.authenticator;
        let ended = authenticator.verify_logout_token(method, &form.logout_token).await;
        let ended = ended.map_err(Error::from)?;
        let count = self.state.logins.end_with_issuer(&ended).await.map_err(Error::from)?;
        tracing::info!(count, method, "an issuer ended logins");
        let mut response = Response::new(Body::empty());
        // OpenID Connect Back-Channel Logout, section 2.8: the answer is not cached.
        pages::protect(response.headers_mut());
        Ok(response)
    }
}

/// The callback of an issuer.
fn callback(logins: &Logins, method: &str) -> Result<Url, Error> {
    let path = format!("/console/callback/{method}");
    let url = logins.console.url.join(&path);
    Ok(url.map_err(|_| Unrenderable)?)
}

/// Sends somebody to sign in, and back.
pub(super) fn to_sign_in(return_to: &str) -> Result<Response<Body>, Error> {
    Ok(pages::redirect(&format!(
        "/console/sign-in?{}",
        return_query(return_to)
    ))?)
}

fn return_query(return_to: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("return", return_to).finish()
}

/// A parameter of the query, decoded.
pub(super) fn parameter(head: &request::Parts, name: &str) -> Option<String> {
    let query = head.uri.query().unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn has_duplicates(query: &str) -> bool {
    let mut names: Vec<String> = url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, _)| name.into_owned())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    names.len() != count
}

/// Reads the fields of a form.
pub(super) fn form<T: serde::de::DeserializeOwned>(content: &[u8]) -> Result<T, Error> {
    let pairs: serde_json::Map<String, serde_json::Value> = url::form_urlencoded::parse(content)
        .map(|(name, value)| (name.into_owned(), value.into_owned().into()))
        .collect();
    serde_json::from_value(pairs.into()).map_err(|_| Error::Request("lacks a field of the form"))
}
