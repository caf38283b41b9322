//! The fronts whose requests go into clusters: of agents, Applications and clusters, and that of Argo CD's own
//! components. [`agents`] is the front that agents dial.
//!
//! Invariant: no front here knows another. What they share is in modules beside them.

mod agent_key_view;
pub mod agents;
mod applications;
mod cluster_request;
mod clusters;
mod control_plane;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod kubernetes;
mod object_content;
mod owner_search;
mod restriction;

pub use agents::AgentsFront;
pub use applications::ApplicationsFront;
pub use applications::permit::{ApplicationAccess, ApplicationPermit};
pub use clusters::ClustersFront;
pub use clusters::permit::ClusterPermit;
pub use clusters::view::ClusterView;
pub use control_plane::ControlPlaneFront;
pub use control_plane::permit::ControlPlanePermit;
pub use kubernetes::KubernetesFront;
pub use kubernetes::permit::KubernetesPermit;
