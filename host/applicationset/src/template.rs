//! Templates of ApplicationSets: parsed once, rendered for each set of parameters.
//!
//! In: texts and JSON with `{{…}}`; parameters. Out: texts, JSON, Applications.
//! Never: a file, a variable of the environment or a name server that a template
//! reads; work or memory beyond the budget.
//!
//! Source: Argo CD's `applicationset/utils` (both engines), `text/template` of Go.

use serde_json::Value;

use super::{Budget, Engine, Exceeded, Params};

mod applications;
mod check;
mod exec;
mod fast;
mod fields;
mod functions;
mod generators;
mod go;
mod layout;
mod merge;
mod portable;
mod print;
mod steady;
mod tree;
mod value;
mod versions;

pub(crate) use versions::{highest, is_range};

#[cfg(test)]
mod tests;

pub use applications::Applications;
pub use generators::generator;
pub use steady::{Changing, changing};
pub(super) use value::{Made, made};

/// Letters of a text that an error shows.
const EXCERPT_CHARS: usize = 120;
/// Letters of what an error says: templates make texts as long as they like.
const MESSAGE_CHARS: usize = 1_000;
/// Bytes of one text that is rendered.
const TEXT_BYTES: u64 = 4 * 1024 * 1024;

/// Why nothing was rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A template that cannot be parsed.
    #[error("the template `{template}` is invalid: {message}")]
    Syntax {
        /// Its beginning.
        template: String,
        /// What is wrong with it.
        message: String,
    },
    /// A template that cannot be executed with these parameters.
    #[error("the template `{template}` fails: {message}")]
    Execute {
        /// Its beginning.
        template: String,
        /// What went wrong.
        message: String,
    },
    /// A key that is missing where `missingkey=error` is set, or that no value of
    /// its kind has.
    #[error("the template `{template}` fails: {message}")]
    MissingKey {
        /// The template's beginning.
        template: String,
        /// Which key.
        message: String,
    },
    /// A template that needs more than it may.
    #[error("the template `{template}` fails: {message}")]
    Bound {
        /// Its beginning.
        template: String,
        /// Which bound it reaches.
        message: String,
    },
    /// A template that Argo CD may render otherwise than the gateway does, where rights are
    /// judged by what it becomes.
    #[error(
        "Argo CD may render {place} `{template}` otherwise than it is judged here: {what}; see \"Texts that rights are \
         judged by\" in docs/applicationsets.md for what such a text may have"
    )]
    Divergent {
        /// The field, as far as it is known.
        place: String,
        /// The template's beginning.
        template: String,
        /// What could differ.
        what: String,
    },
    /// A budget of the set is spent.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// A field whose kind is not the one the Application's field has.
    #[error("`{field}` of the template must be {wanted}, not {observed}")]
    Field {
        /// Its path.
        field: String,
        /// What it may be.
        wanted: &'static str,
        /// What it is.
        observed: &'static str,
    },
    /// `templatePatch` gives nothing that can be laid over an Application.
    #[error("the `templatePatch` is invalid: {0}")]
    Patch(#[source] super::patch::Error),
    /// Nested too deep.
    #[error("the template nests more than {allowed} levels")]
    Depth {
        /// Allowed.
        allowed: usize,
    },
}

/// What stops an execution, before it is said in which template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// Argo CD keeps `values` of generators that fail with one of these.
    #[error("{0}")]
    MissingKey(String),
    #[error("{0}")]
    Message(String),
    #[error("it takes more than {allowed} steps")]
    Steps { allowed: u64 },
    #[error("it needs {observed} bytes of memory or more, at most {allowed} are allowed")]
    Memory { observed: u64, allowed: u64 },
    #[error("it writes {observed} bytes or more, at most {allowed} are allowed")]
    Output { observed: u64, allowed: u64 },
    #[error("its values nest more than {allowed} levels")]
    Depth { allowed: usize },
    /// Another bound, in words; no function takes it for a value that is wrong.
    #[error("{0}")]
    Bound(String),
    /// What Argo CD could take otherwise, in words; no function takes it for a value that is
    /// wrong.
    #[error("{0}")]
    Divergent(String),
}

/// What depends on a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Rights are judged by what it becomes.
    Judged,
    /// Rights are judged by texts that are rendered with the same parameters.
    Beside,
    /// Nothing.
    Alone,
}

/// Fields of an Application that rights are judged by, by their pointer. `Wanted` of
/// `authorize/applicationsets/application.rs` has what is judged.
fn role_of(pointer: &str) -> Role {
    let is_judged = matches!(pointer, "/metadata/name" | "/spec/project")
        || pointer.starts_with("/spec/destination/")
        || (pointer.starts_with("/spec/source") && pointer.ends_with("/repoURL"));
    if is_judged { Role::Judged } else { Role::Beside }
}

impl From<super::patch::Error> for Error {
    fn from(error: super::patch::Error) -> Self {
        match error {
            super::patch::Error::Exceeded(exceeded) => Self::Exceeded(exceeded),
            error => Self::Patch(error.told()),
        }
    }
}

impl Fault {
    fn at(self, template: &str) -> Error {
        let template = || excerpt(template);
        match self {
            Self::Exceeded(exceeded) => Error::Exceeded(exceeded),
            Self::MissingKey(message) => Error::MissingKey {
                template: template(),
                message: told(&message),
            },
            Self::Message(message) => Error::Execute {
                template: template(),
                message: told(&message),
            },
            Self::Divergent(what) => divergent(&what, template()),
            fault @ (Self::Steps { .. }
            | Self::Memory { .. }
            | Self::Output { .. }
            | Self::Depth { .. }
            | Self::Bound(_)) => Error::Bound {
                template: template(),
                message: told(&fault.to_string()),
            },
        }
    }
}

/// What Argo CD could take otherwise.
fn divergent(what: &str, template: String) -> Error {
    Error::Divergent {
        place: "the template".to_owned(),
        template,
        what: told(what),
    }
}

impl Error {
    /// The same of a field, by its pointer.
    fn in_field(self, pointer: &str) -> Self {
        match self {
            Self::Divergent { template, what, .. } if !pointer.is_empty() => Self::Divergent {
                place: format!("`{}`,", told(&pointer.trim_start_matches('/').replace('/', "."))),
                template,
                what,
            },
            other => other,
        }
    }
}

/// A template that was parsed.
#[derive(Debug)]
pub struct Compiled(tree::Tree);

impl Compiled {
    /// Parses a text.
    ///
    /// # Errors
    /// [`Error::Syntax`]: wrong braces, grammar or an unknown function.
    pub fn text(engine: Engine, text: &str) -> Result<Self, Error> {
        Self::value(engine, &Value::String(text.to_owned()))
    }

    /// Parses every text and key of `value`.
    ///
    /// # Errors
    /// [`Error::Syntax`]; [`Error::Depth`].
    pub fn value(engine: Engine, value: &Value) -> Result<Self, Error> {
        tree::Tree::new(engine, value, |_| Role::Alone).map(Self)
    }

    /// Parses every text and key of `value`, by which rights are judged.
    ///
    /// # Errors
    /// [`Error::Syntax`]; [`Error::Depth`]; [`Error::Divergent`].
    pub fn judged(engine: Engine, value: &Value) -> Result<Self, Error> {
        tree::Tree::new(engine, value, |_| Role::Judged).map(Self)
    }

    /// Puts parameters in. Entries of objects that are `null` are left out.
    ///
    /// # Errors
    /// [`Error::Execute`], [`Error::MissingKey`], [`Error::Bound`], [`Error::Divergent`],
    /// [`Error::Exceeded`].
    pub fn render(&self, params: &Params, budget: &Budget) -> Result<Value, Error> {
        self.0.render(&mut Render::new(params, budget))
    }
}

/// A text that was parsed.
#[derive(Debug)]
enum Text {
    Plain(String),
    Fast(fast::Fast),
    Go(Box<go::Go>),
}

impl Text {
    fn new(engine: Engine, text: &str, role: Role) -> Result<Self, Error> {
        // Neither engine changes a text without an opening.
        if !text.contains("{{") {
            return Ok(Self::Plain(text.to_owned()));
        }
        Ok(match engine {
            Engine::Fast => match fast::Fast::new(text)? {
                fast::Fast::Plain(text) => Self::Plain(text),
                tagged @ fast::Fast::Tagged { .. } => Self::Fast(tagged),
            },
            Engine::Go { missing_key } => Self::Go(Box::new(go::Go::new(text, missing_key, role)?)),
        })
    }

    fn render(&self, with: &mut Render<'_>) -> Result<String, Error> {
        let text = match self {
            Self::Plain(text) => text.clone(),
            Self::Fast(fast) => {
                // Counted before it is made.
                with.budget.bytes(fast.length(with.params))?;
                with.budget.time()?;
                return Ok(fast.render(with.params));
            }
            Self::Go(go) => go.render(with)?,
        };
        with.budget.bytes(value::size(text.len()))?;
        Ok(text)
    }
}

/// One set of parameters, as the engines take it.
struct Render<'a> {
    params: &'a Params,
    budget: &'a Budget,
    /// The parameters as values of Go, made when the first Go template needs them.
    go: Option<(value::Heap<'a>, value::Value)>,
}

impl<'a> Render<'a> {
    fn new(params: &'a Params, budget: &'a Budget) -> Self {
        Self {
            params,
            budget,
            go: None,
        }
    }

    fn budget(&self) -> &'a Budget {
        self.budget
    }

    fn values(&mut self) -> Result<(&mut value::Heap<'a>, value::Value), Fault> {
        if self.go.is_none() {
            let mut heap = value::Heap::new(self.budget);
            let root = heap.parameters(self.params)?;
            self.go = Some((heap, root));
        }
        match &mut self.go {
            Some((heap, root)) => Ok((heap, root.clone())),
            None => Err(Fault::Message("the parameters are lost".to_owned())),
        }
    }
}

/// The beginning of a text, for errors.
fn excerpt(text: &str) -> String {
    cut(text, EXCERPT_CHARS)
}

/// What an error says, not too long for an answer.
pub(crate) fn told(message: &str) -> String {
    cut(message, MESSAGE_CHARS)
}

fn cut(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
