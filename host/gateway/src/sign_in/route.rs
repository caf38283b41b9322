//! Paths of sign-in: the pages below `/console/`, and the API of logins.

use std::borrow::Cow;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use tollgate_proxy::target::{Error, check_path};

/// Where the pages are.
pub(crate) const CONSOLE: &str = "/console";
/// Pages of sign-in, below which there is no other page.
const RESERVED: [&str; 7] = [
    "sign-in",
    "callback",
    "sign-out",
    "signed-out",
    "back-channel-logout",
    "login",
    "device",
];
const LOGIN: &str = "/api/v1/login";
const ME: &str = "/api/v1/me";
const PEOPLE: &str = "/api/v1/people";

/// Longest name of a person in a path, decoded, in bytes.
const NAME_BYTES: usize = 1_024;

/// A page, or what a page's form is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConsoleRoute<'a> {
    /// Any page that is not about sign-in.
    Page,
    Style,
    Icon,
    /// Choose how to sign in.
    SignIn,
    /// Go to an issuer.
    Begin(&'a str),
    /// Come back from it.
    Callback(&'a str),
    /// Sign in by an account of Argo CD.
    Password,
    SignOut,
    SignedOut,
    /// An issuer says that somebody signed out there.
    BackChannelLogout(&'a str),
    /// Approve a login of the command line on this machine.
    Login,
    AnswerLogin,
    /// Approve a login of the command line elsewhere.
    Device,
    AnswerDevice,
}

/// A request of the API of logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoginRoute<'a> {
    /// Whether and how one logs in; for anybody.
    Discover,
    /// Begin a login by a code that is typed elsewhere; for anybody.
    Device,
    /// Exchange a code for a login; for whoever has the code.
    Token,
    /// Make a token for kubectl.
    KubectlToken,
    /// End the caller's own login.
    End,
    /// Who the caller is.
    Me,
    Locks,
    Lock(Cow<'a, str>),
    Unlock(Cow<'a, str>),
}

/// Whether a path is one of the console's, even if there is nothing.
pub(crate) fn is_console(path: &str) -> bool {
    path.strip_prefix(CONSOLE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Finds the page of a request. `None` if there is none.
pub(crate) fn console<'a>(method: &Method, uri: &'a Uri, style_path: &str) -> Result<Option<ConsoleRoute<'a>>, Error> {
    let path = uri.path();
    if !is_console(path) {
        return Ok(None);
    }
    check_path(path)?;
    let reads = *method == Method::GET || *method == Method::HEAD;
    let posts = *method == Method::POST;
    let tail = path.strip_prefix(CONSOLE).unwrap_or_default();
    let parts: Vec<&str> = tail.split('/').skip(1).collect();
    Ok(match *parts.as_slice() {
        [_] if reads && path == style_path => Some(ConsoleRoute::Style),
        ["icon.svg"] if reads => Some(ConsoleRoute::Icon),
        ["sign-in"] if reads => Some(ConsoleRoute::SignIn),
        ["sign-in", "argocd"] if posts => Some(ConsoleRoute::Password),
        ["sign-in", name] if reads => Some(ConsoleRoute::Begin(name)),
        ["callback", name] if reads => Some(ConsoleRoute::Callback(name)),
        ["sign-out"] if posts => Some(ConsoleRoute::SignOut),
        ["signed-out"] if reads => Some(ConsoleRoute::SignedOut),
        ["back-channel-logout", name] if posts => Some(ConsoleRoute::BackChannelLogout(name)),
        ["login"] if reads => Some(ConsoleRoute::Login),
        ["login"] if posts => Some(ConsoleRoute::AnswerLogin),
        ["device"] if reads => Some(ConsoleRoute::Device),
        ["device"] if posts => Some(ConsoleRoute::AnswerDevice),
        [first, ..] if RESERVED.contains(&first) => None,
        _ if reads || posts => Some(ConsoleRoute::Page),
        _ => None,
    })
}

/// Finds what a request of the API of logins asks for. `None` if it is not one.
pub(crate) fn login<'a>(method: &Method, uri: &'a Uri) -> Result<Option<LoginRoute<'a>>, Error> {
    let path = uri.path();
    let reads = *method == Method::GET || *method == Method::HEAD;
    let posts = *method == Method::POST;
    let route = match path {
        LOGIN if reads => Some(LoginRoute::Discover),
        LOGIN if *method == Method::DELETE => Some(LoginRoute::End),
        ME if reads => Some(LoginRoute::Me),
        _ => None,
    };
    if route.is_some() {
        return Ok(route);
    }
    if let Some(tail) = path.strip_prefix(LOGIN) {
        return Ok(match tail {
            "/device" if posts => Some(LoginRoute::Device),
            "/token" if posts => Some(LoginRoute::Token),
            "/kubectl-tokens" if posts => Some(LoginRoute::KubectlToken),
            _ => None,
        });
    }
    let Some(tail) = path.strip_prefix(PEOPLE) else {
        return Ok(None);
    };
    check_path(path)?;
    let parts: Vec<&str> = tail.split('/').collect();
    Ok(match *parts.as_slice() {
        ["", "locks"] if reads => Some(LoginRoute::Locks),
        ["", name, "lock"] => {
            let name = percent_decode_str(name).decode_utf8().map_err(|_| Error::NotUtf8)?;
            let is_name = !name.is_empty() && name.len() <= NAME_BYTES && !name.chars().any(char::is_control);
            match *method {
                Method::PUT if is_name => Some(LoginRoute::Lock(name)),
                Method::DELETE if is_name => Some(LoginRoute::Unlock(name)),
                _ => None,
            }
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{ConsoleRoute, LoginRoute, console, is_console, login};

    #[test]
    fn pages_have_one_spelling() {
        let of = |method: &Method, path: &str| {
            let uri: Uri = path.parse().unwrap();
            console(method, &uri, "/console/style-1.css").map(|route| format!("{route:?}"))
        };
        assert_eq!(of(&Method::GET, "/console/").unwrap(), "Some(Page)");
        assert_eq!(
            of(&Method::GET, "/console/callback/idp.example.org").unwrap(),
            "Some(Callback(\"idp.example.org\"))"
        );
        assert_eq!(of(&Method::GET, "/console/sign-out").unwrap(), "None");
        assert_eq!(of(&Method::GET, "/consoles/").unwrap(), "None");
        assert!(of(&Method::GET, "/console/../api").is_err());
        assert!(is_console("/console") && is_console("/console/x") && !is_console("/consolex"));
        assert_eq!(
            console(
                &Method::GET,
                &"/console/style-1.css".parse().unwrap(),
                "/console/style-1.css"
            ),
            Ok(Some(ConsoleRoute::Style))
        );
    }

    #[test]
    fn names_of_people_are_decoded_once() {
        let uri: Uri = "/api/v1/people/a%40b.example/lock".parse().unwrap();
        assert_eq!(
            login(&Method::PUT, &uri),
            Ok(Some(LoginRoute::Lock("a@b.example".into())))
        );
        assert_eq!(login(&Method::GET, &uri), Ok(None));
        let uri: Uri = "/api/v1/people/a%0Ab/lock".parse().unwrap();
        assert_ne!(login(&Method::PUT, &uri), Ok(Some(LoginRoute::Lock("a\nb".into()))));
    }
}
