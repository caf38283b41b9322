//! Compares the compiled lists with a small model of Argo CD's function.

use proptest::prelude::*;

use crate::restriction::lists::{GroupKind, Lists};
use tollgate_cluster::discovery::ResourceScope;
use tollgate_objects::{ResourceRule, ResourceRules};

/// `filepath.Match` of patterns of letters, `*` and `?`, for texts without `/`.
fn matches(pattern: &str, text: &str) -> bool {
    is_match(pattern.as_bytes(), text.as_bytes())
}

fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', behind @ ..], []) => is_match(behind, text),
        ([b'*', behind @ ..], [_, rest @ ..]) => is_match(behind, text) || is_match(pattern, rest),
        ([b'?', behind @ ..], [_, rest @ ..]) => is_match(behind, rest),
        ([one, behind @ ..], [other, rest @ ..]) => one == other && is_match(behind, rest),
        (_, _) => false,
    }
}

/// `isResourceInList` and `isNamedResourceInList`.
fn is_in(list: &[ResourceRule], (group, kind): (&str, &str), name: Option<&str>) -> bool {
    list.iter().any(|rule| {
        let named = name.is_none_or(|name| rule.name.is_empty() || matches(&rule.name, name));
        named && matches(&rule.group, group) && matches(&rule.kind, kind)
    })
}

/// `IsGroupKindNamePermitted`.
fn is_permitted(rules: &ResourceRules, scope: ResourceScope, group_kind: (&str, &str), name: &str) -> bool {
    match scope {
        ResourceScope::Namespaced => {
            let allowed = rules.namespaced_allowed.as_ref();
            allowed.is_none_or(|allowed| is_in(allowed, group_kind, None))
                && !is_in(&rules.namespaced_denied, group_kind, None)
        }
        ResourceScope::Cluster => {
            is_in(&rules.cluster_allowed, group_kind, Some(name))
                && !is_in(&rules.cluster_denied, group_kind, Some(name))
        }
    }
}

fn rule() -> impl Strategy<Value = ResourceRule> {
    (
        "[ab*?]{0,3}",
        "[AB*?]{0,3}",
        prop_oneof![Just(String::new()), "[xy*?]{0,3}"],
    )
        .prop_map(|(group, kind, name)| ResourceRule { group, kind, name })
}

fn list() -> impl Strategy<Value = Vec<ResourceRule>> {
    prop::collection::vec(rule(), 0..4)
}

fn all_lists() -> impl Strategy<Value = ResourceRules> {
    (list(), list(), prop::option::of(list()), list()).prop_map(
        |(cluster_allowed, cluster_denied, namespaced_allowed, namespaced_denied)| ResourceRules {
            cluster_allowed,
            cluster_denied,
            namespaced_allowed,
            namespaced_denied,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn lists_permit_what_argo_cd_permits(
        rules in all_lists(),
        group in "[ab]{0,2}",
        kind in "[AB]{1,2}",
        name in "[xy]{1,2}",
        scope in prop_oneof![Just(ResourceScope::Namespaced), Just(ResourceScope::Cluster)],
    ) {
        let lists = Lists::compile(&rules);
        let group_kind = GroupKind { group: &group, kind: &kind };
        let permitted = lists.refusing(scope, group_kind, Some(&name)).is_none();
        prop_assert_eq!(permitted, is_permitted(&rules, scope, (&group, &kind), &name));
    }

    /// Without a name, a resource is permitted only if it is permitted with every name.
    #[test]
    fn an_unknown_name_permits_only_what_every_name_permits(
        rules in all_lists(),
        group in "[ab]{0,2}",
        kind in "[AB]{1,2}",
        names in prop::collection::vec("[xyz]{1,3}", 1..8),
    ) {
        let lists = Lists::compile(&rules);
        let group_kind = GroupKind { group: &group, kind: &kind };
        let unnamed = lists.refusing(ResourceScope::Cluster, group_kind, None).is_none();
        let each = |name: &String| is_permitted(&rules, ResourceScope::Cluster, (&group, &kind), name);
        if unnamed {
            prop_assert!(names.iter().all(each));
        }
        if !lists.needs_name(ResourceScope::Cluster, group_kind) {
            prop_assert!(names.iter().all(|name| each(name) == unnamed));
        }
    }
}
