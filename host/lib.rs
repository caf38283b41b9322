//! Tollgate: a policy gateway between people, their GitOps control plane and their Kubernetes
//! clusters. Every request gets one answer and one decision record. The modules follow the path
//! of one request.
//!
//! Security: no request is passed on without a permit.
//!
//! Crates of their own hold what the modules build on: `tollgate_core` (vocabulary),
//! `tollgate_config` (settings), `tollgate_state` (the objects of Argo CD and Tollgate),
//! `tollgate_policy` (decisions) and `tollgate_applicationset` (what sets generate).
//!
//! | path of a request | from | to |
//! |---|---|---|
//! | [`server`] | a socket | a request and its peer |
//! | [`route`] | a path | its front |
//! | [`authenticate`] | credentials | a principal |
//! | [`front`] | header fields | what is asked |
//! | [`caller`] | a principal | what decisions need to know of it |
//! | [`authorize`] | caller and call | a permit |
//! | [`credential`] ([`plugin`]) | a cluster | the gateway's credential for it |
//! | [`headers`] ([`plugin`], [`assertion`]) | a client's fields and a permit | the request that may leave |
//! | [`forward`] | the request that may leave | the backend's response |
//! | [`record`], [`metrics`] | how the request ended | its record and count |
//!
//! [`grpc`] decodes calls and encodes answers for clients that speak gRPC. [`discovery`] knows
//! the kinds of clusters and asks for them with a [`question`]. [`pipeline`] knows the order of
//! the stages, and [`rejection`] words refusals. [`snapshot`] holds everything that decides, made
//! of objects, policies and plugins. [`running`] starts and stops everything, [`admin`] shows its
//! state, and [`cli`] has the commands.

pub mod access;
pub mod admin;
pub mod assertion;
pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod caller;
pub mod cli;
pub mod clock;
pub mod credential;
pub mod discovery;
pub mod forward;
pub mod front;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod grpc;
pub mod headers;
pub mod metrics;
pub mod pipeline;
pub mod plugin;
pub mod question;
pub mod record;
pub mod rejection;
pub mod route;
pub mod running;
pub mod self_check;
pub mod server;
pub mod sessions;
pub mod snapshot;
pub mod store;
