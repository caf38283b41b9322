//! Repositories as Secrets describe them; `decode/repository.rs` decodes them.
//!
//! Security: `Debug` shows no credential.

use secrecy::SecretString;

use super::TlsVerification;
use tollgate_core::diagnostic::Location;

/// A git Secret of type `repository` or `repo-creds`.
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
    /// The `project` it belongs to; empty for all.
    pub project: String,
    /// How the gateway authenticates.
    pub auth: RepositoryAuth,
    /// `tlsClientCertData` and `tlsClientCertKey`, both PEM.
    pub client_certificate: Option<(SecretString, SecretString)>,
    /// Whether the server's certificate is verified (`insecure`).
    pub verification: TlsVerification,
    /// Where the object starts.
    pub location: Location,
}

/// What a repository Secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryKind {
    /// One repository.
    Repository,
    /// Credentials for every repository below its URL. It does not say which repositories exist.
    Credentials,
}

/// How the gateway authenticates to a repository.
#[derive(Clone, Debug)]
pub enum RepositoryAuth {
    /// Without credentials.
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
    /// An authentication that the gateway does not support; the repository cannot be read.
    Unusable {
        /// The reason, without values of the Secret.
        reason: String,
    },
}
