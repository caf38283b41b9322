//! Writes the `Set-Cookie` field of browser sessions.
//!
//! Security: scripts cannot read the cookie, and browsers send it only to the Kubernetes front.

use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use tollgate_config::{Kubernetes, SameSite};
use tollgate_front::api::Error;

/// Name of the cookie, the same as GitLab's.
pub(crate) const NAME: &str = "_gitlab_kas";

/// Path of the Kubernetes front if no public URL says otherwise.
const PATH: &str = "/k8s-proxy/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportSecurity {
    /// They do. Browsers send the cookie only over TLS.
    Tls,
    /// Neither the connection, a trusted proxy nor the public URL says so.
    Plain,
}

impl TransportSecurity {
    /// Determined by what the client uses, and by the public URL.
    pub(crate) fn of(uses_tls: bool, settings: &Kubernetes) -> Self {
        let public = settings.public_url.as_ref().is_some_and(|url| url.scheme() == "https");
        if uses_tls || public { Self::Tls } else { Self::Plain }
    }
}

/// The field that sets the cookie.
///
/// # Errors
/// [`Error::Cookie`]: `SameSite=None` without TLS; a browser would refuse it.
pub(crate) fn set_cookie(
    value: &SecretString,
    settings: &Kubernetes,
    transport: TransportSecurity,
) -> Result<HeaderValue, Error> {
    let same_site = match (settings.same_site, transport) {
        (SameSite::Strict, _) => "Strict",
        (SameSite::Lax, _) => "Lax",
        (SameSite::None, TransportSecurity::Tls) => "None",
        (SameSite::None, TransportSecurity::Plain) => return Err(Error::Cookie),
    };
    let secure = match transport {
        TransportSecurity::Tls => "; Secure",
        TransportSecurity::Plain => "",
    };
    let path = settings.public_url.as_ref().map_or(PATH, |url| url.path());
    let text = Zeroizing::new(format!(
        "{NAME}={}; Path={path}; HttpOnly; SameSite={same_site}; Max-Age={}{secure}",
        value.expose_secret(),
        settings.cookie_lifetime.as_secs(),
    ));
    let mut field = HeaderValue::from_str(&text).map_err(|_| Error::Cookie)?;
    field.set_sensitive(true);
    Ok(field)
}

#[cfg(test)]
mod tests;
