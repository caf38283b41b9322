//! A cache of verified tokens, so that a token is not verified with every request.
//!
//! Security: it holds digests of tokens, never tokens, and nothing beyond its expiry.

use std::hash::Hash;
use std::time::Duration;

use aws_lc_rs::digest;
use moka::sync::Cache;
use rustc_hash::FxBuildHasher;

/// How long a verified token is cached, at most.
pub const VERIFIED_TOKEN_TTL: Duration = Duration::from_secs(5 * 60);
/// Most bytes of the tokens in one cache. The memory used for each is a few times its size.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

#[derive(derive_more::Debug)]
#[debug("VerifiedTokens {{ .. }}")]
pub(super) struct VerifiedTokens<K, V>(pub(super) Cache<K, VerifiedToken<V>, FxBuildHasher>);

#[derive(Clone, Debug)]
pub(super) struct VerifiedToken<V> {
    value: V,
    /// Seconds since 1970 from which it no longer counts.
    until: i64,
    token_bytes: u32,
}

impl<K, V> VerifiedTokens<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new() -> Self {
        let builder = Cache::builder()
            .weigher(|_, token: &VerifiedToken<V>| token.token_bytes)
            .max_capacity(MAX_BYTES)
            .time_to_live(VERIFIED_TOKEN_TTL);
        // The keys are digests already, and only of verified tokens.
        Self(builder.build_with_hasher(FxBuildHasher))
    }

    /// - `now`: seconds since 1970.
    pub(super) fn get(&self, key: &K, now: i64) -> Option<V> {
        let token = self.0.get(key).filter(|token| now < token.until);
        token.map(|token| token.value)
    }

    /// - `fresh_for`: how long it may be cached, if less than [`VERIFIED_TOKEN_TTL`].
    /// - `now`, `expires_at`: seconds since 1970.
    pub(super) fn insert(
        &self,
        key: K,
        token: &str,
        value: V,
        fresh_for: Option<Duration>,
        now: i64,
        expires_at: Option<i64>,
    ) {
        let fresh_for = fresh_for.unwrap_or(VERIFIED_TOKEN_TTL).min(VERIFIED_TOKEN_TTL);
        let latest = now.saturating_add_unsigned(fresh_for.as_secs());
        let token = VerifiedToken {
            value,
            until: expires_at.map_or(latest, |end| latest.min(end)),
            token_bytes: u32::try_from(token.len()).unwrap_or(u32::MAX),
        };
        self.0.insert(key, token);
    }
}

pub(super) fn sha256(token: &str) -> [u8; 32] {
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    sha256
}
