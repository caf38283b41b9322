//! Assumes roles at the regional endpoints of STS. Answers in XML are not parsed.
//!
//! Sources: `AssumeRole` and `AssumeRoleWithWebIdentity` of the STS API reference.

use serde_json::Value as JsonValue;
use tollgate_provider::encoding::form;
use tollgate_provider::sigv4::{self, Keys, Scope, Signed};
use tollgate_provider::{Answer, Error, Expiry, Request, Secret, Value, ambient_token, aws, clock};

use crate::config::{Config, Role};
use crate::partition::sts_host;
use crate::session::Session;

/// Version of the API.
const VERSION: &str = "2011-06-15";

/// Default name of a session.
const SESSION_NAME: &str = "tollgate";

/// Assumes a role that trusts the pod's token. If STS says that the token has expired and the pod
/// has a new one, tries once more with that one.
pub fn assume_role_with_web_identity(config: &Config, role: &Role) -> Result<Session, Error> {
    let audience = config.web_identity_audience();
    let token = ambient_token(audience)?.token;
    let answer = web_identity_call(&config.region, role, &token)?;
    if answer.is_success() || !aws::is_expired_token(&aws::error_details(&answer.text()).code) {
        return session(answer, "AssumeRoleWithWebIdentity");
    }
    let fresh = ambient_token(audience)?.token;
    if fresh.equals(&token) {
        return session(answer, "AssumeRoleWithWebIdentity");
    }
    session(
        web_identity_call(&config.region, role, &fresh)?,
        "AssumeRoleWithWebIdentity",
    )
}

fn web_identity_call(region: &str, role: &Role, token: &Secret) -> Result<Answer, Error> {
    let mut pairs: Vec<(&str, Value<'_>)> = Vec::new();
    for (name, value) in plain_pairs("AssumeRoleWithWebIdentity", role) {
        pairs.push((name, value.into()));
    }
    pairs.push(("WebIdentityToken", token.into()));
    let request = Request::post(&endpoint(region))
        .header("accept", "application/json")
        .form(pairs);
    captures(request, "AssumeRoleWithWebIdentity").send()
}

/// Assumes a role that trusts the identity of `keys`, with a signed call.
pub fn assume_role(region: &str, keys: &Keys, role: &Role) -> Result<Session, Error> {
    const CONTENT_TYPE: &str = "application/x-www-form-urlencoded";
    let body = body("AssumeRole", role);
    let digest = sigv4::sha256(&body)?;
    let scope = Scope::new(clock::now(), region, "sts")?;
    let headers = [("content-type", CONTENT_TYPE.to_owned()), ("host", sts_host(region))];
    let (canonical, names) = sigv4::signed(
        &Signed {
            method: "POST",
            query: "",
            headers: &headers,
            payload_digest: &digest,
            session: keys.session_token.is_some(),
        },
        &scope,
    );
    let signature = sigv4::signature(keys, &scope, &canonical)?;
    let mut request = Request::post(&endpoint(region))
        .header("accept", "application/json")
        .header("content-type", CONTENT_TYPE)
        .header("x-amz-date", &scope.date_time)
        .header(
            "authorization",
            scope.authorization(&keys.access_key_id, &names, &signature),
        )
        .body_text(body);
    if let Some(token) = &keys.session_token {
        request = request.header("x-amz-security-token", token);
    }
    session(captures(request, "AssumeRole").send()?, "AssumeRole")
}

fn endpoint(region: &str) -> String {
    format!("https://{}/", sts_host(region))
}

/// The form as text, because the signature covers its bytes.
fn body(action: &str, role: &Role) -> String {
    let pairs = plain_pairs(action, role);
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", form(value)))
        .collect();
    pairs.join("&")
}

fn plain_pairs(action: &str, role: &Role) -> Vec<(&'static str, String)> {
    let session_name = role.session_name.as_deref().unwrap_or(SESSION_NAME);
    let mut pairs = vec![
        ("Action", action.to_owned()),
        ("Version", VERSION.to_owned()),
        ("RoleArn", role.role_arn.clone()),
        ("RoleSessionName", session_name.to_owned()),
    ];
    pairs.extend(
        role.duration_seconds
            .map(|seconds| ("DurationSeconds", seconds.to_string())),
    );
    pairs.extend(role.external_id.clone().map(|id| ("ExternalId", id)));
    pairs
}

fn captures<'a>(request: Request<'a>, action: &str) -> Request<'a> {
    let credentials = format!("$.{action}Response.{action}Result.Credentials");
    request
        .capture(&format!("{credentials}.SecretAccessKey"))
        .capture(&format!("{credentials}.SessionToken"))
}

/// Reads the session from an answer.
fn session(mut answer: Answer, action: &str) -> Result<Session, Error> {
    if !answer.is_success() {
        return Err(aws::refusal(&answer));
    }
    let json = answer.json().map_err(|mut error| {
        error.message = "STS did not answer in JSON, which was asked for; XML is not read".to_owned();
        error
    })?;
    let credentials = json.pointer(&format!("/{action}Response/{action}Result/Credentials"));
    let access_key_id = credentials
        .and_then(|credentials| credentials.get("AccessKeyId"))
        .and_then(JsonValue::as_str)
        .filter(|id| !id.is_empty());
    let Some(access_key_id) = access_key_id else {
        return Err(
            Error::permanent("answer.incomplete", "the answer has no string `AccessKeyId`")
                .with_status(answer.status)
                .with_correlation(answer.request_id()),
        );
    };
    let end = credentials.and_then(|credentials| credentials.get("Expiration"));
    Ok(Session {
        keys: Keys {
            access_key_id: access_key_id.to_owned(),
            secret_access_key: answer.expect(0, "SecretAccessKey")?,
            session_token: Some(answer.expect(1, "SessionToken")?),
        },
        expiry: Expiry::epoch_or_rfc3339(end, "Expiration", answer.sent_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_form_contains_the_roles_settings() {
        let role = Role {
            role_arn: "arn:aws:iam::123456789012:role/a/b".to_owned(),
            session_name: None,
            external_id: Some("x=1".to_owned()),
            duration_seconds: Some(900),
        };
        let expected = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fa%2Fb\
                        &RoleSessionName=tollgate&DurationSeconds=900&ExternalId=x%3D1";
        assert_eq!(body("AssumeRole", &role), expected);
    }
}
