//! The cookies of sign-in: the session, and one for each attempt.
//!
//! Security: scripts cannot read them, and over TLS no other host can set them (`__Host-`). An attempt
//! is the browser's own: an answer that belongs to none of its attempts signs nobody in.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::sign_in::Error;
use tollgate_config::Console;
use tollgate_front::pages;
use tollgate_front::pages::Unrenderable;
use tollgate_identity::authenticate::login::cookie_name;
use tollgate_identity::authenticate::sign_in::Attempt;

/// How long an attempt may take, in seconds.
const ATTEMPT_SECONDS: u64 = 600;
/// Attempts that one browser may have open. Older ones are forgotten.
const MAX_ATTEMPTS: usize = 15;
/// Characters of the state that name an attempt's cookie.
const NAME_CHARACTERS: usize = 16;

/// The field that gives a browser its session.
pub(super) fn session(console: &Console, secret: &SecretString) -> Result<HeaderValue, Error> {
    let value = Zeroizing::new(secret.expose_secret().to_owned());
    set(console, cookie_name(console), &value, console.lifetime.as_secs())
}

/// The field that takes it away.
pub(super) fn no_session(console: &Console) -> Result<HeaderValue, Error> {
    set(console, cookie_name(console), "", 0)
}

/// The fields that remember an attempt, and forget others if there are many.
pub(super) fn attempt(console: &Console, fields: &HeaderMap, attempt: &Attempt) -> Result<Vec<HeaderValue>, Error> {
    let json = serde_json::to_vec(attempt).map_err(|_| Unrenderable)?;
    let value = Zeroizing::new(URL_SAFE_NO_PAD.encode(Zeroizing::new(json)));
    let mut set_cookies = Vec::new();
    let others: Vec<&str> = names(fields, &prefix(console)).collect();
    // All of them: the cookie of a request does not say when it was set.
    if others.len() >= MAX_ATTEMPTS {
        for name in others {
            set_cookies.push(set(console, name, "", 0)?);
        }
    }
    set_cookies.push(set(console, &name(console, &attempt.state), &value, ATTEMPT_SECONDS)?);
    Ok(set_cookies)
}

/// The attempt of this browser with this state, and the field that forgets it.
pub(super) fn take_attempt(console: &Console, fields: &HeaderMap, state: &str) -> Option<(Attempt, HeaderValue)> {
    let name = name(console, state);
    let mut values = pages::cookies(fields)
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    // A name that occurs twice may have been planted.
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let json = Zeroizing::new(URL_SAFE_NO_PAD.decode(value).ok()?);
    let attempt = serde_json::from_slice(&json).ok()?;
    Some((attempt, set(console, &name, "", 0).ok()?))
}

fn prefix(console: &Console) -> String {
    format!("{}-attempt-", cookie_name(console))
}

fn name(console: &Console, state: &str) -> String {
    // The state may come from a query, and must not end the name of the cookie.
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let start: String = state.chars().filter(plain).take(NAME_CHARACTERS).collect();
    format!("{}{start}", prefix(console))
}

fn names<'a>(fields: &'a HeaderMap, prefix: &str) -> impl Iterator<Item = &'a str> {
    let prefix = prefix.to_owned();
    pages::cookies(fields)
        .map(|(name, _)| name)
        .filter(move |name| name.starts_with(&prefix))
}

// SameSite is Lax: a stricter cookie would not come with the issuer's redirect.
fn set(console: &Console, name: &str, value: &str, seconds: u64) -> Result<HeaderValue, Error> {
    let secure = match console.url.scheme() {
        "https" => "; Secure",
        _ => "",
    };
    // `__Host-` requires this path, and no `Domain` (RFC 6265bis).
    let text = Zeroizing::new(format!(
        "{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
    ));
    let mut field = HeaderValue::from_str(&text).map_err(|_| Unrenderable)?;
    field.set_sensitive(true);
    Ok(field)
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;
    use http::{HeaderMap, HeaderValue};
    use secrecy::SecretString;
    use serde_json::json;
    use url::Url;

    use super::{Attempt, no_session, session, take_attempt};
    use tollgate_config::{Console, ConsoleHost, DeviceLogin};

    fn console() -> Console {
        Console {
            url: Url::parse("https://tollgate.example.com").unwrap(),
            host: ConsoleHost::SharedWithArgocd,
            idle: std::time::Duration::from_secs(1),
            lifetime: std::time::Duration::from_secs(1),
            login_lifetime: std::time::Duration::from_secs(1),
            device_login: DeviceLogin::Refused,
            contact: None,
        }
    }

    #[test]
    fn a_session_is_for_one_host_and_no_script() {
        let secret = SecretString::from("s3cret");
        let field = session(&console(), &secret).unwrap();
        assert_eq!(
            field,
            "__Host-tollgate=s3cret; Path=/; HttpOnly; SameSite=Lax; Max-Age=1; Secure"
        );
        assert!(field.is_sensitive() && !format!("{field:?}").contains("s3cret"));
        let ended = no_session(&console()).unwrap();
        assert_eq!(
            ended,
            "__Host-tollgate=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0; Secure"
        );
        // Without TLS, which is loopback alone, browsers take no such name.
        let mut local = console();
        local.url = Url::parse("http://127.0.0.1:8080").unwrap();
        assert_eq!(
            session(&local, &secret).unwrap(),
            "tollgate=s3cret; Path=/; HttpOnly; SameSite=Lax; Max-Age=1"
        );
    }

    #[test]
    fn an_attempt_that_may_have_been_planted_does_not_count() {
        let attempt: Attempt = serde_json::from_value(json!({
            "state": "0123456789abcdefghij", "nonce": "n", "verifier": "v", "method": "corp", "return_to": "/console/",
        }))
        .unwrap();
        let set = super::attempt(&console(), &HeaderMap::new(), &attempt).unwrap();
        let [set] = set.as_slice() else { panic!("{set:?}") };
        let pair = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        let fields = |line: &str| HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(line).unwrap())]);
        let taken = |line: &str, state: &str| take_attempt(&console(), &fields(line), state).is_some();
        assert!(taken(&pair, &attempt.state));
        assert!(!taken(&pair, "another-state-than-that"));
        assert!(!taken(&format!("{pair}; {pair}"), &attempt.state), "it is there twice");
        assert!(!taken("__Host-tollgate-attempt-0123456789abcdef=!", &attempt.state));
        assert!(!taken("", &attempt.state));
    }
}
