//! Policies: what a bundle says, whether its cases hold and what they reach, and what it would decide,
//! also with a file that is changed for the question alone.

use std::collections::{BTreeMap, HashSet};

use askama::Template;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, View};
use crate::ask::{self, Items, Refusal};
use crate::finding::Finding;
use crate::form::Query;
use crate::frame::Frame;
use crate::text::{Text, encode};

const API: &str = "/api/v1/policies";
/// Longest file that is shown, in bytes, so that a page stays small.
const SHOWN: usize = 48 * 1024;
/// Most cases that are listed; those that fail come first.
const CASES: usize = 200;

/// The bundle of a front, as the API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    front: Text,
    digest: Text,
    stuck: bool,
    findings: Vec<Finding>,
    #[serde(default)]
    files_digest: Option<Text>,
    #[serde(default)]
    files: Vec<File>,
}

#[derive(Debug, Deserialize)]
struct File {
    name: Text,
    text: String,
}

/// What came of running cases or of a question.
#[derive(Debug, Deserialize)]
struct Report {
    diagnostics: Vec<Finding>,
    cases: Vec<Case>,
    coverage: Vec<Coverage>,
    evaluation: Option<Value>,
    untrue: Vec<Untrue>,
    input: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Case {
    note: Text,
    file: Text,
    line: u32,
    outcome: Outcome,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Pass,
    Fail(Text),
}

#[derive(Debug, Default, Deserialize)]
struct Coverage {
    file: Text,
    covered: Vec<u32>,
    not_covered: Vec<u32>,
}

/// A condition that was tried and did not hold.
#[derive(Debug, Deserialize)]
struct Untrue {
    file: Text,
    line: u32,
    rule: Text,
    text: Text,
}

/// A line of a file, with what a question reached.
struct Line<'a> {
    text: Text,
    /// Class of the line.
    mark: &'static str,
    /// The same as text, for people who do not see it.
    label: &'a str,
}

impl Bundle {
    fn path(&self) -> String {
        format!("/console/policies/{}", self.front.encoded())
    }

    fn short_digest(&self) -> Text {
        Text::from(self.digest.raw().get(..12).unwrap_or_default())
    }

    fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == "error")
    }

    /// Whether the files on disk are other ones than those in force.
    fn is_changed(&self) -> bool {
        self.files_digest.as_ref().is_some_and(|digest| *digest != self.digest)
    }

    fn about(&self) -> &'static str {
        match self.front.raw() {
            "extensions" => "Requests to extensions",
            "kubernetes" => "Requests of people to the clusters of agents",
            "applications" => "Requests to clusters in the name of an Application",
            "applicationsets" => "ApplicationSets, what they read and what they generate",
            "argocd" => "Calls of Argo CD's own API",
            "controlplane" => "Requests of Argo CD's own components to clusters",
            _ => "Requests of another version of Tollgate",
        }
    }
}

impl Case {
    fn failure(&self) -> Option<&Text> {
        match &self.outcome {
            Outcome::Pass => None,
            Outcome::Fail(difference) => Some(difference),
        }
    }
}

impl Report {
    fn failed(&self) -> usize {
        self.cases.iter().filter(|case| case.failure().is_some()).count()
    }

    /// The cases that are listed: those that fail first.
    fn listed(&self) -> Vec<&Case> {
        let (failed, passed): (Vec<&Case>, Vec<&Case>) = self.cases.iter().partition(|case| case.failure().is_some());
        failed.into_iter().chain(passed).take(CASES).collect()
    }

    fn percent(&self) -> Option<usize> {
        let covered: usize = self.coverage.iter().map(|file| file.covered.len()).sum();
        let missed: usize = self.coverage.iter().map(|file| file.not_covered.len()).sum();
        covered.saturating_mul(100).checked_div(covered.saturating_add(missed))
    }

    fn allows(&self) -> bool {
        let allow = self.evaluation.as_ref().and_then(|evaluation| evaluation.get("allow"));
        allow == Some(&Value::Bool(true))
    }

    /// What was decided, in a sentence; `None` if nothing was asked.
    fn verdict(&self) -> Option<Text> {
        let evaluation = self.evaluation.as_ref()?;
        let text = |name: &str| evaluation.get(name).and_then(Value::as_str).map(Text::from);
        text("error")
            .or_else(|| text("reason"))
            .or(Some(Text::from("the policy gives no reason")))
    }

    fn is_error(&self) -> bool {
        let evaluation = self.evaluation.as_ref();
        evaluation.is_some_and(|evaluation| evaluation.get("error").is_some())
    }

    /// The decision with everything that it asks for.
    fn decision(&self) -> Text {
        pretty(self.evaluation.as_ref())
    }

    /// A case that has this input and wants what was decided, for `cases.yaml`.
    fn case(&self) -> Option<Text> {
        let (input, evaluation) = (self.input.as_ref()?, self.evaluation.as_ref()?);
        let allow = evaluation.get("allow")?.as_bool()?;
        let note = if allow { "is allowed" } else { "is refused" };
        // JSON is YAML.
        Some(Text::from(format!(
            "- note: this request {note}\n  input: {input}\n  want: {{allow: {allow}}}"
        )))
    }
}

impl Untrue {
    fn place(&self) -> Text {
        Text::from(format!("{}:{}", self.file.raw(), self.line))
    }
}

fn pretty(value: Option<&Value>) -> Text {
    let text = value.and_then(|value| serde_json::to_string_pretty(value).ok());
    Text::from(text.unwrap_or_default())
}

#[derive(Default)]
struct Typed {
    decision: Text,
    input: String,
    /// Text of the file that is shown, if it was changed for the question.
    text: Option<String>,
    problem: Option<Refusal>,
}

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage<'a> {
    frame: &'a Frame,
    bundles: &'a [Bundle],
}

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage<'a> {
    frame: &'a Frame,
    bundle: &'a Bundle,
    /// The file that is shown.
    file: &'a File,
    typed: &'a Typed,
    report: Option<&'a Report>,
}

impl PolicyPage<'_> {
    fn file_path(&self, file: &File) -> String {
        let query = Query::new().with("file", file.name.raw());
        let decision = Some(self.typed.decision.raw()).filter(|id| !id.is_empty());
        query.with_some("decision", decision).at(&self.bundle.path())
    }

    fn is_shown(&self, file: &File) -> bool {
        file.name == self.file.name
    }

    fn text(&self) -> &str {
        self.typed.text.as_deref().unwrap_or(&self.file.text)
    }

    fn is_too_long(&self) -> bool {
        self.text().len() > SHOWN
    }

    fn is_scratch(&self) -> bool {
        self.typed.text.as_ref().is_some_and(|text| *text != self.file.text)
    }

    /// The lines of the file, with what the question reached.
    fn lines(&self) -> Vec<Line<'_>> {
        let coverage = self.report.map_or(&[][..], |report| &report.coverage);
        let coverage = coverage.iter().find(|coverage| coverage.file == self.file.name);
        let of = |lines: Option<&Vec<u32>>| -> HashSet<u32> { lines.into_iter().flatten().copied().collect() };
        let covered = of(coverage.map(|coverage| &coverage.covered));
        let missed = of(coverage.map(|coverage| &coverage.not_covered));
        let lines = (1_u32..).zip(self.text().lines());
        lines
            .map(|(number, text)| {
                let (mark, label) = match (covered.contains(&number), missed.contains(&number)) {
                    (true, _) => ("hit", "reached: "),
                    (false, true) => ("missed", "not reached: "),
                    (false, false) => ("", ""),
                };
                Line {
                    text: Text::from(text),
                    mark,
                    label,
                }
            })
            .collect()
    }
}

impl View<'_> {
    pub(super) async fn policies(&self) -> Answer {
        let list: Items<Bundle> = ask::get(self.api, API).await?;
        self.page(&PoliciesPage {
            frame: &self.frame,
            bundles: &list.items,
        })
    }

    pub(super) async fn policy(&self, front: &str) -> Answer {
        let typed = Typed {
            decision: self.query.shown("decision"),
            ..Typed::default()
        };
        self.policy_page(front, typed, None).await
    }

    /// Runs the cases, or asks what would be decided.
    pub(super) async fn try_policy(&self, front: &str) -> Answer {
        let form = &self.form;
        // Browsers send the line breaks of a text area as CRLF (HTML standard).
        let text = |name| form.all(name).next().map(|text: &str| text.replace("\r\n", "\n"));
        let mut typed = Typed {
            decision: form.shown("decision"),
            input: text("input").unwrap_or_default(),
            text: text("text"),
            problem: None,
        };
        let mut files = BTreeMap::new();
        if let (Some(name), Some(text)) = (form.get("file"), &typed.text) {
            files.insert(name, text.as_str());
        }
        let target = format!("{API}/{}", encode(front));
        let asked = match form.text("op") {
            "test" => ask::post::<Report>(self.api, &format!("{target}/test"), &json!({ "files": files })).await,
            _ => {
                let content = match (form.get("decision"), serde_json::from_str::<Value>(&typed.input)) {
                    (Some(id), _) => Ok(json!({ "decision": id, "files": files })),
                    (None, Ok(input)) => Ok(json!({ "input": input, "files": files })),
                    (None, Err(error)) => Err(Refusal::of_form(format!("the input is not JSON: {error}"))),
                };
                match content {
                    Ok(content) => ask::post::<Report>(self.api, &format!("{target}/eval"), &content).await,
                    Err(refusal) => Err(refusal),
                }
            }
        };
        let report = asked.map_err(|refusal| typed.problem = Some(refusal)).ok();
        self.policy_page(front, typed, report.as_ref()).await
    }

    async fn policy_page(&self, front: &str, typed: Typed, report: Option<&Report>) -> Answer {
        let bundle: Bundle = ask::get(self.api, &format!("{API}/{}", encode(front))).await?;
        let wanted = self
            .query
            .get("file")
            .or(self.form.get("file"))
            .unwrap_or("policy.rego");
        let none = File {
            name: Text::from(wanted),
            text: String::new(),
        };
        let page = PolicyPage {
            frame: &self.frame,
            file: bundle.files.iter().find(|file| file.name == *wanted).unwrap_or(&none),
            bundle: &bundle,
            typed: &typed,
            report,
        };
        match &typed.problem {
            Some(_) => self.page_with_problem(&page),
            None => self.page(&page),
        }
    }
}
