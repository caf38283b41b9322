//! What tasks and tests share: the paths of third-party programs, which tasks build and tests run, and
//! the container image.

pub mod cache;
pub mod image;
pub mod postgres;
