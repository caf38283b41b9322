//! What the gateway and the connector share as long-running processes: tasks with an owner, files that are read
//! again when they change, lookups of host names, certificates, random secrets, the log, and signals.

pub mod certificates;
pub mod followed;
pub mod log;
pub mod name_lookup;
pub mod secret;
pub mod signals;
pub mod tasks;
