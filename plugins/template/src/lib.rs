//! Go `text/template`, the part of it that suits token requests, over values
//! that may be secrets.
//!
//! A template is parsed when the configuration is loaded and rendered when a
//! token is due. A value is text or an opaque secret; what comes out is a list
//! of [`Part`]s in which secrets stand by name, so that whoever renders never
//! needs their bytes. Where Go and this crate both accept a template they give
//! the same text; a missing value is always an error here.
//!
//! In: template text, the names of values, the text of the public ones.
//! Out: parts, warnings, the names that have to be public. Never: the bytes of
//! a secret, a clock, a file, a socket.
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

pub use correct::{Place, corrected};
pub use error::{Code, Error, Position};
pub use part::{Operation, Part, apply};
pub use url::Url;

/// Most bytes of a template's source.
pub const MAX_SOURCE_BYTES: usize = 64 * 1024;

/// Most bytes of text a template may render to. Bytes of secrets are not known
/// here: whoever sends the parts counts them.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Most parts a template may render to, nested ones included.
pub const MAX_PARTS: usize = 1024;

/// Most levels of `if`, `with` and parentheses in a template.
pub const MAX_DEPTH: usize = 32;

/// Most encodings over one another, also across variables.
pub const MAX_ENCODINGS: usize = 16;

/// What the rendered text is for, which decides what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A header's value: no control characters.
    Header,
    /// A URL: an absolute one whose path no value can leave, and no secret
    /// before the `?`.
    Url,
    /// A body, or a part of one: anything.
    Body,
}

/// A value a template may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text that may be read, branched on and put anywhere.
    Public(String),
    /// A secret: it may be put into headers, bodies and queries, encoded,
    /// joined and trimmed, and nothing may depend on what it is.
    Secret,
}

/// Where the values come from.
pub trait Values {
    /// The value called `name`; nothing when there is none, which refuses the
    /// template.
    fn value(&self, name: &str) -> Option<Value>;
}

impl<F: Fn(&str) -> Option<Value>> Values for F {
    fn value(&self, name: &str) -> Option<Value> {
        self(name)
    }
}

/// A template that was parsed and found to be within the profile.
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
    /// What Go's parser refuses, what the profile leaves out, and text that
    /// looks as if it meant a value but is none (`{.token}`), each with line and
    /// column. Also what can be seen without values: a field of a value, the
    /// whole data printed.
    pub fn parse(source: &str) -> Result<Self, Error> {
        let (nodes, slots, warnings) = parse::parse(source)?;
        Ok(Self { nodes, slots, warnings })
    }

    /// What is legal and probably not meant, for the operator to read.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// All names the template can ask for.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.analysis(Context::Body).names
    }

    /// The names whose value decides something: what a condition looks at, and
    /// in a URL what stands before the `?`. [`Template::render`] refuses them
    /// as secrets; all others may be.
    #[must_use]
    pub fn public_names(&self, context: Context) -> BTreeSet<String> {
        self.analysis(context).public
    }

    /// Renders for a header or a body. For [`Context::Url`] the URL is checked
    /// and given in one piece; [`Template::render_url`] gives it cut.
    ///
    /// No text at all gives no parts; neighbouring texts are one.
    ///
    /// # Errors
    /// A missing value, a decision over a secret, a result too large, or one
    /// that does not suit `context`.
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

    /// Renders a URL, cut at the first `?` the template itself has.
    ///
    /// # Errors
    /// As [`Template::render`] with [`Context::Url`].
    pub fn render_url(&self, values: &dyn Values) -> Result<Url, Error> {
        url::check(&render::render(&self.nodes, self.slots, values)?)
    }

    fn analysis(&self, context: Context) -> analyze::Found {
        analyze::analyze(&self.nodes, self.slots, context)
    }
}

#[cfg(test)]
mod tests;
