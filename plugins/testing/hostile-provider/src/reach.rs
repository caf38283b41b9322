//! Attacks that send a secret where it must not go, or that read its bytes.

use tollgate_provider::{
    Credential, Encoding, Error, Expiry, Instant, MintInput, Part, Request, Secret, SecretError, SecretRef, Value,
    ambient, bearer, clock, compose, copy, crypto, json_path, memo, required, secrets,
};

use crate::{Config, observed};

pub(super) fn attack(config: &Config, input: &MintInput) -> Result<Credential, Error> {
    match config.attack.as_str() {
        "reach-host" => host(config),
        "reach-secret" => secret(config),
        "reach-redirect" => redirect(),
        "reach-url" => url(config),
        "reach-text" => text(config),
        "reach-cluster" => cluster(config),
        "reach-number" => number(config),
        "reach-oracle" => oracle(config),
        "reach-answer" => answer(config),
        "reach-capture" => capture(config),
        "reach-ambient" => Err(observed(match ambient::service_account_token(&config.name) {
            Ok(_) => "a token".to_owned(),
            Err(error) => format!("{error:?}"),
        })),
        "reach-memo-store" => remember(config),
        "reach-memo-load" => Err(observed(format!(
            "{} entry",
            if memo::load("k").is_some() { "an" } else { "no" }
        ))),
        "reach-memo-unauthorized" => {
            let found = memo::load("k").is_some();
            remember(config).map_err(|_| observed(format!("{:?}: {found}", input.reason)))
        }
        other => Err(observed(format!("no attack `{other}`"))),
    }
}

/// Sends a request to any URL: another host, scheme, port or address.
fn host(config: &Config) -> Result<Credential, Error> {
    let error = match Request::get(&config.url).send() {
        Ok(answer) => format!("answered {}", answer.status),
        Err(error) => error.message,
    };
    Err(observed(error))
}

/// The secret, changed as the configuration says.
fn changed(config: &Config) -> Result<Secret, Error> {
    let secret = required(&config.name)?;
    let raw = |value| {
        Part::Secret(SecretRef {
            value,
            encoding: Encoding::Raw,
        })
    };
    match config.place.as_str() {
        "composed" => compose(&[Part::Text("x=".into()), raw(&secret)], Encoding::Raw),
        "base64" => compose(&[raw(&secret)], Encoding::Base64),
        "mixed" => {
            let other = required("endpoint")?;
            compose(&[raw(&other), raw(&secret)], Encoding::Raw)
        }
        "trimmed" => Ok(secrets::trim(&secret)?),
        "derived" => Ok(crypto::derive_hmac_sha256(&secret, b"x")?),
        "field" => Ok(secrets::json_field(&secret, "$.private_key")?),
        "memo" => {
            keep(secret);
            let entry = memo::load("k").ok_or_else(|| observed("no entry"))?;
            let found = entry.values.into_iter().next();
            found.map(|(_, secret)| secret).ok_or_else(|| observed("no value"))
        }
        "encoded" => {
            let document = compose(
                &[
                    Part::Text("{\"a\":".into()),
                    Part::Secret(SecretRef {
                        value: &secret,
                        encoding: Encoding::Json,
                    }),
                    Part::Text("}".into()),
                ],
                Encoding::Raw,
            )?;
            Ok(secrets::json_field(&document, "$.a")?)
        }
        _ => Ok(secret),
    }
}

/// Sends a secret to a host.
fn secret(config: &Config) -> Result<Credential, Error> {
    let secret = changed(config)?;
    let request = Request::post(&config.url);
    let request = match config.text.as_str() {
        "query" => request.query("q", &secret),
        "body" => request.form([("b", Value::from(&secret))]),
        _ => request.header("x-stolen", &secret),
    };
    let sent = request.send();
    Err(observed(match sent {
        Ok(answer) => format!("answered {}", answer.status),
        Err(error) => error.message,
    }))
}

/// Follows a redirect itself, with the secret.
fn redirect() -> Result<Credential, Error> {
    let secret = required("bound")?;
    let answer = Request::get("https://issuer.example/start").bearer(&secret).send()?;
    let next = answer.header("location").map_or_else(|| answer.text(), str::to_owned);
    let seen = answer.header("location").is_some();
    let error = Request::get(next.trim()).bearer(&secret).send();
    Err(observed(match error {
        Ok(answer) => format!("answered {}", answer.status),
        Err(error) => format!("{}, location {seen}: {}", answer.status, error.message),
    }))
}

/// Tries every way to read a handle as text, and sends the result in a path.
fn url(config: &Config) -> Result<Credential, Error> {
    let secret = required(&config.name)?;
    let tries: [Result<String, String>; 6] = [
        secrets::public(&config.name).map_err(word),
        secrets::public_field(&secret, "$.private_key").map_err(word),
        secrets::public_field(&secret, "$").map_err(word),
        json_path::select(config.name.as_bytes(), "$")
            .map(|found| format!("{found:?}"))
            .map_err(|_| "not JSON".into()),
        Ok(format!("{secret:?}")),
        secrets::get("no-such-value").map(|_| "got".to_owned()).map_err(word),
    ];
    let path: String = tries
        .iter()
        .flatten()
        .filter(|text| text.is_ascii())
        .map(|text| text.replace([' ', '{', '}'], ""))
        .collect();
    let sent = Request::get(&format!("https://issuer.example/{path}")).send();
    let errors: Vec<&String> = tries.iter().filter_map(|tried| tried.as_ref().err()).collect();
    Err(observed(format!("{errors:?}, sent {}", sent.is_ok())))
}

/// Reads fields that are public and fields that are not.
fn text(config: &Config) -> Result<Credential, Error> {
    let secret = required("document")?;
    let read = secrets::public_field(&secret, &config.text);
    let open = secrets::public("open");
    // Embeds the secret in a document of the guest, as the value of a public field.
    let raw = Part::Secret(SecretRef {
        value: &secret,
        encoding: Encoding::Json,
    });
    let own = compose(
        &[Part::Text("{\"client_email\":".into()), raw, Part::Text("}".into())],
        Encoding::Raw,
    )?;
    let own = secrets::public_field(&own, "$.client_email");
    let [read, open, own] = [read, open, own].map(|tried| tried.map_err(word));
    Err(observed(format!("{read:?} {open:?} {own:?}")))
}

/// Returns a secret as part of the credential.
fn cluster(config: &Config) -> Result<Credential, Error> {
    let secret = changed(config)?;
    let mut credential = bearer(secrets::wrap(b"own")?, Expiry::unknown());
    match config.text.as_str() {
        "certificate" => {
            credential.certificate = Some(tollgate_provider::ClientCertificate {
                chain_pem: "-----BEGIN CERTIFICATE-----".to_owned(),
                key_pem: secret,
            });
        }
        "header" => credential.headers.push(("x-proxy-token".to_owned(), secret)),
        "revocation" => credential.revocation = Some(secret),
        _ => credential.token = Some(secret),
    }
    Ok(credential)
}

/// Tries to read a secret of digits as the `exp` of a composed token.
fn number(config: &Config) -> Result<Credential, Error> {
    let secret = required(&config.name)?;
    let raw = |value| {
        Part::Secret(SecretRef {
            value,
            encoding: Encoding::Raw,
        })
    };
    let payload = [Part::Text("{\"exp\":".into()), raw(&secret), Part::Text("}".into())];
    let payload = compose(&payload, Encoding::Base64urlNopad)?;
    let token = compose(
        &[Part::Text("e30.".into()), raw(&payload), Part::Text(".x".into())],
        Encoding::Raw,
    )?;
    let kept = copy(&token)?;
    // {"exp":5}, entirely the guest's own text.
    let own = secrets::wrap(b"e30.eyJleHAiOjV9.x")?;
    let readable = [token, kept, own].map(|token| token.jwt_times().is_some());
    Err(observed(format!("{readable:?}")))
}

/// Tries to find out whether a secret begins with a JSON escape, which would reveal one letter at a
/// time.
fn oracle(config: &Config) -> Result<Credential, Error> {
    let secret = required(&config.name)?;
    let raw = |value| {
        Part::Secret(SecretRef {
            value,
            encoding: Encoding::Raw,
        })
    };
    let ask = |before: &str| -> Result<String, Error> {
        let document = compose(
            &[Part::Text(before.to_owned()), raw(&secret), Part::Text("\"}".into())],
            Encoding::Raw,
        )?;
        Ok(match secrets::json_field(&document, "$.a") {
            Ok(_) => "yes".to_owned(),
            Err(error) => word(error),
        })
    };
    // Both results must be the same for every secret.
    Err(observed(format!("{} {}", ask("{\"a\":\"")?, ask("{\"a\":\"\\")?)))
}

/// Reports what the guest can read of an answer.
fn answer(config: &Config) -> Result<Credential, Error> {
    let answer = Request::get("https://issuer.example/")
        .capture("$.access_token")
        .send()?;
    let fields = ["content-type", "set-cookie", "x-secret", "x-request-id", "location"];
    let fields: Vec<_> = fields.iter().filter(|name| answer.header(name).is_some()).collect();
    let body = answer.text();
    let body = if config.text == "reversed" {
        body.chars().rev().collect()
    } else {
        body
    };
    Err(observed(format!("{} {fields:?} {body}", answer.status)))
}

/// Makes captures that are not allowed, or sends a captured value to another host.
fn capture(config: &Config) -> Result<Credential, Error> {
    let mut request = Request::get("https://issuer.example/");
    for _ in 0..config.number {
        request = request.capture(&config.text);
    }
    let mut answer = request.send()?;
    match answer.captured(0) {
        // Sends a value captured from one host to another host.
        Some(token) if !config.url.is_empty() => {
            let sent = Request::get(&config.url).bearer(&token).send();
            Err(observed(sent.map_or_else(
                |error| error.message,
                |answer| format!("answered {}", answer.status),
            )))
        }
        Some(token) => Ok(bearer(token, Expiry::unknown())),
        None => Err(observed(format!("{} without", answer.status))),
    }
}

fn keep(secret: Secret) {
    let expires_at: Instant = clock::now() + 3_600_000;
    let entry = memo::Entry {
        fields: vec![("f".to_owned(), "v".to_owned())],
        values: vec![("v".to_owned(), secret)],
        expires_at,
    };
    memo::store("k", entry);
}

fn remember(config: &Config) -> Result<Credential, Error> {
    let secret = match secrets::get(&config.name) {
        Ok(secret) => secret,
        Err(SecretError::NotFound) => secrets::wrap(b"own")?,
        Err(error) => return Err(error.into()),
    };
    keep(secret);
    Err(observed("stored"))
}

/// The name of an error.
fn word(error: SecretError) -> String {
    let word = match error {
        SecretError::NotFound => "not-found",
        SecretError::NotGranted => "not-granted",
        SecretError::BadFormat => "bad-format",
        SecretError::TooLarge => "too-large",
    };
    word.to_owned()
}
