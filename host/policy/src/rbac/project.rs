//! Validates the role names, groups and policy lines of an `AppProject`. Errors are in Argo CD's
//! words; nothing is repaired.
//!
//! Source: Argo CD `pkg/apis/application/v1alpha1/types.go` (its API checks this; objects applied
//! with kubectl are not checked there).

use super::names::is_project_scoped;

/// Why a role of a project is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A policy line that a role of a project may not have.
    #[error("invalid policy rule '{line}': {problem}")]
    Policy {
        /// The line.
        line: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A role name with characters that are not allowed.
    #[error(
        "invalid role name '{0}'. Must consist of alphanumeric characters, '-' or '_', and must start and end \
         with an alphanumeric character"
    )]
    RoleName(String),
    /// A group name that a policy line cannot contain.
    #[error("group '{name}' {what}")]
    GroupName {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Checks one policy line of a project role. The line is split at every comma, quoted or not, and
/// blanks around the parts are dropped.
///
/// # Errors
/// The error of the first part that is wrong.
pub fn validate_policy(project: &str, role: &str, line: &str) -> Result<(), Error> {
    let refuse = |problem: String| {
        Err(Error::Policy {
            line: line.into(),
            problem,
        })
    };
    let parts: Vec<&str> = line.split(',').map(|part| part.trim_matches(' ')).collect();
    let ["p", subject, resource, action, object, effect] = *parts.as_slice() else {
        return refuse("must be of the form: 'p, sub, res, act, obj, eft'".to_owned());
    };
    let expected = format!("proj:{project}:{role}");
    if subject != expected {
        return refuse(format!("policy subject must be: '{expected}', not '{subject}'"));
    }
    if !is_project_scoped(resource) {
        return refuse(format!(
            "project resource must be: 'applications', 'applicationsets', 'repositories', 'exec', 'logs' or \
             'clusters', not '{resource}'"
        ));
    }
    if !validate_action(action) {
        return refuse(format!("invalid action '{action}'"));
    }
    if !validate_object(project, object) {
        return refuse(format!(
            "object must be of form '{project}/*', '{project}[/<NAMESPACE>]/<APPNAME>' or '{project}/<APPNAME>', \
             not '{object}'"
        ));
    }
    match effect {
        "allow" | "deny" => Ok(()),
        _ => refuse("effect must be: 'allow' or 'deny'".to_owned()),
    }
}

/// Whether a project role may name this action. Sub-resource actions must contain their verb and
/// slash somewhere in the text.
pub fn validate_action(action: &str) -> bool {
    matches!(
        action,
        "get" | "create" | "update" | "delete" | "sync" | "override" | "rollback" | "*"
    ) || ["action/", "update/", "delete/"]
        .iter()
        .any(|part| action.contains(part))
}

/// Whether an object is `<project>/[<namespace>/]<name>` with only letters, digits and `* _ - .`
/// after the project.
pub fn validate_object(project: &str, object: &str) -> bool {
    let Some(rest) = object.strip_prefix(project).and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '*' | '_' | '-' | '.');
    let mut parts = rest.splitn(2, '/');
    parts.all(|part| !part.is_empty() && part.chars().all(is_allowed))
}

/// Checks the name of a role.
///
/// # Errors
/// [`Error::RoleName`] unless it is ASCII letters and digits, with `-` and `_`
/// between them.
pub fn validate_role_name(name: &str) -> Result<(), Error> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if inner && edge(name.chars().next()) && edge(name.chars().next_back()) {
        return Ok(());
    }
    Err(Error::RoleName(name.into()))
}

/// Checks the name of a group. A name in quotes is checked without them.
///
/// # Errors
/// [`Error::GroupName`] if it is empty, has blanks at its ends, contains quotes, line breaks or
/// tabs, or contains a comma without quotes around it.
pub fn validate_group_name(name: &str) -> Result<(), Error> {
    let refuse = |what| {
        Err(Error::GroupName {
            name: name.into(),
            what,
        })
    };
    let trimmed = name.trim();
    let quoted = trimmed.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = quoted.unwrap_or(trimmed);
    if quoted.is_none() && bare.contains(',') {
        return refuse("must be quoted");
    }
    if bare.is_empty() {
        return refuse("is empty");
    }
    if bare.contains(['"', '\n', '\r', '\t']) {
        return refuse("contains invalid characters");
    }
    if name.starts_with(char::is_whitespace) {
        return refuse("contains a leading space");
    }
    if name.ends_with(char::is_whitespace) {
        return refuse("contains a trailing space");
    }
    Ok(())
}
