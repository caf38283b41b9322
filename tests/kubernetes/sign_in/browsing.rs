//! What a browser does in a sign-in, as far as HTTP shows it: it follows redirects, keeps cookies by host
//! and port, and says where a request comes from.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Method, StatusCode};
use url::Url;

/// Most redirects of one navigation.
const HOPS: usize = 12;

pub(crate) struct Browser {
    client: reqwest::Client,
    /// By origin, then name.
    cookies: BTreeMap<String, BTreeMap<String, String>>,
}

/// Where a navigation ended.
#[derive(Debug)]
pub(crate) struct Visited {
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    /// The last response's `Set-Cookie` fields of the whole way.
    pub(crate) set_cookies: Vec<String>,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .danger_accept_invalid_certs(true)
            .build()
            .unwrap();
        Self {
            client,
            cookies: BTreeMap::new(),
        }
    }

    /// Follows a link.
    pub(crate) async fn open(&mut self, url: &str) -> Visited {
        self.visit(Method::GET, Url::parse(url).unwrap(), None, |_| true).await
    }

    /// Sends a form of a page of the same site.
    pub(crate) async fn submit(&mut self, url: &str, fields: &[(&str, &str)]) -> Visited {
        let content = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        self.visit(Method::POST, Url::parse(url).unwrap(), Some(content), |_| true)
            .await
    }

    /// Follows redirects as long as `goes_on` says of the next address.
    pub(crate) async fn visit(
        &mut self,
        mut method: Method,
        mut url: Url,
        mut content: Option<String>,
        goes_on: impl Fn(&Url) -> bool,
    ) -> Visited {
        let mut hops = vec![url.clone()];
        let mut set_cookies = Vec::new();
        for _ in 0..HOPS {
            let origin = url.origin().ascii_serialization();
            let mut request = self.client.request(method.clone(), url.clone());
            let cookies = self.cookies.entry(origin.clone()).or_default();
            let line: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            if !line.is_empty() {
                request = request.header(COOKIE, line.join("; "));
            }
            if let Some(content) = content.take() {
                request = request
                    .header("content-type", "application/x-www-form-urlencoded")
                    .header("sec-fetch-site", "same-origin")
                    .header("origin", &origin)
                    .body(content);
            }
            let answer = request.send().await.unwrap();
            for field in answer.headers().get_all(SET_COOKIE) {
                let text = field.to_str().unwrap();
                set_cookies.push(text.to_owned());
                let (name, rest) = text.split_once('=').unwrap();
                let value = rest.split(';').next().unwrap();
                match rest.contains("Max-Age=0") || rest.contains("expires=Thu, 01 Jan 1970") {
                    true => drop(cookies.remove(name)),
                    false => drop(cookies.insert(name.to_owned(), value.to_owned())),
                }
            }
            let status = answer.status();
            let location = answer
                .headers()
                .get(LOCATION)
                .map(|field| field.to_str().unwrap().to_owned());
            let text = answer.text().await.unwrap();
            let next = location
                .filter(|_| status.is_redirection())
                .map(|next| url.join(&next).unwrap());
            // The provider's page asks who signs in.
            let Some(next) = next else {
                return Visited {
                    url,
                    status,
                    text,
                    set_cookies,
                };
            };
            hops.push(next.clone());
            if !goes_on(&next) {
                return Visited {
                    url: next,
                    status,
                    text,
                    set_cookies,
                };
            }
            url = next;
            method = Method::GET;
        }
        panic!("{hops:?}");
    }

    /// Goes from the console to the provider and signs in there; stops before the callback.
    pub(crate) async fn callback_of(&mut self, start: &str, account: &str) -> Url {
        let is_callback = |url: &Url| url.path().starts_with("/console/callback/");
        let url = Url::parse(start).unwrap();
        let visited = self.visit(Method::GET, url, None, |next| !is_callback(next)).await;
        if is_callback(&visited.url) {
            return visited.url;
        }
        assert!(visited.url.path().starts_with("/interaction/"), "{visited:?}");
        let mut url = visited.url;
        url.query_pairs_mut().append_pair("account", account);
        let visited = self.visit(Method::GET, url, None, |next| !is_callback(next)).await;
        assert!(is_callback(&visited.url), "{visited:?}");
        visited.url
    }

    /// Signs in at the console.
    pub(crate) async fn sign_in(&mut self, console: &str, client: &str, account: &str) -> Visited {
        let start = format!("{console}/console/sign-in/{client}?return=/console/");
        let callback = self.callback_of(&start, account).await;
        let visited = self.open(callback.as_str()).await;
        assert_eq!(
            (visited.url.path(), visited.status),
            ("/console/", StatusCode::OK),
            "{visited:?}"
        );
        visited
    }

    /// The cookies that it has for an origin.
    pub(crate) fn cookies(&mut self, origin: &str) -> &mut BTreeMap<String, String> {
        self.cookies.entry(origin.to_owned()).or_default()
    }

    /// The status and JSON of a call of the API from a page of the console.
    pub(crate) async fn api(&mut self, url: &str) -> (StatusCode, serde_json::Value) {
        let visited = self.open(url).await;
        (visited.status, serde_json::from_str(&visited.text).unwrap_or_default())
    }
}
