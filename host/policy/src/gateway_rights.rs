//! The rights that the gateway's own identity needs in a cluster: as which people and service accounts it acts
//! there, and the RBAC objects that let it.

pub mod accounts;
pub mod grants;
pub mod manifest;
