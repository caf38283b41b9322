//! The SDK for ApplicationSet generators written in Rust.
//!
//! Implement [`Generator`] and export the type, once per crate:
//!
//! ```
//! use serde_json::{Value, json};
//! use tollgate_generator::{Error, GenerateInput, Generator, Parameters};
//!
//! /// Makes a set of parameters for each of the operator's stages.
//! struct Stages;
//!
//! impl Generator for Stages {
//!     type Config = Vec<String>;
//!
//!     fn generate(stages: &Vec<String>, _: &GenerateInput, _: &Value) -> Result<Vec<Parameters>, Error> {
//!         let one = |stage| Parameters::from_iter([("stage".to_owned(), json!(stage))]);
//!         Ok(stages.iter().map(one).collect())
//!     }
//! }
//!
//! tollgate_generator::generator!(Stages);
//! # fn main() {}
//! ```
//!
//! Each call runs in a fresh instance, so no state outlives a call.
//!
//! Security: secrets are handles. The guest does not see their bytes.

pub use serde;
pub use serde_json;

mod adapter;
#[cfg(all(feature = "arena", target_arch = "wasm32"))]
#[path = "../../src/arena.rs"]
mod arena;
#[path = "../../provider/src/classify.rs"]
pub mod classify;
#[path = "../../provider/src/encoding.rs"]
pub mod encoding;
#[path = "../../provider/src/error.rs"]
mod error;
#[path = "../../provider/src/json.rs"]
mod json;
#[path = "../../provider/src/request.rs"]
mod request;
#[path = "../../provider/src/secret.rs"]
mod secret;

/// The bindings that `wit-bindgen` generates from the world `generator`.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "generator",
        pub_export_macro: true,
        export_macro_name: "export_generator",
        default_bindings_module: "tollgate_generator::bindings",
    });
}

#[doc(hidden)]
pub use adapter::Adapter;
pub use bindings::exports::tollgate::plugin::generators::GenerateInput;
pub use bindings::tollgate::plugin::crypto::Algorithm;
pub use bindings::tollgate::plugin::provider_types::Instant;
pub use bindings::tollgate::plugin::secrets::{Encoding, JwtTimes, Part, Secret, SecretError, SecretRef};
pub use bindings::tollgate::plugin::{ambient, clock, crypto, egress, json_path, log, memo, random, secrets};
pub use error::{Class, Error};
pub use json::Json;
pub use request::{Answer, Request, Value};
pub use secret::{ambient_token, compose, copy, optional, public, required, trimmed};

/// One set of parameters.
pub type Parameters = serde_json::Map<String, serde_json::Value>;

/// A generator of parameters for ApplicationSets.
///
/// Each call runs in a fresh instance. Secrets are handles.
pub trait Generator {
    /// The configuration of the operator's grant, as the manifest's `configSchema`
    /// describes it.
    type Config: serde::de::DeserializeOwned;

    /// Checks the configuration when the plugin is loaded, and returns warnings for the operator.
    /// It can neither send requests nor use secrets.
    ///
    /// # Errors
    /// What the operator must change.
    fn check(config: &Self::Config) -> Result<Vec<String>, Error> {
        let _ = config;
        Ok(Vec::new())
    }

    /// Returns sets of parameters for a generator of an ApplicationSet.
    ///
    /// `settings` is what the ApplicationSet has below the generator's key. Do not trust it:
    /// everyone who may preview a set can write it.
    ///
    /// # Errors
    /// Why there are no parameters.
    fn generate(
        config: &Self::Config,
        input: &GenerateInput,
        settings: &serde_json::Value,
    ) -> Result<Vec<Parameters>, Error>;
}

/// Exports the type as the component's generator. Call it once per crate.
#[macro_export]
macro_rules! generator {
    ($generator:ty) => {
        #[doc(hidden)]
        type TollgateGenerator = $crate::Adapter<$generator>;
        $crate::bindings::export_generator!(TollgateGenerator with_types_in $crate::bindings);
    };
}
