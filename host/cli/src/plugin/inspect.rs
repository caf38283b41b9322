//! `tollgate plugin inspect`: shows what a component is and what its manifest asks for, without
//! running its code.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use super::{Error, Format, at, findings, serialized_name};
use crate::list_output;
use tollgate_core::plugin::World;
use tollgate_plugin::{Inspection, ManifestSummary, ProviderSummary};

/// Runs it. Exit code 1 when something is wrong with component or manifest.
pub(super) fn run(file: &Path, output: Format, out: &mut dyn Write, err: &mut dyn Write) -> Result<ExitCode, Error> {
    let inspection = tollgate_plugin::inspect(file).map_err(at(file))?;
    match output {
        Format::Table => print(&inspection, out)?,
        Format::Json | Format::Yaml => output.print(&inspection, out)?,
    }
    findings(&inspection.diagnostics, err)
}

fn print(inspection: &Inspection, out: &mut dyn Write) -> io::Result<()> {
    let Inspection {
        file,
        sha256,
        bytes,
        imports,
        exports,
        manifest,
        diagnostics: _,
    } = inspection;
    writeln!(out, "file      {file}\nsha256    {sha256}\nsize      {bytes} bytes")?;
    writeln!(
        out,
        "imports   {}\nexports   {}",
        join_or_dash(imports),
        join_or_dash(exports)
    )?;
    let Some(manifest) = manifest else { return Ok(()) };
    let ManifestSummary {
        name,
        version,
        description,
        world,
        imports,
        filters,
        provider,
        ..
    } = manifest;
    writeln!(
        out,
        "plugin    {name} {version}: {description}\nworld     {}",
        serialized_name(world)
    )?;
    writeln!(out, "asks for  {}", join_or_dash(&serialized_names(imports)))?;
    match (world, provider) {
        (World::CredentialProvider | World::Generator, Some(provider)) => print_provider(provider, out),
        (World::HeaderFilter | World::CredentialProvider | World::Generator, _) => {
            writeln!(out, "called    {}", join_or_dash(&serialized_names(filters)))?;
            writeln!(out, "sees      {}", join_or_dash(&manifest.sees()))
        }
    }
}

fn join_or_dash(words: &[String]) -> String {
    list_output::join_or_dash(words, ", ")
}

fn serialized_names<T: serde::Serialize>(items: &[T]) -> Vec<String> {
    items.iter().map(serialized_name).collect()
}

/// Prints what a provider asks for.
fn print_provider(provider: &ProviderSummary, out: &mut dyn Write) -> io::Result<()> {
    let ProviderSummary {
        hosts,
        secrets,
        audiences,
        captures,
        visible,
        response_headers,
        output_headers,
    } = provider;
    writeln!(out, "hosts     {}", join_or_dash(hosts))?;
    for (head, values) in [("secrets", secrets), ("audiences", audiences), ("captures", captures)] {
        let lines: Vec<String> = values.iter().map(ToString::to_string).collect();
        let text = list_output::join_or_dash(&lines, &format!("\n{:10}", ""));
        writeln!(out, "{head:10}{text}")?;
    }
    let fields = response_headers.iter().map(|name| format!("field {name}"));
    let sees: Vec<String> = visible.iter().cloned().chain(fields).collect();
    writeln!(out, "sees      {}", join_or_dash(&sees))?;
    writeln!(out, "sends     {}", join_or_dash(output_headers))
}
