//! Tests how the store reads git repositories: local ones, and remote ones behind good and bad
//! servers. `git` makes the repositories and its `http-backend` serves them, without a network.

mod bounds;
mod local;
mod remote;
mod support;
