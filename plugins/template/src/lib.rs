//! The subset of Go's `text/template` that token requests need, with values that may be secrets.
//!
//! A template is parsed when the configuration is loaded, and rendered when a token is needed. The
//! result is a list of [`Part`]s. If Go and this crate both accept a template, they render the same
//! text, except that a missing value is always an error here.
//!
//! Security: a value is public text or an opaque secret. Parts contain secrets by name, so that
//! rendering never needs their bytes. The crate uses no clock, file or socket.
//!
//! ```
//! use tollgate_template::{Context, Part, Template, Value};
//!
//! # fn main() -> Result<(), tollgate_template::Error> {
//! let template = Template::parse("Bearer {{ .token }}")?;
//! let parts = template.render(Context::Header, &|_: &str| Some(Value::Secret))?;
//! assert_eq!(parts, [Part::Text("Bearer ".into()), Part::Secret("token".into())]);
//! # Ok(())
//! # }
//! ```

extern crate alloc;

mod analyze;
mod correct;
mod error;
mod escape;
mod lex;
mod literal;
mod parse;
mod part;
mod render;
mod syntax;
mod text;
mod url;

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

pub use correct::{TargetFormat, corrected};
pub use error::{Code, Error, Position};
pub use part::{Operation, Part, apply};
pub use url::Url;

/// Maximum size of a template's source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 64 * 1024;

/// Maximum size of the rendered text, in bytes. Secrets do not count, because their size is not
/// known here; the sender of the parts has to count them.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Maximum number of parts a template may render to, including nested ones.
pub const MAX_PARTS: usize = 1024;

/// Maximum nesting of `if`, `with` and parentheses in a template.
pub const MAX_DEPTH: usize = 32;

/// Maximum nesting of encodings, also through variables.
pub const MAX_ENCODINGS: usize = 16;

/// What the rendered text is for. It decides what the text may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The value of a header. It has no control characters.
    Header,
    /// An absolute URL. Values cannot change the structure of its path, and no secret comes before
    /// the `?`.
    Url,
    /// A body or a part of one. It may contain anything.
    Body,
}

/// A value a template may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text that conditions may read and that may go anywhere.
    Public(String),
    /// A secret. Templates may put it into headers, bodies and queries, and encode, join and trim
    /// it. Conditions cannot read it.
    Secret,
}

/// The source of the values.
pub trait Values {
    /// The value called `name`. With `None` the render fails.
    fn value(&self, name: &str) -> Option<Value>;
}

impl<F: Fn(&str) -> Option<Value>> Values for F {
    fn value(&self, name: &str) -> Option<Value> {
        self(name)
    }
}

/// A parsed template, within the supported subset of Go's language.
#[derive(Clone, Debug)]
pub struct Template {
    nodes: Vec<syntax::Node>,
    slots: usize,
    warnings: Vec<String>,
}

impl Template {
    /// Parses `source`, up to [`MAX_SOURCE_BYTES`].
    ///
    /// # Errors
    /// What Go's parser refuses, what is outside the subset, and text that looks like a value but
    /// is not one (`{.token}`), each with line and column. Also type errors that do not depend on
    /// values: a field of a value, or the whole data as a value.
    pub fn parse(source: &str) -> Result<Self, Error> {
        let (nodes, slots, warnings) = parse::parse(source)?;
        Ok(Self { nodes, slots, warnings })
    }

    /// Warnings for the operator about text that is valid but probably not intended.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The names of all values that the template may use.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.analysis(Context::Body).names
    }

    /// The names of the values that must be public: those that conditions read, and in a URL those
    /// before the `?`. All other values may be secrets.
    #[must_use]
    pub fn public_names(&self, context: Context) -> BTreeSet<String> {
        self.analysis(context).public
    }

    /// Renders the template and checks the result for `context`. [`Template::render_url`] returns a
    /// URL split at its `?` instead.
    ///
    /// Empty text gives no parts. Adjacent text is one part.
    ///
    /// # Errors
    /// A missing value, a condition that reads a secret, a result that is too large, or one that
    /// `context` does not allow.
    pub fn render(&self, context: Context, values: &dyn Values) -> Result<Vec<Part>, Error> {
        let output = render::render(&self.nodes, self.slots, values)?;
        match context {
            Context::Body => Ok(output.into_parts()),
            Context::Header => {
                output.check_header()?;
                Ok(output.into_parts())
            }
            Context::Url => {
                let url = url::check(&output)?;
                let mut parts = Vec::from([Part::Text(url.base)]);
                if let Some(query) = url.query {
                    parts.push(Part::Text("?".to_string()));
                    parts.extend(query);
                }
                Ok(part::merged(parts))
            }
        }
    }

    /// Renders a URL, split at the first `?` in the template's own text.
    ///
    /// # Errors
    /// As [`Template::render`] with [`Context::Url`].
    pub fn render_url(&self, values: &dyn Values) -> Result<Url, Error> {
        url::check(&render::render(&self.nodes, self.slots, values)?)
    }

    fn analysis(&self, context: Context) -> analyze::Analysis {
        analyze::analyze(&self.nodes, self.slots, context)
    }
}

#[cfg(test)]
mod tests;
