//! Decides which repositories, clusters and kinds of generators a set may use. Each question is
//! judged once a request.
//!
//! Security: no answer names a cluster the caller may not see. A repository that an RBAC row or
//! the policy denies is denied under every spelling of its URL.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::applicationsets::permit::Desk;
use crate::applicationsets::permit::error::Lacks;
use crate::applicationsets::permit::judge::Finding;
use crate::applicationsets::permit::known::shown;
use crate::applicationsets::permit::rights::is_templated;
use crate::extensions::facts::Lookup;
use tollgate_applicationset::repository::{Permitted, permitted};
use tollgate_applicationset::{About, ClusterInput, Gate, KindName, Refusal};
use tollgate_config::SetChecks;
use tollgate_policy::rbac::cluster_object_name;
use tollgate_policy::rego::{Fact, SetFacts, SetInput, Subject};

/// Most answers that are cached.
const REMEMBERED: usize = 10_000;
/// The setting that refuses if the gateway may not query a repository.
const LISTED: &str = "applicationSets.repositories";
/// The text for callers who select clusters they may not see. It names none: a caller who selects
/// all clusters would learn which exist.
const CLUSTERS: &str = "it selects a cluster for which `clusters, get` is not permitted";

/// A question with a cached answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    Repository(String),
    Cluster(String),
    Guest(KindName),
}

/// Decides for one caller and one set what generators may read.
#[derive(Debug)]
pub struct CallerGate<'a> {
    desk: Desk<'a>,
    /// The project of the set's template. Empty if it is a template itself.
    project: &'a str,
    facts: &'a SetFacts,
    guests: Result<(), Refusal>,
    answered: Mutex<FxHashMap<Question, Result<(), Refusal>>>,
}

impl<'a> CallerGate<'a> {
    pub(super) fn new(desk: Desk<'a>, project: &'a str, facts: &'a SetFacts, guests: Result<(), Refusal>) -> Self {
        Self {
            desk,
            project: if is_templated(project) { "" } else { project },
            facts,
            guests,
            answered: Mutex::default(),
        }
    }

    fn once(&self, question: Question, judge: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answered.get(&question) {
            return answer.clone();
        }
        drop(answered);
        let answer = judge();
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() < REMEMBERED {
            answered.insert(question, answer.clone());
        }
        answer
    }

    /// Also evaluates the policy. The first finding is the answer.
    fn judge(
        &self,
        (about, subject): (About, Subject<'_>),
        lookup: &Lookup,
        mut findings: Vec<Finding>,
    ) -> Result<(), Refusal> {
        let check = [lookup.fact()];
        let missing = Finding::missing(lookup.fact());
        let refused = (!lookup.is_allowed()).then(|| missing.reason().to_owned());
        let input = SetInput {
            facts: self.facts,
            subject,
            checks: &check,
            refused: refused.as_deref(),
        };
        if refused.is_some() {
            findings.insert(0, missing);
        }
        if let Err(error) = self.desk.ask(&input, &mut findings) {
            findings.push(Finding::new(Lacks::Permission, None, error.to_string()));
        }
        match findings.into_iter().next() {
            Some(finding) => Err(finding.refusal(about)),
            None => Ok(()),
        }
    }

    fn ask_repository(&self, url: &str) -> Result<(), Refusal> {
        let reach = self.desk.reach(self.project, url);
        if self.desk.settings.checks == SetChecks::Argocd {
            let refused = |reason| Finding::new(Lacks::Permission, Some(LISTED.to_owned()), reason);
            let about = || About::Repository(shown(url));
            return reach.map(drop).map_err(|reason| refused(reason).refusal(about()));
        }
        let (object, findings, fact) = match &reach {
            Ok(permitted) => (permitted.object().to_owned(), Vec::new(), Fact::new(None)),
            Err(reason) => {
                let finding = Finding::new(Lacks::Permission, Some(LISTED.to_owned()), reason.clone());
                let fact = Fact::new(Some(finding.reason()));
                (shown(url), vec![finding], fact)
            }
        };
        let about = About::Repository(shown(url));
        let as_written = vec![shown(url)];
        let (spelled, urls) = match &reach {
            Ok(permitted) => (permitted.spelled(), permitted.urls()),
            Err(_) => (&[][..], as_written.as_slice()),
        };
        // SECURITY: rows compare texts, and one repository has several spellings.
        let look = |object: String| self.desk.look("repositories", "get", object);
        let mut denied = spelled.iter().map(|object| look(object.clone()));
        let lookup = denied.find(Lookup::is_denied_by_row).unwrap_or_else(|| look(object));
        for url in urls {
            let subject = Subject::Repository {
                url,
                reach: fact.clone(),
            };
            self.judge((about.clone(), subject), &lookup, findings.clone())?;
        }
        Ok(())
    }

    fn ask_cluster(&self, cluster: &ClusterInput) -> Result<(), Refusal> {
        let object = cluster_object_name(&cluster.project, &cluster.server);
        let lookup = self.desk.look("clusters", "get", object);
        // SECURITY: the answer has neither the name nor the row, which may contain the name.
        let about = About::Generator(KindName::Clusters.as_str());
        if !lookup.is_allowed() {
            return Err(Finding::new(Lacks::Permission, None, CLUSTERS.to_owned()).refusal(about));
        }
        let subject = Subject::Cluster {
            name: &cluster.name,
            server: &cluster.server,
        };
        self.judge((About::Cluster(cluster.name.clone()), subject), &lookup, Vec::new())
    }

    fn ask_guest(&self, kind: KindName) -> Result<(), Refusal> {
        let about = || About::Generator(kind.as_str());
        let refused = self.guests.as_ref().err();
        let input = SetInput {
            facts: self.facts,
            subject: Subject::Generator { kind: kind.as_str() },
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
        if let Err(error) = self.desk.ask(&input, &mut findings) {
            findings.push(Finding::new(Lacks::Permission, None, error.to_string()));
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
    fn reach(&self, project: &str, url: &str) -> Result<Permitted, String> {
        let permitted = permitted(self.resources, &self.settings.repositories, (project, url));
        permitted.map_err(|error| error.to_string())
    }
}

impl Gate for CallerGate<'_> {
    fn cluster(&self, cluster: &ClusterInput) -> Result<(), Refusal> {
        // Argo CD checks nobody's rights to what its own credentials read.
        if self.desk.settings.checks == SetChecks::Argocd {
            return Ok(());
        }
        self.once(Question::Cluster(cluster.server.clone()), || self.ask_cluster(cluster))
    }

    fn repository(&self, url: &str) -> Result<(), Refusal> {
        self.once(Question::Repository(url.to_owned()), || self.ask_repository(url))
    }

    fn guest(&self, kind: KindName) -> Result<(), Refusal> {
        if self.desk.settings.checks == SetChecks::Argocd {
            return Ok(());
        }
        self.once(Question::Guest(kind), || self.ask_guest(kind))
    }
}
