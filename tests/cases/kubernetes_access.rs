//! Runs the cases of `kubernetes_access.yaml` against whole gateways, with API server, issuer and
//! platform on loopback.
//!
//! Cases that need the same gateway share one. Its clock advances between cases, so that nothing
//! cached affects the next case.

mod case;
mod cluster;
mod credentials;
mod environment;
mod issuer;
mod plan;
mod platform;
mod response;
mod rules;
mod sequence;
mod single;
mod table;
mod upstream;
mod wire;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use tokio::runtime::Runtime;

use crate::suite::{Case, Suite, Table};
use case::{Credential, Question};
use environment::TestEnvironment;
use plan::Plan;
use response::Outcome;
use single::CaseResult;
use table::Head;

/// How many gateways are kept for further cases.
const MAX_ENVIRONMENTS: usize = 8;

/// The table of access to clusters.
pub(crate) struct KubernetesAccess;

/// State that the cases of one file share.
#[derive(Default)]
struct Shared {
    /// Heads of tables by file.
    heads: BTreeMap<PathBuf, Head>,
    /// Gateways, the most recently used one last.
    environments: Vec<TestEnvironment>,
    /// Of each group, by file: the id and the fingerprint of its first case.
    groups: BTreeMap<(PathBuf, String), (String, String)>,
}

thread_local! {
    static SHARED: RefCell<Shared> = RefCell::default();
}
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

fn runtime() -> &'static Runtime {
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime"))
}

impl Suite for KubernetesAccess {
    fn covers(&self, table: &Table, _kind: &str) -> bool {
        table::is_access_table(table)
    }

    fn run(&self, table: &Table, case: &Case) -> Result<(), String> {
        let question: Question = case.read()?;
        // Taken out, so that state from a case that panics is not used again.
        let mut shared = SHARED.take();
        let done = runtime().block_on(shared.run(table, case, &question));
        SHARED.set(shared);
        done
    }

    fn end(&self) {
        let shared = SHARED.take();
        runtime().block_on(async { drop(shared) });
    }
}

impl Shared {
    async fn run(&mut self, table: &Table, case: &Case, question: &Question) -> Result<(), String> {
        let ours = case.ours()?;
        let head = match self.heads.remove(&table.path) {
            Some(head) => head,
            None => Head::read(table)?,
        };
        let plan = Plan::of(question, &head);
        let done = match plan {
            Ok(plan) => self.run_on(&plan, (question, ours), &head).await,
            Err(error) => Err(error),
        };
        self.heads.insert(table.path.clone(), head);
        match (done?, &question.expect.indistinguishable_group) {
            (Some(CaseResult { answer, outcome }), Some(group)) if outcome != Outcome::Passed => self.compare(
                (table.path.clone(), group.clone()),
                &case.id,
                &response::fingerprint(&answer),
            ),
            (Some(_) | None, _) => Ok(()),
        }
    }

    async fn run_on(
        &mut self,
        plan: &Plan,
        (question, ours): (&Question, Option<u16>),
        head: &Head,
    ) -> Result<Option<CaseResult>, String> {
        if matches!(question.credential, Credential::Sequence {}) || !question.steps.is_empty() {
            if question.request.is_some() {
                return Err("a sequence has its requests in its steps".to_owned());
            }
            let mut environment = self.fresh(plan, head).await?;
            return sequence::run(question, head, &mut environment).await.map(|()| None);
        }
        if single::needs_fresh(question, head) {
            let mut environment = self.fresh(plan, head).await?;
            return single::run(question, ours, (head, &mut environment)).await.map(Some);
        }
        let fits = |environment: &TestEnvironment| {
            environment.plan == *plan
                && environment.world == head.world
                && !credentials::contradicts(&question.credential, environment, head)
        };
        let mut environment = match self.environments.iter().position(fits) {
            Some(at) => self.environments.remove(at),
            None => self.fresh(plan, head).await?,
        };
        let done = single::run(question, ours, (head, &mut environment)).await;
        if self.environments.len() >= MAX_ENVIRONMENTS {
            self.environments.remove(0);
        }
        self.environments.push(environment);
        done.map(Some)
    }

    async fn fresh(&self, plan: &Plan, head: &Head) -> Result<TestEnvironment, String> {
        let mut environment = TestEnvironment::start(plan, &head.world).await?;
        credentials::sign_everybody_in(&mut environment, &head.world).await?;
        Ok(environment)
    }

    /// Compares a fingerprint with the first one of its group.
    fn compare(&mut self, group: (PathBuf, String), id: &str, fingerprint: &str) -> Result<(), String> {
        let name = group.1.clone();
        let (first, expected) = self
            .groups
            .entry(group)
            .or_insert_with(|| (id.to_owned(), fingerprint.to_owned()));
        if expected == fingerprint {
            Ok(())
        } else {
            Err(format!(
                "group `{name}`: expected as in `{first}` {expected}, observed {fingerprint}"
            ))
        }
    }
}
