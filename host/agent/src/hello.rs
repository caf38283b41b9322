//! The first exchange of a connection: the gateway sends a nonce, and the agent proves with its signature
//! that it has the private half of its key.
//!
//! Security: a nonce is used once, so that a proof that was seen is worth nothing. Nothing depends on
//! clocks.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::key::{SigningKey, is_signed};
use tollgate_core::agent::AgentKey;

/// Longest message of either end, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 4 * 1024;

/// Longest text of an agent about itself, in bytes: its version, its cluster's name.
const TEXT_BYTES: usize = 253;

/// What a signature is for, so that it cannot be one for something else.
const CONTEXT: &[u8] = b"tollgate agent hello v1\0";

/// What the gateway sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Challenge {
    nonce: String,
    /// The gateway's version, for the agent's log.
    pub(crate) version: String,
}

/// What the agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    key: String,
    signature: String,
    /// The agent's process. It keeps it when it connects again.
    pub(crate) instance: Uuid,
    /// The cluster's name, as the agent's settings have it.
    pub(crate) cluster: String,
    pub(crate) version: String,
}

/// Why the gateway does not serve an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// A stable code in snake case.
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Why a proof is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// It is malformed.
    #[error("the proof is malformed")]
    Malformed,
    /// The signature is not by the key.
    #[error("the signature is not by the key")]
    Signature,
}

impl Challenge {
    /// `None` if the system has no random bytes.
    pub(crate) fn new() -> Option<Self> {
        let mut nonce = [0; 32];
        SystemRandom::new().fill(&mut nonce).ok()?;
        Some(Self {
            nonce: STANDARD.encode(nonce),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    fn message(&self) -> Vec<u8> {
        [CONTEXT, self.nonce.as_bytes()].concat()
    }
}

impl Proof {
    pub(crate) fn new(challenge: &Challenge, key: &SigningKey, (cluster, instance): (&str, Uuid)) -> Self {
        Self {
            key: key.public().to_string(),
            signature: STANDARD.encode(key.sign(&challenge.message())),
            instance,
            cluster: cluster.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The key that answered the challenge.
    pub(crate) fn verify(&self, challenge: &Challenge) -> Result<AgentKey, ProofError> {
        let is_text = |text: &str| text.len() <= TEXT_BYTES && !text.chars().any(char::is_control);
        if !is_text(&self.cluster) || !is_text(&self.version) {
            return Err(ProofError::Malformed);
        }
        let key = AgentKey::parse(&self.key).ok_or(ProofError::Malformed)?;
        let signature = STANDARD.decode(&self.signature).map_err(|_| ProofError::Malformed)?;
        match is_signed(&key, &challenge.message(), &signature) {
            true => Ok(key),
            false => Err(ProofError::Signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Challenge, Proof, ProofError};
    use crate::key::SigningKey;

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    #[test]
    fn a_proof_is_for_one_challenge_and_one_key() {
        let (own, other) = (key(), key());
        let challenge = Challenge::new().unwrap();
        let proof = Proof::new(&challenge, &own, ("prod", Uuid::nil()));
        assert_eq!(proof.verify(&challenge), Ok(own.public()));
        assert_eq!(proof.verify(&Challenge::new().unwrap()), Err(ProofError::Signature));
        let claimed = Proof {
            key: other.public().to_string(),
            ..proof.clone()
        };
        assert_eq!(claimed.verify(&challenge), Err(ProofError::Signature));
        let broken = Proof {
            signature: "?".to_owned(),
            ..proof.clone()
        };
        assert_eq!(broken.verify(&challenge), Err(ProofError::Malformed));
        let loud = Proof {
            cluster: "a\nb".to_owned(),
            ..proof
        };
        assert_eq!(loud.verify(&challenge), Err(ProofError::Malformed));
    }
}
