//! The token: a presigned URL in base64url.
//!
//! In: keys, a cluster. Out: a handle of the token. Never: the session token as
//! text, though it is part of the URL.

use tollgate_provider::sigv4::{self, Keys, Piece, Presigned, Scope};
use tollgate_provider::{Encoding, Error, Expiry, Instant, Part, Secret, SecretRef, compose};

use crate::config::Config;
use crate::partition::sts_host;

/// Fifteen minutes from `X-Amz-Date`, whatever `X-Amz-Expires` says.
pub const LIFE_MILLIS: u64 = 15 * 60 * 1000;

/// `X-Amz-Expires`, which must be there.
const EXPIRES_SECONDS: u32 = 60;

/// SHA-256 of nothing: a GET has no body.
const EMPTY_DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// End of a token made at `now`, as far as the token goes.
pub fn expiry(now: Instant) -> Expiry {
    Expiry::at(now.saturating_add(LIFE_MILLIS), now)
}

/// The token for the cluster of `config`.
pub fn make(config: &Config, keys: &Keys, now: Instant) -> Result<Secret, Error> {
    let scope = Scope::new(now, &config.region, "sts")?;
    let host = sts_host(&config.region);
    let (query, canonical) = texts(config, &host, keys, &scope);
    let signature = sigv4::signature(keys, &scope, &canonical)?;

    let mut url = vec![Part::Text(format!("https://{host}/?"))];
    url.extend(sigv4::parts(&query, keys));
    url.push(Part::Text(format!("&X-Amz-Signature={signature}")));
    let encoded = compose(&url, Encoding::Base64urlNopad)?;
    let value = SecretRef {
        value: &encoded,
        encoding: Encoding::Raw,
    };
    compose(
        &[Part::Text("k8s-aws-v1.".to_owned()), Part::Secret(value)],
        Encoding::Raw,
    )
}

/// Query and canonical request.
fn texts(config: &Config, host: &str, keys: &Keys, scope: &Scope) -> (Vec<Piece>, Vec<Piece>) {
    let request = Presigned {
        method: "GET",
        query: &[("Action", "GetCallerIdentity"), ("Version", "2011-06-15")],
        headers: &[("host", host.to_owned()), ("x-k8s-aws-id", config.cluster().to_owned())],
        payload_digest: EMPTY_DIGEST,
        expires: EXPIRES_SECONDS,
        access_key_id: &keys.access_key_id,
        session: keys.session_token.is_some(),
    };
    sigv4::presigned(&request, scope)
}
