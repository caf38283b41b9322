//! Tokens of Vault's kubernetes secrets engine.
//!
//! In: a login (of the pod, or a token of Vault's), a role. Out: a token of a
//! ServiceAccount and its lease, which is revoked when nobody needs it. Never: a
//! longer life than the lease, or than the login the lease hangs on.
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
            // Vault says 403 also to a login that was revoked meanwhile.
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

/// With the namespace of Vault, if there is one.
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
    let said = warnings
        .filter(|text| !text.is_empty())
        .map(|text| format!("Vault: {text}"));
    credential.warnings.extend(said);
    credential.revocation = answer.captured(1);
    Ok(credential)
}

/// The error of an answer of Vault's: `{"errors": […]}`.
fn refusal(answer: &Answer) -> Error {
    let json = answer.json_or_null();
    let said = said(&json);
    let said = match (answer.status, said.as_str()) {
        (_, "") => "Vault does not say why".to_owned(),
        // The engine passes errors of the Kubernetes API on as 500.
        (500, said) if said.contains("not found") => {
            format!("{said} (Vault says 500 also when a Kubernetes namespace or role is missing)")
        }
        (_, said) => said.to_owned(),
    };
    answer.error(class(answer.status), &format!("vault.{}", answer.status), &said)
}

/// The messages, each on one line.
fn said(json: &Value) -> String {
    let errors = json.get("errors").and_then(Value::as_array);
    let errors = errors.into_iter().flatten().filter_map(Value::as_str);
    let lines = errors.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// 412: a replica lacks the state it needs; 472, 473: a standby of a kind that
/// does not answer.
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
        assert_eq!(said(&errors), "1 error occurred: * permission denied; x");
        assert_eq!(said(&json!(null)), "");
    }
}
