//! Paths of sign-in: the pages below `/console/`, and the API of logins.

use std::borrow::Cow;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use tollgate_front::path::{self, Answerer, Methods, Part, Path};
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
const PEOPLE: &str = "/api/v1/people";
const OF_PERSON: &[&str] = &["/api/v1/people/"];

pub(crate) const CONSOLE_PATHS: &[Path<ConsoleEndpoint>] = &[
    Path::new(Methods::Read, &["/console/icon.svg"], &[], ConsoleEndpoint::Icon),
    Path::new(Methods::Read, &["/console/sign-in"], &[], ConsoleEndpoint::SignIn),
    Path::new(
        Methods::Post,
        &["/console/sign-in/argocd"],
        &[],
        ConsoleEndpoint::Password,
    ),
    Path::new(
        Methods::Read,
        &["/console/sign-in/"],
        &[Part::Segment("issuer")],
        ConsoleEndpoint::Begin,
    ),
    Path::new(
        Methods::Read,
        &["/console/callback/"],
        &[Part::Segment("issuer")],
        ConsoleEndpoint::Callback,
    ),
    Path::new(Methods::Post, &["/console/sign-out"], &[], ConsoleEndpoint::SignOut),
    Path::new(Methods::Read, &["/console/signed-out"], &[], ConsoleEndpoint::SignedOut),
    Path::new(
        Methods::Post,
        &["/console/back-channel-logout/"],
        &[Part::Segment("issuer")],
        ConsoleEndpoint::BackChannelLogout,
    ),
    Path::new(Methods::Read, &["/console/login"], &[], ConsoleEndpoint::Login),
    Path::new(Methods::Post, &["/console/login"], &[], ConsoleEndpoint::AnswerLogin),
    Path::new(Methods::Read, &["/console/device"], &[], ConsoleEndpoint::Device),
    Path::new(Methods::Post, &["/console/device"], &[], ConsoleEndpoint::AnswerDevice),
    Path::new(
        Methods::ReadOrPost,
        &[CONSOLE],
        &[Part::Rest("page")],
        ConsoleEndpoint::Page,
    ),
];

pub(crate) const LOGIN_PATHS: &[Path<LoginEndpoint>] = &[
    Path::new(Methods::Read, &["/api/v1/login"], &[], LoginEndpoint::Discover),
    Path::new(Methods::Delete, &["/api/v1/login"], &[], LoginEndpoint::End),
    Path::new(Methods::Post, &["/api/v1/login/device"], &[], LoginEndpoint::Device),
    Path::new(Methods::Post, &["/api/v1/login/token"], &[], LoginEndpoint::Token),
    Path::new(
        Methods::Post,
        &["/api/v1/login/kubectl-tokens"],
        &[],
        LoginEndpoint::KubectlToken,
    ),
    Path::new(Methods::Read, &["/api/v1/me"], &[], LoginEndpoint::Me),
    Path::new(Methods::Read, &["/api/v1/people/locks"], &[], LoginEndpoint::Locks),
    Path::new(Methods::Put, OF_PERSON, LOCK, LoginEndpoint::Lock),
    Path::new(Methods::Delete, OF_PERSON, LOCK, LoginEndpoint::Unlock),
];
const LOCK: &[Part] = &[Part::Segment("person"), Part::Text("/lock")];

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConsoleEndpoint {
    Icon,
    SignIn,
    Password,
    Begin,
    Callback,
    SignOut,
    SignedOut,
    BackChannelLogout,
    Login,
    AnswerLogin,
    Device,
    AnswerDevice,
    Page,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum LoginEndpoint {
    Discover,
    Device,
    Token,
    KubectlToken,
    End,
    Me,
    Locks,
    Lock,
    Unlock,
}

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
    if reads && path == style_path {
        return Ok(Some(ConsoleRoute::Style));
    }
    let Some((row, captures)) = path::find(CONSOLE_PATHS, method, path, Answerer::ALL) else {
        return Ok(None);
    };
    let [name, ..] = captures.segments;
    Ok(Some(match row.operation {
        ConsoleEndpoint::Icon => ConsoleRoute::Icon,
        ConsoleEndpoint::SignIn => ConsoleRoute::SignIn,
        ConsoleEndpoint::Password => ConsoleRoute::Password,
        ConsoleEndpoint::Begin => ConsoleRoute::Begin(name),
        ConsoleEndpoint::Callback => ConsoleRoute::Callback(name),
        ConsoleEndpoint::SignOut => ConsoleRoute::SignOut,
        ConsoleEndpoint::SignedOut => ConsoleRoute::SignedOut,
        ConsoleEndpoint::BackChannelLogout => ConsoleRoute::BackChannelLogout(name),
        ConsoleEndpoint::Login => ConsoleRoute::Login,
        ConsoleEndpoint::AnswerLogin => ConsoleRoute::AnswerLogin,
        ConsoleEndpoint::Device => ConsoleRoute::Device,
        ConsoleEndpoint::AnswerDevice => ConsoleRoute::AnswerDevice,
        ConsoleEndpoint::Page => {
            let first = captures.rest.split('/').nth(1).unwrap_or_default();
            match RESERVED.contains(&first) {
                true => return Ok(None),
                false => ConsoleRoute::Page,
            }
        }
    }))
}

/// Finds what a request of the API of logins asks for. `None` if it is not one.
pub(crate) fn login<'a>(method: &Method, uri: &'a Uri) -> Result<Option<LoginRoute<'a>>, Error> {
    if uri.path().starts_with(PEOPLE) {
        check_path(uri.path())?;
    }
    let Some((row, captures)) = path::find(LOGIN_PATHS, method, uri.path(), Answerer::ALL) else {
        return Ok(None);
    };
    let name = || {
        let [name, ..] = captures.segments;
        let name = percent_decode_str(name).decode_utf8().map_err(|_| Error::NotUtf8)?;
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES && !name.chars().any(char::is_control);
        Ok(is_name.then_some(name))
    };
    Ok(match row.operation {
        LoginEndpoint::Discover => Some(LoginRoute::Discover),
        LoginEndpoint::Device => Some(LoginRoute::Device),
        LoginEndpoint::Token => Some(LoginRoute::Token),
        LoginEndpoint::KubectlToken => Some(LoginRoute::KubectlToken),
        LoginEndpoint::End => Some(LoginRoute::End),
        LoginEndpoint::Me => Some(LoginRoute::Me),
        LoginEndpoint::Locks => Some(LoginRoute::Locks),
        LoginEndpoint::Lock => name()?.map(LoginRoute::Lock),
        LoginEndpoint::Unlock => name()?.map(LoginRoute::Unlock),
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
