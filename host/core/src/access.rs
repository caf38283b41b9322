//! The facts that policies judge when a person or a CI job accesses an agent's cluster.

use std::sync::Arc;

use crate::agent::Agent;
use crate::session::SessionId;
use crate::user::{AccessAs, User};

/// What is known of one access. It proves nothing by itself: the identity crate makes the proof
/// from a checked credential, and the proof holds this.
#[derive(Clone, Debug)]
pub struct AccessFacts {
    /// The agent whose cluster is accessed.
    pub agent: Arc<Agent>,
    /// The person; for a CI job, the user who runs it.
    pub user: User,
    /// The identity the cluster sees.
    pub access_as: AccessAs,
    /// The credential they came with.
    pub session: SessionId,
}
