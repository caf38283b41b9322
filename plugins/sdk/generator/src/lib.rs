//! What a generator of ApplicationSets written in Rust needs.
//!
//! Implement [`Generator`] and name the type once:
//!
//! ```ignore
//! tollgate_generator::generator!(MyGenerator);
//! ```
//!
//! In: the gateway's calls. Out: sets of parameters. Never: a secret's bytes, and
//! no state that outlives a call.

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

/// What `wit-bindgen` makes of the world `generator`.
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

    /// Looks at the configuration when the plugin is loaded. Gives warnings for the
    /// operator. No requests, no secrets.
    ///
    /// # Errors
    /// What the operator must change.
    fn check(config: &Self::Config) -> Result<Vec<String>, Error> {
        let _ = config;
        Ok(Vec::new())
    }

    /// Makes sets of parameters for a generator of an ApplicationSet.
    ///
    /// - `settings`: what stands below the generator's key. Whoever may preview a
    ///   set wrote them: trust nothing in them.
    ///
    /// # Errors
    /// Why there are none.
    fn generate(
        config: &Self::Config,
        input: &GenerateInput,
        settings: &serde_json::Value,
    ) -> Result<Vec<Parameters>, Error>;
}

/// Makes the type the component's generator. Once a crate.
#[macro_export]
macro_rules! generator {
    ($generator:ty) => {
        #[doc(hidden)]
        type TollgateGenerator = $crate::Adapter<$generator>;
        $crate::bindings::export_generator!(TollgateGenerator with_types_in $crate::bindings);
    };
}
