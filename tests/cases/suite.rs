//! What a table is, and what runs it.
//!
//! In: a YAML file. Out: its cases, each field read by someone. Never: an
//! unknown field passed over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Runs the cases of some kinds.
///
/// One module a table; a suite that needs a table's own head (fixtures,
/// shared policies) finds it in [`Table::head`].
pub(crate) trait Suite: Sync {
    /// Kinds this suite runs, of tables whose subject it looks at if a kind's
    /// name alone could be another's.
    fn covers(&self, table: &Table, kind: &str) -> bool;

    /// Runs one case.
    ///
    /// # Errors
    /// Why it fails: expected and observed.
    fn run(&self, table: &Table, case: &Case) -> Result<(), String>;

    /// Lets go of what cases of one file shared.
    fn end(&self) {}
}

/// One file.
pub(crate) struct Table {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// `subject`: what the table is about.
    pub(crate) subject: String,
    /// Every other field beside the cases.
    pub(crate) head: Map<String, Value>,
    /// The cases, in file order.
    pub(crate) cases: Vec<Case>,
}

/// One case.
pub(crate) struct Case {
    /// Its id, unique in its file.
    pub(crate) id: String,
    /// Which suite runs it.
    pub(crate) kind: String,
    fields: Map<String, Value>,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it as a table.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
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
            let case = Case::new(case)?;
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
        Ok(Self { id, kind, fields })
    }

    /// The same case with every text `from` another one, wherever it stands.
    pub(crate) fn with(&self, from: &str, to: &str) -> Self {
        let mut fields = self.fields.clone();
        for value in fields.values_mut() {
            replace(value, (from, to));
        }
        Self {
            id: self.id.clone(),
            kind: self.kind.clone(),
            fields,
        }
    }

    /// The fields a run depends on, as a type that refuses unknown ones. What
    /// only tells where a case comes from is left out.
    ///
    /// # Errors
    /// Which field is unknown, missing or of another type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let mut fields = self.fields.clone();
        for told in ["source", "note", "why", "confidence"] {
            fields.remove(told);
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

/// Cases that do not apply, with reasons.
pub(crate) struct Exceptions(BTreeMap<String, String>);

impl Exceptions {
    /// Reads the file of exceptions.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// Why a case does not apply, if it does not.
    pub(crate) fn reason(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }
}

/// Says both sides when they differ.
///
/// # Errors
/// Expected and observed.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(expected: &T, observed: &T) -> Result<(), String> {
    if expected == observed {
        Ok(())
    } else {
        Err(format!("expected {expected:?}, observed {observed:?}"))
    }
}
