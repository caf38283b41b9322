//! Reads `webAPIProviderConfig` into a [`Plan`] with parsed templates. Errors say what to write
//! instead.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tollgate_provider::Error;
use tollgate_template::{Code, Context, TargetFormat, Template, corrected};

use crate::expiry::{Format, Lifetime, duration};
use crate::field;

/// The configuration as the operator writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawConfig {
    method: String,
    url: String,
    token_path: String,
    body: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    form: Option<Vec<RawPair>>,
    json_body: Option<Value>,
    ttl: Option<RawDuration>,
    expiry: Option<RawExpiry>,
}

/// A form field: `[name, value]` or `{name, value}`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawPair {
    Short(String, String),
    Long(RawField),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawField {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpiry {
    path: Option<String>,
    format: Option<Format>,
    ttl: Option<RawDuration>,
}

/// Seconds, or a Go duration such as `1h30m`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawDuration {
    Seconds(u64),
    Text(String),
}

/// The HTTP methods of token requests: those whose answers have content, and that any client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// The body of the request.
#[derive(Debug)]
pub(crate) enum Content {
    None,
    /// `body`: sent as it is rendered. An empty one is not sent.
    Text(Template),
    /// `form`: names and values, encoded after rendering.
    Form(Vec<(String, Template)>),
    /// `jsonBody`: JSON text with templates in place of its strings.
    Json(Vec<JsonPiece>),
}

/// A piece of a JSON text.
#[derive(Debug)]
pub(crate) enum JsonPiece {
    Text(String),
    /// A string, quoted after rendering.
    Template(Template),
}

impl Content {
    /// The default `Content-Type`.
    pub(crate) fn media_type(&self) -> Option<&'static str> {
        match self {
            Self::None | Self::Text(_) => None,
            Self::Form(_) => Some(field::FORM),
            Self::Json(_) => Some("application/json"),
        }
    }

    fn templates(&self) -> Vec<&Template> {
        match self {
            Self::None => Vec::new(),
            Self::Text(template) => vec![template],
            Self::Form(pairs) => pairs.iter().map(|(_, template)| template).collect(),
            Self::Json(pieces) => pieces.iter().filter_map(JsonPiece::template).collect(),
        }
    }
}

impl JsonPiece {
    fn template(&self) -> Option<&Template> {
        match self {
            Self::Text(_) => None,
            Self::Template(template) => Some(template),
        }
    }
}

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) method: Method,
    pub(crate) url: Template,
    /// An RFC 9535 singular query.
    pub(crate) token_path: String,
    /// Names keep their case.
    pub(crate) headers: Vec<(String, Template)>,
    pub(crate) content: Content,
    pub(crate) lifetime: Lifetime,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Checks a configuration. `check_path` checks a JSON path.
    ///
    /// # Errors
    /// Class `config`: an invalid method, scheme, header name, template, path or duration, more
    /// than one kind of body, or a GET with a body.
    pub(crate) fn new(raw: &RawConfig, check_path: &dyn Fn(&str) -> Result<(), String>) -> Result<Self, Error> {
        let method = method(&raw.method)?;
        let url = url(&raw.url)?;
        let headers = headers(&raw.headers)?;
        let content = content(raw)?;
        if method == Method::Get && !matches!(content, Content::None) {
            let message = "a GET has no body (RFC 9110, section 9.3.1); use POST, or put the values into the query";
            return Err(Error::config("webapi.body", message));
        }
        field::check_content_type(&raw.headers, content.media_type())?;
        path("tokenPath", &raw.token_path, check_path)?;
        let lifetime = lifetime(raw, check_path)?;
        let mut warnings = template_warnings("url", &url);
        for (name, template) in &headers {
            warnings.extend(template_warnings(&format!("headers.{name}"), template));
        }
        for template in content.templates() {
            warnings.extend(template_warnings("body", template));
        }
        Ok(Self {
            method,
            url,
            token_path: raw.token_path.clone(),
            headers,
            content,
            lifetime,
            warnings,
        })
    }

    /// The names of the values that must be public. All others stay handles.
    pub(crate) fn public_names(&self) -> std::collections::BTreeSet<String> {
        let mut names = self.url.public_names(Context::Url);
        for (_, template) in &self.headers {
            names.extend(template.public_names(Context::Header));
        }
        for template in self.content.templates() {
            names.extend(template.public_names(Context::Body));
        }
        names
    }
}

fn method(word: &str) -> Result<Method, Error> {
    let known = |word: &str| match word {
        "GET" => Some(Method::Get),
        "POST" => Some(Method::Post),
        "PUT" => Some(Method::Put),
        "PATCH" => Some(Method::Patch),
        "DELETE" => Some(Method::Delete),
        _ => None,
    };
    known(word).ok_or_else(|| {
        let upper = word.to_ascii_uppercase();
        let hint = known(&upper).map(|_| format!("; write `{upper}`"));
        let message = format!(
            "`method` is `{word}`; allowed are `GET`, `POST`, `PUT`, `PATCH` and `DELETE`, in upper case{}",
            hint.unwrap_or_default()
        );
        Error::config("webapi.method", message)
    })
}

fn url(source: &str) -> Result<Template, Error> {
    let template = template("url", source, Context::Url, TargetFormat::Other)?;
    // Checks the scheme if it is in the text before the first value.
    let known = source.split("{{").next().unwrap_or_default();
    if known.contains("://") {
        check_https(known)?;
    }
    Ok(template)
}

/// Refuses schemes other than `https`.
pub(crate) fn check_https(url: &str) -> Result<(), Error> {
    let scheme = url.split("://").next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("https") {
        return Ok(());
    }
    let message = "`url`: tokens are asked for over TLS only; the URL has to begin with `https://`";
    Err(Error::config("webapi.scheme", message))
}

fn headers(raw: &BTreeMap<String, String>) -> Result<Vec<(String, Template)>, Error> {
    let mut headers = Vec::with_capacity(raw.len());
    for (name, source) in raw {
        field::check_name(name)?;
        let twice = |(known, _): &&(String, Template)| known.eq_ignore_ascii_case(name);
        if let Some((known, _)) = headers.iter().find(twice) {
            let message = format!("`headers` has `{known}` and `{name}`, which are the same header");
            return Err(Error::config("webapi.header", message));
        }
        let field = format!("headers.{name}");
        headers.push((
            name.clone(),
            template(&field, source, Context::Header, TargetFormat::Other)?,
        ));
    }
    Ok(headers)
}

fn content(raw: &RawConfig) -> Result<Content, Error> {
    match (&raw.body, &raw.form, &raw.json_body) {
        (None, None, None) => Ok(Content::None),
        (Some(body), None, None) if body.is_empty() => Ok(Content::None),
        (Some(body), None, None) => {
            let format = if field::is_form(&raw.headers) {
                TargetFormat::Form
            } else {
                TargetFormat::Other
            };
            template("body", body, Context::Body, format).map(Content::Text)
        }
        (None, Some(pairs), None) => pairs.iter().map(form_pair).collect::<Result<_, _>>().map(Content::Form),
        (None, None, Some(value)) => {
            let mut pieces = Vec::new();
            json(value, "jsonBody", &mut pieces)?;
            Ok(Content::Json(pieces))
        }
        _ => {
            let message = "only one of `body`, `form` and `jsonBody` can be the body";
            Err(Error::config("webapi.body", message))
        }
    }
}

fn form_pair(pair: &RawPair) -> Result<(String, Template), Error> {
    let (RawPair::Short(name, value) | RawPair::Long(RawField { name, value })) = pair;
    if name.contains("{{") {
        let message = format!("`form`: the name `{name}` is no template; only values are");
        return Err(Error::config("webapi.form", message));
    }
    let value = template(&format!("form.{name}"), value, Context::Body, TargetFormat::Other)?;
    Ok((name.clone(), value))
}

/// Writes `value` as JSON, with its strings as templates.
fn json(value: &Value, field: &str, pieces: &mut Vec<JsonPiece>) -> Result<(), Error> {
    let text = |pieces: &mut Vec<JsonPiece>, text: &str| match pieces.last_mut() {
        Some(JsonPiece::Text(last)) => last.push_str(text),
        _ => pieces.push(JsonPiece::Text(text.to_owned())),
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => text(pieces, &value.to_string()),
        Value::String(source) => {
            pieces.push(JsonPiece::Template(template(
                field,
                source,
                Context::Body,
                TargetFormat::Other,
            )?));
        }
        Value::Array(items) => {
            text(pieces, "[");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text(pieces, ",");
                }
                json(item, &format!("{field}[{index}]"), pieces)?;
            }
            text(pieces, "]");
        }
        Value::Object(members) => {
            text(pieces, "{");
            for (index, (name, member)) in members.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                text(pieces, &format!("{comma}{}:", Value::from(name.as_str())));
                json(member, &format!("{field}.{name}"), pieces)?;
            }
            text(pieces, "}");
        }
    }
    Ok(())
}

/// Parses a template. If it uses no value, also renders it to find errors now.
fn template(field: &str, source: &str, context: Context, format: TargetFormat) -> Result<Template, Error> {
    let failed = |error: &tollgate_template::Error| {
        let in_full = match error.code() {
            Code::SingleBrace => format!("; in full: {}", corrected(source, format)),
            _ => String::new(),
        };
        Error::config(error.code().as_str(), format!("`{field}`: {error}{in_full}"))
    };
    let template = Template::parse(source).map_err(|error| failed(&error))?;
    if template.names().is_empty() {
        template
            .render(context, &|_: &str| None)
            .map_err(|error| failed(&error))?;
    }
    Ok(template)
}

fn path(field: &str, path: &str, check_path: &dyn Fn(&str) -> Result<(), String>) -> Result<(), Error> {
    check_path(path).map_err(|why| Error::config("webapi.path", format!("`{field}`: {why}")))
}

fn lifetime(raw: &RawConfig, check_path: &dyn Fn(&str) -> Result<(), String>) -> Result<Lifetime, Error> {
    let (text, format, inner) = match &raw.expiry {
        Some(RawExpiry { path, format, ttl }) => (path.as_ref(), *format, ttl.as_ref()),
        None => (None, None, None),
    };
    if inner.is_some() && raw.ttl.is_some() {
        return Err(Error::config(
            "webapi.expiry",
            "`ttl` and `expiry.ttl` are the same; write one",
        ));
    }
    if let Some(text) = text {
        path("expiry.path", text, check_path)?;
    } else if format.is_some() {
        let message = "`expiry.format` says how `expiry.path` is read, which is missing";
        return Err(Error::config("webapi.expiry", message));
    }
    Ok(Lifetime {
        path: text.map(|path| (path.clone(), format.unwrap_or(Format::Seconds))),
        ttl_ms: inner.or(raw.ttl.as_ref()).map(milliseconds).transpose()?,
    })
}

fn milliseconds(raw: &RawDuration) -> Result<u64, Error> {
    let (text, found) = match raw {
        RawDuration::Seconds(seconds) => (seconds.to_string(), seconds.checked_mul(1000)),
        RawDuration::Text(text) => (text.clone(), duration(text)),
    };
    found.filter(|found| *found > 0).ok_or_else(|| {
        let message =
            format!("`ttl` is `{text}`; allowed are seconds above 0 or a duration such as `90s`, `2m`, `1h30m`");
        Error::config("webapi.expiry", message)
    })
}

fn template_warnings(field: &str, template: &Template) -> Vec<String> {
    let warnings = template.warnings().iter();
    warnings.map(|warning| format!("`{field}`: {warning}")).collect()
}

#[cfg(test)]
mod tests;
