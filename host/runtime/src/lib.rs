//! What long-running parts of the gateway and of the connector share: tasks with an owner, files that are read
//! again when they change, lookups of host names, and certificates.

pub mod certificates;
pub mod followed;
pub mod name_lookup;
pub mod tasks;
