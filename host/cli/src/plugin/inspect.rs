//! `tollgate plugin inspect`: shows what a component is and what its manifest asks for, without
//! running its code.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::{Error, Format, at, findings, serialized_name};
use tollgate_client::list_output::{aligned, join_or_dash};
use tollgate_core::plugin::World;
use tollgate_plugin::{Inspection, ManifestSummary, ProviderSummary};

/// Runs it. Exit code 1 when something is wrong with component or manifest.
pub(super) fn run(file: &Path, output: Format, out: &mut dyn Write, err: &mut dyn Write) -> Result<ExitCode, Error> {
    let inspection = tollgate_plugin::inspect(file).map_err(at(file))?;
    output.show(&inspection, text, out)?;
    findings(&inspection.diagnostics, err)
}

fn text(inspection: &Inspection) -> String {
    let mut facts = vec![
        ("file", inspection.file.clone()),
        ("sha256", inspection.sha256.clone()),
        ("size", format!("{} bytes", inspection.bytes)),
        ("imports", join_or_dash(&inspection.imports, ", ")),
        ("exports", join_or_dash(&inspection.exports, ", ")),
    ];
    facts.extend(inspection.manifest.iter().flat_map(manifest_facts));
    aligned(10, &facts)
}

fn manifest_facts(manifest: &ManifestSummary) -> Vec<(&'static str, String)> {
    let plugin = format!("{} {}: {}", manifest.name, manifest.version, manifest.description);
    let mut facts = vec![
        ("plugin", plugin),
        ("world", serialized_name(&manifest.world)),
        ("asks for", serialized_names(&manifest.imports)),
    ];
    match (manifest.world, &manifest.provider) {
        (World::CredentialProvider | World::Generator, Some(provider)) => facts.extend(provider_facts(provider)),
        (World::HeaderFilter | World::CredentialProvider | World::Generator, _) => {
            facts.push(("called", serialized_names(&manifest.filters)));
            facts.push(("sees", join_or_dash(&manifest.sees(), ", ")));
        }
    }
    facts
}

fn provider_facts(provider: &ProviderSummary) -> [(&'static str, String); 6] {
    let fields = provider.response_headers.iter().map(|name| format!("field {name}"));
    let sees: Vec<String> = provider.visible.iter().cloned().chain(fields).collect();
    [
        ("hosts", join_or_dash(&provider.hosts, ", ")),
        ("secrets", lines(&provider.secrets)),
        ("audiences", lines(&provider.audiences)),
        ("captures", lines(&provider.captures)),
        ("sees", join_or_dash(&sees, ", ")),
        ("sends", join_or_dash(&provider.output_headers, ", ")),
    ]
}

fn lines<T: ToString>(values: &[T]) -> String {
    let lines: Vec<String> = values.iter().map(ToString::to_string).collect();
    join_or_dash(&lines, &format!("\n{:10}", ""))
}

fn serialized_names<T: serde::Serialize>(items: &[T]) -> String {
    let names: Vec<String> = items.iter().map(serialized_name).collect();
    join_or_dash(&names, ", ")
}
