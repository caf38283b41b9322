//! The agent's key pair. The private half never leaves the cluster; the gateway knows the public half.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use tollgate_core::agent::AgentKey;

/// A private key of Ed25519 (RFC 8032).
#[derive(derive_more::Debug)]
#[debug("SigningKey({public})")]
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: AgentKey,
}

/// The text is no private key of Ed25519 in PEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no private key of Ed25519 in PEM (PKCS #8)")]
pub struct NoKey;

impl SigningKey {
    /// Reads PKCS #8 in PEM (RFC 8410), as `openssl genpkey -algorithm ed25519` writes it.
    ///
    /// # Errors
    /// [`NoKey`].
    pub fn from_pem(pem: &SecretString) -> Result<Self, NoKey> {
        let key = PrivateKeyDer::from_pem_slice(pem.expose_secret().as_bytes()).map_err(|_| NoKey)?;
        let PrivateKeyDer::Pkcs8(der) = &key else {
            return Err(NoKey);
        };
        // Also without the public half, which OpenSSL does not write.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).map_err(|_| NoKey)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| NoKey)?;
        Ok(Self {
            pair,
            public: AgentKey::new(public),
        })
    }

    /// Makes a key, in PEM.
    ///
    /// # Errors
    /// [`NoKey`]: the system has no random bytes.
    pub fn generate_pem() -> Result<SecretString, NoKey> {
        let document = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).map_err(|_| NoKey)?;
        let text = Zeroizing::new(STANDARD.encode(document.as_ref()));
        Ok(SecretString::from(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            *text
        )))
    }

    /// The public half.
    pub fn public(&self) -> AgentKey {
        self.public
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// Whether `signature` of a message is by the private half of a key.
pub(crate) fn is_signed(key: &AgentKey, message: &[u8], signature: &[u8]) -> bool {
    let key = UnparsedPublicKey::new(&ED25519, key.as_bytes());
    key.verify(message, signature).is_ok()
}
