//! Templates of ApplicationSets: parses strings and JSON with `{{…}}` once and renders them for
//! each set of parameters.
//!
//! Invariant: work and memory stay within the budget.
//!
//! Security: a template cannot read a file, an environment variable or a name server.
//!
//! Source: Argo CD's `applicationset/utils` (both engines), `text/template` of Go.

use std::cell::OnceCell;

use serde_json::Value;
use tollgate_core::diagnostic::shortened;

use crate::message::truncated;
use crate::{Exceeded, GenerationBudget, Params, TemplateEngine};

mod applications;
mod determinism;
mod exec;
mod fast_template;
mod fields;
mod functions;
mod generators;
mod go_template;
mod layout;
mod portable;
mod print;
mod tree;
mod value;
mod versions;

pub(crate) use print::general as go_float;

#[cfg(test)]
mod tests;

pub use applications::ApplicationTemplate;
pub use determinism::{Nondeterminism, nondeterminism};
pub use generators::render_generator;
pub(super) use value::{ParamsOrigin, params_origin};
pub use versions::{highest, is_range};

/// Maximum length of a template in an error, in bytes.
const EXCERPT_BYTES: usize = 120;
/// Maximum length of one rendered string, in bytes.
const TEXT_BYTES: u64 = 4 * 1024 * 1024;

/// Why rendering failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A template cannot be parsed.
    #[error("the template `{template}` is invalid: {message}")]
    Syntax {
        /// The beginning of the template.
        template: String,
        /// What is wrong with it.
        message: String,
    },
    /// A template cannot be executed with these parameters.
    #[error("the template `{template}` fails: {message}")]
    Execute {
        /// The beginning of the template.
        template: String,
        /// What went wrong.
        message: String,
    },
    /// A key is missing while `missingkey=error` is set, or no value of this kind has such a key.
    #[error("the template `{template}` fails: {message}")]
    MissingKey {
        /// The beginning of the template.
        template: String,
        /// The key.
        message: String,
    },
    /// A template exceeds a limit.
    #[error("the template `{template}` fails: {message}")]
    TemplateLimit {
        /// The beginning of the template.
        template: String,
        /// The limit.
        message: String,
    },
    /// Argo CD may render a template differently from the gateway, and an authorization decision
    /// depends on the result.
    #[error(
        "Argo CD may render {field} `{template}` otherwise than it is judged here: {what}; see \"Texts that rights are \
         judged by\" in docs/applicationset-templates.md for what such a text may have"
    )]
    Divergent {
        /// The field, as far as it is known.
        field: String,
        /// The beginning of the template.
        template: String,
        /// What may differ.
        what: String,
    },
    /// A limit of the set's budget was exceeded.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// A field has another type than in an Application.
    #[error("the template is invalid: {0}")]
    Field(String),
    /// `templatePatch` cannot be applied to an Application.
    #[error("the `templatePatch` is invalid: {0}")]
    Patch(#[source] super::patch::Error),
    /// The nesting is too deep. The value is the allowed depth.
    #[error("the template nests more than {0} levels")]
    Depth(usize),
}

/// Why an execution stopped, before the template is named in an [`Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ExecError {
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// Argo CD keeps `values` of generators that fail with this error.
    #[error("{0}")]
    MissingKey(String),
    #[error("{0}")]
    Message(String),
    /// A limit, as a message; functions never treat it as an invalid value.
    #[error("{0}")]
    Limit(String),
    /// What Argo CD could treat differently, as a message; functions never treat it as an invalid
    /// value.
    #[error("{0}")]
    Divergent(String),
}

/// What depends on a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthorizationImpact {
    /// Authorization depends on the rendered string.
    Direct,
    /// Authorization depends on other strings that are rendered with the same parameters.
    Indirect,
    /// Nothing.
    None,
}

/// What depends on a field of an Application, by its pointer. The gateway's `ApplicationFields`
/// (`applicationset-rights/application.rs`) lists the fields that authorization depends on.
fn authorization_impact(pointer: &str) -> AuthorizationImpact {
    let is_direct = matches!(pointer, "/metadata/name" | "/spec/project")
        || pointer.starts_with("/spec/destination/")
        || (pointer.starts_with("/spec/source") && pointer.ends_with("/repoURL"));
    match is_direct {
        true => AuthorizationImpact::Direct,
        false => AuthorizationImpact::Indirect,
    }
}

impl From<super::patch::Error> for Error {
    fn from(error: super::patch::Error) -> Self {
        match error {
            super::patch::Error::Exceeded(exceeded) => Self::Exceeded(exceeded),
            error => Self::Patch(error.truncated()),
        }
    }
}

impl ExecError {
    fn at(self, template: &str) -> Error {
        let (template, message) = (excerpt(template), truncated(&self.to_string()));
        match self {
            Self::Exceeded(exceeded) => Error::Exceeded(exceeded),
            Self::Divergent(_) => divergent(&message, template),
            Self::MissingKey(_) => Error::MissingKey { template, message },
            Self::Message(_) => Error::Execute { template, message },
            Self::Limit(_) => Error::TemplateLimit { template, message },
        }
    }
}

fn divergent(what: &str, template: String) -> Error {
    Error::Divergent {
        field: "the template".to_owned(),
        template,
        what: truncated(what),
    }
}

impl Error {
    /// Adds the field's pointer to the error.
    fn in_field(self, pointer: &str) -> Self {
        match self {
            Self::Divergent { template, what, .. } if !pointer.is_empty() => Self::Divergent {
                field: format!("`{}`,", truncated(&pointer.trim_start_matches('/').replace('/', "."))),
                template,
                what,
            },
            other => other,
        }
    }
}

/// A parsed template.
#[derive(Debug)]
pub struct CompiledTemplate(tree::TemplateTree);

impl CompiledTemplate {
    /// Parses every string and key of `value`.
    ///
    /// # Errors
    /// [`Error::Syntax`]: wrong braces, grammar or an unknown function; [`Error::Depth`].
    pub fn value(engine: TemplateEngine, value: &Value) -> Result<Self, Error> {
        tree::TemplateTree::new(engine, value, |_| AuthorizationImpact::None).map(Self)
    }

    /// Parses every string and key of `value`, on which authorization depends.
    ///
    /// # Errors
    /// [`Error::Syntax`]; [`Error::Depth`]; [`Error::Divergent`].
    pub fn for_authorization(engine: TemplateEngine, value: &Value) -> Result<Self, Error> {
        tree::TemplateTree::new(engine, value, |_| AuthorizationImpact::Direct).map(Self)
    }

    /// Renders with these parameters. Members of objects that are `null` are omitted.
    ///
    /// # Errors
    /// [`Error::Execute`], [`Error::MissingKey`], [`Error::TemplateLimit`], [`Error::Divergent`],
    /// [`Error::Exceeded`].
    pub fn render(&self, params: &Params, budget: &GenerationBudget) -> Result<Value, Error> {
        self.0.render(&RenderContext::new(params, budget))
    }
}

#[derive(Debug)]
enum StringTemplate {
    Plain(String),
    FastTemplate(fast_template::FastTemplate),
    GoTemplate(Box<go_template::GoTemplate>),
}

impl StringTemplate {
    fn new(engine: TemplateEngine, text: &str, impact: AuthorizationImpact) -> Result<Self, Error> {
        // Neither engine changes a string without `{{`.
        if !text.contains("{{") {
            return Ok(Self::Plain(text.to_owned()));
        }
        Ok(match engine {
            TemplateEngine::FastTemplate => match fast_template::FastTemplate::new(text)? {
                Some(template) => Self::FastTemplate(template),
                None => Self::Plain(text.to_owned()),
            },
            TemplateEngine::GoTemplate { missing_key } => {
                Self::GoTemplate(Box::new(go_template::GoTemplate::new(text, missing_key, impact)?))
            }
        })
    }

    fn into_plain(self) -> Option<String> {
        match self {
            Self::Plain(text) => Some(text),
            Self::FastTemplate(_) | Self::GoTemplate(_) => None,
        }
    }

    fn render(&self, context: &RenderContext<'_>) -> Result<String, Error> {
        let text = match self {
            Self::Plain(text) => text.clone(),
            Self::FastTemplate(fast) => {
                // Charged before it is made.
                context.budget.charge_bytes(value::size(fast.length(context.params)))?;
                context.budget.check_deadline()?;
                return Ok(fast.render(context.params));
            }
            Self::GoTemplate(go) => go.render(context)?,
        };
        // `TEXT_BYTES` and the heap bound the render itself. What remains of it is charged here.
        context.budget.charge_bytes(value::size(text.len()))?;
        Ok(text)
    }
}

/// One set of parameters, in the form the engines need.
struct RenderContext<'a> {
    params: &'a Params,
    budget: &'a GenerationBudget,
    /// The parameters as Go values, made when the first Go template needs them.
    go: OnceCell<(value::Heap<'a>, value::Value)>,
}

impl<'a> RenderContext<'a> {
    fn new(params: &'a Params, budget: &'a GenerationBudget) -> Self {
        let go = OnceCell::new();
        Self { params, budget, go }
    }

    fn values(&self) -> Result<&(value::Heap<'a>, value::Value), ExecError> {
        if let Some(made) = self.go.get() {
            return Ok(made);
        }
        let heap = value::Heap::new(self.budget);
        let root = heap.parameters(self.params)?;
        Ok(self.go.get_or_init(|| (heap, root)))
    }
}

/// The beginning of a string, for errors.
fn excerpt(text: &str) -> String {
    shortened(text, EXCERPT_BYTES)
}
