//! What a Tollgate plugin written in Rust needs.
//!
//! Implement [`HeaderFilter`] and name the type once:
//!
//! ```ignore
//! tollgate_plugin::header_filter!(MyFilter);
//! ```
//!
//! In: the gateway's calls. Out: plans, edits and refusals. Never: state that
//! outlives a call, for each call runs in a fresh instance.

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

pub use serde;
pub use serde_json;

mod adapter;
#[cfg(all(feature = "arena", target_arch = "wasm32"))]
mod arena;

/// What `wit-bindgen` makes of the WIT package `tollgate:plugin`.
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
/// Fields the gateway owns (credentials, identity, framing, hop-by-hop) can be
/// neither seen nor edited; an edit of one fails the call, which denies the
/// request.
pub trait HeaderFilter {
    /// The configuration, as the manifest's `configSchema` describes it. An
    /// operator who writes none hands over `null`, so `Option` and types with
    /// `#[serde(default)]` fields behind [`from_config`] are the usual choice.
    type Config: serde::de::DeserializeOwned + Default;

    /// What to do with every message. Runs once, at load.
    ///
    /// # Errors
    /// A text for the operator; the load is refused.
    fn plan(config: &Self::Config) -> Result<Plans, String>;

    /// What to do with this request, when the manifest lists `request`.
    ///
    /// # Errors
    /// A [`Refusal`]: the request does not go on.
    fn filter_request(config: &Self::Config, request: &Request) -> Result<Vec<Edit>, Refusal> {
        let _ = (config, request);
        Ok(Vec::new())
    }

    /// What to do with this response, when the manifest lists `response`.
    ///
    /// # Errors
    /// A [`Refusal`]: the response does not go on.
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

/// A field from two texts.
pub fn field(name: &str, value: &str) -> Field {
    (name.to_string(), value.as_bytes().to_vec())
}

/// A refusal with a status (400 to 599) and a text the client may see.
pub fn refuse(status: u16, reason: &str) -> Refusal {
    Refusal {
        status,
        reason: reason.to_string(),
    }
}

/// The first value of field `name` (lower case), when it is text.
pub fn text<'a>(fields: &'a [Field], name: &str) -> Option<&'a str> {
    let (_, value) = fields.iter().find(|(key, _)| key == name)?;
    core::str::from_utf8(value).ok()
}

/// Reads a configuration; `null` and nothing at all are the default.
///
/// # Errors
/// A text that names what is wrong with it.
pub fn from_config<C: serde::de::DeserializeOwned + Default>(config: &str) -> Result<C, String> {
    match config {
        "" | "null" => Ok(C::default()),
        json => serde_json::from_str(json).map_err(|error| format!("configuration: {error}")),
    }
}

/// Makes the type the component's filter. Once a crate.
#[macro_export]
macro_rules! header_filter {
    ($filter:ty) => {
        #[doc(hidden)]
        type TollgateHeaderFilter = $crate::Adapter<$filter>;
        $crate::bindings::export_header_filter!(TollgateHeaderFilter with_types_in $crate::bindings);
    };
}
