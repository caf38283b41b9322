//! What both ends say about themselves: the first exchange of a connection, in which the agent proves with its
//! signature that it has the private half of its key, and what the gateway tells it afterwards.
//!
//! | the gateway sends | the agent answers |
//! |---|---|
//! | `/hello`: a nonce, and which replica it is | its key, and a signature of the nonce and of the connection; a join token, if it has one |
//! | `/status`, again and again: which key it knows the agent by, a nonce | a new key, if the old one is old |
//! | `/refused`: why it does not serve the agent | – |
//!
//! Security: a nonce is used once, so that a proof that was seen is worth nothing. Nothing depends on
//! clocks. The signature is also of the connection on which the agent was asked (`Channel`), so that nobody
//! between the two, who has a certificate that the agent trusts, can pass on a gateway's challenge.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use rustls::{ConnectionCommon, ProtocolVersion};
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
const BOUND: &[u8] = b"tollgate agent hello v2\0";
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

/// Label and context of the value that both ends of one connection of TLS 1.3 derive, and nobody else can
/// (RFC 9266, `tls-exporter`).
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";

/// The value that one connection of TLS 1.3 has, and no other one.
pub type ChannelValue = [u8; 32];

/// The value of a connection; `None` before TLS 1.3, whose value two connections may share.
pub fn channel_value<Data>(connection: &ConnectionCommon<Data>) -> Option<ChannelValue> {
    let is_new = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    let value = is_new.then(|| connection.export_keying_material([0; 32], EXPORTER, None));
    value.and_then(Result::ok)
}

/// The connection on which an agent is asked, as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    /// The host that the agent dialed, in lower case.
    pub(crate) host: String,
    pub(crate) value: Option<ChannelValue>,
}

/// Which connections of agents a gateway believes to be its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindingRule {
    /// The hosts under which agents reach what ends TLS in front of the gateway, in lower case. With them, the
    /// gateway cannot compare the connection itself.
    pub hosts: Vec<String>,
    /// The host of the gateway's public URL: what `hosts` are if the gateway does not end TLS itself.
    pub public_host: Option<String>,
    /// Whether agents of earlier versions are served, whose proof is of no connection.
    pub accepts_unbound: bool,
}

impl BindingRule {
    fn permits(&self, channel: &Channel, ends_tls: EndsTls) -> bool {
        // A connection without a value, before TLS 1.3, is not the gateway's own by this.
        let is_own = matches!(ends_tls, EndsTls::Yes(Some(own)) if Some(own) == channel.value);
        let has_default = self.hosts.is_empty() && ends_tls == EndsTls::No;
        let public = self.public_host.iter().filter(|_| has_default);
        is_own || self.hosts.iter().chain(public).any(|host| *host == channel.host)
    }
}

/// Whether the gateway itself ends TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsTls {
    /// It does; the connection has this value, if it has one.
    Yes(Option<ChannelValue>),
    /// Something in front of it does.
    No,
}

/// The connection that a proof is of.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BoundProof {
    host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
    signature: String,
}

/// What the agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    key: String,
    /// For gateways of earlier versions, which know nothing of `bound`.
    signature: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound: Option<BoundProof>,
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// It is malformed.
    #[error("the proof is malformed")]
    Malformed,
    /// The signature is not by the key.
    #[error("the signature is not by the key")]
    Signature,
    /// It is of no connection.
    #[error(
        "the connector is of an earlier version, whose proof somebody between it and the gateway could pass on: upgrade \
         the connector, or set `connectors.acceptUnbound: true` at the gateway until that is done"
    )]
    Unbound,
    /// It is of another connection.
    #[error(
        "the connector proved its key on another connection, to `{host}`: if TLS ends in front of the gateway there, \
         list this host in `connectors.hosts` of the gateway; if not, somebody is between them"
    )]
    OtherConnection {
        /// The host that the agent dialed.
        host: String,
    },
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

    fn bound_message(&self, channel: &Channel) -> Vec<u8> {
        // Neither a nonce nor a host has a NUL, and the value has one length.
        let value = channel.value.as_ref().map_or(&[][..], |value| &value[..]);
        [
            BOUND,
            self.nonce.as_bytes(),
            b"\0",
            channel.host.as_bytes(),
            b"\0",
            value,
        ]
        .concat()
    }
}

impl Proof {
    pub(crate) fn new(
        challenge: &Challenge,
        key: &SigningKey,
        channel: &Channel,
        cluster: &str,
        instance: Uuid,
    ) -> Self {
        Self {
            key: key.public().to_string(),
            signature: STANDARD.encode(key.sign(&challenge.message())),
            bound: Some(BoundProof {
                host: channel.host.clone(),
                channel: channel.value.map(|value| STANDARD.encode(value)),
                signature: STANDARD.encode(key.sign(&challenge.bound_message(channel))),
            }),
            instance,
            cluster: cluster.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            join_token: None,
        }
    }

    /// The key that answered the challenge on this connection. [`ProofError::Unbound`] and
    /// [`ProofError::OtherConnection`] are of an agent that has its key.
    pub(crate) fn verify(
        &self,
        challenge: &Challenge,
        rule: &BindingRule,
        ends_tls: EndsTls,
    ) -> Result<AgentKey, ProofError> {
        // Both texts go to the log, and are not signed.
        let is_text = |text: &str| text.len() <= TEXT_BYTES && !text.chars().any(char::is_control);
        let token = self.join_token.as_ref().map_or(0, |token| token.expose_secret().len());
        if !is_text(&self.cluster) || !is_text(&self.version) || token > TOKEN_BYTES {
            return Err(ProofError::Malformed);
        }
        let key = AgentKey::parse(&self.key).ok_or(ProofError::Malformed)?;
        verify(&key, &challenge.message(), &self.signature)?;
        let Some(bound) = &self.bound else {
            return rule.accepts_unbound.then_some(key).ok_or(ProofError::Unbound);
        };
        if !is_text(&bound.host) {
            return Err(ProofError::Malformed);
        }
        let value = bound.channel.as_ref().map(|text| {
            let value = STANDARD.decode(text).ok();
            value.and_then(|value| ChannelValue::try_from(value).ok())
        });
        let channel = Channel {
            host: bound.host.clone(),
            value: match value {
                Some(value) => Some(value.ok_or(ProofError::Malformed)?),
                None => None,
            },
        };
        verify(&key, &challenge.bound_message(&channel), &bound.signature)?;
        match rule.permits(&channel, ends_tls) {
            true => Ok(key),
            false => Err(ProofError::OtherConnection { host: channel.host }),
        }
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
        // By the new key as well, so that nobody names a key that belongs to somebody else.
        verify(&key, &message, &self.signature)?;
        verify(old, &message, &self.signature_of_old)?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use http::{HeaderMap, HeaderValue};
    use jiff::{SignedDuration, Timestamp};
    use uuid::Uuid;

    use super::{BindingRule, Challenge, Channel, EndsTls, Introduction, NewKey, Proof, ProofError, Status};
    use crate::key::SigningKey;

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    fn challenge() -> Challenge {
        Challenge::new(Uuid::nil(), 1).unwrap()
    }

    fn channel(host: &str, value: Option<u8>) -> Channel {
        Channel {
            host: host.to_owned(),
            value: value.map(|value| [value; 32]),
        }
    }

    const ENDED_HERE: EndsTls = EndsTls::Yes(Some([1; 32]));

    #[test]
    fn a_proof_is_for_one_connection() {
        let own = key();
        let challenge = challenge();
        let rule = |hosts: &[&str], public: Option<&str>| BindingRule {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            public_host: public.map(str::to_owned),
            accepts_unbound: false,
        };
        let (none, listed) = (rule(&[], None), rule(&["gate.example"], None));
        let public = rule(&[], Some("gate.example"));
        let (here, gate) = (channel("x.example", Some(1)), channel("gate.example", Some(2)));
        let (plain, other) = (channel("gate.example", None), channel("evil.example", Some(2)));
        let before = EndsTls::Yes(None);
        for (channel, rule, ends_tls, is_permitted) in [
            // The same connection, regardless of the host that was dialed.
            (&here, &none, ENDED_HERE, true),
            (&here, &listed, ENDED_HERE, true),
            // Another one, which somebody passed on.
            (&gate, &none, ENDED_HERE, false),
            (&gate, &public, ENDED_HERE, false),
            (&plain, &public, ENDED_HERE, false),
            (&other, &listed, ENDED_HERE, false),
            (&other, &public, EndsTls::No, false),
            // What ends TLS in front of the gateway is known by its host.
            (&gate, &listed, ENDED_HERE, true),
            (&gate, &listed, EndsTls::No, true),
            (&gate, &public, EndsTls::No, true),
            (&plain, &listed, EndsTls::No, true),
            // It is not known at all, or TLS 1.2 has no value.
            (&gate, &none, EndsTls::No, false),
            (&here, &none, EndsTls::No, false),
            (&here, &none, before, false),
            (&plain, &none, before, false),
        ] {
            let proof = Proof::new(&challenge, &own, channel, "prod", Uuid::nil());
            let expected = match is_permitted {
                true => Ok(own.public()),
                false => Err(ProofError::OtherConnection {
                    host: channel.host.clone(),
                }),
            };
            assert_eq!(
                proof.verify(&challenge, rule, ends_tls),
                expected,
                "{channel:?} {rule:?} {ends_tls:?}"
            );
        }
        // Nobody says another connection than the one that was signed.
        let mut claimed = Proof::new(&challenge, &own, &gate, "prod", Uuid::nil());
        let mut bound = claimed.bound.take().unwrap();
        bound.channel = Some(STANDARD.encode([1; 32]));
        claimed.bound = Some(bound);
        assert_eq!(
            claimed.verify(&challenge, &none, ENDED_HERE),
            Err(ProofError::Signature)
        );
    }

    #[test]
    fn an_agent_of_an_earlier_version_is_told_so() {
        let own = key();
        let challenge = challenge();
        let mut proof = Proof::new(&challenge, &own, &channel("x", Some(1)), "prod", Uuid::nil());
        proof.bound = None;
        let mut rule = BindingRule::default();
        assert_eq!(proof.verify(&challenge, &rule, ENDED_HERE), Err(ProofError::Unbound));
        rule.accepts_unbound = true;
        assert_eq!(proof.verify(&challenge, &rule, ENDED_HERE), Ok(own.public()));
        assert_eq!(
            proof.verify(&self::challenge(), &rule, ENDED_HERE),
            Err(ProofError::Signature)
        );
    }

    #[test]
    fn a_proof_is_for_one_challenge_and_one_key() {
        let (own, other) = (key(), key());
        let challenge = challenge();
        let proof = Proof::new(&challenge, &own, &channel("x", Some(1)), "prod", Uuid::nil());
        let rule = BindingRule::default();
        assert_eq!(proof.verify(&challenge, &rule, ENDED_HERE), Ok(own.public()));
        assert_eq!(
            proof.verify(&self::challenge(), &rule, ENDED_HERE),
            Err(ProofError::Signature)
        );
        let claimed = Proof {
            key: other.public().to_string(),
            ..proof.clone()
        };
        assert_eq!(
            claimed.verify(&challenge, &rule, ENDED_HERE),
            Err(ProofError::Signature)
        );
        let broken = Proof {
            signature: "?".to_owned(),
            ..proof.clone()
        };
        assert_eq!(broken.verify(&challenge, &rule, ENDED_HERE), Err(ProofError::Malformed));
        let loud = Proof {
            cluster: "a\nb".to_owned(),
            ..proof
        };
        assert_eq!(loud.verify(&challenge, &rule, ENDED_HERE), Err(ProofError::Malformed));
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
