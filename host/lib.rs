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
//! Beside it: [`pipeline`] knows the order, [`rejection`] words refusals,
//! [`snapshot`] is what decides, made of [`state`], policies and plugins, with
//! every [`diagnostic`]; [`json_path`] finds values in JSON; [`config`] reads the settings, [`running`] starts and
//! stops all, [`admin`] shows it, [`cli`] are the commands.

pub mod access;
pub mod admin;
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
pub mod forward;
pub mod front;
pub mod glob;
pub mod headers;
pub mod impersonate;
pub mod json_path;
pub mod metrics;
pub mod pipeline;
pub mod plugin;
pub mod record;
pub mod rejection;
pub mod route;
pub mod running;
pub mod self_check;
pub mod server;
pub mod sessions;
pub mod snapshot;
pub mod state;
pub mod store;
