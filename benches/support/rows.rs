//! Generates the RBAC policy and the questions that Tollgate and all its peers are measured with.
//!
//! Invariant: the output depends only on the arguments. The file uses no crate, because both the
//! benches and `cargo xtask compare` include it.
//!
//! Row `10 i + j` belongs to role `role:r<i>` and is the j-th of [`GRANTS`] on the objects of
//! project `proj<i>`. Each role `r<i>` has one group, `team-<i>`; the last role also has `guild`.
//! The caller is `alice` with the groups `everyone` (in no row), `guild` (the last role) and the
//! team of the middle role. Only the first row of the middle role allows the hit, after the caller
//! and the other groups have been tried. The miss names a project that none of her roles covers, so
//! the default applies: deny.

use std::fmt::Write;

/// Rows of each role: resource, action, object below its project, effect.
const GRANTS: [(&str, &str, &str, &str); 10] = [
    ("applications", "get", "*", "allow"),
    ("applications", "sync", "*", "allow"),
    ("applications", "create", "*", "allow"),
    ("applications", "update", "*", "allow"),
    ("applications", "override", "*", "allow"),
    ("applications", "action/*", "*", "allow"),
    ("applications", "delete", "keep-*", "deny"),
    ("applicationsets", "get", "*", "allow"),
    ("logs", "get", "*", "allow"),
    ("exec", "create", "*", "allow"),
];

/// A policy, a caller, and the caller's questions.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    /// Policy in Argo CD's CSV: `p` rows first, then `g` rows.
    pub(crate) policy: String,
    /// The caller's `sub` claim.
    pub(crate) subject: String,
    /// The caller's `groups` claim, in token order.
    pub(crate) groups: Vec<String>,
    /// Resource, action and object of an allowed question.
    pub(crate) hit: [String; 3],
    /// Resource, action and object of a denied question; no row matches it.
    pub(crate) miss: [String; 3],
    /// Objects of the applications to list, distributed evenly over the projects.
    pub(crate) applications: Vec<String>,
}

/// Generates a policy of `rows` rows and `applications` objects to list.
///
/// - `rows`: a multiple of 10, at least 10.
pub(crate) fn questions(rows: usize, applications: usize) -> Questions {
    let roles = (rows / GRANTS.len()).max(1);
    let (middle, last) = (roles / 2, roles - 1);
    let mut policy = String::with_capacity(64 * rows);
    for role in 0..roles {
        for (resource, action, object, effect) in GRANTS {
            // INVARIANT: writing to a `String` cannot fail.
            let _ = writeln!(
                policy,
                "p, role:r{role}, {resource}, {action}, proj{role}/{object}, {effect}"
            );
        }
    }
    for role in 0..roles {
        let _ = writeln!(policy, "g, team-{role}, role:r{role}");
    }
    let _ = writeln!(policy, "g, guild, role:r{last}");
    let get = |object: String| ["applications".to_owned(), "get".to_owned(), object];
    Questions {
        policy,
        subject: "alice".to_owned(),
        groups: vec!["everyone".to_owned(), "guild".to_owned(), format!("team-{middle}")],
        hit: get(format!("proj{middle}/app-7")),
        miss: get("elsewhere/app-7".to_owned()),
        applications: (0..applications)
            .map(|number| format!("proj{}/app-{number}", number % roles))
            .collect(),
    }
}
