//! Tollgate: a policy gateway between people, their GitOps control plane and
//! their Kubernetes clusters. The modules are the path of one request.
//!
//! In: settings, Kubernetes objects, policies, plugins, requests. Out: answers,
//! each with one decision record. Never: a request passed on without a permit.
//!
//! What everything here stands on are crates of their own: `tollgate_core` (vocabulary),
//! `tollgate_config` (settings), `tollgate_state` (the objects of Argo CD and Tollgate),
//! `tollgate_policy` (decisions) and `tollgate_applicationset` (what sets generate).
//!
//! | path of a request | takes and gives |
//! |---|---|
//! | [`server`] | a socket, a request and its peer |
//! | [`route`] | a path, its front |
//! | [`authenticate`] | credentials, a principal |
//! | [`front`] | fields, what is asked |
//! | [`caller`] | a principal, what decisions need of it |
//! | [`authorize`] | caller and call, a permit |
//! | [`credential`] ([`plugin`]) | a cluster, what it lets the gateway in by |
//! | [`headers`] ([`plugin`], [`assertion`]) | a client's fields and a permit, what may leave |
//! | [`forward`] | what may leave, the backend's response |
//! | [`record`], [`metrics`] | an ending, its record and count |
//!
//! [`grpc`] is how calls and answers look where a client speaks gRPC. Beside it:
//! [`discovery`] knows the kinds of clusters, asked with a [`question`], [`pipeline`] knows
//! the order, [`rejection`] words refusals, [`snapshot`] is what decides, made of objects,
//! policies and plugins; [`running`] starts and stops all, [`admin`] shows it, [`cli`] are
//! the commands.

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
