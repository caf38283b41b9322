//! Attacks that return forged or invalid data, or report false errors.

use tollgate_provider::{
    Algorithm, Class, Credential, Error, Expiry, Request, Secret, bearer, crypto, log, required, secrets,
};

use crate::{Config, observed};

pub(super) fn attack(config: &Config) -> Result<Credential, Error> {
    let own = || -> Result<Secret, Error> { Ok(secrets::wrap(config.text.as_bytes())?) };
    match config.attack.as_str() {
        // Returning its own bytes is allowed.
        "wrap" => Ok(bearer(own()?, Expiry::unknown())),
        "bytes" => Ok(bearer(secrets::wrap(&[0xff, 0xfe])?, Expiry::unknown())),
        "nothing" => Ok(Credential {
            token: None,
            ..bearer(own()?, Expiry::unknown())
        }),
        "field" => {
            let mut credential = bearer(own()?, Expiry::unknown());
            credential
                .headers
                .push((config.name.clone(), secrets::wrap(config.place.as_bytes())?));
            Ok(credential)
        }
        "fields" => {
            let mut credential = bearer(own()?, Expiry::unknown());
            for _ in 0..config.number {
                credential.headers.push(("x-proxy-token".to_owned(), own()?));
            }
            Ok(credential)
        }
        "chain" => {
            let mut credential = bearer(own()?, Expiry::unknown());
            let chain_pem = "x".repeat(usize::try_from(config.number).unwrap_or(0));
            credential.certificate = Some(tollgate_provider::ClientCertificate {
                chain_pem,
                key_pem: own()?,
            });
            Ok(credential)
        }
        "expiry" => {
            let mut credential = bearer(own()?, Expiry::unknown());
            credential.expires_at = Some(config.number);
            Ok(credential)
        }
        "warnings" => {
            let mut credential = bearer(own()?, Expiry::unknown());
            credential.warnings = warnings();
            Ok(credential)
        }
        "sign" => sign(),
        "forge" => forge(config),
        "dropped" => dropped(),
        "panic" => panic!("on purpose"),
        "text" => Err(observed(invalid())),
        "log" => log_secret(),
        "lie" => lie(config),
        "class" => class(config),
        "error" => {
            let mut error = observed(&config.text);
            error.code = config.name.clone();
            error.correlation = Some(config.place.clone());
            error.status = Some(99);
            error.retry_after = Some(core::time::Duration::from_secs(1_000_000));
            Err(error)
        }
        other => Err(observed(format!("no attack `{other}`"))),
    }
}

pub(super) fn warnings() -> Vec<String> {
    (0..100)
        .map(|index| format!("{index}\r\n\u{1b}[31m{}", "w".repeat(10_000)))
        .collect()
}

/// Signs any message with a key that is sent nowhere. This is allowed and documented.
fn sign() -> Result<Credential, Error> {
    let key = required("key")?;
    let signature = crypto::sign(Algorithm::Rs256, &key, b"anything at all")?;
    Err(observed(format!("{} bytes", signature.len())))
}

/// Uses a handle that the host did not issue.
#[expect(unsafe_code, reason = "the attack forges a handle")]
fn forge(config: &Config) -> Result<Credential, Error> {
    let real = required("bound")?;
    let number = u32::try_from(config.number).unwrap_or(u32::MAX);
    // SAFETY: the host checks every handle against its own table.
    let forged = unsafe { Secret::from_handle(number) };
    let same = match config.place.as_str() {
        "token" => return Ok(bearer(forged, Expiry::unknown())),
        "send" => {
            Request::get("https://issuer.example/").bearer(&forged).send()?;
            true
        }
        _ => real.equals(&forged),
    };
    core::mem::forget(forged);
    Err(observed(format!("equals {same}")))
}

/// Uses a handle after it was dropped.
#[expect(unsafe_code, reason = "the attack forges a handle")]
fn dropped() -> Result<Credential, Error> {
    let secret = required("bound")?;
    let number = secret.handle();
    drop(secret);
    // SAFETY: the host checks every handle against its own table.
    let again = unsafe { Secret::from_handle(number) };
    let times = again.jwt_times();
    core::mem::forget(again);
    Err(observed(format!("{:?}", times.is_some())))
}

/// A string that is not UTF-8.
#[expect(unsafe_code, reason = "safe Rust cannot make a string that is not UTF-8")]
fn invalid() -> String {
    // SAFETY: the host checks every string that it gets.
    unsafe { String::from_utf8_unchecked(vec![b'a', 0xff, 0xfe, 0xc0, 0xaf]) }
}

/// Logs and reports the debug text of a handle.
fn log_secret() -> Result<Credential, Error> {
    let secret = required("bound")?;
    log::write(
        log::Level::Warn,
        &format!("{secret:?}\r\nforged: a line of another plugin"),
    );
    Err(observed(format!("{secret:?}")))
}

/// Reports another error than the host's refusal.
fn lie(config: &Config) -> Result<Credential, Error> {
    let _ = Request::get(&config.url).send();
    if config.number > 0 {
        let _ = crate::exhaust::requests();
    }
    let error = Error::new(Class::Retryable, "all.is.well", "nothing happened, try again soon");
    Err(error.with_retry_after(Some(core::time::Duration::from_secs(1))))
}

/// Ignores the host's refusal, then mints normally.
fn class(config: &Config) -> Result<Credential, Error> {
    let _ = Request::get(&config.url).send();
    crate::good(0)
}
