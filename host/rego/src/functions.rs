//! The functions that policies call whose implementation in the engine differs from OPA's, is not
//! bounded or does not exist.

mod encoding;
pub(crate) mod format;
mod json;
mod net;
pub(crate) mod numbers;
pub(crate) mod opa;
mod paths;
pub(crate) mod reachable;
pub(crate) mod texts;
mod units;
mod uri;
mod uuid;
