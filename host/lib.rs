//! Tollgate: a policy gateway between people, their GitOps control plane and
//! their Kubernetes clusters. The modules are the path of one request.
//!
//! In: settings, Kubernetes objects, policies, plugins, requests. Out: answers,
//! each with one decision record. Never: a request passed on without a permit.
//!
//! | path of a request | takes and gives |
//! |---|---|
//! | [`server`] | a socket, a request and its peer |
//! | [`route`] | a path, its front |
//! | [`authenticate`] | credentials, a principal |
//! | [`front`] | fields, what is asked |
//! | [`caller`], [`claims`] | a principal, what decisions need of it |
//! | [`authorize`] ([`glob`]) | caller and call, a permit |
//! | [`credential`] ([`plugin`]) | a cluster, what it lets the gateway in by |
//! | [`headers`] ([`plugin`], [`assertion`]) | a client's fields and a permit, what may leave |
//! | [`forward`] | what may leave, the backend's response |
//! | [`record`], [`metrics`] | an ending, its record and count |
//!
//! [`grpc`] is how calls and answers look where a client speaks gRPC. Beside it: [`applications`] are Applications with what governs them, [`applicationset`]
//! generates them, [`discovery`]
//! knows the kinds of clusters by [`question`]s, [`pipeline`] knows the order, [`rejection`] words refusals,
//! [`snapshot`] is what decides, made of [`state`], policies and plugins, with
//! every [`diagnostic`]; `address` says which hosts nobody may lead the gateway to; [`discovery`] knows the kinds of clusters, asked with a
//! [`question`]; [`json_path`] finds values in JSON; [`config`] reads the settings, [`running`] starts and
//! stops all, [`admin`] shows it, [`cli`] are the commands.

pub mod access;
mod address;
pub mod admin;
pub mod applications;
pub mod applicationset;
pub mod assertion;
pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod caller;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod config;
pub mod credential;
pub mod diagnostic;
pub mod discovery;
pub mod dns;
pub mod forward;
pub mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod glob;
pub mod grpc;
pub mod headers;
pub mod impersonate;
pub mod json_path;
pub mod metrics;
pub mod pipeline;
pub mod plugin;
pub mod question;
pub mod record;
pub mod rejection;
pub mod repository;
pub mod route;
pub mod running;
pub mod self_check;
pub mod server;
pub mod sessions;
pub mod snapshot;
pub mod state;
pub mod store;
