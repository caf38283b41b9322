//! Asks the gateway's API for the person who looks at a page.

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::text::Text;
use tollgate_front::console::{Api, Content};

/// Where the API says which decision an answer belongs to.
const DECISION: &str = "tollgate-decision-id";

/// Sends requests to the API.
pub(crate) trait Ask: Sync {
    fn call<'a>(&'a self, method: Method, target: PathAndQuery, content: Content<'a>)
    -> BoxFuture<'a, Response<Bytes>>;
}

impl Ask for Api<'_> {
    fn call<'a>(
        &'a self,
        method: Method,
        target: PathAndQuery,
        content: Content<'a>,
    ) -> BoxFuture<'a, Response<Bytes>> {
        Api::call(self, method, target, content).boxed()
    }
}

/// Why the API did not do what was asked.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// Stable code, such as `permission_denied`.
    pub(crate) reason: Text,
    pub(crate) message: Text,
    pub(crate) decision: Text,
    /// What was refused in detail, for ApplicationSets.
    pub(crate) details: Vec<Denial>,
}

/// One reason why an ApplicationSet may not be written.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Denial {
    pub(crate) about: Text,
    #[serde(default)]
    pub(crate) rule: Option<Text>,
    #[serde(default)]
    pub(crate) reason: Option<Text>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RefusalContent {
    error: Text,
    reason: Text,
    refusals: Vec<Denial>,
}

/// A list of the API.
#[derive(Debug, Deserialize)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
    /// The cursor of the next page. `None` at the end.
    #[serde(rename = "continue", default)]
    pub(crate) next: Option<String>,
}

impl Refusal {
    /// Whether the path is served by a part of the gateway that the settings leave off.
    pub(crate) fn is_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// A form that cannot be sent on.
    pub(crate) fn of_form(message: String) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            reason: Text::from("bad_form"),
            message: Text::from(message),
            decision: Text::default(),
            details: Vec::new(),
        }
    }

    fn read(response: &Response<Bytes>) -> Self {
        let content: RefusalContent = serde_json::from_slice(response.body()).unwrap_or_default();
        let decision = response.headers().get(DECISION).and_then(|id| id.to_str().ok());
        Self {
            status: response.status(),
            reason: content.reason,
            message: match content.error.is_empty() {
                true => Text::from(format!("the gateway answered {}", response.status())),
                false => content.error,
            },
            decision: Text::from(decision.unwrap_or_default()),
            details: content.refusals,
        }
    }

    fn unreadable(response: &Response<Bytes>) -> Self {
        let refusal = Self::read(response);
        Self {
            status: StatusCode::BAD_GATEWAY,
            reason: Text::from("unreadable_answer"),
            message: Text::from("the gateway's answer is not what this page expects; reload it"),
            ..refusal
        }
    }
}

/// Reads something.
///
/// - `target`: path and query, encoded.
pub(crate) async fn get<T: DeserializeOwned>(api: &dyn Ask, target: &str) -> Result<T, Refusal> {
    read(&send(api, Method::GET, target, Content::Empty).await?)
}

/// Makes or does something.
pub(crate) async fn post<T: DeserializeOwned>(api: &dyn Ask, target: &str, content: &Value) -> Result<T, Refusal> {
    read(&send(api, Method::POST, target, Content::Json(content)).await?)
}

/// Replaces something.
pub(crate) async fn put<T: DeserializeOwned>(api: &dyn Ask, target: &str, content: &Value) -> Result<T, Refusal> {
    read(&send(api, Method::PUT, target, Content::Json(content)).await?)
}

/// Makes or replaces something that was typed as YAML.
pub(crate) async fn send_yaml<T: DeserializeOwned>(
    api: &dyn Ask,
    method: Method,
    target: &str,
    text: &str,
) -> Result<T, Refusal> {
    read(&send(api, method, target, Content::Yaml(text)).await?)
}

/// Removes or ends something.
pub(crate) async fn delete(api: &dyn Ask, target: &str) -> Result<(), Refusal> {
    send(api, Method::DELETE, target, Content::Empty).await.map(drop)
}

fn read<T: DeserializeOwned>(response: &Response<Bytes>) -> Result<T, Refusal> {
    serde_json::from_slice(response.body()).map_err(|error| {
        tracing::error!(%error, "a page cannot read an answer of the API");
        Refusal::unreadable(response)
    })
}

async fn send(api: &dyn Ask, method: Method, target: &str, content: Content<'_>) -> Result<Response<Bytes>, Refusal> {
    let Ok(target) = target.parse() else {
        return Err(Refusal {
            status: StatusCode::BAD_REQUEST,
            reason: Text::from("bad_address"),
            message: Text::from("the address of this page is not one"),
            decision: Text::default(),
            details: Vec::new(),
        });
    };
    let response = api.call(method, target, content).await;
    match response.status().is_success() {
        true => Ok(response),
        false => Err(Refusal::read(&response)),
    }
}
