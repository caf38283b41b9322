//! `tollgate plugin test`: runs one request or response, given in YAML, through one plugin and
//! shows the result. No backend is called.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Error, Format, at, findings};
use tollgate_client::exit_code;
use tollgate_client::list_output::{join_or_dash, render};
use tollgate_plugin::{CallError, FilterContext, HeaderFilter, Runtime};

/// The message, as the operator writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RawMessage {
    extension: String,
    method: Option<String>,
    path: Option<String>,
    user: Option<String>,
    groups: Vec<String>,
    application: Option<String>,
    project: Option<String>,
    cluster: Option<String>,
    headers: BTreeMap<String, Values>,
    response: Option<RawResponse>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawResponse {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, Values>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    plugin: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    changes: Vec<Change>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    message: &'static str,
    field: String,
    before: Vec<String>,
    after: Vec<String>,
}

/// Runs it. Exit code 1 when the plugin refuses, fails or is not loaded.
pub(super) fn run(
    settings: &tollgate_config::Plugins,
    name: &str,
    request: &Path,
    output: Format,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let text = fs::read_to_string(request).map_err(at(request))?;
    let path = request.display();
    let message: RawMessage =
        serde_saphyr::from_str(&text).map_err(|error| Error::Input(format!("{path}: {error}")))?;
    let mut fields = headers(&message.headers)?;
    let response = message.response.as_ref().map(answer).transpose()?;

    let (set, mut diagnostics) = Runtime::new(settings)?.load(None);
    let Some(filter) = set.header_filter(name).cloned() else {
        findings(&diagnostics, err)?;
        return Err(Error::Input(format!("no plugin `{name}` is loaded")));
    };
    diagnostics.retain(|finding| finding.to_string().contains(name));
    findings(&diagnostics, err)?;
    let context = FilterContext {
        extension: &message.extension,
        method: message.method.as_deref().unwrap_or("GET"),
        path: message.path.as_deref().unwrap_or("/"),
        user: message.user.as_deref(),
        groups: &message.groups,
        application: message.application.as_deref(),
        project: message.project.as_deref(),
        cluster: message.cluster.as_deref(),
    };
    let mut changes = Vec::new();
    let work = || send(&filter, &context, &mut fields, response, &mut changes);
    let result = tollgate_plugin::block_on_new_thread(work)?;
    let report = Report {
        plugin: name.to_owned(),
        outcome: result.as_ref().err().map_or("passed", CallError::code),
        detail: result.as_ref().err().map(detail),
        changes,
    };
    output.show(&report, Report::text, out)?;
    Ok(exit_code(result.is_ok()))
}

/// Applies the plan and the filter to the request, then to the response.
async fn send(
    filter: &HeaderFilter,
    context: &FilterContext<'_>,
    fields: &mut HeaderMap,
    response: Option<(StatusCode, HeaderMap)>,
    changes: &mut Vec<Change>,
) -> Result<(), CallError> {
    let before = fields.clone();
    filter.request_plan().apply(fields);
    if filter.filters_requests() {
        filter.filter_request(context, fields).await?;
    }
    compare("request", &before, fields, changes);
    let Some((status, mut answer)) = response else {
        return Ok(());
    };
    let before = answer.clone();
    filter.response_plan().apply(&mut answer);
    if filter.filters_responses() {
        filter.filter_response(context, status, &mut answer).await?;
    }
    compare("response", &before, &answer, changes);
    Ok(())
}

fn detail(error: &CallError) -> String {
    match error {
        CallError::Refused { status, reason, .. } => format!("{status}: {reason}"),
        other => other.to_string(),
    }
}

fn compare(message: &'static str, before: &HeaderMap, after: &HeaderMap, changes: &mut Vec<Change>) {
    let values = |map: &HeaderMap, name: &HeaderName| -> Vec<String> {
        map.get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let mut names: Vec<&HeaderName> = before.keys().chain(after.keys()).collect();
    names.sort_by_key(|name| name.as_str());
    names.dedup();
    for name in names {
        let (before, after) = (values(before, name), values(after, name));
        if before != after {
            changes.push(Change {
                message,
                field: name.to_string(),
                before,
                after,
            });
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let detail = self.detail.as_ref();
        let detail = detail.map_or_else(String::new, |detail| format!(" ({detail})"));
        let outcome = format!("{}: {}{detail}", self.plugin, self.outcome);
        if self.changes.is_empty() {
            return outcome;
        }
        let rows = self.changes.iter().map(|change| {
            [
                change.message.to_owned(),
                change.field.clone(),
                join_or_dash(&change.before, " | "),
                join_or_dash(&change.after, " | "),
            ]
        });
        format!("{outcome}\n{}", render(&["MESSAGE", "FIELD", "BEFORE", "AFTER"], rows))
    }
}

fn answer(raw: &RawResponse) -> Result<(StatusCode, HeaderMap), Error> {
    let status =
        StatusCode::from_u16(raw.status).map_err(|_| Error::Input(format!("`{}` is not a status", raw.status)))?;
    Ok((status, headers(&raw.headers)?))
}

fn headers(fields: &BTreeMap<String, Values>) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, values) in fields {
        let bad = |what| Error::Input(format!("the {what} of the field `{name}` cannot be sent"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        let values = match values {
            Values::One(value) => std::slice::from_ref(value),
            Values::Several(values) => values,
        };
        for value in values {
            map.append(key.clone(), HeaderValue::from_str(value).map_err(|_| bad("value"))?);
        }
    }
    Ok(map)
}
