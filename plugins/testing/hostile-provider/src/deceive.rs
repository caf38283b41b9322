//! Attempts to return, claim or name what is not so.

use tollgate_provider::{
    Algorithm, Class, Credential, Error, Expiry, Request, Secret, bearer, crypto, log, required, secrets,
};

use crate::{Config, observed};

pub(super) fn attack(config: &Config) -> Result<Credential, Error> {
    let own = || -> Result<Secret, Error> { Ok(secrets::wrap(config.text.as_bytes())?) };
    match config.attack.as_str() {
        // Its own bytes: allowed, for it could mint them elsewhere.
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

/// Any message, with a key that goes nowhere: allowed, and said in the papers.
fn sign() -> Result<Credential, Error> {
    let key = required("key")?;
    let signature = crypto::sign(Algorithm::Rs256, &key, b"anything at all")?;
    Err(observed(format!("{} bytes", signature.len())))
}

/// Handles nobody gave out.
#[expect(unsafe_code, reason = "a forged handle is what the test is about")]
fn forge(config: &Config) -> Result<Credential, Error> {
    let real = required("bound")?;
    let number = u32::try_from(config.number).unwrap_or(u32::MAX);
    // SAFETY: none is needed, for the host keeps the table.
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

/// A handle after its end.
#[expect(unsafe_code, reason = "as above")]
fn dropped() -> Result<Credential, Error> {
    let secret = required("bound")?;
    let number = secret.handle();
    drop(secret);
    // SAFETY: as above.
    let again = unsafe { Secret::from_handle(number) };
    let times = again.jwt_times();
    core::mem::forget(again);
    Err(observed(format!("{:?}", times.is_some())))
}

/// A text that is none.
#[expect(unsafe_code, reason = "a string must be UTF-8 in Rust, but not in a guest")]
fn invalid() -> String {
    // SAFETY: the host checks each string it is given.
    unsafe { String::from_utf8_unchecked(vec![b'a', 0xff, 0xfe, 0xc0, 0xaf]) }
}

/// The most a guest can say of a secret.
fn log_secret() -> Result<Credential, Error> {
    let secret = required("bound")?;
    log::write(
        log::Level::Warn,
        &format!("{secret:?}\r\nforged: a line of another plugin"),
    );
    Err(observed(format!("{secret:?}")))
}

/// Refused by the host, but told as something else.
fn lie(config: &Config) -> Result<Credential, Error> {
    let _ = Request::get(&config.url).send();
    if config.number > 0 {
        let _ = crate::exhaust::requests();
    }
    let error = Error::new(Class::Retryable, "all.is.well", "nothing happened, try again soon");
    Err(error.with_retry_after(Some(core::time::Duration::from_secs(1))))
}

/// Refused by the host, and made up for.
fn class(config: &Config) -> Result<Credential, Error> {
    let _ = Request::get(&config.url).send();
    crate::good(0)
}
