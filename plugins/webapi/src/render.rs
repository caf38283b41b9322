//! Renders a [`Plan`] with values to a [`RenderedRequest`], and refuses what cannot be sent.

use std::fmt::Display;

use tollgate_provider::Error;
use tollgate_template::{self as template, Context, Operation, Part, Template, Values, apply};

use crate::config::{Content, JsonPiece, Method, Plan, check_https};
use crate::lower::{Piece, SecretStore, lower};
use crate::{field, query};

/// A request whose secrets are in a [`SecretStore`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenderedRequest {
    pub(crate) method: Method,
    /// Scheme, host, port and path.
    pub(crate) url: String,
    pub(crate) query: Vec<(String, Vec<Piece>)>,
    pub(crate) headers: Vec<(String, Vec<Piece>)>,
    /// Empty if there is no body.
    pub(crate) body: Vec<Piece>,
}

/// Renders all templates of `plan`.
///
/// # Errors
/// Class `config`: a value is missing, or not allowed in its position.
pub(crate) fn render(plan: &Plan, values: &dyn Values, store: &mut dyn SecretStore) -> Result<RenderedRequest, Error> {
    let url = plan.url.render_url(values).map_err(|error| failed(&"url", &error))?;
    check_https(&url.base)?;
    let mut pairs = Vec::new();
    for (name, value) in query::pairs(url.query.unwrap_or_default())? {
        pairs.push((name, lower(value, store)?));
    }
    let mut headers = Vec::with_capacity(plan.headers.len() + 1);
    for (name, template) in &plan.headers {
        let field = format!("headers.{name}");
        headers.push((
            name.clone(),
            lower(rendered(&field, template, Context::Header, values)?, store)?,
        ));
    }
    let body = lower(body(&plan.content, values)?, store)?;
    if let Some(media_type) = plan
        .content
        .media_type()
        .filter(|_| !field::has_content_type(&plan.headers))
    {
        headers.push(("Content-Type".to_owned(), vec![Piece::Text(media_type.to_owned())]));
    }
    Ok(RenderedRequest {
        method: plan.method,
        url: url.base,
        query: pairs,
        headers,
        body,
    })
}

fn failed(field: &dyn Display, error: &template::Error) -> Error {
    Error::config(error.code().as_str(), format!("`{field}`: {error}"))
}

fn rendered(
    field: &dyn Display,
    template: &Template,
    context: Context,
    values: &dyn Values,
) -> Result<Vec<Part>, Error> {
    template.render(context, values).map_err(|error| failed(field, &error))
}

fn body(content: &Content, values: &dyn Values) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    match content {
        Content::None => {}
        Content::Text(template) => parts = rendered(&"body", template, Context::Body, values)?,
        Content::Form(pairs) => {
            for (index, (name, template)) in pairs.iter().enumerate() {
                let field = format!("form.{name}");
                let named = Vec::from([Part::Text(name.clone())]);
                let value = rendered(&field, template, Context::Body, values)?;
                if index > 0 {
                    parts.push(Part::Text("&".to_owned()));
                }
                parts.extend(apply(Operation::Form, named).map_err(|error| failed(&field, &error))?);
                parts.push(Part::Text("=".to_owned()));
                parts.extend(apply(Operation::Form, value).map_err(|error| failed(&field, &error))?);
            }
        }
        Content::Json(pieces) => {
            for piece in pieces {
                match piece {
                    JsonPiece::Text(text) => parts.push(Part::Text(text.clone())),
                    JsonPiece::Template(template) => {
                        let value = rendered(&"jsonBody", template, Context::Body, values)?;
                        parts.extend(apply(Operation::Json, value).map_err(|error| failed(&"jsonBody", &error))?);
                    }
                }
            }
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
