//! The compiled lists of resources that a project allows and denies. They determine which list
//! refuses a kind and a name, as far as the name is known.
//!
//! Security: a rule that cannot be read never allows, and never drops a refusal.
//!
//! Source: Argo CD, `AppProject.IsGroupKindNamePermitted`. Stricter in one point: a deny rule
//! whose pattern cannot be read matches everything; Argo CD skips it.

use crate::restriction::pattern::Pattern;
use tollgate_cluster::discovery::ResourceScope;
use tollgate_objects::{ResourceRule, ResourceRules};

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum ResourceList {
    #[strum(serialize = "clusterResourceWhitelist")]
    ClusterAllowed,
    #[strum(serialize = "clusterResourceBlacklist")]
    ClusterDenied,
    #[strum(serialize = "namespaceResourceWhitelist")]
    NamespacedAllowed,
    #[strum(serialize = "namespaceResourceBlacklist")]
    NamespacedDenied,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GroupKind<'a> {
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
}

#[derive(Debug)]
pub(super) struct Lists {
    cluster_allowed: Rules,
    cluster_denied: Rules,
    /// `None` allows everything.
    namespaced_allowed: Option<Rules>,
    namespaced_denied: Rules,
}

#[derive(Debug)]
struct Rules(Box<[Rule]>);

#[derive(Debug)]
struct Rule {
    group: Pattern,
    kind: Pattern,
    /// `None` matches every name.
    name: Option<Pattern>,
}

impl Lists {
    pub(super) fn compile(rules: &ResourceRules) -> Self {
        let ResourceRules {
            cluster_allowed,
            cluster_denied,
            namespaced_allowed,
            namespaced_denied,
        } = rules;
        Self {
            cluster_allowed: Rules::compile(cluster_allowed, Rule::named),
            cluster_denied: Rules::compile(cluster_denied, Rule::named),
            namespaced_allowed: namespaced_allowed
                .as_ref()
                .map(|allowed| Rules::compile(allowed, Rule::nameless)),
            namespaced_denied: Rules::compile(namespaced_denied, Rule::nameless),
        }
    }

    /// The list that refuses objects of a kind.
    ///
    /// - `name`: `None` if it is not known. Then a kind is refused if it is refused for some
    ///   names, and not allowed if it is allowed only for some.
    pub(super) fn refusing(
        &self,
        scope: ResourceScope,
        group_kind: GroupKind<'_>,
        name: Option<&str>,
    ) -> Option<ResourceList> {
        let (allowed, denied, lists) = self.of(scope);
        match (allowed, lists) {
            (_, (_, list)) if denied.deny(group_kind, name) => Some(list),
            (Some(allowed), (list, _)) if !allowed.allow(group_kind, name) => Some(list),
            (Some(_) | None, _) => None,
        }
    }

    pub(super) fn needs_name(&self, scope: ResourceScope, group_kind: GroupKind<'_>) -> bool {
        let (allowed, denied, _) = self.of(scope);
        let mut rules = denied.0.iter().chain(allowed.map_or(&[][..], |rules| &rules.0));
        rules.any(|rule| rule.name.is_some() && rule.matches(group_kind) != Some(false))
    }

    fn of(&self, scope: ResourceScope) -> (Option<&Rules>, &Rules, (ResourceList, ResourceList)) {
        match scope {
            ResourceScope::Namespaced => {
                let lists = (ResourceList::NamespacedAllowed, ResourceList::NamespacedDenied);
                (self.namespaced_allowed.as_ref(), &self.namespaced_denied, lists)
            }
            ResourceScope::Cluster => {
                let lists = (ResourceList::ClusterAllowed, ResourceList::ClusterDenied);
                // In Argo CD, a project without `clusterResourceWhitelist` allows no cluster-scoped resource.
                (Some(&self.cluster_allowed), &self.cluster_denied, lists)
            }
        }
    }
}

impl Rules {
    fn compile(rules: &[ResourceRule], compile: fn(&ResourceRule) -> Rule) -> Self {
        Self(rules.iter().map(compile).collect())
    }

    fn allow(&self, group_kind: GroupKind<'_>, name: Option<&str>) -> bool {
        self.0.iter().any(|rule| {
            let named = match (&rule.name, name) {
                (None, _) => true,
                (Some(pattern), Some(name)) => pattern.matches(name) == Some(true),
                (Some(_), None) => false,
            };
            named && rule.matches(group_kind) == Some(true)
        })
    }

    // SECURITY: a pattern that cannot be read could have matched this.
    fn deny(&self, group_kind: GroupKind<'_>, name: Option<&str>) -> bool {
        self.0.iter().any(|rule| {
            let named = match (&rule.name, name) {
                (None, _) | (Some(_), None) => true,
                (Some(pattern), Some(name)) => pattern.matches(name) != Some(false),
            };
            named && rule.matches(group_kind) != Some(false)
        })
    }
}

impl Rule {
    fn named(rule: &ResourceRule) -> Self {
        let name = Some(rule.name.as_str()).filter(|name| !name.is_empty());
        // A rule for every name does not depend on it, so no content has to be read.
        let name = name.map(Pattern::compile).filter(|name| !name.is_everything());
        Self {
            name,
            ..Self::nameless(rule)
        }
    }

    /// Lists of namespaced resources have no names.
    fn nameless(rule: &ResourceRule) -> Self {
        let ResourceRule { group, kind, name: _ } = rule;
        Self {
            group: Pattern::compile(group),
            kind: Pattern::compile(kind),
            name: None,
        }
    }

    /// Whether group and kind match the rule. `None` if a pattern cannot be read.
    fn matches(&self, group_kind: GroupKind<'_>) -> Option<bool> {
        match (self.group.matches(group_kind.group), self.kind.matches(group_kind.kind)) {
            // One part that differs is enough, even if the other cannot be read.
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            (None, _) | (_, None) => None,
        }
    }
}
