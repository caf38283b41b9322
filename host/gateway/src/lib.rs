//! The gateway: which front a request is for, what the front asks, what the policies answer, and
//! the order of the stages. Every request gets one answer and one decision record.
//!
//! Security: no request is passed on without a permit.
//!
//! | path of a request | from | to |
//! |---|---|---|
//! | [`route`] | a path | its front |
//! | [`front`] | header fields | what is asked |
//! | [`caller`] | a principal | what decisions need to know of it |
//! | [`authorize`] | caller and call | a permit |
//! | [`clusters`] | a cluster | the gateway's credential for it, and its connections |
//!
//! [`grpc`] decodes calls and encodes answers for clients that speak gRPC. [`discovery`] knows
//! the kinds of clusters and asks for them with a [`question`]. [`pipeline`] knows the order of
//! the stages, and [`rejection`] words refusals. [`snapshot`] holds everything that decides, made
//! of objects, policies and plugins. [`running`] starts and stops everything, and [`admin`] shows
//! its state.

pub mod admin;
pub mod applications;
pub mod applicationsets;
pub mod caller;
pub mod cluster_access;
mod cluster_request;
pub mod clusters;
pub mod discovery;
pub mod extensions;
mod front;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod kubernetes;
pub mod open_exchanges;
pub mod pipeline;
pub mod platform;
pub mod projects;
pub mod question;
pub mod rejection;
pub mod route;
pub mod running;
pub mod self_check;
pub mod snapshot;
