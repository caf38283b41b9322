//! People sign in to the gateway itself: in a browser at an OpenID Connect issuer or by an account of
//! Argo CD, and from there on the command line.
//!
//! The pages are below `/console/` on the console's own host, and `tollgate login` uses `/api/v1/login`.
//! A login ends when it expires, when the person signs out here or at the issuer, or when a caller with
//! the right to do so ends it.
//!
//! Security: anything that a browser sends by itself is accepted only from the console's own pages. A
//! code makes one login, for the client that began it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, Uri, request};
use serde_json::{Map, Value};
use tokio::time::timeout;

use tollgate_config::Config;
use tollgate_core::user::User;
use tollgate_front::api::content::buffer;
use tollgate_front::console::{self, ApiHandler, Pages};
use tollgate_front::error_format::ErrorFormat;
use tollgate_front::pages::{self, Theme};
use tollgate_front::path::{Answerer, Captures, Path};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::strangers::Strangers;
use tollgate_front::{Arrival, Denial, Front, Pass, PathRules, RecordedAs, RequestContext, Services, find_in_paths};
use tollgate_identity::access::issuer_only_user;
use tollgate_identity::authenticate::login::is_for_console;
use tollgate_identity::authenticate::sign_in::SignedIn;
use tollgate_identity::authenticate::{self, Principal, Safety};
use tollgate_identity::logins::{Logins, NewLogin};
use tollgate_proxy::forward::{self, Body};
use tollgate_proxy::record::{OpenRecord, Outcome, Stage};
use tollgate_proxy::server::Client;
use tollgate_proxy::target::{self, check_path};
use tollgate_store::{Actor, LoginKind};

mod api;
mod browser;
mod command_line;
mod cookies;
mod error;
pub(crate) mod route;
mod tries;

pub(crate) use error::Error;

use route::{ConsoleRoute, LoginRoute, is_console};
use tries::CodeTries;

/// The status of a page that is shown with a problem.
const PROBLEM: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;

/// The part of sign-in that outlives requests.
#[derive(Debug)]
pub struct SignInState {
    pub(crate) logins: Arc<Logins>,
    tries: CodeTries,
    /// Requests of people who are not signed in.
    strangers: Strangers,
    /// The pages for people who are signed in. `None` if there are none.
    pages: Option<Arc<dyn Pages>>,
}

impl SignInState {
    /// - `pages`: the console's; `None` without a console.
    pub fn new(logins: Arc<Logins>, pages: Option<Arc<dyn Pages>>) -> Self {
        Self {
            logins,
            pages,
            strangers: Strangers::at_sign_in(),
            tries: CodeTries::default(),
        }
    }
}

/// The pages below `/console/`.
#[derive(Debug)]
pub struct ConsoleFront(Option<Arc<SignInState>>);

impl Front for ConsoleFront {
    const NAME: &'static str = "console";
    const PATHS: &'static [Path<route::ReadConsole>] = route::CONSOLE_PATHS;

    type Endpoint = route::ReadConsole;
    type Target = ConsoleRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self(services.states.of())))
    }

    fn is_open(config: &Config, _: route::ReadConsole) -> bool {
        config.authentication.console.is_some()
    }

    fn rules(arrival: &Arrival<'_>, _: &Snapshot) -> Option<PathRules> {
        arrival.config.authentication.console.as_ref()?;
        let theme = || Theme::of(&arrival.head.headers);
        is_console(arrival.path()).then(|| PathRules::errors(ErrorFormat::Console(theme())))
    }

    fn find(arrival: &Arrival<'_>, pass: Pass) -> Result<Option<(ConsoleRoute, Answerer)>, target::Error> {
        if pass != Pass::BeforeArgocd {
            return Ok(None);
        }
        let path = arrival.path();
        let found = |route| Ok(Some((route, Answerer::Gateway)));
        // People type the host name alone.
        if path == "/" && arrival.method() == Method::GET && arrival.is_at_console_host() {
            return found(ConsoleRoute::Root);
        }
        if !is_console(path) {
            return Ok(None);
        }
        check_path(path)?;
        match console::reads(arrival.method()) && path == *pages::STYLE_PATH {
            true => found(ConsoleRoute::Style),
            false => match find_in_paths::<Self>(arrival.method(), arrival.uri, Answerer::ALL)? {
                Some(page) => Ok(Some(page)),
                // Taken all the same: no other server may answer below `/console/`.
                None => found(ConsoleRoute::Missing),
            },
        }
    }

    fn check(path: &str) -> Result<(), target::Error> {
        match is_console(path) {
            true => check_path(path),
            false => Ok(()),
        }
    }

    fn target(
        read: route::ReadConsole,
        captures: &Captures<'_>,
        _: &Uri,
    ) -> Result<Option<ConsoleRoute>, target::Error> {
        Ok(read(captures))
    }

    async fn serve(
        self: &Arc<Self>,
        target: ConsoleRoute,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Self(state) = &**self;
        SignIn::new(state.as_deref(), context, &head)?
            .page(&target, head, body)
            .await
    }
}

/// The API of logins.
#[derive(Debug)]
pub struct LoginFront(Option<Arc<SignInState>>);

impl Front for LoginFront {
    const NAME: &'static str = "login";
    const PATHS: &'static [Path<route::ReadLogin>] = route::LOGIN_PATHS;

    type Endpoint = route::ReadLogin;
    type Target = LoginRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self(services.states.of())))
    }

    fn is_open(config: &Config, _: route::ReadLogin) -> bool {
        config.authentication.console.is_some()
    }

    fn check(path: &str) -> Result<(), target::Error> {
        route::check_login(path)
    }

    fn target(read: route::ReadLogin, captures: &Captures<'_>, _: &Uri) -> Result<Option<LoginRoute>, target::Error> {
        read(captures)
    }

    async fn serve(
        self: &Arc<Self>,
        target: LoginRoute,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Self(state) = &**self;
        if api::is_public(&target) {
            return SignIn::new(state.as_deref(), context, &head)?
                .public(&target, head, body)
                .await;
        }
        let principal = context.authenticate(&head, Safety::ByMethod).await?;
        SignIn::new(state.as_deref(), context, &head)?
            .private(&target, &principal, head, body)
            .await
    }
}

/// A request about sign-in, with what it takes to answer it.
pub(crate) struct SignIn<'a> {
    services: &'a Services,
    api: &'a dyn ApiHandler,
    pub(crate) state: &'a SignInState,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) record: &'a mut OpenRecord,
    pub(crate) theme: Theme,
}

impl<'a> SignIn<'a> {
    /// # Errors
    /// [`Error::NoConsole`].
    fn new(state: Option<&'a SignInState>, context: RequestContext<'a>, head: &request::Parts) -> Result<Self, Denial> {
        let state = state.ok_or(Error::NoConsole)?;
        let RequestContext {
            services,
            api,
            client,
            snapshot,
            record,
            ..
        } = context;
        Ok(Self {
            services,
            api,
            state,
            client,
            snapshot,
            record,
            theme: Theme::of(&head.headers),
        })
    }

    async fn page(&mut self, route: &ConsoleRoute, head: request::Parts, body: Body) -> Result<Response<Body>, Denial> {
        if matches!(route, ConsoleRoute::Missing) {
            return Err(Denial::not_found());
        }
        let reads = console::reads(&head.method);
        let is_page = matches!(route, ConsoleRoute::Page | ConsoleRoute::Style | ConsoleRoute::Icon);
        self.record.note(|record| record.is_of_page = reads && is_page);
        // Of what asks an issuer or the store for somebody who is not signed in, few are open at once.
        let _held = match route {
            ConsoleRoute::Begin(_)
            | ConsoleRoute::Callback(_)
            | ConsoleRoute::Password
            | ConsoleRoute::SignedOut
            | ConsoleRoute::BackChannelLogout(_) => Some(self.state.strangers.enter(self.client)?),
            ConsoleRoute::Root
            | ConsoleRoute::Missing
            | ConsoleRoute::Page
            | ConsoleRoute::Style
            | ConsoleRoute::Icon
            | ConsoleRoute::SignIn
            | ConsoleRoute::SignOut
            | ConsoleRoute::Login
            | ConsoleRoute::AnswerLogin
            | ConsoleRoute::Device
            | ConsoleRoute::AnswerDevice => None,
        };
        let console = &self.state.logins.console;
        // Before the host is checked: an issuer sends a signed token and no cookie, so the host does not matter.
        if let ConsoleRoute::BackChannelLogout(method) = route {
            return self.back_channel_logout(method, head, body).await;
        }
        // The cookie counts on the console's host alone.
        if !is_for_console(&head.uri, &head.headers, console) {
            let target = head.uri.path_and_query().map_or("/console/", |target| target.as_str());
            return match console.url.join(target) {
                Ok(there) if reads => Ok(pages::redirect(there.as_str())?),
                Ok(_) | Err(_) => Err(Denial::not_found()),
            };
        }
        match route {
            ConsoleRoute::Root => Ok(to_console()),
            ConsoleRoute::Style => Ok(pages::style()),
            ConsoleRoute::Icon => Ok(pages::icon()),
            ConsoleRoute::Page => self.console_page(head, body).await,
            ConsoleRoute::SignIn => self.choose(&head, None),
            ConsoleRoute::Begin(method) => self.begin(method, &head).await,
            ConsoleRoute::Callback(method) => self.callback(method, &head).await,
            ConsoleRoute::Password => self.password(head, body).await,
            ConsoleRoute::SignOut => self.sign_out(&head).await,
            ConsoleRoute::SignedOut => self.signed_out(&head).await,
            ConsoleRoute::Login => self.ask_for_login(&head).await,
            ConsoleRoute::AnswerLogin => self.answer_login(head, body).await,
            ConsoleRoute::Device => self.ask_for_device(&head).await,
            ConsoleRoute::AnswerDevice => self.answer_device(head, body).await,
            ConsoleRoute::BackChannelLogout(_) | ConsoleRoute::Missing => Err(Denial::not_found()),
        }
    }

    /// Reads the content of a client who is not signed in. It has the time that a head has, because the
    /// request takes one of the few places for such clients.
    async fn receive(&self, body: Body, allowed: u64) -> Result<Bytes, Denial> {
        let time = self.snapshot.policies.config.limits.header_timeout;
        match timeout(time, buffer(body, allowed)).await {
            Ok(content) => content,
            Err(_) => Err(forward::Error::ClientSilent.into()),
        }
    }

    /// The principal that is signed in to the console in this browser, which is noted in the record.
    async fn session(&mut self, head: &request::Parts, safety: Safety) -> Result<Option<Arc<Principal>>, Denial> {
        let principal = self.find_session(head, safety).await?;
        self.record.note(|record| record.principal.clone_from(&principal));
        Ok(principal)
    }

    /// The principal that is signed in to the console in this browser.
    async fn find_session(&mut self, head: &request::Parts, safety: Safety) -> Result<Option<Arc<Principal>>, Denial> {
        use authenticate::Error;
        let found = self.snapshot.authenticator.authenticate(head, safety).await;
        self.record.finish_stage(Stage::Authenticate);
        match found {
            Ok(principal) => {
                let is_browser =
                    |login: &tollgate_identity::logins::ActiveLogin| login.login.kind == LoginKind::Browser;
                // A browser's own login, and not a token that came with the request.
                Ok(Some(principal).filter(|principal| principal.login().is_some_and(is_browser)))
            }
            // Only these are remedied by signing in again.
            Err(Error::NoCredential | Error::Expired | Error::Revoked(_) | Error::Invalid(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the login of somebody who just signed in, and gives it to their browser.
    async fn log_in(&mut self, signed_in: SignedIn, head: &request::Parts) -> Result<HeaderValue, Denial> {
        let SignedIn {
            issuer,
            subject,
            sid,
            claims,
            latest_end,
            principal,
        } = signed_in;
        self.record
            .note(|record| record.principal = Some(Arc::clone(&principal)));
        let principal = self.snapshot.authenticator.unlocked(principal)?;
        let user = self.user_of(&principal, &issuer, &claims);
        let logins = &self.state.logins;
        // A browser has one login, so that signing out ends all of it.
        if let Ok(Some(before)) = self.find_session(head, Safety::ByMethod).await
            && let Some(login) = before.login()
        {
            let by = Actor::from(&login.login.user);
            logins.end(&login.login, &by).await.map_err(Error::from)?;
        }
        let new = NewLogin {
            kind: LoginKind::Browser,
            issuer,
            subject,
            sid,
            claims,
            latest_end,
            client: client_name(&head.headers),
            address: self.client.address().to_string(),
            user,
        };
        let refused = Error::creating(&new.user.username);
        let (secret, _) = logins.create(new).await.map_err(refused)?;
        Ok(cookies::session(&logins.console, &secret)?)
    }

    /// The person of the directory whom claims stand for; else one whom only the issuer knows.
    fn user_of(&self, principal: &Principal, issuer: &str, claims: &Map<String, Value>) -> User {
        let policies = &self.snapshot.policies;
        let found = policies.kubernetes.as_ref().and_then(|front| {
            let settings = policies.config.kubernetes.as_ref()?;
            front.agents.user_of(&settings.users, issuer, claims)
        });
        found.map_or_else(|| issuer_only_user(principal.names()), |person| person.user.clone())
    }
}

/// The name of a browser, as it gives itself.
fn client_name(fields: &http::HeaderMap) -> String {
    const LONGEST: usize = 200;
    let agent = fields.get(http::header::USER_AGENT);
    let text = agent.and_then(|agent| agent.to_str().ok()).unwrap_or("a browser");
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

fn to_console() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let there = HeaderValue::from_static(console::HOME);
    response.headers_mut().insert(http::header::LOCATION, there);
    response
        .extensions_mut()
        .insert(RecordedAs(Outcome::Allowed, "to_console"));
    response
}
