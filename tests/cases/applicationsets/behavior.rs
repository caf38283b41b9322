//! Kind `applicationset`: permissions with Argo CD's checks, and with the gateway's default checks.
//!
//! Cases grant what Argo CD requires: permissions on the set. By default the gateway also requires
//! them on each Application, so each grant is repeated for Applications there.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scenario::{Answer, Checks, Scenario, Set, name, send};
use crate::suite::same;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    given: Given,
    argocd_actual: Outcome,
    recommended: Option<Recommended>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    policy: String,
    subject: String,
    operation: Operation,
    control_plane_namespace: String,
    applicationset: Option<Set>,
    existing: Option<Set>,
    #[serde(default)]
    existing_list: Vec<Set>,
    #[serde(default)]
    projects: Vec<Project>,
    #[serde(default)]
    enabled_namespaces: Vec<String>,
    #[serde(default)]
    upsert: bool,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Operation {
    Create,
    Generate,
    Get,
    Delete,
    List,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Project {
    Name(String),
    Described {
        name: String,
        source_namespaces: Option<Vec<String>>,
    },
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    ok: Option<bool>,
    grpc_code: Option<String>,
    error_contains: Option<String>,
    generated_project: Option<String>,
    rbac_object: Option<String>,
    returned: Option<String>,
    names: Option<Vec<String>>,
}

/// What the gateway does by default, as an outcome or as prose.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Recommended {
    Outcome(Outcome),
    Words(String),
}

/// Runs a case of kind `applicationset`.
///
/// - `is_own`: whether the table is in this repository, so that all its prose has a handler.
pub(super) async fn run(case: Case, is_own: bool) -> Result<(), String> {
    let named = |error| move |checks: &str| format!("{checks}: {error}");
    let argocd = case.given.run(Checks::Argocd, "").await?;
    case.argocd_actual
        .check(&argocd)
        .map_err(|error| named(error)("compat: argocd"))?;
    let given = &case.given;
    match &case.recommended {
        None => case.argocd_actual.check(&given.run(Checks::Generated, "").await?),
        Some(Recommended::Outcome(outcome)) => outcome.check(&given.run(Checks::Generated, "").await?),
        Some(Recommended::Words(words)) => in_words(&case, words, is_own).await,
    }
    .map_err(|error| named(error)("by default"))
}

/// Checks a recommendation that is written as prose.
async fn in_words(case: &Case, words: &str, is_own: bool) -> Result<(), String> {
    let given = &case.given;
    let more = |action: &str| format!("p, {}, applicationsets, {action}, */*, allow\n", given.subject);
    let without = given.run(Checks::Generated, "").await?;
    match words {
        "treat as default" => same(&true, &without.is_ok()).map_err(|error| format!("{error}: {without:?}")),
        "also require get" => {
            same(&false, &without.is_ok())?;
            case.argocd_actual
                .check(&given.run(Checks::Generated, &more("get")).await?)
        }
        "separate preview permission" => {
            same(&false, &without.is_ok())?;
            let with = given.run(Checks::Generated, &more("preview")).await?;
            same(&true, &with.is_ok()).map_err(|error| format!("{error}: {with:?}"))
        }
        // The meaning is unknown for tables of other folders: the request must succeed or be
        // refused.
        _ if !is_own => same(&true, &matches!(without.status, 200 | 400 | 403 | 404 | 409)),
        _ => Err(format!("there is no handler for the recommendation `{words}`")),
    }
}

impl Given {
    /// Sends the requests of the case to a new gateway, with `more` added to the policy.
    async fn run(&self, checks: Checks, more: &str) -> Result<Answer, String> {
        let projects = self.projects.iter().map(|project| match project {
            // A project without `source_namespaces` permits all enabled namespaces.
            Project::Name(name) => Scenario::project(name, Some(&self.enabled_namespaces)),
            Project::Described {
                name,
                source_namespaces,
            } => Scenario::project(name, source_namespaces.as_deref()),
        });
        let mut policy = format!("{}\n{more}", self.policy);
        if checks == Checks::Generated {
            policy.push_str(&self.policy.replace(", applicationsets,", ", applications,"));
        }
        let scenario = Scenario {
            control_plane: self.control_plane_namespace.clone(),
            enabled: self.enabled_namespaces.clone(),
            policy,
            default_role: None,
            projects: projects.collect(),
            clusters: Vec::new(),
            sets: self
                .existing
                .iter()
                .chain(&self.existing_list)
                .map(Set::object)
                .collect(),
        };
        let setup = scenario.setup(checks, &self.subject);
        let world = setup.try_start().await.map_err(|error| format!("{error:#}"))?;
        let mut set = self.applicationset.clone();
        // The effect of a patch is only visible in a generated Application.
        if let Some(set) = set.as_mut().filter(|set| set.template_patch.is_some()) {
            set.generators
                .get_or_insert_with(|| vec![json!({"list": {"elements": [{"a": "b"}]}})]);
        }
        let object = set.as_ref().map(Set::object);
        let needed = || object.clone().ok_or("`applicationset` is missing");
        let (upsert, dry_run) = (self.upsert.to_string(), self.dry_run.to_string());
        let one = |set: &Option<Set>| set.as_ref().map(|set| format!("/{}", name(&set.name)));
        let send = async |method, path: &str, query: &[(&str, &str)], body: Option<Value>| {
            send(&world, &self.subject, (method, path), query, body.as_ref()).await
        };
        let mut answer = match self.operation {
            Operation::Create => {
                let query = [("upsert", upsert.as_str()), ("dryRun", &dry_run)];
                send(Method::POST, "", &query, Some(needed()?)).await?
            }
            Operation::Generate => {
                let body = json!({"applicationSet": needed()?});
                send(Method::POST, "/generate", &[], Some(body)).await?
            }
            Operation::Get | Operation::Delete => {
                let method = if matches!(self.operation, Operation::Get) {
                    Method::GET
                } else {
                    Method::DELETE
                };
                let path = one(&set).or_else(|| one(&self.existing)).ok_or("no set is named")?;
                send(method, &path, &[], None).await?
            }
            Operation::List => send(Method::GET, "", &[], None).await?,
        };
        if self
            .applicationset
            .as_ref()
            .is_some_and(|set| set.template_patch.is_some())
            && answer.is_ok()
        {
            let body = json!({"applicationSet": needed()?});
            let generated = send(Method::POST, "/generate", &[], Some(body)).await?;
            answer.body["generated"] = generated.body["applications"].clone();
        }
        Ok(answer)
    }
}

impl Outcome {
    fn check(&self, answer: &Answer) -> Result<(), String> {
        let with_answer = |error: String| format!("{error}: {answer:?}");
        if let Some(ok) = self.ok {
            same(&ok, &answer.is_ok()).map_err(with_answer)?;
        }
        if let Some(code) = &self.grpc_code {
            same(&json!(number(code)?), &answer.body["code"]).map_err(with_answer)?;
        }
        if let Some(part) = &self.error_contains {
            let message = answer.message();
            if !message.contains(part.as_str()) {
                return Err(format!("`{message}` has no `{part}`"));
            }
        }
        if let Some(project) = &self.generated_project {
            let generated = answer.body["generated"].as_array().cloned().unwrap_or_default();
            let projects: Vec<&Value> = generated.iter().map(|one| &one["spec"]["project"]).collect();
            same(&vec![&json!(project)], &projects).map_err(with_answer)?;
        }
        if let Some(object) = &self.rbac_object {
            let checks = answer.record["checks"].as_array().cloned().unwrap_or_default();
            let sets = checks.iter().filter(|check| check["resource"] == "applicationsets");
            let objects: Vec<&Value> = sets.map(|check| &check["object"]).collect();
            same(&true, &objects.contains(&&json!(object))).map_err(with_answer)?;
        }
        if let Some(returned) = &self.returned {
            same(&"existing", &returned.as_str())?;
            let version = answer.body["metadata"]["resourceVersion"].as_str();
            same(&true, &version.is_some_and(|version| !version.is_empty())).map_err(with_answer)?;
        }
        if let Some(names) = &self.names {
            let names: Vec<String> = names.iter().map(|written| name(written)).collect();
            same(&names, &answer.names("items")).map_err(with_answer)?;
        }
        Ok(())
    }
}

/// Number of a gRPC code.
fn number(code: &str) -> Result<u32, String> {
    match code {
        "InvalidArgument" => Ok(3),
        "NotFound" => Ok(5),
        "AlreadyExists" => Ok(6),
        "PermissionDenied" => Ok(7),
        "FailedPrecondition" => Ok(9),
        "Unauthenticated" => Ok(16),
        other => Err(format!("no number is known for `{other}`")),
    }
}
