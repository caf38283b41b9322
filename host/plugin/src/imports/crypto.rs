//! The interface `crypto`: digests, signatures and derived keys, computed from handles and parts.
//!
//! Security: a guest never sees the bytes of a key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use aws_lc_rs::{digest, hmac};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::bindings::provider::tollgate::plugin::crypto as wit;
use crate::bindings::provider::tollgate::plugin::secrets::{Part, SecretError};
use crate::bindings::secret::{Handle, Secret};
use crate::egress_scope::EgressScope;
use crate::host_state::HostState;

impl wit::Host for HostState {
    fn sha256(&mut self, data: Vec<Part>) -> wasmtime::Result<Vec<u8>> {
        let (bytes, _) = self.provider_call()?.concatenate(&data)?;
        Ok(digest::digest(&digest::SHA256, &bytes).as_ref().to_vec())
    }

    fn derive_hmac_sha256(&mut self, key: Handle, data: Vec<u8>) -> wasmtime::Result<Handle> {
        let call = self.provider_call()?;
        let tag = mac(call.secret(&key)?, &data);
        let derived = Zeroizing::new(tag.as_ref().to_vec());
        call.insert_secret(Secret::new(derived, EgressScope::none())?)
    }

    fn hmac_sha256(&mut self, key: Handle, data: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
        let call = self.provider_call()?;
        Ok(mac(call.secret(&key)?, &data).as_ref().to_vec())
    }

    fn sign(&mut self, alg: wit::Algorithm, key: Handle, data: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
        let call = self.provider_call()?;
        let key = PrivateKeyDer::from_pem_slice(call.secret(&key)?.bytes());
        let signature = key.ok().and_then(|key| sign(alg, &key, &data));
        Ok(signature.ok_or(SecretError::BadFormat)?)
    }

    fn certificate_sha256(&mut self, pem: Handle) -> wasmtime::Result<Vec<u8>> {
        let call = self.provider_call()?;
        let certificate = CertificateDer::from_pem_slice(call.secret(&pem)?.bytes());
        let certificate = certificate.map_err(|_| SecretError::BadFormat)?;
        Ok(digest::digest(&digest::SHA256, &certificate).as_ref().to_vec())
    }
}

fn mac(key: &Secret, data: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.bytes()), data)
}

fn sign(alg: wit::Algorithm, key: &PrivateKeyDer<'_>, data: &[u8]) -> Option<Vec<u8>> {
    let random = SystemRandom::new();
    let scheme = match alg {
        wit::Algorithm::Rs256 => &RSA_PKCS1_SHA256,
        wit::Algorithm::Ps256 => &RSA_PSS_SHA256,
        wit::Algorithm::Es256 => {
            let pair = match key {
                PrivateKeyDer::Pkcs8(der) => {
                    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der()).ok()?
                }
                PrivateKeyDer::Sec1(der) => {
                    EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_sec1_der()).ok()?
                }
                _ => return None,
            };
            return Some(pair.sign(&random, data).ok()?.as_ref().to_vec());
        }
    };
    let pair = match key {
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok()?,
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok()?,
        _ => return None,
    };
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(scheme, &random, data, &mut signature).ok()?;
    Some(signature)
}
