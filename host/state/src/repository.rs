//! Repositories as Secrets describe them.
//!
//! In: decoded by `decode/repository.rs`. Out: values. Never: a credential in
//! `Debug`.

use secrecy::SecretString;

use super::Verification;
use tollgate_core::diagnostic::Location;

/// A Secret of type `repository` or `repo-creds` that is for git.
///
/// Source: Argo CD's declarative setup.
#[derive(Clone, Debug)]
pub struct Repository {
    /// Name of the Secret.
    pub secret: String,
    /// What it is for.
    pub kind: RepositoryKind,
    /// `url`, as it is written.
    pub url: String,
    /// `project` it belongs to; empty for all.
    pub project: String,
    /// How the gateway says who it is.
    pub auth: RepositoryAuth,
    /// `tlsClientCertData` and `tlsClientCertKey`, both PEM.
    pub client_certificate: Option<(SecretString, SecretString)>,
    /// Whether the server's certificate is verified (`insecure`).
    pub verification: Verification,
    /// Where the object starts.
    pub location: Location,
}

/// What a repository Secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryKind {
    /// One repository.
    Repository,
    /// Credentials of every repository below its URL; says nothing about which
    /// repositories there are.
    Credentials,
}

/// How the gateway says who it is at a repository.
#[derive(Clone, Debug)]
pub enum RepositoryAuth {
    /// Not at all.
    Anonymous,
    /// Basic, RFC 7617.
    Basic {
        /// `username`; without colon.
        username: SecretString,
        /// `password`.
        password: SecretString,
    },
    /// `bearerToken`, RFC 6750.
    Bearer(SecretString),
    /// A way the gateway does not have; the repository cannot be read.
    Unusable {
        /// Why, without values.
        reason: String,
    },
}
