//! Kubernetes YAML files in a folder.
//!
//! In: a folder, such as a Git checkout or a mounted ConfigMap. Out:
//! [`Resources`], or every mistake of every file. Never: half of a folder, so
//! that the last good state stays when one file is bad.

use std::path::Path;
use std::sync::Arc;

use super::Resources;
use super::decode::Collector;
use super::fields::Source;
use super::yaml::{self, Content, Node, Style};
use crate::diagnostic::{Diagnostic, Loaded, Location};

mod walk;

pub(in crate::state) use walk::GITLAB;

/// Reads every `*.yaml`, `*.yml` and `*.json` file below `folder`.
///
/// - Folders inside are read too, up to 16 deep; hidden files and folders
///   (also `..data` of a mounted ConfigMap), editor copies and
///   `kustomization.yaml` are left out; of a `.gitlab` folder only
///   `agents/<name>/config.yaml` is read; symbolic links are followed, each real
///   file is read once.
/// - `agents/<name>/config.yaml`, wherever it is, is not taken for an object but
///   for GitLab's configuration of the Agent called `<name>`.
/// - A file is at most 64 MiB, all files together 512 MiB, at most 20,000 files.
/// - `namespace` is the control plane's: objects without a namespace belong to
///   it, those of others are left out, except Applications.
///
/// Blocking; call it outside the request path.
///
/// Errors are findings: unreadable or oversized files, text that is not UTF-8,
/// YAML mistakes, wrong types, missing names, duplicates, bad base64, files
/// that changed while they were read or are empty.
pub fn load(folder: &Path, namespace: &str) -> Loaded<Resources> {
    let mut collector = Collector::new(namespace);
    let mut findings = Vec::new();
    for path in walk::files(folder, &mut findings) {
        let name: Arc<str> = Arc::from(path.display().to_string());
        // Folders above the state's own say nothing about what is in it.
        let inside = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        match walk::read(&path) {
            Ok(text) => read(&text, (name, &inside), &mut collector),
            Err(refused) => {
                let finding = Diagnostic::error(Location::new(name, refused.line), refused.message);
                let finding = match refused.hint {
                    Some(hint) => finding.with_hint(hint),
                    None => finding,
                };
                collector.unreadable(&inside, finding);
            }
        }
    }
    let (resources, more) = collector.finish();
    findings.extend(more);
    Loaded::new(resources, findings)
}

/// Reads objects from one text, as [`load`] does from one file; `name` stands
/// for the path.
pub fn load_text(text: &str, name: &str, namespace: &str) -> Loaded<Resources> {
    let mut collector = Collector::new(namespace);
    read(text, (Arc::from(name), name), &mut collector);
    let (resources, findings) = collector.finish();
    Loaded::new(resources, findings)
}

fn read(text: &str, (name, inside): (Arc<str>, &str), collector: &mut Collector) {
    let source = Source::file(name);
    let parsed = yaml::parse(text);
    if collector.configuration(inside, &parsed, &source) {
        return;
    }
    for problem in parsed.problems {
        collector.findings.push(Diagnostic::error(
            source.at(problem.line, problem.column),
            problem.message,
        ));
    }
    if let Some(last) = parsed
        .documents
        .last()
        .filter(|_| !text.ends_with('\n'))
        .and_then(|node| last_scalar(node))
    {
        let finding = Diagnostic::warning(source.of(last), "the file ends inside this text, without a line break");
        collector
            .findings
            .push(finding.with_hint("a file cut short looks like this; end it with a line break"));
    }
    for document in &parsed.documents {
        collector.document(document, &source);
    }
}

/// The block text a document ends with, if it ends with one.
fn last_scalar(node: &Node) -> Option<&Node> {
    match &node.content {
        Content::Scalar(scalar) => (scalar.style == Style::Block).then_some(node),
        Content::Sequence(items) => items.last().and_then(|last| last_scalar(last)),
        Content::Mapping(entries) => entries.last().and_then(|last| last_scalar(&last.value)),
    }
}

#[cfg(test)]
mod tests;
