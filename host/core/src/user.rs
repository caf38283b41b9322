//! People and CI jobs, and the identity a cluster sees in their place.

use serde::{Deserialize, Serialize};

/// A person, by number and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Number in the directory; 0 for a person known only to an issuer.
    pub id: i64,
    /// Name in the directory, or the mapped username.
    pub username: String,
}

/// Roles in one project or group that `user_access` lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Membership {
    /// Number of the project or group.
    pub id: i64,
    /// Its path; empty if an external platform gave only the number.
    pub path: String,
    /// Every role from reporter up to the effective one.
    pub roles: Vec<Role>,
}

/// The identity the cluster sees. The text is its name in policies.
#[derive(Clone, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum AccessAs {
    /// The agent: only the cluster's credential is used, and nobody is impersonated.
    Agent,
    /// The person, with the roles that gave access.
    User {
        /// Listed projects, in the configuration's order.
        projects: Vec<Membership>,
        /// Listed groups, in the configuration's order.
        groups: Vec<Membership>,
    },
    /// The identity that the issuer's `claimMappings` give.
    Mapped(Identity),
    /// A CI job.
    CiJob(Box<CiJob>),
    /// A fixed identity, for CI jobs whose configuration says so.
    Impersonate(Identity),
}

/// A CI job, as the platform describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiJob {
    /// Number of the job.
    pub id: i64,
    /// Number of its pipeline.
    pub pipeline: i64,
    /// Number of its project.
    pub project: i64,
    /// Numbers of the groups above its project.
    pub groups: Vec<i64>,
    /// Slug and tier of its environment, where it has one.
    pub environment: Option<(String, String)>,
}

/// The role of a member, in increasing order of what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::AsRefStr, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// May read little.
    Guest,
    /// May read.
    Reporter,
    /// May write. The lowest role that has access to agents.
    Developer,
    /// May administer.
    Maintainer,
    /// May do everything.
    Owner,
}

/// A Kubernetes identity: `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Never empty.
    pub username: String,
    /// In order; no duplicates.
    pub groups: Vec<String>,
    /// Empty counts as none.
    pub uid: Option<String>,
    /// Lower-case keys and their values.
    pub extra: Vec<(String, Vec<String>)>,
}
