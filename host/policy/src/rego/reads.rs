//! Which changing parts of the input a bundle looks at.
//!
//! In: the paths below `input` that its rules name. Out: whether two requests
//! can be decided differently. Never: a part left out that a rule could reach:
//! a path that is not fixed counts for everything below its fixed start.
//!
//! A decision is a function of the input alone: no allowed built-in reads the
//! world. So what is decided once holds for every request that differs only in
//! parts no rule reads.

/// Parts of `input.request` that matter besides the project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestParts {
    /// None: requests of one caller about one thing are decided alike.
    #[default]
    None,
    /// The method.
    Method,
    /// Path or query: each request is a question of its own.
    All,
}

/// What a bundle reads of the input's changing parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Of `input.request`.
    pub request: RequestParts,
    /// Whether `input.rbac.candidates` is read; building it is expensive.
    pub candidates: bool,
}

impl Reads {
    /// A rule names `path` below `input`; empty when it names all of it.
    pub(super) fn note(&mut self, path: &[String]) {
        let mut parts = path.iter().map(String::as_str);
        let request = match (parts.next(), parts.next()) {
            (None, _) => {
                self.candidates = true;
                RequestParts::All
            }
            (Some("request"), Some("method")) => RequestParts::Method,
            (Some("request"), Some("project")) => RequestParts::None,
            (Some("request"), _) => RequestParts::All,
            (Some("rbac"), None | Some("candidates")) => {
                self.candidates = true;
                RequestParts::None
            }
            (Some(_), _) => RequestParts::None,
        };
        self.request = self.request.max(request);
    }
}

#[cfg(test)]
mod tests;
