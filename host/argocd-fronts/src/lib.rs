//! The fronts before other servers of Argo CD: argocd-server, and the backends of its extensions.
//!
//! Invariant: no front here knows another.

mod argocd;
mod extensions;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;

pub use argocd::permit::ArgocdPermit;
pub use argocd::route::is_argocd;
pub use argocd::{ArgocdFront, backend, methods};
pub use extensions::assertion_keys::AssertionKeysFront;
pub use extensions::permit::ExtensionPermit;
pub use extensions::{ExtensionsFront, call};
