//! The gateway: decides which front a request is for, and runs the stages of that front in order.
//! Every request gets one response and one decision record.
//!
//! Security: no request is forwarded without a permit.
//!
//! | module | does |
//! |---|---|
//! | `route` | finds the front of a path |
//! | `front`, `fronts` | what a front is, and the list of those that are written so |
//! | [`extensions`], [`clusters`], [`kubernetes`], [`applications`], [`control_plane`], [`applicationsets`], [`argocd`], [`projects`], `platform` | one front each: routing, authorization, permits and responses |
//! | `admission` | judges what is written to the control plane's cluster, as a webhook with its own listener |
//! | `pipeline` | runs the stages of a request in order |
//! | `object_content`, `owner_search` | tell which Application the object of a request belongs to |
//! | `open_exchanges` | reauthorizes open exchanges after every reload |
//! | `operations` | the API about the gateway itself: decisions, permissions, plugins, state |
//! | `sign_in` | people sign in to the gateway itself, by a browser or on the command line |
//! | [`console`] | what the console's pages may ask of the gateway |
//! | `strangers` | bounds requests of people who are not signed in |
//! | `error_format` | renders denials in the format that the client reads |
//! | `policies` | holds what requests are decided by |
//! | [`snapshot`] | holds all configuration, made of settings, objects, policies and plugins |
//! | [`running`] | starts and stops everything |
//! | `blocking` | runs what takes long away from the threads that serve |
//! | `bypasses` | warns about ways to argocd-server past the gateway |
//! | `admin` | shows the state of the process |

mod admin;
mod bypasses;
mod fronts;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod loader;
mod pipeline;
#[cfg(test)]
mod policy_inputs;
mod routes;
pub mod running;

pub use routes::{RouteLine, routes};
