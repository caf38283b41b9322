//! Where a request names its application and project: in a header field, or, for callers that cannot
//! set one (a browser's WebSocket and EventSource), in a query parameter or a WebSocket subprotocol.
//!
//! Security: everything that names the same thing must be equal, so that no reader in front of the
//! gateway sees another name than the one that is authorized. The backend gets the gateway's own
//! header fields, and neither parameter nor subprotocol.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;

use tollgate_core::query_parameters;
use tollgate_core::subprotocol::{self, APPLICATION_PREFIX, PROJECT_PREFIX};

/// One of the two names, and where requests carry it.
#[derive(Debug)]
pub(super) struct Name {
    /// Name of the header field, in lower case, and of the parameter.
    name: &'static str,
    /// The name as documents write it.
    shown: &'static str,
    /// Start of the subprotocol; the value follows in base64url, without padding.
    prefix: &'static str,
}

pub(super) const APPLICATION: Name = Name {
    name: "argocd-application-name",
    shown: "Argocd-Application-Name",
    prefix: APPLICATION_PREFIX,
};

pub(super) const PROJECT: Name = Name {
    name: "argocd-project-name",
    shown: "Argocd-Project-Name",
    prefix: PROJECT_PREFIX,
};

const PARAMETERS: [&str; 2] = [APPLICATION.name, PROJECT.name];

/// Why it is not clear what a request names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("header `{name}` occurs {observed} times, once is allowed")]
    RepeatedHeader { name: &'static str, observed: usize },
    #[error("query parameter `{name}` {problem}")]
    Parameter {
        name: &'static str,
        problem: query_parameters::Error,
    },
    #[error("subprotocol `{prefix}…` occurs {observed} times, once is allowed")]
    RepeatedSubprotocol { prefix: &'static str, observed: usize },
    /// Not base64url, or not UTF-8 when decoded.
    #[error("subprotocol `{0}…` must end in base64url of UTF-8 text, without padding")]
    SubprotocolEncoding(&'static str),
    /// Without another one, the backend has none to choose, and browsers close the WebSocket.
    #[error("subprotocol `{0}…` needs another subprotocol beside it, for the backend to choose")]
    OnlySubprotocol(&'static str),
    /// Several of header, parameter and subprotocol are given.
    #[error("`{0}` is given more than once with different values, in header, query parameter or subprotocol")]
    Different(&'static str),
}

impl Error {
    /// Stable reason for records, metrics and responses.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::RepeatedHeader { .. } => "repeated_header",
            Self::Parameter {
                problem: query_parameters::Error::Repeated(_),
                ..
            } => "repeated_parameter",
            Self::Parameter {
                problem: query_parameters::Error::Encoding,
                ..
            } => "malformed_parameter",
            Self::RepeatedSubprotocol { .. } => "repeated_subprotocol",
            Self::SubprotocolEncoding(_) => "malformed_subprotocol",
            Self::OnlySubprotocol(_) => "only_subprotocol",
            Self::Different(_) => "different_names",
        }
    }
}

impl Name {
    /// What the request names; an empty text names nothing.
    ///
    /// # Errors
    /// [`Error`], if it is ambiguous or cannot be decoded.
    pub(super) fn read<'a>(&self, headers: &'a HeaderMap, query: Option<&str>) -> Result<Option<Cow<'a, str>>, Error> {
        let header = self.header(headers)?.map(Cow::Borrowed);
        let parameter = self.parameter(query.unwrap_or_default())?.map(Cow::Owned);
        let subprotocol = self.subprotocol(headers)?.map(Cow::Owned);
        let given = [header, parameter, subprotocol].into_iter().flatten();
        let mut given = given.filter(|value| !value.is_empty());
        let first = given.next();
        if given.any(|other| Some(&other) != first.as_ref()) {
            return Err(Error::Different(self.shown));
        }
        Ok(first)
    }

    fn header<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, Error> {
        let mut values = headers.get_all(self.name).iter();
        let first = values.next();
        match values.count() {
            // Text that is not UTF-8 cannot be a name: `?` fails every check that follows.
            0 => Ok(first.map(|value| value.to_str().unwrap_or("?"))),
            more => Err(Error::RepeatedHeader {
                name: self.shown,
                observed: more.saturating_add(1),
            }),
        }
    }

    fn parameter(&self, query: &str) -> Result<Option<String>, Error> {
        query_parameters::sole(query, self.name).map_err(|problem| Error::Parameter {
            name: self.name,
            problem,
        })
    }

    fn subprotocol(&self, headers: &HeaderMap) -> Result<Option<String>, Error> {
        if !subprotocol::is_websocket(headers) {
            return Ok(None);
        }
        let prefix = self.prefix;
        let mut values = subprotocol::offered(headers).filter_map(|offer| offer.strip_prefix(prefix.as_bytes()));
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let more = values.count();
        if more > 0 {
            let observed = more.saturating_add(1);
            return Err(Error::RepeatedSubprotocol { prefix, observed });
        }
        if subprotocol::offered(headers).all(subprotocol::is_for_gateway) {
            return Err(Error::OnlySubprotocol(prefix));
        }
        let decoded = URL_SAFE_NO_PAD.decode(value).ok();
        let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        text.map(Some).ok_or(Error::SubprotocolEncoding(prefix))
    }
}

/// Whether a query names an application or project.
pub(crate) fn are_in(query: Option<&str>) -> bool {
    query_parameters::has_any(query.unwrap_or_default(), &PARAMETERS)
}

/// The query without the parameters that name application and project.
pub(crate) fn strip(query: Option<&str>) -> Option<Cow<'_, str>> {
    query_parameters::strip(query, &PARAMETERS)
}
