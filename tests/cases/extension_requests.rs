//! Runs the cases of `extension_requests.yaml`. Calls and authentication go through a whole gateway
//! with Argo CD's semantics and the state that a case describes.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tollgate_argocd_fronts::call::{CallObject, Error, read};
use tollgate_config::Compatibility;
use tollgate_front::extension_registry::Registry;

use crate::suite::{Case, Suite, Table, same};

mod auth;
mod call;
mod cookies;

/// Kinds of the extension requests table.
pub(crate) struct ExtensionRequests;

impl Suite for ExtensionRequests {
    fn covers(&self, _table: &Table, kind: &str) -> bool {
        matches!(kind, "header_validation" | "auth_middleware" | "call")
    }

    fn run(&self, _table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "header_validation" => validate(case.read()?),
            "auth_middleware" => whole_gateway(auth::run(case.read()?)),
            "call" => whole_gateway(call::run(case.read()?)),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

fn whole_gateway(run: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(run)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    request_headers: BTreeMap<String, String>,
    expected: Validated,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validated {
    valid: bool,
    application_namespace: Option<String>,
    application_name: Option<String>,
    project_name: Option<String>,
    error_class: Option<String>,
    http_status_when_called: Option<u16>,
}

/// `header_validation`: how the two headers of a call are read.
fn validate(case: Validation) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &case.request_headers {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        headers.append(name, HeaderValue::from_str(value).map_err(|error| error.to_string())?);
    }
    let expected = case.expected;
    match read("extension", &Registry::default(), &headers, None, Compatibility::Argocd) {
        Ok((attributes, _)) if expected.valid => {
            let CallObject::Application { application, project } = attributes.object else {
                return Err(format!("read as {:?}", attributes.object));
            };
            same(&expected.application_namespace, &Some(application.namespace))?;
            same(&expected.application_name, &Some(application.name))?;
            same(&expected.project_name, &project)?;
            same(&expected.error_class, &None)
        }
        Err(error) if !expected.valid => {
            let class = expected.error_class.as_deref().ok_or("`error_class` is missing")?;
            if !names(&error).contains(&class) {
                return Err(format!("class is {}, expected {class}", error.code()));
            }
            match expected.http_status_when_called {
                Some(status) => same(&status, &error.argocd_status().as_u16()),
                None => Ok(()),
            }
        }
        found => Err(format!("found {found:?}, expected valid: {}", expected.valid)),
    }
}

/// The classes that tables use for an error.
fn names(error: &Error) -> Vec<&'static str> {
    match error {
        Error::InvalidNamespace => vec![error.code(), "invalid_namespace"],
        Error::MissingName
        | Error::MissingApplication
        | Error::MalformedApplication
        | Error::InvalidApplication
        | Error::MissingProject
        | Error::InvalidProject
        | Error::Names(_) => vec![error.code()],
    }
}
