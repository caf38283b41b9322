//! The gateway's own access to clusters: its credential and connections for each, the requests it
//! sends for itself, and what it learns from them. It knows no front.
//!
//! Security: a credential is held for one cluster and sent to no other.
//!
//! | module | holds |
//! |---|---|
//! | [`access`] | clusters and plugins → the credential and connections of each cluster |
//! | [`query`] | a request of the gateway's own → the cluster's answer |
//! | [`discovery`] | a group, version and resource → its kind, as the cluster serves it |
//! | [`self_check`] | agents and Applications → which rights to impersonate the clusters lack |

pub mod access;
pub mod discovery;
pub mod query;
pub mod self_check;
