//! Paths of sign-in: the pages below `/console/`, and the API of logins.

use tollgate_front::path::{Captures, Methods, Part, Path};
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

/// What a row asks for. `None` if there is nothing at the path.
pub(crate) type ReadConsole = fn(&Captures<'_>) -> Option<ConsoleRoute>;
pub(crate) type ReadLogin = fn(&Captures<'_>) -> Result<Option<LoginRoute>, Error>;

pub(crate) const CONSOLE_PATHS: &[Path<ReadConsole>] = &[
    Path::new(Methods::Read, &["/console/icon.svg"], &[], |_| Some(ConsoleRoute::Icon)),
    Path::new(Methods::Read, &["/console/sign-in"], &[], |_| {
        Some(ConsoleRoute::SignIn)
    }),
    Path::new(Methods::Post, &["/console/sign-in/argocd"], &[], |_| {
        Some(ConsoleRoute::Password)
    }),
    Path::new(Methods::Read, &["/console/sign-in/"], ISSUER, |path| {
        Some(ConsoleRoute::Begin(path.name().to_owned()))
    }),
    Path::new(Methods::Read, &["/console/callback/"], ISSUER, |path| {
        Some(ConsoleRoute::Callback(path.name().to_owned()))
    }),
    Path::new(Methods::Post, &["/console/sign-out"], &[], |_| {
        Some(ConsoleRoute::SignOut)
    }),
    Path::new(Methods::Read, &["/console/signed-out"], &[], |_| {
        Some(ConsoleRoute::SignedOut)
    }),
    Path::new(Methods::Post, &["/console/back-channel-logout/"], ISSUER, |path| {
        Some(ConsoleRoute::BackChannelLogout(path.name().to_owned()))
    }),
    Path::new(Methods::Read, &["/console/login"], &[], |_| Some(ConsoleRoute::Login)),
    Path::new(Methods::Post, &["/console/login"], &[], |_| {
        Some(ConsoleRoute::AnswerLogin)
    }),
    Path::new(Methods::Read, &["/console/device"], &[], |_| Some(ConsoleRoute::Device)),
    Path::new(Methods::Post, &["/console/device"], &[], |_| {
        Some(ConsoleRoute::AnswerDevice)
    }),
    // Last, because it matches everything below `/console`.
    Path::new(Methods::ReadOrPost, &[CONSOLE], &[Part::Rest("page")], |path| {
        let first = path.rest.split('/').nth(1).unwrap_or_default();
        (!RESERVED.contains(&first)).then_some(ConsoleRoute::Page)
    }),
];
const ISSUER: &[Part] = &[Part::Segment("issuer")];

pub(crate) const LOGIN_PATHS: &[Path<ReadLogin>] = &[
    Path::new(Methods::Read, &["/api/v1/login"], &[], |_| {
        Ok(Some(LoginRoute::Discover))
    }),
    Path::new(Methods::Delete, &["/api/v1/login"], &[], |_| Ok(Some(LoginRoute::End))),
    Path::new(Methods::Post, &["/api/v1/login/device"], &[], |_| {
        Ok(Some(LoginRoute::Device))
    }),
    Path::new(Methods::Post, &["/api/v1/login/token"], &[], |_| {
        Ok(Some(LoginRoute::Token))
    }),
    Path::new(Methods::Post, &["/api/v1/login/kubectl-tokens"], &[], |_| {
        Ok(Some(LoginRoute::KubectlToken))
    }),
    Path::new(Methods::Read, &["/api/v1/me"], &[], |_| Ok(Some(LoginRoute::Me))),
    Path::new(Methods::Read, &["/api/v1/people/locks"], &[], |_| {
        Ok(Some(LoginRoute::Locks))
    }),
    Path::new(Methods::Put, OF_PERSON, LOCK, |path| {
        Ok(person(path)?.map(LoginRoute::Lock))
    }),
    Path::new(Methods::Delete, OF_PERSON, LOCK, |path| {
        Ok(person(path)?.map(LoginRoute::Unlock))
    }),
];
const LOCK: &[Part] = &[Part::Segment("person"), Part::Text("/lock")];

/// Longest name of a person in a path, decoded, in bytes.
const NAME_BYTES: usize = 1_024;

/// A page, or what a page's form is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleRoute {
    /// The root of the console's own host, from which people are sent to the console.
    Root,
    /// There is no such page.
    Missing,
    /// Any page that is not about sign-in.
    Page,
    Style,
    Icon,
    /// Choose how to sign in.
    SignIn,
    /// Go to an issuer.
    Begin(String),
    /// Come back from it.
    Callback(String),
    /// Sign in by an account of Argo CD.
    Password,
    SignOut,
    SignedOut,
    /// An issuer says that somebody signed out there.
    BackChannelLogout(String),
    /// Approve a login of the command line on this machine.
    Login,
    AnswerLogin,
    /// Approve a login of the command line elsewhere.
    Device,
    AnswerDevice,
}

/// A request of the API of logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginRoute {
    /// Whether and how one logs in; for anybody.
    Discover,
    /// Begin a login by a code that is typed elsewhere; for anybody.
    Device,
    /// Exchange a code for a login; for any caller that has the code.
    Token,
    /// Make a token for kubectl.
    KubectlToken,
    /// End the caller's own login.
    End,
    /// Who the caller is.
    Me,
    Locks,
    Lock(String),
    Unlock(String),
}

/// Whether a path is one of the console's, even if there is nothing.
pub(crate) fn is_console(path: &str) -> bool {
    path.strip_prefix(CONSOLE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Checks a path, if it is one about people.
pub(crate) fn check_login(path: &str) -> Result<(), Error> {
    match path.starts_with(PEOPLE) {
        true => check_path(path),
        false => Ok(()),
    }
}

/// The name of a person. `None` if it cannot be one.
fn person(path: &Captures<'_>) -> Result<Option<String>, Error> {
    let name = path.decoded_name(NAME_BYTES)?;
    Ok(name.filter(|name| !name.chars().any(char::is_control)))
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{ConsoleRoute, Error, LoginRoute, is_console};
    use crate::sign_in::{ConsoleFront, LoginFront};
    use tollgate_front::find_in_paths;
    use tollgate_front::path::Answerer;

    fn console(method: &Method, path: &str) -> Result<Option<ConsoleRoute>, Error> {
        let found = find_in_paths::<ConsoleFront>(method, &path.parse().unwrap(), Answerer::ALL)?;
        Ok(found.map(|(route, _)| route))
    }

    fn login(method: &Method, uri: &Uri) -> Result<Option<LoginRoute>, Error> {
        let found = find_in_paths::<LoginFront>(method, uri, Answerer::ALL)?;
        Ok(found.map(|(route, _)| route))
    }

    #[test]
    fn pages_have_one_spelling() {
        let of = |method: &Method, path: &str| console(method, path).map(|route| format!("{route:?}"));
        assert_eq!(of(&Method::GET, "/console/").unwrap(), "Some(Page)");
        assert_eq!(
            of(&Method::GET, "/console/callback/idp.example.org").unwrap(),
            "Some(Callback(\"idp.example.org\"))"
        );
        assert_eq!(of(&Method::GET, "/console/sign-out").unwrap(), "None");
        assert_eq!(of(&Method::GET, "/consoles/").unwrap(), "None");
        assert!(of(&Method::GET, "/console/../api").is_err());
        assert!(is_console("/console") && is_console("/console/x") && !is_console("/consolex"));
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
