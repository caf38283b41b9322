//! Reading git repositories: local ones, and remote ones behind servers that behave
//! and servers that do not.
//!
//! In: repositories made by `git`, served by its own `http-backend`. Out: what the
//! store reads of them, and what it refuses. Never: a connection off this machine.

mod bounds;
mod local;
mod remote;
mod support;
