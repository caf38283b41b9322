//! What both ends say about themselves: the first exchange of a connection, in which the agent proves with its
//! signature that it has the private half of its key, and what the gateway tells it afterwards.
//!
//! | the gateway sends | the agent answers |
//! |---|---|
//! | `/hello`: a nonce, and which replica it is | its key, and a signature of the nonce; a join token, if it has one |
//! | `/status`, again and again: which key it knows the agent by, a nonce | a new key, if the old one is old |
//! | `/refused`: why it does not serve the agent | – |
//!
//! Security: a nonce is used once, so that a proof that was seen is worth nothing. Nothing depends on
//! clocks.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::key::{SigningKey, is_signed};
use tollgate_core::agent::AgentKey;

/// Longest message of either end, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 4 * 1024;

/// Longest text of an agent about itself, in bytes: its version, its cluster's name.
const TEXT_BYTES: usize = 253;

/// Longest join token, in bytes.
const TOKEN_BYTES: usize = 256;

/// What a signature is for, so that it cannot be one for something else.
const INTRODUCTION: &[u8] = b"tollgate agent introduction v1\0";
const HELLO: &[u8] = b"tollgate agent hello v1\0";
const NEW_KEY: &[u8] = b"tollgate agent new key v1\0";

/// How far the clocks of both ends may be apart for an introduction.
const INTRODUCTION_AGE: SignedDuration = SignedDuration::from_mins(5);

/// What an agent says of itself in the request that opens its connection: its key, the time, and a signature
/// of both.
///
/// Security: it spares an agent the crowd of strangers, and proves nothing else. The key is proved by the
/// answer to the gateway's challenge. One whose time is off is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    key: AgentKey,
    at: i64,
    signature: Vec<u8>,
}

impl Introduction {
    /// The field that it is sent in.
    pub(crate) const FIELD: HeaderName = HeaderName::from_static("tollgate-agent");

    pub(crate) fn new(key: &SigningKey, now: Timestamp) -> Self {
        let at = now.as_second();
        Self {
            key: key.public(),
            at,
            signature: key.sign(&Self::message(at)),
        }
    }

    /// Reads the field; `None` if there is none, or it is malformed.
    pub fn read(fields: &HeaderMap) -> Option<Self> {
        let text = fields.get(Self::FIELD)?.to_str().ok()?;
        let mut parts = text.split(' ');
        let (Some(key), Some(at), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        Some(Self {
            key: AgentKey::parse(key)?,
            at: at.parse().ok()?,
            signature: STANDARD.decode(signature).ok()?,
        })
    }

    pub(crate) fn to_value(&self) -> Option<HeaderValue> {
        let text = format!("{} {} {}", self.key, self.at, STANDARD.encode(&self.signature));
        HeaderValue::from_str(&text).ok()
    }

    /// The key that it names.
    pub fn key(&self) -> &AgentKey {
        &self.key
    }

    /// Whether the key signed it a short while ago.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        let age = now.as_second().saturating_sub(self.at).saturating_abs();
        age <= INTRODUCTION_AGE.as_secs() && is_signed(&self.key, &Self::message(self.at), &self.signature)
    }

    fn message(at: i64) -> Vec<u8> {
        [INTRODUCTION, &at.to_be_bytes()].concat()
    }
}

/// What the gateway sends first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Challenge {
    nonce: String,
    /// The gateway's version, for the agent's log.
    pub(crate) version: String,
    /// The gateway's process.
    pub(crate) replica: Uuid,
    /// How many replicas share agents.
    pub(crate) replicas: usize,
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
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "expose")]
    pub(crate) join_token: Option<SecretString>,
}

fn expose<S: Serializer>(token: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    token.as_ref().map(ExposeSecret::expose_secret).serialize(serializer)
}

/// What the gateway tells an agent that it serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    nonce: String,
    /// The key that it knows the agent by.
    pub(crate) key: String,
    /// How many replicas share agents.
    pub(crate) replicas: usize,
}

/// What the agent answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StatusAnswer {
    /// The key that the agent wants to be known by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) new_key: Option<NewKey>,
}

/// A new key, signed by itself and by the one before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NewKey {
    key: String,
    signature: String,
    signature_of_old: String,
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

fn nonce() -> Option<String> {
    let mut nonce = [0; 32];
    SystemRandom::new().fill(&mut nonce).ok()?;
    Some(STANDARD.encode(nonce))
}

fn verify(key: &AgentKey, message: &[u8], signature: &str) -> Result<(), ProofError> {
    let signature = STANDARD.decode(signature).map_err(|_| ProofError::Malformed)?;
    match is_signed(key, message, &signature) {
        true => Ok(()),
        false => Err(ProofError::Signature),
    }
}

impl Challenge {
    /// `None` if the system has no random bytes.
    pub(crate) fn new(replica: Uuid, replicas: usize) -> Option<Self> {
        Some(Self {
            nonce: nonce()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            replica,
            replicas,
        })
    }

    fn message(&self) -> Vec<u8> {
        [HELLO, self.nonce.as_bytes()].concat()
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
            join_token: None,
        }
    }

    /// The key that answered the challenge.
    pub(crate) fn verify(&self, challenge: &Challenge) -> Result<AgentKey, ProofError> {
        let is_text = |text: &str| text.len() <= TEXT_BYTES && !text.chars().any(char::is_control);
        let token = self.join_token.as_ref().map_or(0, |token| token.expose_secret().len());
        if !is_text(&self.cluster) || !is_text(&self.version) || token > TOKEN_BYTES {
            return Err(ProofError::Malformed);
        }
        let key = AgentKey::parse(&self.key).ok_or(ProofError::Malformed)?;
        verify(&key, &challenge.message(), &self.signature)?;
        Ok(key)
    }
}

impl Status {
    /// `None` if the system has no random bytes.
    pub(crate) fn new(key: AgentKey, replicas: usize) -> Option<Self> {
        Some(Self {
            nonce: nonce()?,
            key: key.to_string(),
            replicas,
        })
    }

    fn message(&self, new: &str) -> Vec<u8> {
        [NEW_KEY, self.nonce.as_bytes(), b"\0", new.as_bytes()].concat()
    }
}

impl NewKey {
    pub(crate) fn sign(status: &Status, old: &SigningKey, new: &SigningKey) -> Self {
        let key = new.public().to_string();
        let message = status.message(&key);
        Self {
            signature: STANDARD.encode(new.sign(&message)),
            signature_of_old: STANDARD.encode(old.sign(&message)),
            key,
        }
    }

    /// The new key, if the old one and the new one signed it for this message.
    pub(crate) fn verify(&self, status: &Status, old: &AgentKey) -> Result<AgentKey, ProofError> {
        let key = AgentKey::parse(&self.key).ok_or(ProofError::Malformed)?;
        let message = status.message(&self.key);
        verify(&key, &message, &self.signature)?;
        verify(old, &message, &self.signature_of_old)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    use super::{Challenge, Introduction, NewKey, Proof, ProofError, Status};
    use crate::key::SigningKey;

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    fn challenge() -> Challenge {
        Challenge::new(Uuid::nil(), 1).unwrap()
    }

    #[test]
    fn a_proof_is_for_one_challenge_and_one_key() {
        let (own, other) = (key(), key());
        let challenge = challenge();
        let proof = Proof::new(&challenge, &own, ("prod", Uuid::nil()));
        assert_eq!(proof.verify(&challenge), Ok(own.public()));
        assert_eq!(proof.verify(&self::challenge()), Err(ProofError::Signature));
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

    #[test]
    fn an_introduction_is_signed_and_fresh() {
        let (own, now) = (key(), Timestamp::from_second(1_000_000).unwrap());
        let made = Introduction::new(&own, now);
        let mut fields = HeaderMap::new();
        fields.insert(Introduction::FIELD, made.to_value().unwrap());
        let read = Introduction::read(&fields).unwrap();
        assert_eq!(read, made);
        assert!(read.is_valid(now));
        for off in [-301, 301] {
            let later = now.checked_add(SignedDuration::from_secs(off)).unwrap();
            assert!(!read.is_valid(later), "{off}");
        }
        let claimed = Introduction {
            key: key().public(),
            ..made.clone()
        };
        assert!(!claimed.is_valid(now));
        let older = Introduction {
            at: made.at - 1,
            ..made
        };
        assert!(!older.is_valid(now));
        for text in ["", "a b c", "1 2", "a b c d"] {
            fields.insert(Introduction::FIELD, HeaderValue::from_str(text).unwrap());
            assert_eq!(Introduction::read(&fields), None, "{text}");
        }
    }

    #[test]
    fn a_new_key_is_signed_by_the_one_before_and_by_itself() {
        let (old, new, other) = (key(), key(), key());
        let status = Status::new(old.public(), 1).unwrap();
        let signed = NewKey::sign(&status, &old, &new);
        assert_eq!(signed.verify(&status, &old.public()), Ok(new.public()));
        assert_eq!(signed.verify(&status, &other.public()), Err(ProofError::Signature));
        let later = Status::new(old.public(), 1).unwrap();
        assert_eq!(signed.verify(&later, &old.public()), Err(ProofError::Signature));
        let foreign = NewKey {
            key: other.public().to_string(),
            ..signed
        };
        assert_eq!(foreign.verify(&status, &old.public()), Err(ProofError::Signature));
    }
}
