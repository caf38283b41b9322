//! Impersonation of the service accounts of Applications, with real clusters and clients. The
//! gateway's objects are in a folder or in the cluster.

mod conflict;
mod examples;
pub(crate) mod fixture;
mod modes;
mod objects;
mod replicas;
mod restrictions;
mod special;
mod sync;
mod through_agent;
mod tools;
