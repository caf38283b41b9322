//! The command line.

/// `tollgate rbac`.
pub mod rbac;
