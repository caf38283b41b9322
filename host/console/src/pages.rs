//! The pages. Each asks the API for what it shows.

use askama::Template;
use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderValue, Method, Request, Response, StatusCode, request};

use crate::ask::{self, Ask, Refusal};
use crate::form::{Fields, Query};
use crate::frame::{Frame, Me};
use crate::route::Route;
use tollgate_front::console::{HOME, THEME_COOKIE, Theme, local_path};

mod applicationsets;
mod audit;
mod clusters;
mod credentials;
mod decisions;
mod extensions;
mod identities;
mod overview;
mod permissions;
mod plugins;
mod policies;
mod projects;
mod sessions;
mod system;
mod tokens;

/// Rows of one page of a list that the API answers as a whole.
const ROWS: usize = 100;

/// Why there is no page.
#[derive(Debug)]
enum Stop {
    /// The API refused something without which there is no page.
    Refused(Refusal),
    NotFound,
    /// A bug in a template.
    Template,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<askama::Error> for Stop {
    fn from(error: askama::Error) -> Self {
        tracing::error!(%error, "a page cannot be rendered");
        Self::Template
    }
}

type Answer = Result<Response<Bytes>, Stop>;

/// A request for a page, with what it takes to answer it.
struct View<'a> {
    api: &'a dyn Ask,
    frame: Frame,
    head: &'a request::Parts,
    query: Fields,
    /// What was sent with a form.
    form: Fields,
}

#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedPage {
    frame: Frame,
    title: &'static str,
    refusal: Option<Refusal>,
    /// What the person can do.
    advice: String,
}

/// Answers a request of somebody who is signed in.
pub(crate) async fn answer(request: Request<Bytes>, api: &dyn Ask) -> Response<Bytes> {
    let (head, content) = request.into_parts();
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let (Some(query), Some(form)) = (Fields::read(query), Fields::read(&content)) else {
        return plain(StatusCode::BAD_REQUEST, "A form has at most 5,000 fields.");
    };
    let me: Me = match ask::get(api, "/api/v1/me").await {
        Ok(me) => me,
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => return to_sign_in(&head),
        // Every page shows who is signed in, also one about a refusal.
        Err(refusal) => return plain(StatusCode::SERVICE_UNAVAILABLE, &refusal.message.to_string()),
    };
    let view = View {
        api,
        frame: Frame::new(me, &head),
        head: &head,
        query,
        form,
    };
    match view.answer().await {
        Ok(response) => response,
        Err(Stop::Refused(refusal)) if refusal.status == StatusCode::UNAUTHORIZED => to_sign_in(&head),
        Err(stop) => view.stopped(stop),
    }
}

impl View<'_> {
    async fn answer(&self) -> Answer {
        let route = Route::find(self.head.uri.path()).ok_or(Stop::NotFound)?;
        let posts = self.head.method == Method::POST;
        match route {
            Route::Theme if posts => Ok(self.choose_theme()),
            Route::Tokens if posts => self.change_tokens().await,
            Route::Sessions if posts => self.end_session().await,
            Route::Policy(front) if posts => self.try_policy(&front).await,
            Route::Project(name) if posts => self.edit_project(&name).await,
            Route::NewApplicationSet if posts => self.edit_set(None).await,
            Route::ApplicationSet { namespace, name } if posts => self.edit_set(Some((&namespace, &name))).await,
            // A form that no page has must not be answered as if its page had been read.
            _ if posts => Err(Stop::NotFound),
            Route::Overview => self.overview().await,
            Route::Clusters => self.clusters().await,
            Route::Cluster(name) => self.cluster(&name).await,
            Route::Tokens => self.tokens(tokens::Typed::default()).await,
            Route::Sessions => self.sessions().await,
            Route::Audit => self.audit().await,
            Route::AuditLines => self.audit_lines().await,
            Route::Decisions => self.decisions().await,
            Route::Decision(id) => self.decision(&id).await,
            Route::Permissions => self.permissions().await,
            Route::Policies => self.policies().await,
            Route::Policy(front) => self.policy(&front).await,
            Route::Extensions => self.extensions().await,
            Route::Identities => self.identities().await,
            Route::Projects => self.projects().await,
            Route::Project(name) => self.project(&name).await,
            Route::ApplicationSets => self.application_sets().await,
            Route::NewApplicationSet => self.new_set().await,
            Route::ApplicationSet { namespace, name } => self.application_set(&namespace, &name).await,
            Route::Credentials => self.credentials().await,
            Route::Plugins => self.plugins().await,
            Route::System => self.system().await,
            Route::Theme => Err(Stop::NotFound),
        }
    }

    fn choose_theme(&self) -> Response<Bytes> {
        let theme = Theme::parse(self.form.text("theme"));
        // SECURITY: the field could name another site.
        let mut response = redirect(local_path(self.form.text("return")));
        let cookie = format!(
            "{THEME_COOKIE}={}; Path=/console; Max-Age=31536000; HttpOnly; SameSite=Lax",
            theme.name()
        );
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        response
    }

    /// The page about a request that has no other page.
    fn stopped(&self, stop: Stop) -> Response<Bytes> {
        let (status, title, refusal, advice) = match stop {
            Stop::NotFound => (
                StatusCode::NOT_FOUND,
                "There is no such page",
                None,
                "The address may be misspelled, or of another version of Tollgate.".to_owned(),
            ),
            Stop::Template => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "This page is broken",
                None,
                "This is a bug in Tollgate. The gateway's log has the error.".to_owned(),
            ),
            Stop::Refused(refusal) => {
                let (title, advice) = self.advice(&refusal);
                (refusal.status, title, Some(refusal), advice)
            }
        };
        let page = RefusedPage {
            frame: self.frame.clone(),
            title,
            refusal,
            advice,
        };
        let mut response = match page.render() {
            Ok(text) => html(text),
            Err(_) => plain(status, title),
        };
        *response.status_mut() = status;
        response
    }

    fn advice(&self, refusal: &Refusal) -> (&'static str, String) {
        let contact = match &self.frame.me.contact {
            Some(contact) => format!("Whom to ask: {contact}"),
            None => "Ask the people who run Tollgate.".to_owned(),
        };
        match refusal.status {
            StatusCode::FORBIDDEN => ("You may not see this", contact),
            StatusCode::NOT_FOUND => (
                "This part of the gateway is off",
                "The gateway's settings leave it off, or what you look for does not exist.".to_owned(),
            ),
            status if status.is_server_error() => (
                "This does not work right now",
                "Reload the page in a moment. What you typed is kept by the browser if you go back.".to_owned(),
            ),
            _ => ("That was refused", contact),
        }
    }

    fn page(&self, page: &impl Template) -> Answer {
        Ok(html(page.render()?))
    }

    /// Renders a page about a form that was refused.
    fn page_with_problem(&self, page: &impl Template) -> Answer {
        let mut response = html(page.render()?);
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
        Ok(response)
    }

    /// Whether a list is about everybody.
    fn is_about_all(&self) -> bool {
        self.query.get("user") == Some("*")
    }

    /// The rows of one page of a list that the API answers as a whole, and the address of the next page.
    fn slice<'r, T>(&self, path: &str, names: &[&str], all: &'r [T]) -> (&'r [T], Option<String>) {
        let from: usize = self.query.text("from").parse().unwrap_or_default();
        let rows = all.get(from..).unwrap_or_default();
        let (rows, rest) = rows.split_at(ROWS.min(rows.len()));
        let next = (!rest.is_empty()).then(|| from.saturating_add(ROWS).to_string());
        (rows, self.next(path, names, "from", next.as_deref()))
    }

    /// The address of the next page of a list, if there is one.
    ///
    /// - `cursor`: the name of the parameter that says where that page begins.
    fn next(&self, path: &str, names: &[&str], cursor: &str, value: Option<&str>) -> Option<String> {
        let value = value?;
        Some(
            Query::new()
                .with_fields(&self.query, names)
                .with(cursor, value)
                .at(path),
        )
    }
}

fn html(text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    let content_type = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{text}\n")));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A file to save.
fn download(content_type: &'static str, name: &'static str, content: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(content));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        fields.insert(CONTENT_DISPOSITION, disposition);
    }
    response
}

/// Sends the browser elsewhere by `GET`.
fn redirect(to: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    // 303 (RFC 9110, section 15.4.4): a reload of the next page does not send the form again.
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static(HOME));
    response.headers_mut().insert(LOCATION, to);
    response
}

fn to_sign_in(head: &request::Parts) -> Response<Bytes> {
    let target = head.uri.path_and_query().filter(|_| head.method != Method::POST);
    let target = target.map_or(HOME, |target| target.as_str());
    redirect(&Query::new().with("return", target).at("/console/sign-in"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use http::uri::PathAndQuery;
    use http::{Method, Request, Response, StatusCode};
    use serde_json::json;

    use super::answer;
    use crate::ask::Ask;
    use tollgate_front::console::Content;

    /// An API that refuses everything but to say who asks.
    struct Refusing(StatusCode);

    impl Ask for Refusing {
        fn call<'a>(&'a self, _: Method, target: PathAndQuery, _: Content<'a>) -> BoxFuture<'a, Response<Bytes>> {
            let is_me = target.path() == "/api/v1/me";
            let me = r#"{"user": "ann", "issuer": "https://issuer.example", "contact": "ask <b>Bo</b>"}"#;
            let refusal = r#"{"error": "no <script>", "reason": "some_reason", "decision": "x"}"#;
            let mut response = Response::new(Bytes::from(if is_me { me } else { refusal }));
            if !is_me {
                *response.status_mut() = self.0;
                let id = http::HeaderValue::from_static("0190a5b8-7a4c-7c1e-9d5f-3b1f6e0c2a44");
                response.headers_mut().insert("tollgate-decision-id", id);
            }
            async { response }.boxed()
        }
    }

    /// An API that has 250 of everything.
    struct Many;

    impl Ask for Many {
        fn call<'a>(&'a self, _: Method, target: PathAndQuery, _: Content<'a>) -> BoxFuture<'a, Response<Bytes>> {
            let item = |number: usize| match target.path() {
                "/api/v1/agents" => {
                    json!({"id": number, "name": format!("one-{number}"), "cluster": "c", "kubeconfig": {}})
                }
                "/api/v1/tollgate/clusters" => json!({
                    "name": format!("one-{number}"), "server": "s", "provider": "p", "credential": {"standing": "unused"},
                }),
                _ => json!({"name": format!("one-{number}"), "scope": "global", "mayInvoke": true}),
            };
            let list = json!({"items": (0..250).map(item).collect::<Vec<_>>()});
            let me = json!({"user": "ann", "issuer": "https://issuer.example"});
            let answer = if target.path() == "/api/v1/me" { me } else { list };
            async move { Response::new(Bytes::from(answer.to_string())) }.boxed()
        }
    }

    #[tokio::test]
    async fn long_lists_have_pages() {
        for (path, query) in [
            ("clusters", "user=*&"),
            ("credentials", ""),
            ("extensions", "project=a&"),
        ] {
            for (from, names, next) in [
                ("0", [0, 99], Some(100)),
                ("100", [100, 199], Some(200)),
                ("200", [200, 249], None),
            ] {
                let uri = format!("/console/{path}?{query}from={from}");
                let request = Request::get(&uri).body(Bytes::new()).unwrap();
                let text = String::from_utf8(answer(request, &Many).await.body().to_vec()).unwrap();
                let shows = |number: usize| {
                    text.contains(&format!("one-{number}<")) || text.contains(&format!("one-{number} "))
                };
                for number in names {
                    assert!(shows(number), "{uri}: no {number} in {text}");
                }
                assert!(
                    !shows(names[1] + 1) && (names[0] == 0 || !shows(names[0] - 1)),
                    "{uri}: {text}"
                );
                match next {
                    Some(next) => assert!(text.contains(&format!("from={next}\"")), "{uri}: {text}"),
                    None => assert!(!text.contains("Next page"), "{uri}: {text}"),
                }
            }
        }
    }

    async fn page(path: &str, status: StatusCode) -> (StatusCode, String) {
        let request = Request::get(format!("/console/{path}")).body(Bytes::new()).unwrap();
        let response = answer(request, &Refusing(status)).await;
        (response.status(), String::from_utf8(response.body().to_vec()).unwrap())
    }

    /// Every page that cannot be shown says why, whom to ask, and which decision it was.
    #[tokio::test]
    async fn each_page_has_a_refused_and_a_failed_state() {
        for path in [
            "",
            "clusters",
            "clusters/a",
            "tokens",
            "sessions",
            "audit",
            "audit/events.jsonl",
            "decisions",
            "decisions/0190a5b8-7a4c-7c1e-9d5f-3b1f6e0c2a44",
            "permissions?resource=a&action=b",
            "permissions?resource=a&action=b&who=can",
            "policies",
            "policies/extensions",
            "extensions",
            "identities",
            "projects",
            "projects/shop",
            "applicationsets",
            "applicationsets/argocd/stages",
            "credentials",
            "plugins",
            "system",
        ] {
            for status in [
                StatusCode::FORBIDDEN,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::BAD_GATEWAY,
            ] {
                let (shown, text) = page(path, status).await;
                // A search that fails is shown with its form.
                let is_form = shown == StatusCode::UNPROCESSABLE_ENTITY;
                assert!(shown == status || is_form, "{path}: {shown}");
                for part in ["no &#60;script&#62;", "some_reason", "/console/decisions/0190a5b8"] {
                    assert!(text.contains(part), "{path}, {status}: no {part} in {text}");
                }
                let asks = text.contains("ask &#60;b&#62;Bo");
                assert!(
                    asks || status != StatusCode::FORBIDDEN,
                    "{path}: nobody to ask in {text}"
                );
            }
        }
        let (status, text) = page("nothing", StatusCode::FORBIDDEN).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(text.contains("There is no such page"), "{text}");
    }

    #[tokio::test]
    async fn whose_login_has_ended_is_sent_to_sign_in_and_back() {
        let request = Request::get("/console/audit?user=*").body(Bytes::new()).unwrap();
        let response = answer(request, &Refusing(StatusCode::UNAUTHORIZED)).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        assert_eq!(
            response.headers()["location"],
            "/console/sign-in?return=%2Fconsole%2Faudit%3Fuser%3D*"
        );
    }
}
