//! What every front is made of. A front serves the requests below some paths: it finds out what is asked, decides
//! whether the caller may, and answers.
//!
//! Invariant: nothing here knows a front.

pub mod access_services;
pub mod api;
pub mod blocking;
mod caches;
pub mod caller;
pub mod console;
pub mod denial;
pub mod error_format;
pub mod extension_registry;
mod front;
pub mod grpc;
pub(crate) mod kubernetes_status;
pub mod load_findings;
pub mod open_exchanges;
pub mod origin;
pub mod pages;
pub mod path;
pub mod permission;
pub mod policies;
pub mod policy_input;
pub mod rbac;
pub mod request_record;
pub mod set_list;
pub mod snapshot;
#[cfg(test)]
mod sources;
pub mod status_message;
pub mod strangers;

pub use caches::Caches;
pub use denial::{Denial, Refusal};
pub use front::{
    ApplicationSetsServer, Arrival, CrossOrigin, DecisionInputs, Fallback, Front, KUBERNETES_PREFIX, Lookup, Pass,
    PathRules, Permitted, RecordedAs, RequestContext, Services, States, Steps, System, find_in_paths,
    refuse_credential_of_agent, safety_in_cluster, serve_steps,
};
