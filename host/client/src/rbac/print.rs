//! Prints answers of `tollgate rbac` as JSON, YAML, or lines for people.
//!
//! Security: control characters of a policy do not reach the terminal.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::Differences;
use crate::list_output::{render, serialized_name};
use crate::terminal;
use tollgate_policy::rbac::{
    Difference, Explanation, Field, Holder, MatchedRule, RbacRequest, TokenIssuer, Verdict, VerdictReason, WhoCan,
};

/// A text of a policy or command line, without control characters.
fn plain(text: &str) -> String {
    terminal::escape_line(text).into_owned()
}

fn word(why: VerdictReason) -> &'static str {
    match why {
        VerdictReason::Allowed => "allowed",
        VerdictReason::DeniedByRule => "denied by a row",
        VerdictReason::NoRule => "no row allows it",
        VerdictReason::EvaluationError => "a row holds an invalid expression",
    }
}

/// Prints the verdict, the principals in order, then near misses and notes.
pub(super) fn explanation(out: &mut dyn Write, request: RbacRequest<'_>, answer: &Explanation) -> io::Result<()> {
    let (resource, action) = (request.resource, request.action);
    let answer_word = if answer.verdict.is_allowed() { "Yes" } else { "No" };
    writeln!(
        out,
        "{answer_word}: {resource}, {action}, {}: {}",
        plain(request.object),
        word(answer.verdict.why)
    )?;
    let row = |rule: &MatchedRule| format!("{}: {}", plain(&rule.location), plain(&rule.text));
    if let Some(rule) = &answer.rule {
        writeln!(out, "  {}", row(rule))?;
    }
    let principals = (1_usize..).zip(&answer.principals).map(|(number, tried)| {
        [
            number.to_string(),
            serialized_name(&tried.kind),
            plain(&tried.name),
            plain(&tried.roles.join(" ")),
            serialized_name(&tried.outcome),
            tried.rule.as_ref().map(&row).unwrap_or_default(),
        ]
    });
    let head = ["", "PRINCIPAL", "NAME", "INHERITS", "OUTCOME", "ROW"];
    writeln!(out, "{}", render(&head, principals))?;
    for miss in &answer.near_misses {
        let wanted = plain(&miss.wanted);
        let what = match miss.field {
            Field::Subject => format!("held by `{wanted}` only"),
            Field::Effect | Field::Object | Field::Action | Field::Resource => {
                format!(
                    "{} is `{}`, the row asks for `{wanted}`",
                    serialized_name(&miss.field),
                    plain(&miss.observed)
                )
            }
        };
        writeln!(out, "nearly: {what}: {}", row(&miss.rule))?;
    }
    for note in &answer.notes {
        writeln!(out, "note: {}", plain(note))?;
    }
    Ok(())
}

/// Prints who may, and whom a row denies it.
pub(super) fn who_can(out: &mut dyn Write, request: RbacRequest<'_>, answer: &WhoCan) -> io::Result<()> {
    let row = |rule: &Option<MatchedRule>| {
        let text = |rule: &MatchedRule| format!("{}: {}", plain(&rule.location), plain(&rule.text));
        rule.as_ref().map(text).unwrap_or_default()
    };
    let (resource, action, object) = (request.resource, request.action, plain(request.object));
    if let Some(everyone) = &answer.everyone {
        writeln!(
            out,
            "Everyone may: {resource}, {action}, {object}: {}",
            row(&everyone.rule)
        )?;
    } else if answer.allowed.is_empty() {
        writeln!(out, "Nobody may: {resource}, {action}, {object}")?;
    }
    let rows = |outcome: &'static str, holders: &[Holder]| -> Vec<[String; 4]> {
        let cells = |holder: &Holder| {
            let kind: &str = holder.kind.into();
            [
                outcome.to_owned(),
                kind.to_owned(),
                plain(&holder.name),
                row(&holder.rule),
            ]
        };
        holders.iter().map(cells).collect()
    };
    let mut all = rows("allow", &answer.allowed);
    all.extend(rows("deny", &answer.denied));
    if !all.is_empty() {
        writeln!(out, "{}", render(&["OUTCOME", "AS", "NAME", "ROW"], all.into_iter()))?;
    }
    if !answer.complete {
        writeln!(out, "note: the policy has more names than are judged")?;
    }
    Ok(())
}

/// Prints a line per caller and pair of verdicts: the first request and the number of requests.
/// JSON and YAML list every request.
pub(super) fn differences(out: &mut dyn Write, answer: &Differences) -> io::Result<()> {
    if !answer.complete {
        writeln!(
            out,
            "warning: the policies have more pairs of rows than are looked at; the list may lack some"
        )?;
    }
    if answer.differences.is_empty() {
        return writeln!(out, "No request is judged differently.");
    }
    let mut callers: BTreeMap<_, (&Difference, usize)> = BTreeMap::new();
    for difference in &answer.differences {
        let verdicts = [difference.left, difference.right].map(|verdict| serialized_name(&verdict.outcome));
        let caller = (&difference.user, &difference.groups, difference.issuer, verdicts);
        callers.entry(caller).or_insert((difference, 0)).1 += 1;
    }
    let side = |verdict: Verdict, rule: &Option<String>| {
        let outcome = serialized_name(&verdict.outcome);
        match rule {
            Some(rule) => format!("{outcome} ({})", plain(rule)),
            None => outcome,
        }
    };
    let (left, right) = (plain(&answer.left), plain(&answer.right));
    let head = ["USER", "GROUPS", "REQUESTS", "SUCH AS", &left, &right];
    let rows = callers.values().map(|(first, count)| {
        let is_local = first.issuer == TokenIssuer::Argocd;
        [
            plain(&first.user) + if is_local { " (local)" } else { "" },
            plain(&first.groups.join(" ")),
            count.to_string(),
            plain(&format!("{}, {}, {}", first.resource, first.action, first.object)),
            side(first.left, &first.left_rule),
            side(first.right, &first.right_rule),
        ]
    });
    writeln!(out, "{}", render(&head, rows))?;
    let count = answer.differences.len();
    writeln!(out, "Requests judged differently: {count}; `-o json` lists each.")
}
