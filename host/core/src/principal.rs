//! The kinds of credential that vouch for a caller.

/// What vouches for the caller.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::AsRefStr,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// Nothing. Only if the settings allow it, on a loopback listener.
    Anonymous,
    /// A local account of Argo CD: session or API key.
    Local,
    /// A token of an AppProject's role.
    ProjectToken,
    /// A token of an OpenID Connect issuer.
    Oidc,
    /// The API server of the control plane's cluster, which authenticated its own user.
    Kubernetes,
}
