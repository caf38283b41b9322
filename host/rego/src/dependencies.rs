//! Tells which changing parts of the input a bundle reads, and thereby whether two requests can be
//! decided differently.
//!
//! A decision is a function of the input alone: no allowed built-in reads the outside world. A
//! decision therefore holds for every request that differs only in parts that no rule reads.
//!
//! Security: every part that a rule could reach counts as read. A path that is not fixed counts for
//! everything below its fixed start.

/// Parts of `input.request`, besides the project, that can affect the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestParts {
    /// None: all requests of one caller about one thing get the same decision.
    #[default]
    None,
    /// The method.
    Method,
    /// Path or query: each request needs its own decision.
    All,
}

/// Parts of `input.request` of a bundle for Argo CD's API that can be in the content.
const IN_CONTENT: [&str; 4] = ["action", "application", "namespace", "project"];

/// Which changing parts of the input a bundle reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputDependencies {
    /// Parts of `input.request`.
    pub request: RequestParts,
    /// Whether `input.time` is read. Then every request needs its own decision.
    pub time: bool,
    /// Whether `input.rbac.candidates` is read; building it is expensive.
    pub candidates: bool,
    /// In a bundle for Argo CD's API, whether something is read that can be in the content of a
    /// request. Otherwise the content stays a stream.
    pub content: bool,
}

impl InputDependencies {
    /// Records that a rule names `path` below `input`. An empty path means all of it.
    pub(crate) fn record(&mut self, path: &[String]) {
        let mut parts = path.iter().map(String::as_str);
        let (first, second) = (parts.next(), parts.next());
        self.content |= match (first, second) {
            (None, _) => true,
            (Some("request"), part) => part.is_none_or(|part| IN_CONTENT.contains(&part)),
            // The content names the Application.
            (Some(part), _) => part == "application",
        };
        self.time |= first.is_none_or(|part| part == "time");
        let request = match (first, second) {
            (None, _) => {
                self.candidates = true;
                RequestParts::All
            }
            (Some("time"), _) => RequestParts::All,
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
