//! The SDK for Tollgate header filters written in Rust.
//!
//! Implement [`HeaderFilter`] and export the type, once per crate:
//!
//! ```
//! use tollgate_plugin::{Edit, HeaderFilter, Plans, Refusal, Request};
//!
//! struct Team;
//!
//! impl HeaderFilter for Team {
//!     type Config = String;
//!
//!     fn plan(_: &String) -> Result<Plans, String> {
//!         Ok(tollgate_plugin::empty_plans())
//!     }
//!
//!     fn filter_request(team: &String, _: &Request) -> Result<Vec<Edit>, Refusal> {
//!         Ok(vec![Edit::Set(tollgate_plugin::field("x-team", team))])
//!     }
//! }
//!
//! tollgate_plugin::header_filter!(Team);
//! # fn main() {}
//! ```
//!
//! Each call runs in a fresh instance, so no state outlives a call.

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

pub use serde;
pub use serde_json;

mod adapter;
#[cfg(all(feature = "arena", target_arch = "wasm32"))]
mod arena;

/// The bindings that `wit-bindgen` generates from the WIT package `tollgate:plugin`.
#[doc(hidden)]

pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "header-filter",
        pub_export_macro: true,
        export_macro_name: "export_header_filter",
        default_bindings_module: "tollgate_plugin::bindings",
    });
}

#[doc(hidden)]
pub use adapter::Adapter;
pub use bindings::tollgate::plugin::header_types::{Context, Edit, Field, Plan, Plans, Refusal, Request, Response};
pub use bindings::tollgate::plugin::{clock, log, random};

/// A plugin that edits header fields.
///
/// A filter can neither see nor edit the fields that the gateway owns (credentials, identity,
/// framing, hop-by-hop). An edit of such a field fails the call, which denies the request.
pub trait HeaderFilter {
    /// The configuration, as the manifest's `configSchema` describes it. If the operator writes
    /// none, the type's default is used.
    type Config: serde::de::DeserializeOwned + Default;

    /// Returns the edits that the gateway applies to every message. Called once, at load.
    ///
    /// # Errors
    /// A message for the operator. The plugin is not loaded.
    fn plan(config: &Self::Config) -> Result<Plans, String>;

    /// Returns the edits of one request. Called if the manifest's `filters` lists `request`.
    ///
    /// # Errors
    /// A [`Refusal`]. The request is not forwarded.
    fn filter_request(config: &Self::Config, request: &Request) -> Result<Vec<Edit>, Refusal> {
        let _ = (config, request);
        Ok(Vec::new())
    }

    /// Returns the edits of one response. Called if the manifest's `filters` lists `response`.
    ///
    /// # Errors
    /// A [`Refusal`]. The client does not get the response.
    fn filter_response(config: &Self::Config, response: &Response) -> Result<Vec<Edit>, Refusal> {
        let _ = (config, response);
        Ok(Vec::new())
    }
}

/// A plan that changes nothing.
pub fn empty_plan() -> Plan {
    Plan {
        remove: Vec::new(),
        remove_prefixes: Vec::new(),
        set: Vec::new(),
    }
}

/// Plans that change nothing, for filters that only work per message.
pub fn empty_plans() -> Plans {
    Plans {
        request: empty_plan(),
        response: empty_plan(),
    }
}

/// A header field with a text as its value.
pub fn field(name: &str, value: &str) -> Field {
    (name.to_string(), value.as_bytes().to_vec())
}

/// A refusal with a status (400 to 599) and a reason that the client may see.
pub fn refuse(status: u16, reason: &str) -> Refusal {
    Refusal {
        status,
        reason: reason.to_string(),
    }
}

/// The first value of the field `name` (lower case), if it is UTF-8.
pub fn text<'a>(fields: &'a [Field], name: &str) -> Option<&'a str> {
    let (_, value) = fields.iter().find(|(key, _)| key == name)?;
    core::str::from_utf8(value).ok()
}

/// Reads a configuration. `null` and the empty text give the default.
///
/// # Errors
/// What is wrong with the configuration.
pub fn from_config<C: serde::de::DeserializeOwned + Default>(config: &str) -> Result<C, String> {
    match config {
        "" | "null" => Ok(C::default()),
        json => serde_json::from_str(json).map_err(|error| format!("configuration: {error}")),
    }
}

/// Exports the type as the component's filter. Call it once per crate.
#[macro_export]
macro_rules! header_filter {
    ($filter:ty) => {
        #[doc(hidden)]
        type TollgateHeaderFilter = $crate::Adapter<$filter>;
        $crate::bindings::export_header_filter!(TollgateHeaderFilter with_types_in $crate::bindings);
    };
}
