//! Access of a person or a CI job to an agent's cluster: what policies decide on.

use std::sync::Arc;

use crate::agent::Agent;
use crate::session::SessionId;
use crate::user::{AccessAs, User};

/// What is known of one access. It proves nothing: the proof is what the identity crate
/// makes of a checked credential, and holds this.
#[derive(Clone, Debug)]
pub struct AccessFacts {
    /// The agent whose cluster is entered.
    pub agent: Arc<Agent>,
    /// The person; a CI job's user for jobs.
    pub user: User,
    /// Whom the cluster sees.
    pub access_as: AccessAs,
    /// The credential they came with.
    pub session: SessionId,
}
