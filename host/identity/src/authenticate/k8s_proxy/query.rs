//! The query parameters of the Kubernetes front.

use std::borrow::Cow;

use tollgate_core::query_parameters::{self, Error};

use super::MalformedAgentCredential;

/// Parameter with the agent's number, for browsers that open WebSockets.
pub const AGENT_PARAMETER: &str = "gitlab-agent-id";
/// Parameter with the CSRF token, likewise.
pub const CSRF_PARAMETER: &str = "gitlab-csrf-token";

/// The form-decoded value of a parameter, which must not occur twice.
pub(super) fn sole(query: &str, name: &'static str) -> Result<Option<String>, MalformedAgentCredential> {
    query_parameters::sole(query, name).map_err(|error| match error {
        Error::Repeated(observed) => MalformedAgentCredential::Repeated { name, observed },
        Error::Encoding => MalformedAgentCredential::Encoding(name),
    })
}

/// Removes the parameters that are for the gateway from a query, [`AGENT_PARAMETER`] and
/// [`CSRF_PARAMETER`]. All other bytes stay as they are and in order; `None` if nothing is left.
///
/// SECURITY: no spelling of the CSRF token reaches the cluster's audit log.
pub fn strip(query: Option<&str>) -> Option<Cow<'_, str>> {
    query_parameters::strip(query, &[AGENT_PARAMETER, CSRF_PARAMETER])
}
