//! What tasks and tests share: the paths of third-party programs, which tasks build and tests run, the
//! container image, the manifests, the pictures of the documentation, its reference, and the size of the crates.

pub mod cache;
pub mod figures;
pub mod image;
pub mod manifests;
pub mod pictures;
pub mod postgres;
pub mod reference;
