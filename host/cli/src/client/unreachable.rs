//! Explains why a server could not be reached: the root cause, and the option that helps.

use std::error::Error;
use std::io;

use rustls::CertificateError;

use crate::client::Failure;

/// The failure of a request that got no response.
///
/// - `server`: such as "the gateway at `https://t.example`".
/// - `option`: the option that names the server, such as `--server`.
/// - `authority`: the option that names a certificate authority, if there is one.
pub(crate) fn unreachable(server: &str, error: &reqwest::Error, option: &str, authority: Option<&str>) -> Failure {
    let root = root(error);
    let (cause, hint) = if error.is_timeout() {
        ("no answer in time".to_owned(), format!("is `{option}` right?"))
    } else if let Some(error) = root.downcast_ref::<rustls::Error>() {
        tls(error, option, authority)
    } else {
        let hint = match root.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => format!("nothing listens there; name the server with `{option}`"),
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => scheme_hint(error, option),
            Some(_) => format!("name the server with `{option}`"),
            None if is_http_parse_error(root) => scheme_hint(error, option),
            None => format!("name the server with `{option}`"),
        };
        (root.to_string(), hint)
    };
    Failure::new(
        "gateway.unreachable",
        format_args!("{server} cannot be reached: {cause}"),
    )
    .with_hint(hint)
}

fn tls(error: &rustls::Error, option: &str, authority: Option<&str>) -> (String, String) {
    let trust = || match authority {
        Some(authority) => format!("name the authority that signed it with `{authority}`"),
        None => "the system does not trust the authority that signed it".to_owned(),
    };
    match error {
        rustls::Error::InvalidCertificate(why) => {
            let (cause, hint) = match why {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    ("has expired".to_owned(), "the server needs a new one".to_owned())
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
                    "is not valid yet".to_owned(),
                    "compare this machine's clock with the server's".to_owned(),
                ),
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
                    "is for another name".to_owned(),
                    format!("name the server as its certificate does, with `{option}`"),
                ),
                CertificateError::UnknownIssuer => ("is signed by an unknown authority".to_owned(), trust()),
                other => (format!("is not accepted: {other}"), trust()),
            };
            (format!("its certificate {cause}"), hint)
        }
        rustls::Error::InvalidMessage(_) => (
            "it does not speak TLS".to_owned(),
            format!("write `http://` in `{option}` where it serves without TLS"),
        ),
        other => (other.to_string(), format!("name the server with `{option}`")),
    }
}

fn is_http_parse_error(root: &(dyn Error + 'static)) -> bool {
    root.downcast_ref::<hyper::Error>()
        .is_some_and(|error| error.is_parse() || error.is_incomplete_message())
        // The parser's own error has no public type.
        || root.to_string().contains("invalid HTTP")
}

fn scheme_hint(error: &reqwest::Error, option: &str) -> String {
    let is_plain = error.url().is_some_and(|url| url.scheme() == "http");
    if is_plain {
        format!("write `https://` in `{option}` where it serves with TLS")
    } else {
        format!("name the server with `{option}`")
    }
}

/// The innermost cause. [`Error::source`] of an I/O error skips the error that it wraps.
fn root<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut at = error;
    loop {
        let wrapped = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = wrapped.map(|inner| -> &'a (dyn Error + 'static) { inner });
        match inner.or_else(|| at.source()) {
            Some(next) => at = next,
            None => return at,
        }
    }
}
