//! What tasks and tests share: the paths of third-party programs, which tasks build and tests run, the
//! container image, and the manifests.

pub mod cache;
pub mod image;
pub mod manifests;
pub mod postgres;
