//! Explains why a server could not be reached: the root cause, and the option that helps.

use std::error::Error;
use std::io;

use rustls::CertificateError;

use crate::failure::{Failure, root_cause};

/// The failure of a request that got no response.
///
/// - `server`: such as "the gateway at `https://t.example`".
/// - `option`: the option that names the server, such as `--server`.
/// - `authority`: the option that names a certificate authority, if there is one.
pub fn unreachable(server: &str, error: &reqwest::Error, option: &str, authority: Option<&str>) -> Failure {
    let root = root_cause(error);
    let name_it = format!("name the server with `{option}`");
    let (cause, hint) = if error.is_timeout() {
        ("no answer in time".to_owned(), format!("is `{option}` right?"))
    } else if let Some(error) = root.downcast_ref::<rustls::Error>() {
        let (cause, hint) = tls(error, option, authority);
        (cause, hint.unwrap_or(name_it))
    } else {
        let is_plain = error.url().is_some_and(|url| url.scheme() == "http");
        let use_tls = || format!("write `https://` in `{option}` where it serves with TLS");
        let hint = match root.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => format!("nothing listens there; {name_it}"),
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) if is_plain => use_tls(),
            None if is_plain && is_http_parse_error(root) => use_tls(),
            Some(_) | None => name_it,
        };
        (root.to_string(), hint)
    };
    let message = format!("{server} cannot be reached: {cause}");
    Failure::new("gateway.unreachable", message).with_hint(hint)
}

/// The cause, and a hint if there is a better one than to check the server's name.
fn tls(error: &rustls::Error, option: &str, authority: Option<&str>) -> (String, Option<String>) {
    let why = match error {
        rustls::Error::InvalidCertificate(why) => why,
        rustls::Error::InvalidMessage(_) => {
            let hint = format!("write `http://` in `{option}` where it serves without TLS");
            return ("it does not speak TLS".to_owned(), Some(hint));
        }
        other => return (other.to_string(), None),
    };
    let trust = || match authority {
        Some(authority) => format!("name the authority that signed it with `{authority}`"),
        None => "the system does not trust the authority that signed it".to_owned(),
    };
    let (cause, hint) = match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired", "the server needs a new one".to_owned())
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "is not valid yet",
            "compare this machine's clock with the server's".to_owned(),
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "is for another name",
            format!("name the server as its certificate does, with `{option}`"),
        ),
        // An authority may have the name of another one, and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ("is signed by an unknown authority", trust())
        }
        other => return (format!("its certificate is not accepted: {other}"), Some(trust())),
    };
    (format!("its certificate {cause}"), Some(hint))
}

fn is_http_parse_error(root: &(dyn Error + 'static)) -> bool {
    root.downcast_ref::<hyper::Error>()
        .is_some_and(|error| error.is_parse() || error.is_incomplete_message())
        // The parser's own error has no public type.
        || root.to_string().contains("invalid HTTP")
}
