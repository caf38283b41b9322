//! Reads from the claims of a token who it speaks for: the user identifier and the group values.
//!
//! Security: the token must be verified already; nothing here checks it.
//!
//! Source: Argo CD `util/jwt/jwt.go`, `server/rbacpolicy`.

use serde_json::{Map, Value};

/// The email address. It counts unless the issuer says that it is not verified.
pub const EMAIL: &str = "email";

/// The claim that says whether the address was verified.
pub const EMAIL_VERIFIED: &str = "email_verified";

/// Whether the claim [`EMAIL`] may identify somebody: `email_verified` is `true` or absent.
///
/// Source: Kubernetes, the OIDC authenticator of kube-apiserver.
pub fn is_email_usable(claims: &Map<String, Value>) -> bool {
    matches!(claims.get(EMAIL_VERIFIED), None | Some(Value::Bool(true)))
}

/// The user: `federated_claims.user_id` if it is a non-empty text, else `sub`, else empty.
pub fn user_identifier(claims: &Map<String, Value>) -> &str {
    claims
        .get("federated_claims")
        .and_then(|federated| federated.get("user_id"))
        .and_then(Value::as_str)
        .filter(|id| !id.is_empty())
        .or_else(|| claims.get("sub").and_then(Value::as_str))
        .unwrap_or_default()
}

/// The texts of the scope claims, in the order of `scopes`, then of the token. A claim is a text or
/// a list; list members that are not texts are left out.
pub fn scope_values(claims: &Map<String, Value>, scopes: &[String]) -> Vec<String> {
    let mut values = Vec::new();
    for scope in scopes {
        match claims.get(scope) {
            Some(Value::String(value)) => values.push(value.clone()),
            Some(Value::Array(list)) => values.extend(list.iter().filter_map(Value::as_str).map(str::to_owned)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
        }
    }
    values
}

/// Whether one of the caller's scope values is one of `groups`.
pub fn is_member(claims: &Map<String, Value>, groups: &[String], scopes: &[String]) -> bool {
    scope_values(claims, scopes).iter().any(|value| groups.contains(value))
}

/// Project and role of a subject `proj:<project>:<role>`.
pub fn project_of_subject(subject: &str) -> Option<(&str, &str)> {
    let (project, role) = subject.strip_prefix("proj:")?.split_once(':')?;
    (!role.contains(':')).then_some((project, role))
}
