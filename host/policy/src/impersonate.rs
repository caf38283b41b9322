//! Determines the identity that the gateway impersonates in a cluster, from an access to an agent
//! and the mapping policy. Every [`Error`] is a 403.
//!
//! `policies/kubernetes/impersonation.cel.yaml` says which names people and jobs have in clusters;
//! docs/policies.md describes it.
//!
//! Security: an identity never has a `system:` name that is no literal of the mapping, an empty
//! name, a value that HTTP would change in transit, or more groups than allowed.

use std::io::ErrorKind;
use std::path::Path;

use serde_saphyr::Spanned;

use crate::cel::{self, Expression};
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_core::user::Identity;

mod access_input;
mod checks;
mod mapping;
pub mod service_account;
#[cfg(test)]
mod tests;

pub use access_input::AccessInput;
pub use checks::{MAX_VALUE_BYTES, MAX_VALUES};
pub use mapping::{ImpersonationMapping, PossibleNames};

/// Name of the impersonation file. For Kubernetes it says which names people and jobs have in
/// clusters. For Applications it says who acts where no entry names an account, and which values
/// about the caller are sent to the cluster.
pub const IMPERSONATION_FILE: &str = "impersonation.cel.yaml";
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The identity to impersonate, or deliberately none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Impersonation {
    /// The cluster's credential acts in its own name.
    Nobody,
    /// This identity, which passed all checks.
    As(Identity),
}

/// Why there is no identity to impersonate. Each error denies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An expression of the mapping could not be evaluated.
    #[error("`{part}` of the mapping")]
    Expression {
        /// Its key in the file.
        part: String,
        /// Why.
        #[source]
        source: cel::Error,
    },
    /// This part of the identity is empty.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A `system:` name that is no literal of the mapping.
    #[error("the {part} `{name}` starts with `system:` and is not listed literally in the mapping")]
    System {
        /// Which part.
        part: &'static str,
        /// The name.
        name: String,
    },
    /// This part has a control character.
    #[error("the {0} has a control character")]
    Control(&'static str),
    /// This part has a leading or trailing blank, which HTTP would remove.
    #[error("the {0} starts or ends with a blank")]
    Blank(&'static str),
    /// Too long.
    #[error("the {part} has {observed} bytes, {MAX_VALUE_BYTES} are allowed")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// Its bytes.
        observed: usize,
    },
    /// A key of `extra` that Kubernetes would read differently, or that is reserved for Kubernetes.
    #[error("the key `{key}` of `extra` {problem}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// More values in `extra` than allowed.
    #[error("`extra` has {0} values, {MAX_VALUES} are allowed")]
    TooManyValues(usize),
    /// More groups than allowed.
    #[error("there are {observed} groups, {allowed} are allowed")]
    TooManyGroups {
        /// How many.
        observed: usize,
        /// How many are allowed.
        allowed: usize,
    },
}

/// Reads the impersonation file of `folder`. `missing` is the result if there is no such file, where
/// that is no error.
fn load_file<T>(folder: &Path, missing: Option<T>, parse: impl FnOnce(&str, &str) -> Loaded<T>) -> Loaded<T> {
    let path = folder.join(IMPERSONATION_FILE);
    let shown_path = path.display().to_string();
    let refused =
        |message: String| Loaded::refused(vec![Diagnostic::error(Location::new(shown_path.as_str(), 0), message)]);
    // If the length is unknown, reading the file fails as well and says why.
    let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if length > MAX_FILE_BYTES {
        return refused(format!("the file has {length} bytes, {MAX_FILE_BYTES} are allowed"));
    }
    match (std::fs::read_to_string(&path), missing) {
        (Ok(text), _) => parse(&shown_path, &text),
        (Err(error), Some(missing)) if error.kind() == ErrorKind::NotFound => Loaded::new(missing, Vec::new()),
        (Err(error), _) => refused(format!("the file cannot be read: {error}")),
    }
}

fn location_of(path: &str, source: &Spanned<String>) -> Location {
    Location::new(path, u32::try_from(source.referenced.line()).unwrap_or(0))
}

/// Compiles an expression of the file at `path`, or reports what is wrong with it.
fn compile(
    path: &str,
    part: &str,
    source: &Spanned<String>,
    variables: &[&str],
    found: &mut Vec<Diagnostic>,
) -> Option<Expression> {
    let finding = |error| Diagnostic::error(location_of(path, source), format!("`{part}`: {error}"));
    let compiled = Expression::compile(&source.value, variables);
    compiled.map_err(|error| found.push(finding(error))).ok()
}

fn failed(part: &str) -> impl FnOnce(cel::Error) -> Error {
    let part = part.to_owned();
    move |source| Error::Expression { part, source }
}
