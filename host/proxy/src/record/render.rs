//! Renders a record as JSON, with the field names of OPA's decision logs where both have the same
//! field.
//!
//! Security: callers see a record only through [`Record::for_caller`].

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::{Serialize, Serializer};

use super::{CheckRecord, Outcome, Record};
use tollgate_identity::authenticate::Principal;
use tollgate_objects::{Cluster, ObjectName};

impl Record {
    /// The names of whom the decision is about.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let caller = self.principal.iter();
        let caller = caller.flat_map(|caller| [caller.user_id(), caller.username()]);
        let of_agent = self.kubernetes.iter().filter_map(|note| note.user.as_ref());
        caller.chain(of_agent.map(|person| person.username.as_str()))
    }

    /// Whether the decision is about somebody of this name.
    pub fn is_about(&self, name: &str) -> bool {
        self.names().any(|one| one == name)
    }

    /// Returns the record for the caller, without what only operators may know.
    ///
    /// The destination is left out: it is looked up before policy decides, so a refused caller
    /// would learn that the application exists and where its cluster is. The addresses are
    /// left out because they may be those of the operators' proxies.
    #[must_use]
    pub fn for_caller(&self) -> Self {
        let mut shown = self.clone();
        shown.detail.clear();
        // What the caller was told once is no secret.
        shown.message.clone_from(&self.told);
        shown.destination = None;
        shown.credential = None;
        shown.client = None;
        shown.peer = None;
        shown.plugins.clear();
        shown.notes.clear();
        // Callers learn nothing of an Application or ApplicationSet they may not see, not even
        // how long the look-up took.
        let is_hidden = match self.front {
            "applications" | "applicationsets" => true,
            // The project in the checks is that of the Application, unless the caller named it.
            "extensions" => self.application.is_some() && self.project.is_none(),
            _ => false,
        };
        if is_hidden && self.outcome != Outcome::Allowed {
            shown.project = None;
            shown.application = None;
            shown.checks = Arc::default();
            shown.kubernetes = None;
            shown.stage_durations = [Duration::ZERO; 4];
        }
        let without_rule = |check: &CheckRecord| CheckRecord {
            rule: None,
            ..check.clone()
        };
        shown.checks = shown.checks.iter().map(without_rule).collect();
        shown
    }
}

pub(super) fn method<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.as_str())
}

pub(super) fn principal<S: Serializer>(of: &Option<Arc<Principal>>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct PrincipalView<'a> {
        id: &'a str,
        username: &'a str,
        groups: &'a [String],
        issuer: &'a str,
    }
    let view = of.as_ref().map(|principal| PrincipalView {
        id: principal.user_id(),
        username: principal.username(),
        groups: principal.groups(),
        issuer: principal.issuer(),
    });
    view.serialize(serializer)
}

pub(super) fn application<S: Serializer>(of: &Option<ObjectName>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = of.as_ref().map(|app| format!("{}:{}", app.namespace, app.name));
    text.serialize(serializer)
}

pub(super) fn destination<S: Serializer>(of: &Option<Arc<Cluster>>, serializer: S) -> Result<S::Ok, S::Error> {
    match of {
        Some(to) => serializer.collect_map([("name", &to.name), ("server", &to.server)]),
        None => serializer.serialize_none(),
    }
}

pub(super) fn durations<S: Serializer>(stages: &[Duration; 4], serializer: S) -> Result<S::Ok, S::Error> {
    let [authenticate, authorize, headers, forward] = *stages;
    let named = [
        ("authenticate", authenticate),
        ("authorize", authorize),
        ("headers", headers),
        ("forward", forward),
        ("total", stages.iter().sum()),
    ];
    let microseconds = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    serializer.collect_map(named.map(|(name, duration)| (name, microseconds(duration))))
}
