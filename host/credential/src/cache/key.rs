//! The cache key of a credential: a hash of everything that determines it (plugin, configuration,
//! secrets, cluster and grant).
//!
//! Security: a secret cannot be recovered from a [`CredentialKey`] by guessing, and no two inputs
//! are joined by a separator that either may contain.

use std::sync::LazyLock;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Version of the layout of the hashed data.
const LAYOUT: &[u8] = b"tollgate credential key 1";

/// Keys the hashes of secrets, so that they are useful in this process only. Anyone who reads one
/// in a log cannot test guesses against it.
static PROCESS_KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut key = [0; 32];
    if SystemRandom::new().fill(&mut key).is_err() {
        // Without random numbers, TLS does not work either. The standard library's own seeds still
        // make the hashes differ from those of other processes.
        for chunk in key.chunks_mut(8) {
            use std::hash::BuildHasher as _;
            chunk.copy_from_slice(&std::hash::RandomState::new().hash_one(()).to_le_bytes());
        }
    }
    key
});

/// One version of one secret value.
#[derive(Clone, Copy, derive_more::Debug)]
pub enum SecretVersion<'a> {
    /// Identified by its version in Kubernetes.
    #[debug("SecretVersion({name})")]
    Version {
        /// The value's name.
        name: &'a str,
        /// `resourceVersion` of the Kubernetes Secret it is of.
        version: &'a str,
    },
    /// Identified by its bytes. Only a keyed hash of them is used.
    #[debug("SecretVersion({name})")]
    Bytes {
        /// The value's name.
        name: &'a str,
        /// The value.
        bytes: &'a [u8],
    },
}

impl SecretVersion<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Version { name, .. } | Self::Bytes { name, .. } => name,
        }
    }
}

/// Who may use one credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenancy<'a> {
    /// One cluster, by its id: the default.
    Cluster(&'a str),
    /// Every cluster with the same inputs, because the operator said so.
    Shareable,
}

/// Everything a credential depends on.
#[derive(Clone, Copy, Debug)]
pub struct KeyInputs<'a> {
    /// Version of the interface between host and plugin.
    pub abi: &'a str,
    /// Digest of the plugin's code.
    pub plugin: &'a str,
    /// The provider's configuration. The order of its fields does not matter.
    pub config: &'a Value,
    /// The secret values it may use. Their order does not matter.
    pub secrets: &'a [SecretVersion<'a>],
    /// Who may use it.
    pub tenancy: Tenancy<'a>,
    /// Digest of what the operator granted the plugin.
    pub policy: &'a str,
}

/// The key of one credential in the cache: SHA-256 over [`KeyInputs`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Debug)]
#[debug("Key({})", self.to_short())]
pub struct CredentialKey([u8; 32]);

impl CredentialKey {
    /// The key of these inputs. Within this process, keys are equal exactly if the inputs are.
    pub fn from_inputs(inputs: &KeyInputs<'_>) -> Self {
        let KeyInputs {
            abi,
            plugin,
            config,
            secrets,
            tenancy,
            policy,
        } = inputs;
        let mut hash = Sha256::new();
        hash_part(&mut hash, LAYOUT);
        hash_part(&mut hash, abi.as_bytes());
        hash_part(&mut hash, plugin.as_bytes());
        hash_part(&mut hash, canonical_json(config).to_string().as_bytes());
        let mut secrets = secrets.to_vec();
        secrets.sort_by(|one, other| one.name().cmp(other.name()));
        hash_length(&mut hash, secrets.len());
        for secret in &secrets {
            hash_part(&mut hash, secret.name().as_bytes());
            match secret {
                SecretVersion::Version { version, .. } => {
                    hash_part(&mut hash, b"version");
                    hash_part(&mut hash, version.as_bytes());
                }
                SecretVersion::Bytes { bytes, .. } => {
                    hash_part(&mut hash, b"bytes");
                    hash_part(&mut hash, &keyed_hash(b"secret", bytes));
                }
            }
        }
        match tenancy {
            Tenancy::Cluster(id) => {
                hash_part(&mut hash, b"cluster");
                hash_part(&mut hash, id.as_bytes());
            }
            Tenancy::Shareable => hash_part(&mut hash, b"shareable"),
        }
        hash_part(&mut hash, policy.as_bytes());
        Self(hash.finalize().into())
    }

    /// The first 8 hexadecimal digits, for logs.
    pub fn to_short(&self) -> String {
        hex8(&self.0)
    }
}

/// An identifier of a token for logs and metrics: 8 hexadecimal digits of a hash keyed with a
/// random key of this process.
pub fn fingerprint(token: &str) -> String {
    hex8(&keyed_hash(b"token", token.as_bytes()))
}

/// A keyed hash of secret bytes that is useless outside this process.
fn keyed_hash(purpose: &[u8], bytes: &[u8]) -> [u8; 32] {
    // A key of any length will do, says RFC 2104; `new_from_slice` cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(PROCESS_KEY.as_slice()) else {
        return [0; 32];
    };
    mac.update(&(purpose.len() as u64).to_be_bytes());
    mac.update(purpose);
    mac.update(bytes);
    mac.finalize().into_bytes().into()
}

fn hex8(bytes: &[u8]) -> String {
    bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn hash_length(hash: &mut Sha256, number: usize) {
    hash.update((number as u64).to_be_bytes());
}

/// Hashes a part with its length in front, so that no two lists of parts hash the same bytes.
fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash_length(hash, part.len());
    hash.update(part);
}

/// Sorts the members of objects by name, so that equal configurations give equal texts.
pub fn canonical_json(value: &Value) -> Value {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    sorted
}

#[cfg(test)]
mod tests;
