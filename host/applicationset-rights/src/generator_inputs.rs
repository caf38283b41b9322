//! Decides which repositories, clusters and plugins the generators of a set may read. Each input
//! is checked once a request.
//!
//! Security: no refusal names a cluster that the caller may not see. A repository that an RBAC row
//! or the policy denies is denied under every spelling of its URL.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::SetAuthorizer;
use crate::finding::Finding;
use tollgate_front::set_list::is_templated;

use tollgate_applicationset::{ClusterInput, Denial, DeniedResource, GeneratorKind, InputAuthorizer};
use tollgate_config::ApplicationSetChecks;
use tollgate_core::glob::redact_credentials;
use tollgate_front::rbac::RbacLookup;
use tollgate_policy::rbac::url_object_name;
use tollgate_rego::{ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage, CheckedFact};
use tollgate_repository::allowed_repository;

const MAX_MEMOIZED: usize = 10_000;
/// The setting that refuses if the gateway may not query a repository.
const REPOSITORIES_SETTING: &str = "applicationSets.repositories";
/// The text for callers who select clusters that they may not see. It names no cluster: a caller
/// who selects all would learn which exist.
const CLUSTERS_DENIED: &str = "it selects a cluster for which `clusters, get` is not permitted";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum InputKey {
    Repository(String),
    /// Everything about a cluster that a decision depends on.
    Cluster {
        name: String,
        server: String,
        project: String,
    },
    Plugin(GeneratorKind),
}

/// Decides which inputs the generators of one set may read for one caller.
#[derive(Debug)]
pub struct CallerInputAuthorizer<'a> {
    authorizer: SetAuthorizer<'a>,
    project: &'a str,
    facts: &'a ApplicationSetFacts,
    plugin_access: Result<(), Denial>,
    answers: Mutex<FxHashMap<InputKey, Result<(), Denial>>>,
}

impl<'a> CallerInputAuthorizer<'a> {
    pub(super) fn new(
        authorizer: SetAuthorizer<'a>,
        project: &'a str,
        facts: &'a ApplicationSetFacts,
        plugin_access: Result<(), Denial>,
    ) -> Self {
        Self {
            authorizer,
            // A repository of one project does not count for a set that can turn out to be in another one.
            project: if is_templated(project) { "" } else { project },
            facts,
            plugin_access,
            answers: Mutex::default(),
        }
    }

    /// The project whose repositories the set may use. Empty if it is a template.
    pub fn project(&self) -> &'a str {
        self.project
    }

    fn memoize(&self, key: InputKey, judge: impl FnOnce() -> Result<(), Denial>) -> Result<(), Denial> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(&key) {
            return answer.clone();
        }
        // RBAC and the policy are evaluated without the lock. Two threads may judge the same input, with the same
        // result.
        drop(answers);
        let answer = judge();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // Above the bound an answer is computed again rather than kept.
        if answers.len() < MAX_MEMOIZED {
            answers.insert(key, answer.clone());
        }
        answer
    }

    fn judge(
        &self,
        about: DeniedResource,
        subject: ApplicationSetStage<'_>,
        lookup: &RbacLookup,
        finding: Option<Finding>,
    ) -> Result<(), Denial> {
        let missing = (!lookup.is_allowed()).then(|| Finding::missing(lookup.fact()));
        let input = ApplicationSetInput {
            facts: self.facts,
            subject,
            checks: &[lookup.fact()],
            refused: missing.as_ref().map(Finding::reason),
        };
        self.conclude(about, &input, missing.iter().cloned().chain(finding).collect())
    }

    /// Adds the policy's denial to the findings. The first of them refuses.
    fn conclude(
        &self,
        about: DeniedResource,
        input: &ApplicationSetInput<'_>,
        mut findings: Vec<Finding>,
    ) -> Result<(), Denial> {
        // An `InputAuthorizer` can only deny, so a policy that fails is one more denial.
        if let Err(error) = self.authorizer.add_policy_denial(input, &mut findings) {
            findings.push(Finding::denied(&error.to_string()));
        }
        let first = findings.into_iter().next();
        first.map_or(Ok(()), |finding| Err(finding.into_denial(about)))
    }

    fn judge_repository(&self, url: &str) -> Result<(), Denial> {
        let SetAuthorizer {
            resources, settings, ..
        } = self.authorizer;
        let allowed = allowed_repository(resources, &settings.repositories, self.project, url);
        let shown = redact_credentials(url);
        let about = DeniedResource::Repository(shown.clone());
        let refused = allowed.as_ref().err();
        let finding = refused.map(|reason| Finding::denied(&reason.to_string()).by(REPOSITORIES_SETTING));
        // Which repositories the gateway reads is the operator's decision and no right of the caller, so it holds in
        // this mode too.
        if settings.checks == ApplicationSetChecks::Argocd {
            return finding.map_or(Ok(()), |finding| Err(finding.into_denial(about)));
        }
        let fact = CheckedFact::new(finding.as_ref().map(Finding::reason));
        let as_written = [shown.clone()];
        let (object, spelled, urls) = match &allowed {
            Ok(permitted) => (
                permitted.rbac_object(),
                permitted.alternative_objects(),
                permitted.urls(),
            ),
            Err(_) => (shown.as_str(), &[][..], as_written.as_slice()),
        };
        // SECURITY: rows compare texts, and one repository has several spellings.
        let look_up = |object: &str| {
            self.authorizer
                .lookup_permission("repositories", "get", object.to_owned())
        };
        // Another spelling can only deny. A row that allows must name the object itself.
        let mut denied = spelled.iter().map(|object| look_up(object));
        let lookup = denied
            .find(RbacLookup::is_denied_by_row)
            .unwrap_or_else(|| look_up(object));
        for url in urls {
            let subject = ApplicationSetStage::Repository {
                url,
                egress: fact.clone(),
            };
            self.judge(about.clone(), subject, &lookup, finding.clone())?;
        }
        Ok(())
    }

    fn judge_cluster(&self, cluster: &ClusterInput) -> Result<(), Denial> {
        let object = url_object_name(&cluster.project, &cluster.server);
        let lookup = self.authorizer.lookup_permission("clusters", "get", object);
        // SECURITY: the refusal has neither the name nor the row, which may contain the name.
        let about = DeniedResource::Generator(GeneratorKind::Clusters.as_ref());
        if !lookup.is_allowed() {
            return Err(Finding::denied(CLUSTERS_DENIED).into_denial(about));
        }
        let subject = ApplicationSetStage::Cluster {
            name: &cluster.name,
            server: &cluster.server,
        };
        // The caller may see the cluster, so a denial of the policy may name it.
        let about = DeniedResource::Cluster(cluster.name.clone());
        self.judge(about, subject, &lookup, None)
    }

    fn judge_plugin(&self, kind: GeneratorKind) -> Result<(), Denial> {
        let about = DeniedResource::Generator(kind.into());
        if let Err(refusal) = &self.plugin_access {
            return Err(Denial {
                about,
                ..refusal.clone()
            });
        }
        let input = ApplicationSetInput {
            facts: self.facts,
            subject: ApplicationSetStage::Generator(kind.into()),
            checks: &[],
            refused: None,
        };
        self.conclude(about, &input, Vec::new())
    }
}

impl InputAuthorizer for CallerInputAuthorizer<'_> {
    fn check_cluster(&self, cluster: &ClusterInput) -> Result<(), Denial> {
        // Argo CD checks nobody's permissions for inputs that its own credentials read.
        if self.authorizer.settings.checks == ApplicationSetChecks::Argocd {
            return Ok(());
        }
        let key = InputKey::Cluster {
            name: cluster.name.clone(),
            server: cluster.server.clone(),
            project: cluster.project.clone(),
        };
        self.memoize(key, || self.judge_cluster(cluster))
    }

    fn check_repository(&self, url: &str) -> Result<(), Denial> {
        self.memoize(InputKey::Repository(url.to_owned()), || self.judge_repository(url))
    }

    fn check_plugin(&self, kind: GeneratorKind) -> Result<(), Denial> {
        if self.authorizer.settings.checks == ApplicationSetChecks::Argocd {
            return Ok(());
        }
        self.memoize(InputKey::Plugin(kind), || self.judge_plugin(kind))
    }
}
