//! Cases of `kubernetes_access.yaml`: people in front of whole gateways, with
//! API server, issuer and platform on loopback.
//!
//! Cases that need the same gateway share one; its clock moves on between them,
//! so that nothing it remembered counts.

mod case;
mod cluster;
mod credentials;
mod issuer;
mod plan;
mod platform;
mod response;
mod rules;
mod sequence;
mod single;
mod stage;
mod table;
mod upstream;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::runtime::Runtime;

use crate::suite::{Case, Suite, Table};
use case::{Credential, Question};
use plan::Plan;
use response::Outcome;
use single::Done;
use stage::Stage;
use table::Head;

/// Gateways that are kept for further cases.
const KEPT: usize = 8;

/// The table of access to clusters.
pub(crate) struct KubernetesAccess;

/// What cases of one run share.
#[derive(Default)]
struct Shared {
    /// Heads of tables by file.
    heads: BTreeMap<PathBuf, Head>,
    /// Gateways, the latest used one last.
    stages: Vec<Stage>,
    /// The first answer of each group, by file, and whose it is.
    groups: BTreeMap<(PathBuf, String), (String, String)>,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

fn runtime() -> &'static Runtime {
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime"))
}

impl Suite for KubernetesAccess {
    fn covers(&self, table: &Table, _kind: &str) -> bool {
        table::is_ours(table)
    }

    fn run(&self, table: &Table, case: &Case) -> Result<(), String> {
        let question: Question = case.read()?;
        // Taken away: what a panic leaves behind is not used again.
        let mut shared = lock().take().unwrap_or_default();
        let done = runtime().block_on(shared.run(table, case, &question));
        *lock() = Some(shared);
        done
    }

    fn end(&self) {
        let shared = lock().take();
        runtime().block_on(async { drop(shared) });
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Shared>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
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
            (Some(Done { answer, outcome }), Some(group)) if outcome != Outcome::Passed => {
                self.compare((table.path.clone(), group.clone()), &case.id, &response::face(&answer))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    async fn run_on(
        &mut self,
        plan: &Plan,
        (question, ours): (&Question, Option<u16>),
        head: &Head,
    ) -> Result<Option<Done>, String> {
        if matches!(question.credential, Credential::Sequence {}) || !question.steps.is_empty() {
            if question.request.is_some() {
                return Err("a sequence has its requests in its steps".to_owned());
            }
            let mut stage = self.fresh(plan, head).await?;
            return sequence::run(question, head, &mut stage).await.map(|()| None);
        }
        if single::needs_fresh(question, head) {
            let mut stage = self.fresh(plan, head).await?;
            return single::run(question, ours, (head, &mut stage)).await.map(Some);
        }
        let fits = |stage: &Stage| {
            stage.plan == *plan
                && stage.world == head.world
                && !credentials::contradicts(&question.credential, stage, head)
        };
        let mut stage = match self.stages.iter().position(fits) {
            Some(at) => self.stages.remove(at),
            None => self.fresh(plan, head).await?,
        };
        let done = single::run(question, ours, (head, &mut stage)).await;
        if self.stages.len() >= KEPT {
            self.stages.remove(0);
        }
        self.stages.push(stage);
        done.map(Some)
    }

    async fn fresh(&self, plan: &Plan, head: &Head) -> Result<Stage, String> {
        let mut stage = Stage::start(plan, &head.world).await?;
        credentials::sign_everybody_in(&mut stage, &head.world).await?;
        Ok(stage)
    }

    /// Compares an answer with the first of its group.
    fn compare(&mut self, group: (PathBuf, String), id: &str, face: &str) -> Result<(), String> {
        let name = group.1.clone();
        let (first, expected) = self
            .groups
            .entry(group)
            .or_insert_with(|| (id.to_owned(), face.to_owned()));
        if expected == face {
            Ok(())
        } else {
            Err(format!(
                "group `{name}`: expected as in `{first}` {expected}, observed {face}"
            ))
        }
    }
}
