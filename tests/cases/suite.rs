//! Tables of cases, and the trait of the suites that run them.
//!
//! Invariant: every field of a case is read by its suite, listed in [`DOCUMENTATION`], or an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Runs the cases of some kinds.
///
/// Files run at the same time, each in one thread: what the cases of a file share belongs to the
/// thread.
///
/// Each table has a module with its suite. A table's own head, such as fixtures or shared policies,
/// is in [`Table::head`].
pub(crate) trait Suite: Sync {
    /// Whether this suite runs a kind of a table. If several suites have kinds of that name, the
    /// table decides.
    fn covers(&self, table: &Table, kind: &str) -> bool;

    /// Runs one case.
    ///
    /// # Errors
    /// The case fails; the text has expected and observed.
    fn run(&self, table: &Table, case: &Case) -> Result<(), String>;

    /// Frees what the cases of one file shared.
    fn end(&self) {}
}

/// A file of cases.
pub(crate) struct Table {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The field `subject`.
    pub(crate) subject: String,
    /// All other fields except the cases.
    pub(crate) head: Map<String, Value>,
    /// The cases, in file order.
    pub(crate) cases: Vec<Case>,
}

/// One case.
#[derive(Clone)]
pub(crate) struct Case {
    /// Its id, unique in its file.
    pub(crate) id: String,
    /// Its kind, which determines the suite.
    pub(crate) kind: String,
    fields: Map<String, Value>,
    /// The gateway's outcome, if the table allows several or describes it in prose.
    ours: Option<Value>,
    /// Whether the table is in this repository, so that `outcomes.yaml` must have its outcomes.
    pub(crate) is_own: bool,
}

/// Fields of a case that document it, each with the reason why it is not compared.
const DOCUMENTATION: &[(&str, &str)] = &[
    ("source", "where the case was taken from"),
    ("note", "an explanation of the input or of the outcome"),
    ("notes", "an explanation of the input or of the outcome"),
    ("why", "the reason of what a derived case recommends"),
    ("confidence", "how sure the author of a derived case is"),
    ("title", "a name for people; the id is for programs"),
    ("tags", "topics, to search for"),
    (
        "kas_observed",
        "what GitLab's program does; the specification wins if both differ",
    ),
    (
        "go",
        "what Go's own engine renders; `expect` is what this gateway renders",
    ),
    ("differs_from_go", "that `go` and `expect` differ on purpose"),
    (
        "intermediate",
        "steps of a signature, for debugging; the final request is compared",
    ),
    ("cts", "the name of the case in the compliance test suite of RFC 9535"),
];

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is not a table.
    pub(crate) fn read(path: &Path, outcomes: &Outcomes) -> Result<Self, String> {
        let is_own = path.parent() == Some(outcomes.folder.as_path());
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let document: Value =
            serde_saphyr::from_str_with_options(&text, serde_saphyr::options! { strict_booleans: true })
                .map_err(|error| error.to_string())?;
        let Value::Object(mut head) = document else {
            return Err("not a mapping".to_owned());
        };
        let Some(Value::Array(list)) = head.remove("cases") else {
            return Err("no list `cases`".to_owned());
        };
        let mut cases = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for case in list {
            let mut case = Case::new(case)?;
            case.is_own = is_own;
            case.ours = outcomes.of(&case.id);
            if !seen.insert(case.id.clone()) {
                return Err(format!("id `{}` occurs twice", case.id));
            }
            cases.push(case);
        }
        let subject = head
            .remove("subject")
            .and_then(|subject| subject.as_str().map(str::to_owned));
        Ok(Self {
            path: path.to_owned(),
            subject: subject.unwrap_or_default(),
            head,
            cases,
        })
    }
}

impl Case {
    fn new(case: Value) -> Result<Self, String> {
        let Value::Object(mut fields) = case else {
            return Err("a case is not a mapping".to_owned());
        };
        let mut text = |key: &str| fields.remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let (id, kind) = (
            text("id").ok_or("a case has no `id`")?,
            text("kind").unwrap_or_default(),
        );
        Ok(Self {
            id,
            kind,
            fields,
            ours: None,
            is_own: false,
        })
    }

    /// The gateway's outcome from `outcomes.yaml`, as the suite's type.
    ///
    /// # Errors
    /// It cannot be read as that type.
    pub(crate) fn ours<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        let read = |ours: &Value| serde_json::from_value(ours.clone());
        let ours = self.ours.as_ref().map(read).transpose();
        ours.map_err(|error| format!("outcomes.yaml: {error}"))
    }

    /// The gateway's outcome of a case whose table describes it in prose. Cases of this repository
    /// must have one; for tables of other folders it is unknown.
    ///
    /// # Errors
    /// `outcomes.yaml` has none, or it cannot be read as that type.
    pub(crate) fn ours_for_words<T: DeserializeOwned>(&self, words: &str) -> Result<Option<T>, String> {
        match self.ours()? {
            None if self.is_own => Err(format!(
                "`{words}` is prose: add the outcome of the case to outcomes.yaml"
            )),
            ours => Ok(ours),
        }
    }

    /// The same case with another value at a JSON pointer. The last member may be new.
    ///
    /// # Errors
    /// The parent does not exist or is not a mapping.
    pub(crate) fn mutated(&self, pointer: &str, value: Value) -> Result<Self, String> {
        let mut fields = Value::Object(self.fields.clone());
        let (parent, key) = pointer.rsplit_once('/').ok_or("no pointer")?;
        let members = fields.pointer_mut(parent).and_then(Value::as_object_mut);
        let members = members.ok_or_else(|| format!("`{}` has no mapping `{parent}`", self.id))?;
        members.insert(key.to_owned(), value);
        let Value::Object(fields) = fields else {
            return Err("a case is a mapping".to_owned());
        };
        Ok(Self {
            id: self.id.clone(),
            kind: self.kind.clone(),
            fields,
            ours: self.ours.clone(),
            is_own: self.is_own,
        })
    }

    /// The same case with `from` replaced by `to` in all texts and keys.
    pub(crate) fn with(&self, from: &str, to: &str) -> Self {
        let mut fields = self.fields.clone();
        for value in fields.values_mut() {
            replace(value, (from, to));
        }
        Self {
            id: self.id.clone(),
            kind: self.kind.clone(),
            fields,
            ours: self.ours.clone(),
            is_own: self.is_own,
        }
    }

    /// Reads the fields except [`DOCUMENTATION`] as a type that refuses unknown ones.
    ///
    /// # Errors
    /// A field is unknown, missing or of another type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let mut fields = self.fields.clone();
        for (name, _) in DOCUMENTATION {
            fields.remove(*name);
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
    }
}

fn replace(value: &mut Value, (from, to): (&str, &str)) {
    match value {
        Value::String(text) => *text = text.replace(from, to),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, (from, to))),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            fields.extend(old.into_iter().map(|(key, mut value)| {
                replace(&mut value, (from, to));
                (key.replace(from, to), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A nested field that documents a case, such as a `note`. Its value is ignored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Documentation;

impl<'de> serde::Deserialize<'de> for Documentation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The gateway's outcomes from `outcomes.yaml`.
pub(crate) struct Outcomes {
    /// Folder of this repository's tables.
    folder: PathBuf,
    ours: BTreeMap<String, Value>,
}

impl Outcomes {
    /// Reads the file of outcomes.
    ///
    /// # Errors
    /// The file is invalid.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            cases: Vec<Entry>,
        }
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Entry {
            id: String,
            outcome: Value,
            reason: String,
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let file: File = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        let mut ours = BTreeMap::new();
        for Entry { id, outcome, reason } in file.cases {
            if reason.trim().is_empty() {
                return Err(format!("outcome `{id}` has no reason"));
            }
            if ours.insert(id.clone(), outcome).is_some() {
                return Err(format!("outcome `{id}` occurs twice"));
            }
        }
        Ok(Self {
            folder: path.parent().map(Path::to_owned).unwrap_or_default(),
            ours,
        })
    }

    fn of(&self, id: &str) -> Option<Value> {
        self.ours.get(id).cloned()
    }

    /// Ids in the file that are not `known`.
    pub(crate) fn unknown<'a>(&'a self, known: &std::collections::BTreeSet<String>) -> Vec<&'a str> {
        self.ours
            .keys()
            .map(String::as_str)
            .filter(|id| !known.contains(*id))
            .collect()
    }
}

/// Cases that do not apply, with reasons, from `not-applicable.yaml`.
pub(crate) struct Exceptions(BTreeMap<String, String>);

impl Exceptions {
    /// Reads the file of exceptions.
    ///
    /// # Errors
    /// The file is invalid.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            cases: Vec<Exception>,
        }
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Exception {
            id: String,
            reason: String,
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let file: File = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        let mut reasons = BTreeMap::new();
        for Exception { id, reason } in file.cases {
            if reason.trim().is_empty() {
                return Err(format!("exception `{id}` has no reason"));
            }
            reasons.insert(id, reason);
        }
        Ok(Self(reasons))
    }

    /// The reason why a case does not apply; none if it applies.
    pub(crate) fn reason(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }
}

/// Checks that both values are equal.
///
/// # Errors
/// They differ; the text has both.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(expected: &T, observed: &T) -> Result<(), String> {
    if expected == observed {
        Ok(())
    } else {
        Err(format!("expected {expected:?}, observed {observed:?}"))
    }
}
