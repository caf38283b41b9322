//! Applications act as their own service account: real clusters, real clients, the
//! gateway between them, with its objects in a folder or in the cluster.

mod conflict;
mod examples;
mod modes;
mod objects;
mod replicas;
mod restrictions;
mod special;
mod tools;
pub(crate) mod world;
