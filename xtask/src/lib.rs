//! What tasks and tests share: the paths of third-party programs, which tasks build and tests run, the
//! container image, the manifests, and the pictures of the documentation.

pub mod cache;
pub mod image;
pub mod manifests;
pub mod pictures;
pub mod postgres;
