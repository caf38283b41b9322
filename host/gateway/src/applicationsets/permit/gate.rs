//! Decides which repositories, clusters and kinds of generators a set may use. Each question is
//! judged once a request.
//!
//! Security: no answer names a cluster the caller may not see. A repository that an RBAC row or
//! the policy denies is denied under every spelling of its URL.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::applicationsets::permit::Desk;
use crate::applicationsets::permit::error::FindingKind;
use crate::applicationsets::permit::judge::Finding;
use crate::applicationsets::permit::placement::redact_credentials;
use crate::applicationsets::permit::rights::is_templated;
use crate::extensions::facts::Lookup;
use tollgate_applicationset::repository::{AllowedRepository, permitted};
use tollgate_applicationset::{ClusterInput, GeneratorKind, InputAuthorizer, Refusal, RefusedResource};
use tollgate_config::ApplicationSetChecks;
use tollgate_policy::rbac::cluster_object_name;
use tollgate_policy::rego::{ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage, CheckedFact};

/// Most answers that are cached.
const MAX_MEMOIZED: usize = 10_000;
/// The setting that refuses if the gateway may not query a repository.
const LISTED: &str = "applicationSets.repositories";
/// The text for callers who select clusters they may not see. It names none: a caller who selects
/// all clusters would learn which exist.
const CLUSTERS: &str = "it selects a cluster for which `clusters, get` is not permitted";

/// A question with a cached answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum InputKey {
    Repository(String),
    Cluster(String),
    Guest(GeneratorKind),
}

/// Decides for one caller and one set what generators may read.
#[derive(Debug)]
pub struct CallerGate<'a> {
    desk: Desk<'a>,
    /// The project of the set's template. Empty if it is a template itself.
    project: &'a str,
    facts: &'a ApplicationSetFacts,
    guests: Result<(), Refusal>,
    answered: Mutex<FxHashMap<InputKey, Result<(), Refusal>>>,
}

impl<'a> CallerGate<'a> {
    pub(super) fn new(
        desk: Desk<'a>,
        project: &'a str,
        facts: &'a ApplicationSetFacts,
        guests: Result<(), Refusal>,
    ) -> Self {
        Self {
            desk,
            project: if is_templated(project) { "" } else { project },
            facts,
            guests,
            answered: Mutex::default(),
        }
    }

    fn once(&self, question: InputKey, judge: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answered.get(&question) {
            return answer.clone();
        }
        drop(answered);
        let answer = judge();
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() < MAX_MEMOIZED {
            answered.insert(question, answer.clone());
        }
        answer
    }

    /// Also evaluates the policy. The first finding is the answer.
    fn judge(
        &self,
        (about, subject): (RefusedResource, ApplicationSetStage<'_>),
        lookup: &Lookup,
        mut findings: Vec<Finding>,
    ) -> Result<(), Refusal> {
        let check = [lookup.fact()];
        let missing = Finding::missing(lookup.fact());
        let refused = (!lookup.is_allowed()).then(|| missing.reason().to_owned());
        let input = ApplicationSetInput {
            facts: self.facts,
            subject,
            checks: &check,
            refused: refused.as_deref(),
        };
        if refused.is_some() {
            findings.insert(0, missing);
        }
        if let Err(error) = self.desk.add_policy_denial(&input, &mut findings) {
            findings.push(Finding::new(FindingKind::Permission, None, error.to_string()));
        }
        match findings.into_iter().next() {
            Some(finding) => Err(finding.refusal(about)),
            None => Ok(()),
        }
    }

    fn ask_repository(&self, url: &str) -> Result<(), Refusal> {
        let reach = self.desk.permitted_repository(self.project, url);
        if self.desk.settings.checks == ApplicationSetChecks::Argocd {
            let refused = |reason| Finding::new(FindingKind::Permission, Some(LISTED.to_owned()), reason);
            let about = || RefusedResource::Repository(redact_credentials(url));
            return reach.map(drop).map_err(|reason| refused(reason).refusal(about()));
        }
        let (object, findings, fact) = match &reach {
            Ok(permitted) => (permitted.rbac_object().to_owned(), Vec::new(), CheckedFact::new(None)),
            Err(reason) => {
                let finding = Finding::new(FindingKind::Permission, Some(LISTED.to_owned()), reason.clone());
                let fact = CheckedFact::new(Some(finding.reason()));
                (redact_credentials(url), vec![finding], fact)
            }
        };
        let about = RefusedResource::Repository(redact_credentials(url));
        let as_written = vec![redact_credentials(url)];
        let (spelled, urls) = match &reach {
            Ok(permitted) => (permitted.alternative_objects(), permitted.urls()),
            Err(_) => (&[][..], as_written.as_slice()),
        };
        // SECURITY: rows compare texts, and one repository has several spellings.
        let look = |object: String| self.desk.lookup_permission("repositories", "get", object);
        let mut denied = spelled.iter().map(|object| look(object.clone()));
        let lookup = denied.find(Lookup::is_denied_by_row).unwrap_or_else(|| look(object));
        for url in urls {
            let subject = ApplicationSetStage::Repository {
                url,
                reach: fact.clone(),
            };
            self.judge((about.clone(), subject), &lookup, findings.clone())?;
        }
        Ok(())
    }

    fn ask_cluster(&self, cluster: &ClusterInput) -> Result<(), Refusal> {
        let object = cluster_object_name(&cluster.project, &cluster.server);
        let lookup = self.desk.lookup_permission("clusters", "get", object);
        // SECURITY: the answer has neither the name nor the row, which may contain the name.
        let about = RefusedResource::Generator(GeneratorKind::Clusters.as_str());
        if !lookup.is_allowed() {
            return Err(Finding::new(FindingKind::Permission, None, CLUSTERS.to_owned()).refusal(about));
        }
        let subject = ApplicationSetStage::Cluster {
            name: &cluster.name,
            server: &cluster.server,
        };
        self.judge(
            (RefusedResource::Cluster(cluster.name.clone()), subject),
            &lookup,
            Vec::new(),
        )
    }

    fn ask_guest(&self, kind: GeneratorKind) -> Result<(), Refusal> {
        let about = || RefusedResource::Generator(kind.as_str());
        let refused = self.guests.as_ref().err();
        let input = ApplicationSetInput {
            facts: self.facts,
            subject: ApplicationSetStage::Generator { kind: kind.as_str() },
            checks: &[],
            refused: refused.map(|refusal| refusal.reason.as_str()),
        };
        if let Some(refusal) = refused {
            return Err(Refusal {
                about: about(),
                ..refusal.clone()
            });
        }
        let mut findings = Vec::new();
        if let Err(error) = self.desk.add_policy_denial(&input, &mut findings) {
            findings.push(Finding::new(FindingKind::Permission, None, error.to_string()));
        }
        match findings.into_iter().next() {
            Some(finding) => Err(finding.refusal(about())),
            None => Ok(()),
        }
    }
}

impl Desk<'_> {
    /// Checks a repository that the gateway may query, and returns its RBAC object.
    ///
    /// # Errors
    /// Why the gateway may not, without credentials of the URL.
    fn permitted_repository(&self, project: &str, url: &str) -> Result<AllowedRepository, String> {
        let permitted = permitted(self.resources, &self.settings.repositories, (project, url));
        permitted.map_err(|error| error.to_string())
    }
}

impl InputAuthorizer for CallerGate<'_> {
    fn cluster(&self, cluster: &ClusterInput) -> Result<(), Refusal> {
        // Argo CD checks nobody's rights to what its own credentials read.
        if self.desk.settings.checks == ApplicationSetChecks::Argocd {
            return Ok(());
        }
        self.once(InputKey::Cluster(cluster.server.clone()), || self.ask_cluster(cluster))
    }

    fn repository(&self, url: &str) -> Result<(), Refusal> {
        self.once(InputKey::Repository(url.to_owned()), || self.ask_repository(url))
    }

    fn guest(&self, kind: GeneratorKind) -> Result<(), Refusal> {
        if self.desk.settings.checks == ApplicationSetChecks::Argocd {
            return Ok(());
        }
        self.once(InputKey::Guest(kind), || self.ask_guest(kind))
    }
}
