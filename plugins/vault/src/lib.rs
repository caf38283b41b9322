//! The provider `vault`: ServiceAccount tokens from the Kubernetes secrets engine of Vault. It
//! revokes the lease when the credential is released.
//!
//! Invariant: a credential outlives neither its lease nor the login that the lease depends on.
//!
//! Sources: vault-plugin-secrets-kubernetes; the HTTP API reference of Vault.

mod config;
mod login;

use config::Config;
use login::Login;
use serde_json::Value;
use tollgate_provider::{
    Answer, Class, Credential, Error, Expiry, Json, MintInput, Provider, Request, Secret, bearer, classify,
    credential_provider,
};

#[derive(Debug)]
struct Vault;

impl Provider for Vault {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.validate().map(|()| Vec::new())
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        config.validate()?;
        let login = Login::new(config)?;
        let answer = creds(config, &login)?;
        if answer.status == 403 && login.remembered {
            // Vault also answers 403 to a login that was revoked in the meantime.
            login::forget();
            let login = Login::new(config)?;
            let answer = creds(config, &login)?;
            return credential(answer, &login);
        }
        credential(answer, &login)
    }

    fn revoke(config: &Config, lease: &Secret) -> Result<(), Error> {
        config.validate()?;
        let login = Login::new(config)?;
        let body = Json::Object(vec![("lease_id", lease.into())]);
        let request = Request::put(&config.url("sys/leases/revoke"))
            .header("x-vault-token", &login.token)
            .json_body(&body);
        let answer = namespaced(request, config).send()?;
        if answer.is_success() {
            Ok(())
        } else {
            Err(refusal(&answer))
        }
    }
}

/// Adds Vault's namespace to the request, if one is configured.
fn namespaced<'a>(request: Request<'a>, config: &Config) -> Request<'a> {
    match &config.namespace {
        Some(namespace) => request.header("x-vault-namespace", namespace),
        None => request,
    }
}

fn creds(config: &Config, login: &Login) -> Result<Answer, Error> {
    let url = config.url(&format!("{}/creds/{}", config.mount(), config.role));
    let request = Request::post(&url)
        .header("x-vault-token", &login.token)
        .json_body(&Json::Value(config.body()))
        .capture("$.data.service_account_token")
        .capture("$.lease_id");
    namespaced(request, config).send()
}

fn credential(mut answer: Answer, login: &Login) -> Result<Credential, Error> {
    if !answer.is_success() {
        return Err(refusal(&answer));
    }
    let json = answer.json()?;
    let token = answer.expect(0, "data.service_account_token")?;
    let now = answer.sent_at;
    let expiry = Expiry::after(json.get("lease_duration"), "lease_duration", now)
        .and(login.expiry.clone())
        .shortened_by(&token, now);
    let warnings = json.get("warnings").and_then(Value::as_array);
    let warnings = warnings.into_iter().flatten().filter_map(Value::as_str);
    let mut credential = bearer(token, expiry);
    let warnings = warnings
        .filter(|text| !text.is_empty())
        .map(|text| format!("Vault: {text}"));
    credential.warnings.extend(warnings);
    credential.revocation = answer.captured(1);
    Ok(credential)
}

/// The error for an answer of Vault with `{"errors": […]}`.
fn refusal(answer: &Answer) -> Error {
    let json = answer.json_or_null();
    let messages = messages(&json);
    let reason = match (answer.status, messages.as_str()) {
        (_, "") => "Vault does not say why".to_owned(),
        // The engine returns errors of the Kubernetes API as 500.
        (500, messages) if messages.contains("not found") => {
            format!("{messages} (Vault says 500 also when a Kubernetes namespace or role is missing)")
        }
        (_, messages) => messages.to_owned(),
    };
    answer.error(class(answer.status), &format!("vault.{}", answer.status), &reason)
}

/// The messages in `errors`, without line breaks and joined by `; `.
fn messages(json: &Value) -> String {
    let errors = json.get("errors").and_then(Value::as_array);
    let errors = errors.into_iter().flatten().filter_map(Value::as_str);
    let lines = errors.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// The class of a status. 412: a replica does not have the required state yet. 472 and 473: a
/// standby that does not serve requests.
fn class(status: u16) -> Class {
    match status {
        412 | 472 | 473 => Class::Retryable,
        other => classify::status(other),
    }
}

credential_provider!(Vault);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses_have_their_class() {
        for (status, expected) in [
            (307, Class::Config),
            (400, Class::Config),
            (403, Class::Denied),
            (404, Class::Config),
            (412, Class::Retryable),
            (429, Class::Retryable),
            (473, Class::Retryable),
            (500, Class::Retryable),
            (502, Class::Retryable),
            (503, Class::Retryable),
        ] {
            assert_eq!(class(status), expected, "{status}");
        }
    }

    #[test]
    fn messages_are_one_line() {
        let errors = json!({"errors": ["1 error occurred:\n\t* permission denied\n\n", "x"]});
        assert_eq!(messages(&errors), "1 error occurred: * permission denied; x");
        assert_eq!(messages(&json!(null)), "");
    }
}
