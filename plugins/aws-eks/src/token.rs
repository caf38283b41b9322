//! Makes the token: a presigned URL in base64url.
//!
//! Security: the URL contains the session token, but the guest never has it as text.

use tollgate_provider::sigv4::{self, Keys, Piece, Presigned, Scope};
use tollgate_provider::{Encoding, Error, Expiry, Instant, Part, Secret, SecretRef, compose};

use crate::config::Config;
use crate::partition::sts_host;

/// Lifetime of a token. EKS counts it from `X-Amz-Date` and ignores `X-Amz-Expires`.
pub const LIFETIME_MILLIS: u64 = 15 * 60 * 1000;

/// `X-Amz-Expires`, which is mandatory.
const EXPIRES_SECONDS: u32 = 60;

/// SHA-256 of the empty body of a GET.
const EMPTY_DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Expiry of a token made at `now`, without regard to its session.
pub fn expiry(now: Instant) -> Expiry {
    Expiry::at(now.saturating_add(LIFETIME_MILLIS), now)
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

/// The query and the canonical request.
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
