//! The paths of third-party programs, shared by the tasks that build them and the tests that run
//! them.

pub mod cache;
pub mod postgres;
