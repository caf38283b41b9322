//! The SDK for credential providers written in Rust.
//!
//! Implement [`Provider`] and export the type, once per crate:
//!
//! ```
//! use tollgate_provider::{Credential, Error, Expiry, MintInput, Provider};
//!
//! /// Hands out the value `token` of the cluster's Secret.
//! struct StaticToken;
//!
//! impl Provider for StaticToken {
//!     type Config = ();
//!
//!     fn mint(_: &(), _: &MintInput) -> Result<Credential, Error> {
//!         let token = tollgate_provider::trimmed("token")?;
//!         Ok(tollgate_provider::bearer(token, Expiry::unknown()))
//!     }
//! }
//!
//! tollgate_provider::credential_provider!(StaticToken);
//! # fn main() {}
//! ```
//!
//! Each call runs in a fresh instance, so no state outlives a call.
//!
//! Security: secrets are handles. The guest sees their bytes only if it is granted [`reveal`].

pub use serde;
pub use serde_json;

mod adapter;
#[cfg(all(feature = "arena", target_arch = "wasm32"))]
#[path = "../../src/arena.rs"]
mod arena;
pub mod aws;
pub mod classify;
pub mod encoding;
mod error;
mod expiry;
mod json;
pub mod jwt;
pub mod kubernetes;
pub mod oauth;
mod request;
mod secret;
pub mod sigv4;

/// The bindings that `wit-bindgen` generates from the world `credential-provider`.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "credential-provider",
        pub_export_macro: true,
        export_macro_name: "export_credential_provider",
        default_bindings_module: "tollgate_provider::bindings",
    });
}

#[doc(hidden)]
pub use adapter::Adapter;
pub use bindings::exports::tollgate::plugin::credentials::{ClientCertificate, Credential};
pub use bindings::tollgate::plugin::crypto::Algorithm;
pub use bindings::tollgate::plugin::provider_types::{Cluster, Instant, MintInput, Reason};
pub use bindings::tollgate::plugin::secrets::{Encoding, JwtTimes, Part, Secret, SecretError, SecretRef};
pub use bindings::tollgate::plugin::{ambient, clock, crypto, egress, json_path, log, memo, random, reveal, secrets};
pub use error::{Class, Error};
pub use expiry::{Expiry, rfc3339};
pub use json::Json;
pub use request::{Answer, Request, Value};
pub use secret::{ambient_token, compose, copy, optional, public, required, trimmed};

/// A provider of credentials for clusters.
///
/// Each call runs in a fresh instance. Secrets are handles. The manifest lists what the guest may
/// read as text (`visible`, `public`, `publicFields`).
pub trait Provider {
    /// The configuration, as the manifest's `configSchema` describes it.
    type Config: serde::de::DeserializeOwned;

    /// Checks a configuration when it is loaded, and returns warnings for the operator. It can send
    /// no requests, and of the Secret it can read only public values.
    ///
    /// # Errors
    /// What the operator must change.
    fn check(config: &Self::Config) -> Result<Vec<String>, Error> {
        let _ = config;
        Ok(Vec::new())
    }

    /// Makes a credential for the cluster of `input`.
    ///
    /// # Errors
    /// Why there is no credential. The class decides when the host tries again.
    fn mint(config: &Self::Config, input: &MintInput) -> Result<Credential, Error>;

    /// Revokes the credential that [`Provider::mint`] returned with this `revocation`. Called once;
    /// the host does not retry a failure.
    ///
    /// # Errors
    /// Why the revocation failed.
    fn revoke(config: &Self::Config, revocation: &Secret) -> Result<(), Error> {
        let _ = (config, revocation);
        Ok(())
    }
}

/// A credential that consists of a bearer token.
pub fn bearer(token: Secret, expiry: Expiry) -> Credential {
    Credential {
        token: Some(token),
        certificate: None,
        headers: Vec::new(),
        expires_at: expiry.at,
        cacheable: expiry.cacheable,
        revocation: None,
        warnings: expiry.warning.into_iter().collect(),
    }
}

/// Exports the type as the component's provider. Call it once per crate.
#[macro_export]
macro_rules! credential_provider {
    ($provider:ty) => {
        #[doc(hidden)]
        type TollgateProvider = $crate::Adapter<$provider>;
        $crate::bindings::export_credential_provider!(TollgateProvider with_types_in $crate::bindings);
    };
}
