//! Prints a report as text.

use super::audit::WouldRefuse;
use super::report::{AccountReport, ClusterReport, ImpersonationState, Report, Route, Unassigned};
use super::steps::{Step, StepState, WayBack};
use tollgate_client::list_output::{clean, render_flush, whole_seconds};
use tollgate_client::terminal::escape_line;

pub(super) fn table(report: &Report) -> String {
    let mut parts = vec![format!(
        "Impersonation in argocd-cm: {}\nMode of `controlPlane`: {}",
        match report.impersonation {
            ImpersonationState::Off => "off",
            ImpersonationState::NotEnforced => "on, not enforced",
            ImpersonationState::Enforced => "on, enforced",
        },
        report.mode.unwrap_or("the settings have no such section"),
    )];
    parts.extend(report.clusters.iter().map(cluster));
    parts.join("\n\n")
}

fn cluster(report: &ClusterReport) -> String {
    let reached = match report.route {
        Route::InCluster => "Argo CD runs there, and uses the account of its pods",
        Route::Direct => "Argo CD holds a credential of it",
        Route::Enrolled => "Argo CD reaches it through Tollgate",
    };
    let name = escape_line(&report.name);
    let mut parts = vec![format!("Cluster {name} ({}): {reached}", escape_line(&report.server))];
    parts.push(match report.accounts.as_slice() {
        [] => "No account acts there for an Application.".to_owned(),
        accounts => indented(&render_flush(
            &["ACCOUNT", "PROJECTS", "APPLICATIONS", "NEEDS"],
            accounts.iter().map(account),
        )),
    });
    if !report.without_account.is_empty() {
        let head = ["WITHOUT ACCOUNT", "PROJECT", "NAMESPACE", "WHY"];
        parts.push(indented(&render_flush(
            &head,
            report.without_account.iter().map(unassigned),
        )));
    }
    match report.would_refuse.as_deref() {
        None => parts.push("What mode audit recorded is not read: name `--admin` or `--decisions`.".to_owned()),
        Some([]) => parts.push("Mode audit recorded nothing that would be refused.".to_owned()),
        Some(refused) => {
            let head = ["WOULD BE REFUSED", "PROJECT", "REASON", "COUNT", "LAST"];
            parts.push(indented(&render_flush(&head, refused.iter().map(would_refuse))));
        }
    }
    if !report.steps.is_empty() {
        let steps = report.steps.iter().zip(1..).map(|(one, number)| step(one, number));
        parts.push(format!("Steps:\n{}", steps.collect::<Vec<_>>().join("\n")));
    }
    if !report.way_back.is_empty() {
        let ways = report.way_back.iter().map(way_back);
        parts.push(format!("The way back:\n{}", ways.collect::<Vec<_>>().join("\n")));
    }
    parts.join("\n\n")
}

fn account(report: &AccountReport) -> [String; 4] {
    let names = |names: &std::collections::BTreeSet<String>| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        clean(&names.join(", "))
    };
    let mut needs: Vec<String> = report
        .needs
        .iter()
        .map(|need| {
            let kind = match need.group.as_str() {
                "" => need.kind.clone(),
                group => format!("{}.{group}", need.kind),
            };
            match need.namespace.as_str() {
                "" => kind,
                namespace => format!("{namespace}/{kind}"),
            }
        })
        .collect();
    if needs.is_empty() {
        needs.push("unknown until the first sync".to_owned());
    }
    if report.grants_rights {
        needs.push("and the rights that these roles grant".to_owned());
    }
    [
        clean(&report.shown()),
        names(&report.projects),
        names(&report.applications),
        clean(&needs.join(", ")),
    ]
}

fn unassigned(unassigned: &Unassigned) -> [String; 4] {
    let namespace = match unassigned.namespace.as_str() {
        "" => "-",
        namespace => namespace,
    };
    [
        clean(&unassigned.application),
        clean(&unassigned.project),
        clean(namespace),
        clean(&unassigned.reason),
    ]
}

fn would_refuse(entry: &WouldRefuse) -> [String; 5] {
    let or_dash = |text: &Option<String>| clean(text.as_deref().unwrap_or("-"));
    [
        or_dash(&entry.application),
        or_dash(&entry.project),
        clean(&entry.reason),
        entry.count.to_string(),
        clean(&whole_seconds(&entry.last)),
    ]
}

fn step(step: &Step, number: usize) -> String {
    let state = match step.state {
        StepState::Done => "x",
        StepState::Open => " ",
        StepState::Unknown => "?",
    };
    let command = step.command.as_deref();
    let command = command.map_or_else(String::new, |command| format!("\n         {}", escape_line(command)));
    format!("  [{state}] {number}. {}{command}", escape_line(&step.text))
}

fn way_back(way: &WayBack) -> String {
    format!("  {}\n         {}", way.text, escape_line(&way.command))
}

fn indented(table: &str) -> String {
    let lines: Vec<String> = table.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
