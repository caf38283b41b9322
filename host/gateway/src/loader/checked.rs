//! What the [self-check](tollgate_cluster::self_check) reads of the snapshot in force.

use tollgate_cluster::self_check::{AccountPlan, AgentPlan, Configuration};
use tollgate_front::snapshot::CurrentSnapshot;
use tollgate_policy::gateway_rights::grants::NameSources;

#[derive(Debug)]
pub(crate) struct CheckedConfiguration(pub(crate) CurrentSnapshot);

impl Configuration for CheckedConfiguration {
    fn generation(&self) -> u64 {
        self.0.load().generation
    }

    fn agents(&self) -> AgentPlan {
        let snapshot = self.0.load_full();
        let policies = &snapshot.policies;
        let (Some(front), Some(settings)) = (&policies.kubernetes, &policies.config.kubernetes) else {
            return AgentPlan::default();
        };
        let names = NameSources {
            settings,
            mapping: &front.mapping,
        };
        AgentPlan::of(&front.agents, names, &policies.resources, &snapshot.clusters)
    }

    fn accounts(&self) -> AccountPlan {
        let snapshot = self.0.load_full();
        let policies = &snapshot.policies;
        let Some(front) = &policies.applications else {
            return AccountPlan::default();
        };
        let keys = front.rules.extra_keys().map(str::to_owned);
        AccountPlan::of(&front.index, keys, &snapshot.clusters)
    }
}
