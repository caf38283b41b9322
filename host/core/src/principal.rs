//! The kinds of credential that vouch for a caller.

/// What vouches for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nothing. Only if the settings allow it, on a loopback listener.
    Anonymous,
    /// A local account of Argo CD: session or API key.
    Local,
    /// A token of an AppProject's role.
    ProjectToken,
    /// A token of an OpenID Connect issuer.
    Oidc,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 4] = [Self::Anonymous, Self::Local, Self::ProjectToken, Self::Oidc];

    /// A stable name, as policies see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Local => "local",
            Self::ProjectToken => "project-token",
            Self::Oidc => "oidc",
        }
    }
}
