//! The policy bundles: what they say, their cases, and what they would decide.
//!
//! Security: a bundle is parsed and evaluated only in a child process, with less time than at a load.
//! Nothing that is tried is stored or used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode, request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Asker;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_front::Denial;
use tollgate_front::api::content::{buffer, read};
use tollgate_front::api::{Error, answer};
use tollgate_front::permission::{EVALUATE_POLICIES, GET_POLICIES};
use tollgate_proxy::forward::{Body, LimitPermit};
use tollgate_proxy::record::PolicyInput;
use tollgate_rego::{Bundle, BundleSource, CheckReport, Checker, Coverage, Front, WorkerLimits};

/// Longest content, in bytes: an input and the files of a scratch copy.
const CONTENT_BYTES: u64 = 2 * 1024 * 1024;
/// What one question may take.
const LIMITS: WorkerLimits = WorkerLimits {
    time: Duration::from_secs(60),
    cpu_seconds: 10,
    memory_bytes: 2 * 1024 * 1024 * 1024,
};

#[derive(Serialize)]
struct List<'a> {
    items: Vec<BundleView<'a>>,
}

/// The bundle of one front.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BundleView<'a> {
    front: Front,
    /// SHA-256 of the bundle in force, as hex. Decisions name it.
    digest: &'a str,
    /// Whether a decision ran too long, so that everything is refused until the next load.
    stuck: bool,
    /// What the latest load found. Errors keep the bundle before in force.
    findings: Vec<Diagnostic>,
}

/// A bundle with its files.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BundleFiles<'a> {
    #[serde(flatten)]
    bundle: BundleView<'a>,
    /// SHA-256 of the files. It differs from `digest` while they are not in force.
    files_digest: Option<String>,
    files: Vec<FileView>,
}

#[derive(Serialize)]
struct FileView {
    /// Below the bundle's folder, such as `data/teams.yaml`.
    name: String,
    text: String,
}

/// Files that take the place of the bundle's, by name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestRequest {
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// What is to be decided, by an input or by a decision that has one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvaluateRequest {
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    decision: Option<Uuid>,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

impl<'a> BundleView<'a> {
    fn of(bundle: &'a Bundle, asker: &Asker<'_>) -> Self {
        let folder = asker.folder(bundle.front).display().to_string();
        let is_about = |finding: &Diagnostic| {
            let file = finding.location.as_ref().map(|location| &*location.file);
            file.is_some_and(|file| {
                file.strip_prefix(&*folder)
                    // `policies/applications` must not stand for `policies/applicationsets` as well.
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let mut findings = asker.services.findings.all();
        // Findings about other bundles need a right to those.
        findings.retain(is_about);
        Self {
            front: bundle.front,
            digest: &bundle.digest,
            stuck: bundle.is_stuck(),
            findings: relative(findings, &folder),
        }
    }
}

/// Findings with the names of files below the bundle's folder.
fn relative(findings: Vec<Diagnostic>, folder: &str) -> Vec<Diagnostic> {
    let shorter = |location: Location| {
        let file = location
            .file
            .strip_prefix(folder)
            .map(|rest| rest.trim_start_matches('/').to_owned());
        match file {
            Some(file) => Location {
                file: file.into(),
                ..location
            },
            None => location,
        }
    };
    let of = |finding: Diagnostic| Diagnostic {
        location: finding.location.map(shorter),
        ..finding
    };
    findings.into_iter().map(of).collect()
}

impl<'a> Asker<'a> {
    fn folder(&self, front: Front) -> std::path::PathBuf {
        self.policies().config.policies_directory.join(front.as_ref())
    }

    pub(super) fn list_policies(&mut self) -> Result<Response<Body>, Denial> {
        self.require(GET_POLICIES, "*")?;
        let open = self.policies().bundles();
        let items = open.map(|bundle| BundleView::of(bundle, self)).collect();
        Ok(answer(StatusCode::OK, &List { items }))
    }

    /// The bundle of a front. Refuses everybody else before it says whether the front is open.
    fn open_bundle(&mut self, front: Front, permission: super::Permission) -> Result<&'a Bundle, Denial> {
        self.require(permission, front.as_ref())?;
        let bundle = self.policies().bundle(front);
        bundle.map(|bundle| &***bundle).ok_or_else(Denial::not_found)
    }

    /// What somebody sends who may try a bundle.
    async fn tried<T: DeserializeOwned>(
        &mut self,
        front: Front,
        head: request::Parts,
        body: Body,
    ) -> Result<T, Denial> {
        self.open_bundle(front, EVALUATE_POLICIES)?;
        let content = buffer(body, CONTENT_BYTES).await?;
        Ok(read(&head.headers, &content)?)
    }

    pub(super) async fn policy(&mut self, front: Front, held: LimitPermit) -> Result<Response<Body>, Denial> {
        let bundle = self.open_bundle(front, GET_POLICIES)?;
        let folder = self.folder(front);
        let read = move || BundleSource::read(&folder, front).value;
        let source = self.services.blocking.run(held, read).await?;
        let files = source.iter().flat_map(BundleSource::files);
        let view = BundleFiles {
            bundle: BundleView::of(bundle, self),
            files_digest: source.as_ref().map(BundleSource::digest),
            files: files
                .map(|(name, text)| FileView {
                    name: name.to_owned(),
                    text: text.to_owned(),
                })
                .collect(),
        };
        Ok(answer(StatusCode::OK, &view))
    }

    /// Runs the cases of the files on disk, or of a scratch copy.
    pub(super) async fn test_policy(
        &mut self,
        front: Front,
        head: request::Parts,
        body: Body,
        held: LimitPermit,
    ) -> Result<Response<Body>, Denial> {
        let request: TestRequest = self.tried(front, head, body).await?;
        self.ask(front, request.files, held, |checker, source| {
            checker.check(source, Coverage::On)
        })
        .await
    }

    /// Says what the files on disk, or a scratch copy, would decide, and by which lines.
    pub(super) async fn evaluate_policy(
        &mut self,
        front: Front,
        head: request::Parts,
        body: Body,
        held: LimitPermit,
    ) -> Result<Response<Body>, Denial> {
        let request: EvaluateRequest = self.tried(front, head, body).await?;
        let input = match (request.input, request.decision) {
            (Some(input), None) => input,
            (None, Some(id)) => {
                let kept = self.decision_input(id)?;
                if kept.front != front {
                    let why = format!("names a decision of `{}`", kept.front.as_ref());
                    return Err(Error::Content { why }.into());
                }
                kept.input
            }
            (_, _) => {
                let why = "has not exactly one of `input` and `decision`".to_owned();
                return Err(Error::Content { why }.into());
            }
        };
        self.ask(front, request.files, held, move |checker, source| {
            checker.explain(source, input)
        })
        .await
    }

    async fn ask(
        &self,
        front: Front,
        files: BTreeMap<String, String>,
        held: LimitPermit,
        ask: impl FnOnce(&Checker, &BundleSource) -> CheckReport + Send + 'static,
    ) -> Result<Response<Body>, Denial> {
        let folder = self.folder(front);
        let checker = self.services.checker.clone().with_limits(LIMITS);
        // Before a slot for work, so that runs that wait keep no other work out.
        let slot = Arc::clone(&self.services.blocking.policy_runs).acquire_owned().await;
        let work = move || {
            // Held until the child process ends.
            let _slot = slot;
            let Loaded { value, mut diagnostics } = BundleSource::read(&folder, front);
            let changed = value.map(|source| source.with_files(&folder, files));
            let source = changed.and_then(|changed| {
                diagnostics.extend(changed.diagnostics);
                changed.value
            });
            let mut report = source.map(|source| ask(&checker, &source)).unwrap_or_default();
            report.diagnostics.splice(..0, diagnostics);
            let folder = folder.display().to_string();
            report.relative_to(&folder);
            report.diagnostics = relative(report.diagnostics, &folder);
            report
        };
        let report = self.services.blocking.run(held, work).await?;
        Ok(answer(StatusCode::OK, &report))
    }

    /// The input of a decision that the caller may see.
    pub(super) fn decision_input(&mut self, id: Uuid) -> Result<PolicyInput, Denial> {
        let found = self.services.recorder.find(id);
        let record: Option<Arc<_>> = found.filter(|record| self.may_see(record));
        let record = record.ok_or_else(Denial::not_found)?;
        // After the record, because the refusal names the front of the decision.
        let front = bundle_of(&record);
        self.require(EVALUATE_POLICIES, front)?;
        let input = self.services.recorder.policy_input(id);
        Ok(input.map_err(Error::PolicyInput)?)
    }
}

/// The name of the bundle that a decision is of, as RBAC has it.
fn bundle_of(record: &tollgate_proxy::record::Record) -> &'static str {
    match record.front {
        "control-plane" => "controlplane",
        front => front,
    }
}
