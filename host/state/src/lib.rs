//! Where the objects that the gateway works from are: in a folder ([`directory`]) or an API server ([`kubernetes`]),
//! behind [`source::Source`], and how they are written there. Nothing here decides on access.
//!
//! Security: `Debug` shows no secret.

pub mod argocd_cluster;
pub mod deployed;
pub mod directory;
pub mod kubernetes;
pub mod source;
pub mod watch;
pub mod write;
