//! Who may do something: each name of the policy, judged as the server would judge a caller who has
//! this name alone.
//!
//! Invariant: each verdict comes from [`Rbac::decide`].

use serde::Serialize;

use super::{MatchedRule, Rbac, RbacRequest, TokenIssuer, Verdict, VerdictReason};
use tollgate_core::claims::project_of_subject;

const MAX_NAMES: usize = 50_000;

/// What a name of the policy stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum HolderKind {
    /// `sub` of somebody whom an identity provider knows.
    User,
    /// A group of an identity provider.
    Group,
    /// A local account of Argo CD.
    Account,
    /// A token of a project's role.
    ProjectToken,
    /// A role.
    Role,
}

/// A name of the policy with the row that decides about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// What a caller has to have this name as.
    #[serde(rename = "as")]
    pub kind: HolderKind,
    /// The name; empty for everyone.
    pub name: String,
    /// The row that decides.
    pub rule: Option<MatchedRule>,
}

/// Who may do something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhoCan {
    /// Whether every caller may, by the default role or a row about everyone. Then only those who may
    /// not are listed.
    pub everyone: Option<Holder>,
    /// Who may, by name.
    pub allowed: Vec<Holder>,
    /// The names that a row denies it. The row also denies every caller who has this name beside others.
    pub denied: Vec<Holder>,
    /// Whether every name was judged.
    pub complete: bool,
}

impl Rbac {
    /// Finds who may do this. Judges every name, so do not call it for each request.
    ///
    /// A caller with several names, such as a user with groups, may have what one of the names has, and is
    /// denied what a row denies one of them; [`Rbac::explain`] tells.
    pub fn who_can(&self, request: RbacRequest<'_>) -> WhoCan {
        let everyone = self.holder(HolderKind::User, "", request);
        let is_open = everyone.1.is_allowed();
        let mut names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        let complete = names.len() <= MAX_NAMES;
        let mut found = WhoCan {
            everyone: is_open.then_some(everyone.0),
            allowed: Vec::new(),
            denied: Vec::new(),
            complete,
        };
        for name in names.into_iter().take(MAX_NAMES) {
            for kind in self.kinds_of(name) {
                let (holder, verdict) = self.holder(*kind, name, request);
                match verdict.why {
                    VerdictReason::Allowed if !is_open => found.allowed.push(holder),
                    VerdictReason::DeniedByRule => found.denied.push(holder),
                    VerdictReason::Allowed | VerdictReason::NoRule | VerdictReason::EvaluationError => {}
                }
            }
        }
        found
    }

    fn kinds_of(&self, name: &str) -> &'static [HolderKind] {
        match name {
            _ if name.starts_with("role:") => &[HolderKind::Role],
            _ if project_of_subject(name).is_some() => &[HolderKind::ProjectToken],
            _ if self.accounts.contains(name) => &[HolderKind::Account, HolderKind::User, HolderKind::Group],
            _ => &[HolderKind::User, HolderKind::Group],
        }
    }

    fn holder(&self, kind: HolderKind, name: &str, request: RbacRequest<'_>) -> (Holder, Verdict) {
        let of = |user, groups: &[String], issuer| self.identify_uncached(&self.claims_of(user, groups, issuer));
        let who = match kind {
            HolderKind::Role => self.identify_subject(name),
            HolderKind::Account | HolderKind::ProjectToken => of(name, &[], TokenIssuer::Argocd),
            HolderKind::User => of(name, &[], TokenIssuer::Provider),
            HolderKind::Group => of("", &[name.to_owned()], TokenIssuer::Provider),
        };
        let verdict = self.decide(&who, request);
        let holder = Holder {
            kind,
            name: name.to_owned(),
            rule: verdict.rule.and_then(|id| self.matched_rule(id)),
        };
        (holder, verdict)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{HolderKind, WhoCan};
    use crate::rbac::{PolicySource, Rbac, RbacRequest};
    use tollgate_config::RbacSemantics;
    use tollgate_core::diagnostic::Location;
    use tollgate_objects::Text;

    fn who_can(policy: &str, default_role: &str, semantics: RbacSemantics) -> WhoCan {
        let source = PolicySource {
            texts: vec![Text {
                value: policy.into(),
                location: Location::new("policy.csv", 1),
            }],
            default_role: default_role.to_owned(),
            accounts: BTreeSet::from(["admin".to_owned(), "ci".to_owned()]),
            semantics,
            ..PolicySource::default()
        };
        let rbac = Rbac::compile(&source).value.unwrap();
        rbac.who_can(RbacRequest {
            resource: "applications",
            action: "sync",
            object: "shop/web",
        })
    }

    fn names(holders: &[super::Holder]) -> Vec<(HolderKind, &str)> {
        holders
            .iter()
            .map(|holder| (holder.kind, holder.name.as_str()))
            .collect()
    }

    const POLICY: &str = "p, role:shop, applications, sync, shop/*, allow\n\
                          p, alice, applications, sync, */*, allow\n\
                          p, ci, applications, *, shop/*, allow\n\
                          p, bob, applications, get, */*, allow\n\
                          p, corp:out, applications, *, */*, deny\n\
                          g, corp:shop, role:shop\ng, corp:out, role:shop\n";

    #[test]
    fn names_are_judged_as_what_they_can_be() {
        let found = who_can(POLICY, "", RbacSemantics::Strict);
        let allowed = names(&found.allowed);
        for holder in [
            (HolderKind::Role, "role:admin"),
            (HolderKind::Role, "role:shop"),
            (HolderKind::User, "alice"),
            (HolderKind::Account, "ci"),
            (HolderKind::Group, "corp:shop"),
        ] {
            assert!(allowed.contains(&holder), "{holder:?} is not in {allowed:?}");
        }
        for (kind, name) in &allowed {
            assert!(!["bob", "corp:out", "role:readonly"].contains(name), "{name}");
            // No identity provider may give anybody the name of an account.
            assert!(*name != "ci" || *kind == HolderKind::Account, "{kind:?}");
        }
        assert!(
            names(&found.denied).contains(&(HolderKind::Group, "corp:out")),
            "{found:?}"
        );
        let row = found.allowed.iter().find(|holder| holder.name == "corp:shop").unwrap();
        let row = row.rule.as_ref().unwrap();
        assert_eq!(row.text, "p, role:shop, applications, sync, shop/*, allow");
        assert!(found.everyone.is_none() && found.complete);
    }

    #[test]
    fn a_group_without_a_grant_counts_only_where_the_server_counts_it() {
        let policy = "p, corp:bare, applications, sync, shop/*, allow\n";
        for (semantics, counts) in [(RbacSemantics::Argocd, false), (RbacSemantics::Strict, true)] {
            let found = who_can(policy, "", semantics);
            let is_there = names(&found.allowed).contains(&(HolderKind::Group, "corp:bare"));
            assert_eq!(is_there, counts, "{semantics:?}: {found:?}");
        }
    }

    #[test]
    fn what_everyone_may_lists_only_who_is_denied() {
        let found = who_can(POLICY, "role:shop", RbacSemantics::Strict);
        assert!(found.everyone.is_some() && found.allowed.is_empty(), "{found:?}");
        assert!(
            names(&found.denied).contains(&(HolderKind::Group, "corp:out")),
            "{found:?}"
        );
    }
}
