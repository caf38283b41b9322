//! Settings of people's sign-in to the gateway itself.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// Where people sign in to the gateway itself, and how long that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Console {
    /// Its URL without a path: https, or http on loopback. Cookies and callbacks live on its host.
    pub url: Url,
    /// Whether the host is the console's own.
    pub host: ConsoleHost,
    /// How long a browser's session lasts without a request, 5 min to 24 h.
    pub idle: Duration,
    /// How long a browser's session lasts, 5 min to 7 days.
    pub lifetime: Duration,
    /// How long a login of the command line lasts, 15 min to 30 days.
    pub login_lifetime: Duration,
    /// Whether the command line may sign in by a code that is typed into a browser elsewhere.
    pub device_login: DeviceLogin,
    /// Whom to ask for rights, as people read it below a refusal; at most 200 characters.
    pub contact: Option<String>,
}

/// Whether the console has its own host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleHost {
    /// Nothing of argocd-server is served on it.
    Own,
    /// It is Argo CD's, too: a script in a page of Argo CD can act as anyone who views it.
    SharedWithArgocd,
}

/// Whether people may sign in by the device flow (RFC 8628).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLogin {
    /// They may.
    Allowed,
    /// They may not.
    Refused,
}

/// What the gateway is at an OpenID Connect issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcClient {
    /// Client id, which is an audience of its ID tokens.
    pub id: String,
    /// File with the secret on its first line; `None` for a public client.
    pub secret_file: Option<PathBuf>,
    /// Scopes that are requested, `openid` among them.
    pub scopes: Vec<String>,
    /// The name on the sign-in page, and the last segment of the callback's path.
    pub name: String,
}
